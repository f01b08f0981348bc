// SPDX-License-Identifier: Apache-2.0
#include "coordinator/image_archive.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <archive.h>
#include <archive_entry.h>
#include <nlohmann/json.hpp>

#include "model/archive_begin.h"
#include "model/codec.h"

namespace rn::coordinator {

namespace {

using nlohmann::json;

constexpr std::size_t kDocumentMax = 1u << 20;
constexpr std::size_t kDocumentsMax = 4096;
constexpr std::size_t kDocumentBytesMax = 64u << 20;
constexpr std::size_t kLayersMax = 127;  // as many as the engine takes
constexpr std::string_view kOwnNames = "reclaimnet/";
constexpr const char* kSaveAgain = "save it again: docker save IMAGE >FILE";

/// Enough of the archive to know what it is, as `next` gives it.
Result<Blob> begin_of(const std::function<Result<Blob>()>& next) {
  Blob begin;
  while (begin.size() < kArchiveBegin) {
    RN_TRY(const Blob piece, next());
    if (piece.empty()) break;
    begin.insert(begin.end(), piece.begin(), piece.end());
  }
  if (may_be_archive(BlobView(begin).first(std::min(begin.size(), kArchiveBegin)))) return begin;
  return fail(ErrorCode::kInvalid, "the uploaded file is no archive of an image", kWhatIsAnArchive);
}

/// libarchive's view of the pieces.
struct Source {
  Blob begin;
  const std::function<Result<Blob>()>& next;
  Blob current;
  std::optional<Error> error;

  static la_ssize_t read(archive*, void* self, const void** buffer) {
    auto& source = *static_cast<Source*>(self);
    auto piece = source.begin.empty() ? source.next() : std::exchange(source.begin, {});
    if (!piece) {
      source.error = piece.error();
      return ARCHIVE_FATAL;
    }
    source.current = *std::move(piece);
    *buffer = source.current.data();
    return static_cast<la_ssize_t>(source.current.size());
  }
};

std::string plain_path(const char* path) {
  std::string_view out = path == nullptr ? "" : path;
  while (out.starts_with("./")) out.remove_prefix(2);
  return std::string(out);
}

/// Where manifest.json and an image's configuration lie in both layouts.
bool may_be_document(const std::string& path) {
  const bool is_on_top = path.find('/') == std::string::npos;
  return (is_on_top && path.ends_with(".json")) || path.starts_with("blobs/sha256/");
}

Result<std::optional<std::string>> read_document(archive* tar, std::int64_t bytes) {
  if (bytes < 2 || bytes > static_cast<std::int64_t>(kDocumentMax)) return std::nullopt;
  std::string text(static_cast<std::size_t>(bytes), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const la_ssize_t got = archive_read_data(tar, text.data() + have, text.size() - have);
    if (got < 0) return fail(ErrorCode::kCorrupt, "the archive ends early", kSaveAgain);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
    if (text[0] != '{' && text[0] != '[') return std::nullopt;
  }
  text.resize(have);
  return text;
}

using Documents = std::map<std::string, std::string>;

Result<Documents> read_documents(archive* tar, const Source& source, std::uint64_t entries_max) {
  Documents out;
  std::size_t bytes = 0;
  std::uint64_t entries = 0;
  for (bool is_first = true;; is_first = false) {
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(tar, &entry);
    if (status == ARCHIVE_EOF) return out;
    if (source.error) return fail(*source.error);
    if (status < ARCHIVE_WARN) {
      if (is_first) return out;  // compressed, say: the engine will know
      return fail(ErrorCode::kCorrupt, "the archive is damaged", kSaveAgain);
    }
    if (++entries > entries_max) {
      return fail(
          ErrorCode::kExhausted,
          "the archive has more than " + std::to_string(entries_max) + " entries",
          "leave files out of the image, or give it as one with layers: docker save IMAGE >FILE"
      );
    }
    const std::string path = plain_path(archive_entry_pathname(entry));
    if (!may_be_document(path)) continue;
    const bool is_file =
        archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr;
    if (!is_file) {
      if (path != "manifest.json") continue;
      return fail(ErrorCode::kInvalid, "manifest.json is no plain file", kSaveAgain);
    }
    RN_TRY(auto text, read_document(tar, archive_entry_size(entry)));
    if (!text) continue;
    bytes += text->size();
    if (out.size() >= kDocumentsMax || bytes > kDocumentBytesMax)
      return fail(ErrorCode::kExhausted, "the archive holds too many documents", kSaveAgain);
    if (!out.emplace(path, *std::move(text)).second)
      return fail(ErrorCode::kInvalid, "the archive holds " + path + " twice", kSaveAgain);
  }
}

/// By name without regard to case, as the engine reads; `is_twice` if several names match.
const json* find_any_case(const json& object, std::string_view wanted, bool& is_twice) {
  const json* found = nullptr;
  if (!object.is_object()) return found;
  for (const auto& [key, value] : object.items()) {
    const bool is_same = std::equal(
        key.begin(),
        key.end(),
        wanted.begin(),
        wanted.end(),
        [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); }
    );
    if (!is_same) continue;
    is_twice = is_twice || found != nullptr;
    found = &value;
  }
  return found;
}

/// One field of an object; nullptr if there is none; kInvalid if there are several.
Result<const json*> field(const json& object, std::string_view name) {
  bool is_twice = false;
  const json* const found = find_any_case(object, name, is_twice);
  if (is_twice)
    return fail(ErrorCode::kInvalid, "a document says " + std::string(name) + " twice", kSaveAgain);
  return found;
}

Status check_tags(const json& image) {
  RN_TRY(const json* const tags, field(image, "RepoTags"));
  if (tags == nullptr || !tags->is_array()) return {};
  for (const json& tag : *tags) {
    if (!tag.is_string() || tag.get_ref<const std::string&>().find(kOwnNames) == std::string::npos)
      continue;
    return fail(
        ErrorCode::kInvalid,
        "the image is tagged " + tag.get<std::string>() + ", a name of the platform's own",
        "tag it otherwise, then " + std::string(kSaveAgain)
    );
  }
  return {};
}

Status check_volumes(const json& config) {
  RN_TRY(const json* const run, field(config, "config"));
  if (run == nullptr) return {};
  RN_TRY(const json* const volumes, field(*run, "Volumes"));
  if (volumes == nullptr || !volumes->is_object() || volumes->empty()) return {};
  return fail(
      ErrorCode::kInvalid,
      "the image declares the volume " + volumes->begin().key() +
          ", which would lie outside a guest's disk",
      "build it without VOLUME"
  );
}

Result<std::vector<Digest>> diff_ids(const json& config) {
  RN_TRY(const json* const root, field(config, "rootfs"));
  if (root == nullptr) return fail(ErrorCode::kInvalid, "the image names no layers", kSaveAgain);
  RN_TRY(const json* const ids, field(*root, "diff_ids"));
  if (ids == nullptr || !ids->is_array() || ids->empty() || ids->size() > kLayersMax)
    return fail(ErrorCode::kInvalid, "an image has 1 to 127 layers", kSaveAgain);
  constexpr std::string_view kPrefix = "sha256:";
  std::vector<Digest> out;
  for (const json& id : *ids) {
    const std::string text = id.is_string() ? id.get<std::string>() : "";
    const auto digest = text.starts_with(kPrefix)
                            ? digest_from_hex(std::string_view(text).substr(kPrefix.size()))
                            : Result<Digest>(fail(ErrorCode::kInvalid, "no digest"));
    if (!digest) return fail(ErrorCode::kInvalid, "a layer has no SHA-256", kSaveAgain);
    out.push_back(*digest);
  }
  return out;
}

}  // namespace

