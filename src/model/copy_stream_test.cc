// SPDX-License-Identifier: Apache-2.0
#include "model/copy_stream.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace rn::copy_stream {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Event = Reader::Event;

/// A stream, made entry by entry.
struct Stream {
  Bytes bytes;

  Stream& entry(Kind kind, const std::string& name, unsigned mode = 0644) {
    std::uint8_t made[kEntryMax];
    const std::size_t size = write_entry(made, kind, mode, name.data(), name.size());
    bytes.insert(bytes.end(), made, made + size);
    return *this;
  }

  Stream& left_out(const std::string& name, const std::string& why) {
    std::uint8_t made[kEntryMax];
    const std::size_t size = write_left_out(made, name.data(), name.size(), why.c_str());
    bytes.insert(bytes.end(), made, made + size);
    return *this;
  }

  Stream& chunk(const std::string& content) {
    chunk_head(static_cast<std::uint32_t>(content.size()));
    bytes.insert(bytes.end(), content.begin(), content.end());
    return *this;
  }

  Stream& chunk_head(std::uint32_t size) {
    std::uint8_t head[4];
    write_chunk_head(head, size);
    bytes.insert(bytes.end(), head, head + 4);
    return *this;
  }

  Stream& kind(Kind one) {
    bytes.push_back(static_cast<std::uint8_t>(one));
    return *this;
  }
};

/// What it says, in pieces of so many bytes: "file a 644; abc; whole; end".
std::string told(const Bytes& bytes, std::size_t piece) {
  Reader reader;
  std::string out;
  std::string content;
  for (std::size_t begin = 0; begin < bytes.size(); begin += piece) {
    const std::uint8_t* at = bytes.data() + begin;
    std::size_t left = std::min(piece, bytes.size() - begin);
    while (left > 0) {
      const Event event = reader.next(at, left);
      if (event == Event::kMore) continue;
      if (event == Event::kBytes) {
        content.append(reader.bytes(), reader.bytes() + reader.size());
        continue;
      }
      if (!content.empty()) out += content + "; ";
      content.clear();
      if (event == Event::kFile) out += std::string("file ") + reader.name() + "; ";
      if (event == Event::kFolder) out += std::string("folder ") + reader.name() + "; ";
      if (event == Event::kUp) out += "up; ";
      if (event == Event::kWhole) out += "whole; ";
      if (event == Event::kBroken) out += "broken; ";
      if (event == Event::kLeftOut)
        out += std::string("left out ") + reader.name() + " " + reader.words() + "; ";
      if (event == Event::kEnd) out += "end";
      if (event == Event::kBad) return out + "bad: " + reader.wrong();
    }
  }
  return out + (reader.is_over() ? "" : "...");
}

std::string told(const Stream& stream) {
  return told(stream.bytes, stream.bytes.size());
}

TEST(CopyStream, a_folder_comes_as_it_was_sent_in_whatever_pieces) {
  Stream stream;
  stream.entry(Kind::kFolder, "out")
      .entry(Kind::kFile, "a")
      .chunk("abc")
      .chunk("de")
      .chunk_head(kChunksWhole)
      .entry(Kind::kFolder, "sub")
      .left_out("link", "a link")
      .kind(Kind::kUp)
      .entry(Kind::kFile, "empty")
      .chunk_head(kChunksWhole)
      .entry(Kind::kFile, "half")
      .chunk("x")
      .chunk_head(kChunksBroken)
      .kind(Kind::kUp)
      .kind(Kind::kEnd);

  for (const std::size_t piece : {1u, 2u, 3u, 7u, 1000u})
    EXPECT_EQ(
        told(stream.bytes, piece),
        "folder out; file a; abcde; whole; folder sub; left out link a link; up; file empty; "
        "whole; file half; x; broken; up; end"
    ) << piece;
}

TEST(CopyStream, a_name_is_one_step_and_leads_nowhere_else) {
  for (const std::string& name :
       {std::string(),
        std::string("."),
        std::string(".."),
        std::string("a/b"),
        std::string("/etc"),
        std::string("../x"),
        std::string("a\0b", 3)}) {
    EXPECT_FALSE(is_name(name.data(), name.size())) << name;
    Stream stream;
    stream.entry(Kind::kFolder, "out").entry(Kind::kFile, name);
    EXPECT_EQ(told(stream), "folder out; bad: a name in it is none") << name;
  }
  for (const std::string name : {"...", "..a", ".git", "a b", "\x1b[2J", "-rf"})
    EXPECT_TRUE(is_name(name.data(), name.size())) << name;
}

TEST(CopyStream, what_leaves_more_folders_than_it_entered_is_refused) {
  EXPECT_EQ(told(Stream().kind(Kind::kUp)), "bad: a folder is left that was not entered");
  EXPECT_EQ(
      told(Stream().entry(Kind::kFolder, "a").kind(Kind::kUp).kind(Kind::kUp)),
      "folder a; up; bad: a folder is left that was not entered"
  );
}

TEST(CopyStream, has_one_thing_and_an_end_behind_it) {
  EXPECT_EQ(told(Stream().kind(Kind::kEnd)), "bad: it ends too soon");
  EXPECT_EQ(
      told(Stream().entry(Kind::kFolder, "a").kind(Kind::kEnd)), "folder a; bad: it ends too soon"
  );
  Stream two;
  two.entry(Kind::kFile, "a").chunk_head(kChunksWhole).entry(Kind::kFile, "b");
  EXPECT_EQ(told(two), "file a; whole; bad: more than one thing is in it");
  Stream more;
  more.entry(Kind::kFile, "a").chunk_head(kChunksWhole).kind(Kind::kEnd).kind(Kind::kEnd);
  EXPECT_EQ(told(more), "file a; whole; endbad: something follows its end");
  EXPECT_EQ(told(Stream().left_out("a", "x")), "bad: something is left out of nothing");
  EXPECT_EQ(told(Stream().entry(Kind::kFile, "a").chunk("x")), "file a; ...");
}

TEST(CopyStream, nothing_in_it_is_without_bound) {
  EXPECT_EQ(
      told(Stream().entry(Kind::kFile, "a").chunk_head(kChunkMax + 1)),
      "file a; bad: a piece of a file is too long"
  );
  Stream deep;
  for (int i = 0; i <= kDepthMax; ++i) deep.entry(Kind::kFolder, "d");
  EXPECT_TRUE(told(deep).ends_with("bad: its folders are too deep"));
  EXPECT_EQ(told(Bytes{9}, 1), "bad: something of an unknown kind is in it");
}

TEST(CopyStream, no_mode_gives_more_than_a_mode_of_files_can) {
  Stream stream;
  stream.entry(Kind::kFile, "a", 06755);
  Reader reader;
  const std::uint8_t* at = stream.bytes.data();
  std::size_t left = stream.bytes.size();
  ASSERT_EQ(reader.next(at, left), Event::kFile);
  EXPECT_EQ(reader.mode(), 0755u);
}

}  // namespace
}  // namespace rn::copy_stream
