// SPDX-License-Identifier: Apache-2.0
#include "warden/saved_image.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/assert.h"
#include "model/codec.h"

namespace rn::warden {

namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kEntriesMax = 4096;  ///< 127 layers of the old layout are 4 each
constexpr std::size_t kEntryNameMax = 512;
constexpr std::size_t kExtensionMax = 64u << 10;  ///< of one pax header
constexpr std::size_t kManifestMax = 1u << 20;
constexpr std::size_t kConfigMax = 1u << 20;
constexpr std::size_t kSavedLayersMax = 127;  ///< as many as the engine takes
constexpr std::uint64_t kArchiveMax = std::uint64_t{1} << 42;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kSaveAgain = "save it again: docker save IMAGE >FILE";

tl::unexpected<Error> unusual(const std::string& what) {
  return fail(ErrorCode::kInvalid, "the image archive " + what, kSaveAgain);
}

// ---- tar: POSIX.1-2001 pax, and the names and sizes of GNU tar

/// Field positions in a header block.
struct Field {
  std::size_t at;
  std::size_t bytes;
};

constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kLink{157, 100},
    kPrefix{345, 155};
constexpr std::size_t kKindAt = 156, kMagicAt = 257, kStarMagicAt = 508;

struct Entry {
  char kind = '0';
  std::string path;
  std::string link;
  std::uint64_t offset = 0;  ///< of its content
  std::uint64_t bytes = 0;
};

std::string text_in(BlobView block, Field field) {
  const char* const from = reinterpret_cast<const char*>(block.data()) + field.at;
  return std::string(from, strnlen(from, field.bytes));
}

/// Octal digits between spaces and zeros, or GNU's big-endian number behind a set high bit.
std::optional<std::uint64_t> number_in(BlobView block, Field field) {
  const BlobView raw = block.subspan(field.at, field.bytes);
  std::uint64_t value = 0;
  if ((raw[0] & 0x80) != 0) {
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (value >> 54 != 0 || (i == 0 && raw[0] != 0x80)) return std::nullopt;
      value = value << 8 | (i == 0 ? 0 : raw[i]);
    }
    return value;
  }
  std::size_t i = 0;
  while (i < raw.size() && raw[i] == ' ') ++i;
  for (; i < raw.size() && raw[i] >= '0' && raw[i] <= '7'; ++i) {
    value = value << 3 | static_cast<std::uint64_t>(raw[i] - '0');
  }
  for (; i < raw.size(); ++i) {
    if (raw[i] != ' ' && raw[i] != 0) return std::nullopt;
  }
  return value;
}

bool is_checksum_right(BlobView block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const bool is_own = i >= kChecksum.at && i < kChecksum.at + kChecksum.bytes;
    sum += is_own ? ' ' : block[i];
  }
  return number_in(block, kChecksum) == sum;
}

/// What a pax header or a GNU long name says about the entry behind it.
struct Extension {
  std::optional<std::string> path, link;
  std::optional<std::uint64_t> bytes;
};

std::optional<std::uint64_t> decimal(std::string_view text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || value > kArchiveMax) return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return text.empty() ? std::nullopt : std::optional(value);
}

/// Records "LENGTH KEY=VALUE\n", the length in decimal and its own digits included.
Status read_pax(std::string_view text, Extension& into) {
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const auto length = decimal(text.substr(0, space));
    if (!length || *length > text.size() || *length < space + 3 || text[*length - 1] != '\n')
      return unusual("has a damaged pax header");
    const std::string_view record = text.substr(space + 1, *length - space - 2);
    text.remove_prefix(*length);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return unusual("has a damaged pax header");
    const std::string_view key = record.substr(0, equals);
    const std::string value(record.substr(equals + 1));
    if (key.starts_with("GNU.sparse.")) return unusual("holds a sparse file");
    if (key == "path") into.path = value;
    if (key == "linkpath") into.link = value;
    if (key != "size") continue;
    into.bytes = decimal(value);
    if (!into.bytes) return unusual("has a pax header with a size that is none");
  }
  return {};
}

class TarReader {
 public:
  explicit TarReader(const ReadAt& read) : read_(read) {}