Result<std::vector<Digest>> layers_of_archive(
    const std::function<Result<Blob>()>& next, std::uint64_t entries_max
) {
  RN_TRY(Blob begin, begin_of(next));
  const std::unique_ptr<archive, decltype(&archive_read_free)> tar(
      archive_read_new(), archive_read_free
  );
  Source source{std::move(begin), next, {}, {}};
  if (tar == nullptr || archive_read_support_format_tar(tar.get()) != ARCHIVE_OK)
    return fail(ErrorCode::kInternal, "no memory to read the archive");
  const int opened = archive_read_open(tar.get(), &source, nullptr, Source::read, nullptr);
  if (source.error) return fail(*source.error);
  if (opened != ARCHIVE_OK) return std::vector<Digest>();
  RN_TRY(const Documents documents, read_documents(tar.get(), source, entries_max));

  const auto listed = documents.find("manifest.json");
  if (listed == documents.end()) return std::vector<Digest>();
  RN_TRY(const json images, parse_json(listed->second));
  if (!images.is_array() || images.size() != 1) {
    return fail(
        ErrorCode::kInvalid,
        "the archive holds " + std::to_string(images.is_array() ? images.size() : 0) + " images",
        "save one image alone: docker save IMAGE >FILE"
    );
  }
  RN_CHECK(check_tags(images[0]));
  RN_TRY(const json* const name, field(images[0], "Config"));
  const auto config = name != nullptr && name->is_string()
                          ? documents.find(plain_path(name->get_ref<const std::string&>().c_str()))
                          : documents.end();
  if (config == documents.end())
    return fail(ErrorCode::kInvalid, "the image's configuration is not there", kSaveAgain);
  RN_TRY(const json document, parse_json(config->second));
  RN_CHECK(check_volumes(document));
  return diff_ids(document);
}

}  // namespace rn::coordinator
