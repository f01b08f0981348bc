// SPDX-License-Identifier: Apache-2.0
// Saved images of strangers. Whatever hides in one, the archive that the engine gets instead holds
// its configuration, its layers and a list that names no tag, and a reader that forgives more than
// we do sees nothing else in it. The first byte says whether checksums are put right beforehand
// (else a changed header is refused at once), and how long the pieces are.

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include <archive.h>
#include <archive_entry.h>
#include <nlohmann/json.hpp>

#include "base/assert.h"
#include "model/codec.h"
#include "warden/saved_image.h"

namespace {

using namespace rn::warden;

constexpr std::size_t kBlock = 512;

void put_checksums_right(rn::Blob& tar) {
  for (std::size_t at = 0; at + kBlock <= tar.size(); at += kBlock) {
    if (std::string(tar.begin() + at + 257, tar.begin() + at + 262) != "ustar") continue;
    std::fill_n(tar.begin() + at + 148, 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) sum += tar[at + i];
    char text[8];
    std::snprintf(text, sizeof text, "%06o", sum);
    std::copy_n(text, 7, tar.begin() + at + 148);
  }
}

rn::Result<std::string> repack(const SavedImage& image, const ReadAt& read, std::size_t piece) {
  RepackedImage repacked(image, read);
  std::string out;
  for (;;) {
    RN_TRY(const rn::Blob next, repacked.next(piece));
    RN_ASSERT(next.size() <= piece, "no more than was asked for");
    if (next.empty()) return out;
    out.append(next.begin(), next.end());
  }
}

/// As libarchive sees it: every kind of tar, compressed or not.
std::map<std::string, std::string> lenient_view(const std::string& tar) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> reader(
      archive_read_new(), archive_read_free
  );
  archive_read_support_filter_all(reader.get());
  archive_read_support_format_tar(reader.get());
  archive_read_support_format_gnutar(reader.get());
  RN_ASSERT(archive_read_open_memory(reader.get(), tar.data(), tar.size()) == ARCHIVE_OK, "opens");
  std::map<std::string, std::string> files;
  for (;;) {
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) return files;
    RN_ASSERT(status == ARCHIVE_OK, "nothing to forgive");
    const bool is_plain =
        archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr &&
        archive_entry_symlink(entry) == nullptr && archive_entry_sparse_count(entry) == 0;
    RN_ASSERT(is_plain, "plain files alone");
    std::string content(static_cast<std::size_t>(archive_entry_size(entry)), '\0');
    const la_ssize_t got = archive_read_data(reader.get(), content.data(), content.size());
    RN_ASSERT(got == static_cast<la_ssize_t>(content.size()), "whole files");
    const bool is_new = files.emplace(archive_entry_pathname(entry), std::move(content)).second;
    RN_ASSERT(is_new, "every name once");
  }
}

void check_names(const SavedImage& image, const rn::Blob& source, const std::string& made) {
  std::map<std::string, std::string> files = lenient_view(made);
  const auto list = files.extract("manifest.json");
  RN_ASSERT(!list.empty(), "with a list");
  const nlohmann::json expected = {
      {{"Config", "config.json"}, {"RepoTags", nullptr}, {"Layers", image.layers}}};
  RN_ASSERT(rn::parse_json(list.mapped()) == expected, "that names the parts and no tag");
  RN_ASSERT(files.size() == image.parts.size(), "and nothing else");
  for (const SavedImage::Part& part : image.parts) {
    const auto from = source.begin() + static_cast<std::ptrdiff_t>(part.offset);
    const std::string content(from, from + static_cast<std::ptrdiff_t>(part.bytes));
    RN_ASSERT(files[part.name] == content, "as it was");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  rn::Blob archive(data + 1, data + size);
  if ((data[0] & 1) != 0) put_checksums_right(archive);
  const std::size_t piece = 1 + std::size_t{data[0]} * 4;
  const ReadAt read = [&](std::uint64_t offset, std::size_t max) -> rn::Result<rn::Blob> {
    const std::size_t from = std::min<std::uint64_t>(offset, archive.size());
    const std::size_t to = from + std::min({max, piece, archive.size() - from});
    return rn::Blob(
        archive.begin() + static_cast<std::ptrdiff_t>(from),
        archive.begin() + static_cast<std::ptrdiff_t>(to)
    );
  };
  const auto image = find_saved_image(read);
  if (!image) {
    RN_ASSERT(!image.error().message.empty(), "a refusal says why");
    return 0;
  }
  const auto made = repack(*image, read, piece);
  if (made) {
    check_names(*image, archive, *made);
  } else {
    RN_ASSERT(made.error().code == rn::ErrorCode::kCorrupt, "it ended early");
  }
  return 0;
}
