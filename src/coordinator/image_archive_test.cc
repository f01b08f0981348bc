// SPDX-License-Identifier: Apache-2.0
#include "coordinator/image_archive.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

namespace rn::coordinator {
namespace {

const std::string kA(64, 'a');
const std::string kB(64, 'b');

Result<std::vector<Digest>> layers_of(
    BlobView bytes, std::size_t piece, std::uint64_t entries_max = kArchiveEntriesMax
) {
  return layers_of_archive(
      [&]() -> Result<Blob> {
        const BlobView part = bytes.first(std::min(piece, bytes.size()));
        bytes = bytes.subspan(part.size());
        return Blob(part.begin(), part.end());
      },
      entries_max
  );
}

Result<std::vector<Digest>> layers_of(const std::string& text, std::size_t piece) {
  return layers_of(as_bytes(text), piece);
}

class Tar {
 public:
  Tar() {
    archive_write_set_format_ustar(tar_);
    archive_write_set_bytes_per_block(tar_, 512);
    archive_write_open(tar_, this, nullptr, write, nullptr);
  }

  ~Tar() { archive_write_free(tar_); }

  Tar(const Tar&) = delete;
  Tar& operator=(const Tar&) = delete;

  Tar& file(const std::string& path, const std::string& text) {
    return entry(path, AE_IFREG, text, "");
  }

  Tar& link(const std::string& path, const std::string& target) {
    return entry(path, AE_IFLNK, "", target);
  }

  Result<std::vector<Digest>> layers(
      std::size_t piece = 1000, std::uint64_t entries_max = kArchiveEntriesMax
  ) {
    archive_write_close(tar_);
    return layers_of(bytes_, piece, entries_max);
  }

  void cut(std::size_t bytes) {
    archive_write_close(tar_);
    bytes_.resize(bytes);
  }

 private:
  static la_ssize_t write(archive*, void* self, const void* bytes, std::size_t size) {
    const auto* const from = static_cast<const std::uint8_t*>(bytes);
    auto& out = static_cast<Tar*>(self)->bytes_;
    out.insert(out.end(), from, from + size);
    return static_cast<la_ssize_t>(size);
  }

  Tar& entry(
      const std::string& path, unsigned kind, const std::string& text, const std::string& target
  ) {
    archive_entry* const one = archive_entry_new();
    archive_entry_set_pathname(one, path.c_str());
    archive_entry_set_filetype(one, kind);
    archive_entry_set_perm(one, 0644);
    archive_entry_set_size(one, static_cast<std::int64_t>(text.size()));
    if (!target.empty()) archive_entry_set_symlink(one, target.c_str());
    archive_write_header(tar_, one);
    archive_write_data(tar_, text.data(), text.size());
    archive_entry_free(one);
    return *this;
  }