  /// The next entry that is no extension of another; none at the end.
  Result<std::optional<Entry>> next() {
    Extension extension;
    for (;;) {
      RN_TRY(auto entry, header());
      if (!entry) return entry;
      if (++entries_ > kEntriesMax) {
        return fail(
            ErrorCode::kExhausted,
            "the image archive has more than " + std::to_string(kEntriesMax) + " entries",
            "save one image alone: docker save IMAGE >FILE"
        );
      }
      const std::uint64_t padded = (entry->bytes + kBlock - 1) / kBlock * kBlock;
      at_ = entry->offset + padded;
      if (at_ > kArchiveMax) return unusual("names a size that no archive has");
      if (std::string_view("xgLK").find(entry->kind) == std::string_view::npos) {
        RN_CHECK(apply(extension, *entry));
        return entry;
      }
      RN_CHECK(read_extension(*entry, extension));
    }
  }

 private:
  Result<std::optional<Entry>> header() {
    RN_TRY(const Blob block, read_all_of(at_, kBlock));
    const bool is_end =
        std::all_of(block.begin(), block.end(), [](std::uint8_t b) { return b == 0; });
    if (is_end) return std::nullopt;  // of the file, or a block of zeros
    if (block.size() != kBlock || !is_checksum_right(block))
      return unusual(at_ == 0 ? "is no uncompressed tar" : "is damaged");
    const std::string magic(block.begin() + kMagicAt, block.begin() + kMagicAt + 8);
    const bool is_posix = magic == std::string("ustar\00000", 8);
    const bool is_gnu = magic == std::string("ustar  \0", 8);
    const bool is_star = std::memcmp(block.data() + kStarMagicAt, "tar\0", 4) == 0;
    if ((!is_posix && !is_gnu) || is_star) return unusual("is a tar of an unusual form");
    Entry entry;
    entry.kind = block[kKindAt] == 0 ? '0' : static_cast<char>(block[kKindAt]);
    entry.path = text_in(block, kName);
    const std::string prefix = is_posix ? text_in(block, kPrefix) : "";
    if (!prefix.empty()) entry.path = prefix + "/" + entry.path;
    entry.link = text_in(block, kLink);
    entry.offset = at_ + kBlock;
    const auto bytes = number_in(block, kSize);
    if (!bytes || *bytes > kArchiveMax) return unusual("names a size that no archive has");
    entry.bytes = *bytes;
    return entry;
  }

  Status read_extension(const Entry& entry, Extension& into) {
    if (entry.bytes > kExtensionMax) return unusual("has a header that is too long");
    RN_TRY(const Blob content, read_all_of(entry.offset, entry.bytes));
    if (content.size() != entry.bytes) return unusual("ends early");
    std::string text(as_text(content));
    if (entry.kind == 'x') return read_pax(text, into);
    if (entry.kind == 'g') {
      // One for all entries behind it: comments do no harm, names and sizes would.
      Extension global;
      RN_CHECK(read_pax(text, global));
      if (global.path || global.link || global.bytes) return unusual("is a tar of an unusual form");
      return {};
    }
    text.resize(strnlen(text.c_str(), text.size()));
    (entry.kind == 'L' ? into.path : into.link) = text;
    return {};
  }

  Status apply(const Extension& extension, Entry& entry) {
    if (extension.path) entry.path = *extension.path;
    if (extension.link) entry.link = *extension.link;
    if (extension.bytes) entry.bytes = *extension.bytes;
    if (std::max(entry.path.size(), entry.link.size()) > kEntryNameMax) {
      return fail(
          ErrorCode::kExhausted,
          "the image archive has a name of more than " + std::to_string(kEntryNameMax) + " bytes",
          kSaveAgain
      );
    }
    const bool has_content = entry.kind == '0' || entry.kind == '7';
    if (!has_content && std::string_view("125").find(entry.kind) == std::string_view::npos)
      return unusual("holds " + entry.path + ", which is no file, folder or link");
    if (!has_content && entry.bytes != 0)
      return unusual("holds " + entry.path + ", a folder or link with content");
    at_ = entry.offset + (entry.bytes + kBlock - 1) / kBlock * kBlock;
    if (at_ > kArchiveMax) return unusual("names a size that no archive has");
    return {};
  }

