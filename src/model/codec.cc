// SPDX-License-Identifier: Apache-2.0
#include "model/codec.h"

#include <algorithm>

#include "model/checkpoint.h"
#include "model/codec_detail.h"
#include "model/job.h"
#include "model/node.h"
#include "model/reclaim.h"

namespace rn {

namespace detail {

namespace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// Builds the document like nlohmann's own handler, and stops at kMaxNesting before the recursive
/// parser goes deeper.
class BoundedSax : public nlohmann::detail::json_sax_dom_parser<json> {
  using Base = nlohmann::detail::json_sax_dom_parser<json>;

 public:
  explicit BoundedSax(json& out) : Base(out, false) {}

  bool start_object(std::size_t count) {
    return count_down(count) && Base::start_object(std::size_t(-1));
  }

  bool end_object() { return --depth_, Base::end_object(); }

  bool start_array(std::size_t count) {
    return count_down(count) && Base::start_array(std::size_t(-1));
  }

  bool end_array() { return --depth_, Base::end_array(); }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string& token, const Exception& error) {
    message_ = error.what();
    return Base::parse_error(position, token, error);
  }

  bool is_too_deep() const { return is_too_deep_; }

  const std::string& message() const { return message_; }

 private:
  // NOTE: a container's announced length is the sender's word; it is never used to reserve memory.
  bool count_down(std::size_t) {
    is_too_deep_ = ++depth_ > kMaxNesting;
    return !is_too_deep_;
  }

  std::size_t depth_ = 0;
  bool is_too_deep_ = false;
  std::string message_;
};

template <class Input>
Result<json> parse_bounded(const Input& input, json::input_format_t format) {
  json document;
  BoundedSax sax(document);
  // NOTE: invalid sizes inside binary values still throw out_of_range in this library version.
  try {
    if (json::sax_parse(input.begin(), input.end(), &sax, format)) return document;
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalid, error.what());
  }
  if (sax.is_too_deep())
    return fail(
        ErrorCode::kExhausted, "nested deeper than " + std::to_string(kMaxNesting) + " levels"
    );
  return fail(ErrorCode::kInvalid, sax.message().empty() ? "malformed document" : sax.message());
}

}  // namespace

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

Error at_field(const std::string& path, const std::string& what) {
  return Error{
      ErrorCode::kInvalid, (path.empty() ? std::string("document") : path) + ": " + what, ""};
}

json write_bytes(BlobView bytes, Format format, bool as_hex) {
  if (format == Format::kBinary) return json::binary(Blob(bytes.begin(), bytes.end()));
  return as_hex ? to_hex(bytes) : to_base64(bytes);
}

Result<Blob> blob_from(const json& document, const std::string& path) {
  if (document.is_binary()) return Blob(document.get_binary());
  if (!document.is_string()) return fail(at_field(path, "expected base64"));
  auto raw = from_base64(document.get_ref<const std::string&>());
  if (!raw) return fail(at_field(path, raw.error().message));
  return raw;
}

}  // namespace detail

Result<nlohmann::json> parse_json(std::string_view text) {
  return detail::parse_bounded(text, nlohmann::json::input_format_t::json);
}

Result<nlohmann::json> parse_cbor(BlobView bytes) {
  return detail::parse_bounded(bytes, nlohmann::json::input_format_t::cbor);
}

RN_INSTANTIATE_CODEC(Gpu)
RN_INSTANTIATE_CODEC(NodeFacts)
RN_INSTANTIATE_CODEC(NodeTelemetry)
RN_INSTANTIATE_CODEC(Contract)
RN_INSTANTIATE_CODEC(ReclaimRecord)
RN_INSTANTIATE_CODEC(ChunkRef)
RN_INSTANTIATE_CODEC(Manifest)
RN_INSTANTIATE_CODEC(SignedManifest)
RN_INSTANTIATE_CODEC(GenerationRef)
RN_INSTANTIATE_CODEC(Receipt)
RN_INSTANTIATE_CODEC(Ticket)
RN_INSTANTIATE_CODEC(PeerGrant)
RN_INSTANTIATE_CODEC(CheckpointSpec)
RN_INSTANTIATE_CODEC(JobSpec)
RN_INSTANTIATE_CODEC(Job)
RN_INSTANTIATE_CODEC(Attempt)
RN_INSTANTIATE_CODEC(Listing)
RN_INSTANTIATE_CODEC(Image)

}  // namespace rn