  archive* tar_ = archive_write_new();
  Blob bytes_;
};

std::string config_with(const std::string& layers, const std::string& run = "{}") {
  return R"({"config":)" + run + R"(,"rootfs":{"type":"layers","diff_ids":[)" + layers + "]}}";
}

std::string two_layers() {
  return "\"sha256:" + kA + "\",\"sha256:" + kB + "\"";
}

std::string manifest_of(const std::string& config, const std::string& tags = R"(["mine:1"])") {
  return R"([{"Config":")" + config + R"(","RepoTags":)" + tags + R"(,"Layers":["l/layer.tar"]}])";
}

TEST(ImageArchive, a_saved_image_names_its_layers_in_dockers_layout) {
  Tar tar;
  tar.file("c.json", config_with(two_layers()))
      .file("l/layer.tar", std::string(100'000, 'x'))
      .file("manifest.json", manifest_of("c.json"));

  const auto layers = tar.layers();

  ASSERT_TRUE(layers) << layers.error().describe();
  ASSERT_EQ(layers->size(), 2U);
  EXPECT_EQ(to_hex((*layers)[0]), kA);
  EXPECT_EQ(to_hex((*layers)[1]), kB);
}

TEST(ImageArchive, and_in_the_open_container_initiatives_layout) {
  Tar tar;
  tar.file("./manifest.json", manifest_of("blobs/sha256/" + kB))
      .file("./blobs/sha256/" + kA, std::string(5000, '\x1f'))
      .file("./blobs/sha256/" + kB, config_with("\"sha256:" + kA + "\""));

  const auto layers = tar.layers(7);

  ASSERT_TRUE(layers) << layers.error().describe();
  EXPECT_EQ(layers->size(), 1U);
}

TEST(ImageArchive, a_root_file_system_has_none) {
  Tar tar;
  tar.file("bin/sh", "#!").file("etc/package.json", "{}");
  EXPECT_EQ(tar.layers().value(), std::vector<Digest>());

  EXPECT_EQ(layers_of("\x1f\x8b, which the engine will know", 3).value(), std::vector<Digest>());
}

TEST(ImageArchive, what_no_engine_imports_is_refused) {
  for (const std::string& bytes :
       {std::string(), std::string("root:x:0:0"), std::string(2331, 'Z'), std::string(1024, '\0')})
    for (const std::size_t piece : {1u, 500u, 4096u}) {
      const auto layers = layers_of(bytes, piece);
      ASSERT_FALSE(layers) << bytes.substr(0, 10);
      EXPECT_EQ(layers.error().code, ErrorCode::kInvalid);
      EXPECT_EQ(layers.error().message, "the uploaded file is no archive of an image");
      EXPECT_NE(layers.error().hint.find("docker save"), std::string::npos);
    }
}

TEST(ImageArchive, a_tar_of_before_posix_is_a_root_file_system) {
  std::string header(512, '\0');  // POSIX.1-1988: name, mode, owner, group, size, time, sum
  header.replace(0, 5, "hello");
  header.replace(100, 8, "0000644 ");
  header.replace(124, 12, "00000000000 ");
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char digits[8];
  std::snprintf(digits, sizeof(digits), "%06o", sum);
  header.replace(148, 7, std::string(digits, 7));
  EXPECT_EQ(layers_of(header + std::string(1024, '\0'), 7).value(), std::vector<Digest>());
}

TEST(ImageArchive, what_the_engine_might_read_otherwise_is_refused) {
  const auto refusal = [](Tar& tar) {
    const auto layers = tar.layers();
    return layers ? "taken" : layers.error().message;
  };
  Tar twice;
  twice.file("c.json", config_with(two_layers()))
      .file("manifest.json", manifest_of("c.json"))
      .file("./manifest.json", manifest_of("d.json"));
  EXPECT_EQ(refusal(twice), "the archive holds manifest.json twice");

  Tar linked;
  linked.file("c.json", config_with(two_layers())).link("manifest.json", "c.json");
  EXPECT_EQ(refusal(linked), "manifest.json is no plain file");

  Tar cases;
  cases.file("c.json", R"({"rootfs":{"diff_ids":[],"DIFF_IDS":[]}})")
      .file("manifest.json", manifest_of("c.json"));
  EXPECT_EQ(refusal(cases), "a document says diff_ids twice");

  Tar several;
  several.file("manifest.json", "[{},{}]");
  EXPECT_EQ(refusal(several), "the archive holds 2 images");

  Tar elsewhere;
  elsewhere.file("manifest.json", manifest_of("not-here.json"));
  EXPECT_EQ(refusal(elsewhere), "the image's configuration is not there");
}

TEST(ImageArchive, one_without_end_is_refused_with_what_to_do) {
  const auto layers_of_files = [](int files) {
    Tar tar;
    for (int i = 0; i < files; ++i) tar.file("etc/" + std::to_string(i), "");
    return tar.layers(1000, 10);
  };
  ASSERT_TRUE(layers_of_files(10));
  EXPECT_TRUE(layers_of_files(10)->empty());

  const auto refused = layers_of_files(11);

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(refused.error().message, "the archive has more than 10 entries");
  EXPECT_NE(refused.error().hint.find("docker save IMAGE >FILE"), std::string::npos);
  EXPECT_GT(kArchiveEntriesMax, 1'000'000U) << "a root file system of one distribution";
}

TEST(ImageArchive, a_name_of_the_platforms_own_and_a_volume_are_refused) {
  Tar named;
  named.file("c.json", config_with(two_layers()))
      .file("manifest.json", manifest_of("c.json", R"(["x:1","reclaimnet/image:)" + kA + R"("])"));
  const auto refused = named.layers();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);

  Tar volume;
  volume.file("c.json", config_with(two_layers(), R"({"volumes":{"/data":{}}})"))
      .file("manifest.json", manifest_of("c.json"));
  const auto declared = volume.layers();
  ASSERT_FALSE(declared);
  EXPECT_NE(declared.error().message.find("/data"), std::string::npos);
}

TEST(ImageArchive, a_cut_archive_and_a_reader_that_fails_are_errors) {
  Tar cut;
  cut.file("c.json", config_with(two_layers()))
      .file("l/layer.tar", std::string(100'000, 'x'))
      .file("manifest.json", manifest_of("c.json"));
  cut.cut(50'000);
  EXPECT_EQ(cut.layers().error().code, ErrorCode::kCorrupt);

  const auto failed =
      layers_of_archive([]() -> Result<Blob> { return fail(ErrorCode::kNotFound, "gone"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace rn::coordinator
