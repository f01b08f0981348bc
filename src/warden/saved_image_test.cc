// SPDX-License-Identifier: Apache-2.0
#include "warden/saved_image.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace rn::warden {
namespace {

const std::string kOneLayer =
    R"([{"Config":"c.json","RepoTags":["nginx:latest"],"Layers":["l.tar"]}])";

/// An archive as somebody else writes it: any kind of entry, a right checksum.
class SavedTar {
 public:
  SavedTar& entry(
      char kind, const std::string& path, const std::string& content, const std::string& link = ""
  ) {
    Blob block = tar_header(path, content.size());
    block[156] = static_cast<std::uint8_t>(kind);
    std::copy(link.begin(), link.end(), block.begin() + 157);
    return raw(std::move(block), content);
  }

  SavedTar& file(const std::string& path, const std::string& content) {
    return entry('0', path, content);
  }

  /// A header as it is but for its checksum.
  SavedTar& raw(Blob block, const std::string& content) {
    std::fill_n(block.begin() + 148, 8, ' ');
    unsigned sum = 0;
    for (const std::uint8_t byte : block) sum += byte;
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "%06o", sum);
    std::copy_n(text.begin(), 7, block.begin() + 148);
    bytes_.append(block.begin(), block.end());
    bytes_ += content;
    bytes_.resize((bytes_.size() + 511) / 512 * 512);
    return *this;
  }