  /// Less than `bytes` only at the end of the file.
  Result<Blob> read_all_of(std::uint64_t offset, std::size_t bytes) {
    Blob out;
    while (out.size() < bytes) {
      RN_TRY(const Blob piece, read_(offset + out.size(), bytes - out.size()));
      if (piece.empty()) break;
      out.insert(out.end(), piece.begin(), piece.end());
    }
    return out;
  }

  const ReadAt& read_;
  std::uint64_t at_ = 0;
  std::size_t entries_ = 0;
};

// ---- the image in it

/// Without "." and double slashes; ".." goes up. Empty when it leads out.
std::string normal(std::string_view path) {
  std::vector<std::string_view> steps;
  for (std::size_t from = 0; from <= path.size();) {
    const std::size_t end = std::min(path.find('/', from), path.size());
    const std::string_view step = path.substr(from, end - from);
    from = end + 1;
    if (step.empty() || step == ".") continue;
    if (step != "..") {
      steps.push_back(step);
    } else if (steps.empty()) {
      return {};
    } else {
      steps.pop_back();
    }
  }
  std::string out;
  for (const std::string_view step : steps) out.append(out.empty() ? "" : "/").append(step);
  return out;
}

struct Entries {
  std::map<std::string, Entry> by_path;
  std::set<std::string> twice;

  /// A plain file that is there once.
  Result<Entry> file(const std::string& path) const {
    const auto found = by_path.find(path);
    if (found == by_path.end()) return unusual("does not hold " + path);
    if (twice.contains(path)) return unusual("holds " + path + " twice");
    if (found->second.kind != '0' && found->second.kind != '7')
      return unusual("holds " + path + ", which is no plain file");
    return found->second;
  }

  /// The same, or a link to one: the engine's own archives have links between equal layers.
  Result<Entry> layer(const std::string& path) const {
    const auto found = by_path.find(path);
    const bool is_link = found != by_path.end() && !twice.contains(path) &&
                         (found->second.kind == '1' || found->second.kind == '2');
    if (!is_link) return file(path);
    const Entry& link = found->second;
    if (link.kind == '1') return file(normal(link.link));
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
    return file(normal(link.link.starts_with('/') ? link.link : folder + link.link));
  }
};

Result<Entries> read_entries(const ReadAt& read) {
  Entries out;
  TarReader tar(read);
  for (;;) {
    RN_TRY(std::optional<Entry> entry, tar.next());
    if (!entry) return out;
    const std::string path = normal(entry->path);
    if (!out.by_path.emplace(path, *std::move(entry)).second) out.twice.insert(path);
  }
}

struct Named {
  std::string config;
  std::vector<std::string> layers;
};

Result<Named> read_manifest(const ReadAt& read, const Entry& entry) {
  if (entry.bytes > kManifestMax) return unusual("has a manifest.json that is too long");
  Blob bytes;
  while (bytes.size() < entry.bytes) {
    RN_TRY(const Blob piece, read(entry.offset + bytes.size(), entry.bytes - bytes.size()));
    if (piece.empty()) return fail(ErrorCode::kCorrupt, "the image archive ends early", kSaveAgain);
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  }
  const auto images = parse_json(as_text(bytes));
  if (!images || !images->is_array() || images->size() != 1 || !(*images)[0].is_object())
    return unusual("has a manifest.json that does not name one image");
  const nlohmann::json& image = (*images)[0];
  const auto text = [](const nlohmann::json& value) {
    return value.is_string() ? normal(value.get<std::string>()) : std::string();
  };
  const auto none = nlohmann::json();
  const nlohmann::json& layers = image.contains("Layers") ? image["Layers"] : none;
  Named named;
  named.config = text(image.contains("Config") ? image["Config"] : none);
  for (const nlohmann::json& layer : layers.is_array() ? layers : nlohmann::json::array())
    named.layers.push_back(text(layer));
  if (named.layers.empty() || named.layers.size() > kSavedLayersMax)
    return unusual("does not name 1 to 127 layers");
  return named;
}

}  // namespace

