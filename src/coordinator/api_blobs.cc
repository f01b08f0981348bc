// SPDX-License-Identifier: Apache-2.0
#include "base/crypto.h"
#include "coordinator/api_answers.h"
#include "coordinator/image_archive.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kMaxQuery = 10'000;

bool read_name(const ApiRequest& request, const io::Responder& responder, Digest& out) {
  const auto name = digest_from_hex(request.path.at("sha256"));
  if (!name) {
    responder.send_error(name.error().hinting("the path ends with the SHA-256 in 64 hex digits"));
    return false;
  }
  out = *name;
  return true;
}

io::HttpResponse empty_response(int status) {
  io::HttpResponse response;
  response.status = status;
  return response;
}

/// Reads the archive's pieces in order and compares their SHA-256 with the digest.
Status check_archive(const BlobStore& blobs, const Image& image) {
  crypto::Sha256 hash;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < image.blobs.size(); ++i) {
    const auto piece = blobs.read(image.blobs[i]);  // the digest of the whole covers each piece
    if (!piece) {
      return fail(piece.error()
                      .with("piece " + std::to_string(i))
                      .hinting("upload all pieces of the archive first: PUT /v1/blobs/{sha256}"));
    }
    bytes += piece->size();
    hash.update(*piece);
  }
  if (bytes != image.bytes) {
    return fail(
        ErrorCode::kCorrupt,
        "the archive's pieces have " + std::to_string(bytes) + " bytes, not " +
            std::to_string(image.bytes),
        "upload the archive again"
    );
  }
  const std::string actual = "sha256:" + to_hex(hash.finish());
  if (actual == image.digest) return {};
  return fail(
      ErrorCode::kCorrupt,
      "the archive's digest is " + actual + ", not " + image.digest,
      "nothing was listed; build or fetch the image again, then add it again"
  );
}

Result<Image> look_into_archive(const BlobStore& blobs, Image image) {
  RN_CHECK(check_archive(blobs, image));
  auto piece = image.blobs.begin();
  RN_TRY(image.layers, layers_of_archive([&]() -> Result<Blob> {
           return piece == image.blobs.end() ? Blob() : blobs.read(*piece++);
         }));
  return image;
}

}  // namespace

void put_blob(ApiContext& context, ApiRequest request, io::Responder responder) {
  Digest name{};
  if (!read_name(request, responder, name)) return;
  const Status submitted = context.workers.submit_for(
      [&blobs = context.blobs, name, body = std::move(request.http.body)] {
        return blobs.put(name, as_bytes(body));
      },
      [&context, responder](const Status& status) {
        if (status) return responder.send(empty_response(204));
        // A failed fsync condemns that copy only: it was not renamed into place.
        context.metrics.count_blob_refused();
        responder.send(io::error_response(status.error(), io::HttpErrorContext{.is_storage = true})
        );
      }
  );
  if (!submitted) {
    responder.send_error(Error{
        ErrorCode::kUnavailable, "too many uploads at once", "repeat the upload in a second"});
  }
}

void get_blob(ApiContext& context, ApiRequest request, io::Responder responder) {
  Digest name{};
  if (!read_name(request, responder, name)) return;
  // What people fetch goes as fast as TCP lets it: their machines are in no topology.
  if (request.node) context.shell.blob_asked(*request.node, name, responder.sending_side());
  on_worker(
      context,
      responder,
      // Who asks by the digest compares it: hashing here, too, would halve what one core can serve.
      [&blobs = context.blobs, name] { return blobs.read(name); },
      [responder](const Blob& bytes) {
        io::HttpResponse response;
        response.headers = {{"Content-Type", "application/octet-stream"}};
        response.body = std::string(as_text(bytes));
        responder.send(std::move(response));
      }
  );
}

void head_blob(ApiContext& context, ApiRequest request, io::Responder responder) {
  Digest name{};
  if (!read_name(request, responder, name)) return;
  on_worker(
      context,
      responder,
      [&blobs = context.blobs, name]() -> Result<bool> { return blobs.has(name); },
      [responder](bool is_there) { responder.send(empty_response(is_there ? 200 : 404)); }
  );
}

void find_missing_blobs(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::BlobQuery query;
  if (!read_body(request, responder, query)) return;
  if (query.digests.size() > kMaxQuery) {
    return responder.send_error(Error{
        ErrorCode::kExhausted, "more than 10,000 digests in one question", "ask several times"});
  }
  on_worker(
      context,
      responder,
      [&blobs = context.blobs, query = std::move(query)]() -> Result<api::BlobMissing> {
        api::BlobMissing answer;
        for (const Digest& name : query.digests) {
          if (!blobs.has(name)) answer.missing.push_back(name);
        }
        return answer;
      },
      [&context, responder](const api::BlobMissing& missing) {
        answer(context, responder, missing);
      }
  );
}

void list_images(ApiContext& context, ApiRequest, io::Responder responder) {
  answer(context, responder, api::ImageList{context.shell.core().images()});
}

void add_image(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::ImageRequest body;
  if (!read_body(request, responder, body)) return;
  Image image;
  image.name = std::move(body.name);
  image.digest = std::move(body.digest);
  image.bytes = body.bytes;
  image.base = std::move(body.base);
  image.blobs = std::move(body.blobs);
  image.added_wall_ms = to_ms(context.shell.now().wall);
  image.added_by = request.caller.user;
  on_worker(
      context,
      responder,
      [&blobs = context.blobs, image] { return look_into_archive(blobs, image); },
      [&context, caller = request.caller, responder](const Image& known) {
        context.shell.command(caller, AddImage{known}, [&context, responder](Result<Answer> r) {
          if (!r) return responder.send_error(r.error());
          answer(context, responder, std::get<ImageListed>(*r).image, 201);
        });
      }
  );
}

void remove_image(ApiContext& context, ApiRequest request, io::Responder responder) {
  context.shell.command(
      request.caller,
      RemoveImage{request.path.at("name")},
      [responder](Result<Answer> result) {
        if (!result) return responder.send_error(result.error());
        responder.send(empty_response(204));
      }
  );
}

}  // namespace rn::coordinator