  SavedTar& cut(std::size_t bytes) {
    bytes_.resize(bytes);
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

  ReadAt read(std::size_t piece = 100) const {
    return [this, piece](std::uint64_t offset, std::size_t max) -> Result<Blob> {
      const std::string part =
          bytes_.substr(std::min<std::size_t>(offset, bytes_.size()), std::min(piece, max));
      return Blob(part.begin(), part.end());
    };
  }

  /// Why it is refused, or "taken".
  std::string refusal() const {
    const auto found = find_saved_image(read());
    return found ? "taken" : found.error().message;
  }

 private:
  std::string bytes_;
};

/// What the engine would get, in pieces of at most `max`.
Result<std::string> repacked(const SavedTar& tar, std::size_t max = 1000) {
  RN_TRY(SavedImage image, find_saved_image(tar.read()));
  RepackedImage out(std::move(image), tar.read());
  std::string bytes;
  for (;;) {
    RN_TRY(const Blob piece, out.next(max));
    EXPECT_LE(piece.size(), max);
    if (piece.empty()) break;
    bytes.append(piece.begin(), piece.end());
  }
  EXPECT_EQ(to_hex(out.source_digest()), to_hex(crypto::sha256(as_bytes(tar.bytes()))));
  return bytes;
}

/// Name and content of every entry, for archives that have nothing but plain files.
std::vector<std::pair<std::string, std::string>> files_in(const std::string& tar) {
  std::vector<std::pair<std::string, std::string>> files;
  for (std::size_t at = 0; tar[at] != 0;) {
    const std::size_t bytes = std::stoul(tar.substr(at + 124, 11), nullptr, 8);
    EXPECT_EQ(tar[at + 156], '0');
    files.emplace_back(tar.substr(at).c_str(), tar.substr(at + 512, bytes));
    at += 512 + (bytes + 511) / 512 * 512;
  }
  return files;
}

using Files = std::vector<std::pair<std::string, std::string>>;

TEST(SavedImage, the_engine_gets_configuration_and_layers_and_no_name) {
  SavedTar tar;
  tar.entry('5', "abc/", "")
      .file("abc/VERSION", "1.0")
      .file("l.tar", std::string(700, 'l'))
      .file("c.json", "{\"os\":\"linux\"}")
      .file("index.json", R"({"annotations":{"io.containerd.image.name":"nginx:latest"}})")
      .file("repositories", R"({"nginx":{"latest":"abc"}})")
      .file("./manifest.json", kOneLayer);

  const auto made = repacked(tar);

  ASSERT_TRUE(made) << made.error().describe();
  const Files expected = {
      {"layer-1.tar", std::string(700, 'l')},
      {"config.json", "{\"os\":\"linux\"}"},
      {"manifest.json", R"([{"Config":"config.json","Layers":["layer-1.tar"],"RepoTags":null}])"}};
  EXPECT_EQ(files_in(*made), expected);
  EXPECT_EQ(made->size() % 512, 0U);
  EXPECT_EQ(repacked(tar, 1).value(), *made);
  EXPECT_EQ(repacked(tar, 1 << 20).value(), *made);
}

TEST(SavedImage, whatever_the_manifest_says_about_names_is_left_behind) {
  for (const char* hidden :
       {R"("repotags":["nginx:latest"])",
        "\"RepoTag\u017f\":[\"nginx:latest\"]",
        R"("RepoTags":["a:1"],"RepoTags":["nginx:latest"])",
        R"("Parent":"sha256:0","LayerSources":{"nginx:latest":{}})"}) {
    SavedTar tar;
    tar.file("c.json", "{}")
        .file("l.tar", "l")
        .file(
            "manifest.json",
            R"([{"Config":"c.json",)" + std::string(hidden) + R"(,"Layers":["l.tar"]}])"
        );

    const auto made = repacked(tar);

    ASSERT_TRUE(made) << hidden;
    EXPECT_EQ(made->find("nginx"), std::string::npos) << hidden;
  }
}

TEST(SavedImage, layers_may_be_links_to_others_and_come_twice) {
  SavedTar tar;
  tar.file("a/layer.tar", "first")
      .entry('2', "b/layer.tar", "", "../a/layer.tar")
      .entry('1', "c/layer.tar", "", "a/layer.tar")
      .file("c.json", "{}")
      .file(
          "manifest.json",
          R"([{"Config":"c.json","Layers":["a/layer.tar","b/layer.tar","./c/layer.tar"]}])"
      );

  const auto found = find_saved_image(tar.read());

  ASSERT_TRUE(found) << found.error().describe();
  EXPECT_EQ(found->parts.size(), 2U);
  EXPECT_EQ(found->layers, std::vector<std::string>(3, "layer-1.tar"));
}

TEST(SavedImage, long_names_are_read_in_both_forms) {
  const std::string path = "blobs/" + std::string(120, 'x');
  const std::string manifest = R"([{"Config":"c.json","Layers":[")" + path + R"("]}])";
  const std::string record = "136 path=" + path + "\n";
  ASSERT_EQ(record.size(), 136U);
  SavedTar pax;
  pax.entry('x', "pax", record)
      .file("short", "layer")
      .file("c.json", "{}")
      .file("manifest.json", manifest);
  SavedTar gnu;
  gnu.entry('L', "././@LongLink", path + std::string(1, '\0'))
      .file("short", "layer")
      .file("c.json", "{}")
      .file("manifest.json", manifest);

  EXPECT_EQ(pax.refusal(), "taken");
  EXPECT_EQ(gnu.refusal(), "taken");
}

TEST(SavedImage, what_is_not_one_plain_image_is_refused_in_words) {
  const auto with = [](auto add) {
    SavedTar tar;
    tar.file("c.json", "{}").file("l.tar", "l");
    add(tar);
    tar.file("manifest.json", kOneLayer);
    return tar.refusal();
  };
  EXPECT_EQ(with([](SavedTar&) {}), "taken");
  EXPECT_EQ(
      with([](SavedTar& tar) { tar.file("./manifest.json", kOneLayer); }),
      "the image archive holds manifest.json twice"
  );
  EXPECT_EQ(
      with([](SavedTar& tar) { tar.entry('1', "manifest.json", "", "c.json"); }),
      "the image archive holds manifest.json twice"
  );
  EXPECT_EQ(
      with([](SavedTar& tar) { tar.file("l.tar", "another"); }),
      "the image archive holds l.tar twice"
  );
  EXPECT_EQ(
      with([](SavedTar& tar) { tar.entry('2', "x", kOneLayer, "y"); }),
      "the image archive holds x, a folder or link with content"
  );
  EXPECT_EQ(
      with([](SavedTar& tar) { tar.entry('3', "dev", ""); }),
      "the image archive holds dev, which is no file, folder or link"
  );
  EXPECT_EQ(
      with([](SavedTar& tar) { tar.entry('S', "s", "x"); }),
      "the image archive holds s, which is no file, folder or link"
  );
  EXPECT_EQ(
      with([](SavedTar& tar) { tar.entry('x', "p", "22 GNU.sparse.major=1\n").file("s", ""); }),
      "the image archive holds a sparse file"
  );
  EXPECT_EQ(
      with([](SavedTar& tar) { tar.entry('g', "p", "18 path=elsewhere\n"); }),
      "the image archive is a tar of an unusual form"
  );
  EXPECT_EQ(
      with([](SavedTar& tar) { tar.entry('x', "p", "99 path=x\n"); }),
      "the image archive has a damaged pax header"
  );
  EXPECT_EQ(
      with([](SavedTar& tar) {
        Blob star = tar_header("x", 0);
        std::copy_n("tar", 4, star.begin() + 508);
        tar.raw(star, "");
      }),
      "the image archive is a tar of an unusual form"
  );
  SavedTar none;
  EXPECT_EQ(none.refusal(), "the image archive does not hold manifest.json");
  SavedTar linked;
  linked.file("m", kOneLayer).entry('2', "manifest.json", "", "m");
  EXPECT_EQ(linked.refusal(), "the image archive holds manifest.json, which is no plain file");
  SavedTar outside;
  outside.file("c.json", "{}")
      .entry('2', "l.tar", "", "../../etc/shadow")
      .file("manifest.json", kOneLayer);
  EXPECT_EQ(outside.refusal(), "the image archive does not hold ");
}

TEST(SavedImage, what_ends_early_is_refused_when_it_is_found_or_read) {
  SavedTar tar;
  tar.file("c.json", "{}").file("manifest.json", kOneLayer).file("l.tar", std::string(5000, 'l'));
  const std::size_t whole = tar.bytes().size();

  tar.cut(whole - 600);

  EXPECT_EQ(tar.refusal(), "taken");
  EXPECT_EQ(repacked(tar).error().message, "the image archive ends early");
  EXPECT_EQ(tar.cut(2100).refusal(), "the image archive is damaged");
  EXPECT_EQ(tar.cut(100).refusal(), "the image archive is no uncompressed tar");
}

TEST(SavedImage, is_bounded_in_entries_sizes_and_names) {
  SavedTar many;
  for (int i = 0; i < 5000; ++i) many.entry('5', "d" + std::to_string(i), "");
  EXPECT_EQ(many.refusal(), "the image archive has more than 4096 entries");

  SavedTar extensions;  // that never come to their entry
  for (int i = 0; i < 5000; ++i) extensions.entry('x', "p", "");
  EXPECT_EQ(extensions.refusal(), "the image archive has more than 4096 entries");

  SavedTar vast;
  vast.raw(tar_header("l.tar", std::uint64_t{1} << 60), "");
  EXPECT_EQ(vast.refusal(), "the image archive names a size that no archive has");

  SavedTar pax;
  pax.entry('x', "p", "29 size=99999999999999999999\n").file("l.tar", "");
  EXPECT_EQ(pax.refusal(), "the image archive has a pax header with a size that is none");

  SavedTar named;
  named.entry('L', "././@LongLink", std::string(600, 'n')).file("x", "");
  EXPECT_EQ(named.refusal(), "the image archive has a name of more than 512 bytes");

  SavedTar header;
  header.entry('x', "p", std::string(70'000, 'n')).file("x", "");
  EXPECT_EQ(header.refusal(), "the image archive has a header that is too long");

  SavedTar manifest;
  manifest.file("manifest.json", std::string(2 << 20, ' '));
  EXPECT_EQ(manifest.refusal(), "the image archive has a manifest.json that is too long");
}

TEST(SavedImage, a_layer_of_more_than_eight_gibibytes_keeps_its_size) {
  const std::uint64_t bytes = (std::uint64_t{9} << 30) + 5;
  const auto read = [&](std::uint64_t offset, std::size_t max) -> Result<Blob> {
    SavedTar before;
    before.file("c.json", "{}")
        .file("manifest.json", kOneLayer)
        .raw(tar_header("l.tar", bytes), "");
    if (offset >= before.bytes().size()) return Blob();
    return before.read(512)(offset, max);
  };

  const auto found = find_saved_image(read);

  ASSERT_TRUE(found) << found.error().describe();
  EXPECT_EQ(found->parts.back().bytes, bytes);
}

}  // namespace
}  // namespace rn::warden