Result<SavedImage> find_saved_image(const ReadAt& read) {
  RN_TRY(const Entries entries, read_entries(read));
  RN_TRY(const Entry manifest, entries.file(kManifest));
  RN_TRY(const Named named, read_manifest(read, manifest));
  RN_TRY(const Entry config, entries.file(named.config));
  if (config.bytes > kConfigMax) return unusual("has a configuration that is too long");
  SavedImage image;
  std::map<std::uint64_t, SavedImage::Part> parts;  // by offset
  parts[config.offset] = {config.offset, config.bytes, "config.json"};
  for (const std::string& path : named.layers) {
    RN_TRY(const Entry layer, entries.layer(path));
    const auto [part, is_new] = parts.try_emplace(layer.offset);
    if (is_new) {
      const std::string name = "layer-" + std::to_string(parts.size() - 1) + ".tar";
      part->second = {layer.offset, layer.bytes, name};
    }
    image.layers.push_back(part->second.name);
  }
  for (auto& [offset, part] : parts) image.parts.push_back(std::move(part));
  return image;
}

Blob tar_header(const std::string& name, std::uint64_t bytes) {
  RN_ASSERT(name.size() < kName.bytes, "a name of ours is short");
  Blob block(kBlock);
  const auto put = [&](std::size_t at, std::string_view text) {
    std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto octal = [](std::uint64_t value, std::size_t digits) {
    std::string out(digits, '0');
    for (auto digit = out.rbegin(); digit != out.rend(); ++digit, value >>= 3)
      *digit = static_cast<char>('0' + (value & 7));
    return out;
  };
  put(kName.at, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  if (bytes >> 33 == 0) {
    put(kSize.at, octal(bytes, 11));
  } else {  // what does not fit into eleven digits, as GNU, Go and libarchive read it
    block[kSize.at] = 0x80;
    for (std::size_t i = 0; i < 8; ++i)
      block[kSize.at + 11 - i] = static_cast<std::uint8_t>(bytes >> (8 * i));
  }
  put(136, "00000000000");
  put(kChecksum.at, "        ");
  block[kKindAt] = '0';
  put(kMagicAt, std::string_view("ustar\00000", 8));
  std::uint64_t sum = 0;
  for (const std::uint8_t byte : block) sum += byte;
  put(kChecksum.at, octal(sum, 6) + '\0' + ' ');
  return block;
}

Blob RepackedImage::trailer() const {
  const nlohmann::json manifest = nlohmann::json::array(
      {{{"Config", "config.json"}, {"RepoTags", nullptr}, {"Layers", image_.layers}}}
  );
  const std::string text = manifest.dump();
  Blob out = tar_header(kManifest, text.size());
  out.insert(out.end(), text.begin(), text.end());
  out.resize((out.size() + kBlock - 1) / kBlock * kBlock + 2 * kBlock);
  return out;
}

Result<Blob> RepackedImage::read_source(std::size_t max) {
  RN_TRY(Blob piece, read_(offset_, max));
  hash_.update(piece);
  offset_ += piece.size();
  return piece;
}

/// Reads once, or makes a piece of the archive's own.
Status RepackedImage::advance(std::size_t max) {
  if (part_ == image_.parts.size()) {
    if (!is_trailer_made_) {
      is_trailer_made_ = true;
      made_ = trailer();
      return {};
    }
    RN_TRY(const Blob behind, read_source(max));  // for the digest alone
    is_read_ = behind.empty();
    return {};
  }
  const SavedImage::Part& part = image_.parts[part_];
  if (!is_in_part_ && offset_ == part.offset) {
    is_in_part_ = true;
    made_ = tar_header(part.name, part.bytes);
    return {};
  }
  const std::uint64_t until = is_in_part_ ? part.offset + part.bytes : part.offset;
  if (offset_ == until) {
    is_in_part_ = false;
    ++part_;
    made_ = Blob((kBlock - part.bytes % kBlock) % kBlock);
    return {};
  }
  RN_TRY(Blob piece, read_source(std::min<std::uint64_t>(max, until - offset_)));
  if (piece.empty()) return fail(ErrorCode::kCorrupt, "the image archive ends early", kSaveAgain);
  if (is_in_part_) made_ = std::move(piece);
  return {};
}

Result<Blob> RepackedImage::next(std::size_t max) {
  while (made_.empty() && !is_read_) RN_CHECK(advance(max));
  if (made_.size() <= max) return std::exchange(made_, {});
  const auto cut = made_.begin() + static_cast<std::ptrdiff_t>(max);
  Blob piece(made_.begin(), cut);
  made_.erase(made_.begin(), cut);
  return piece;
}

}  // namespace rn::warden
