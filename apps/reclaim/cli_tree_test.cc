// SPDX-License-Identifier: Apache-2.0
#include "cli_tree.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "cli_copy.h"
#include "cli_exec.h"
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/scratch_folder.h"
#include "model/visit.h"

namespace rn::cli {
namespace {

namespace fs = std::filesystem;
using copy_stream::Kind;

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// All that a reader says, taken in pieces of so many bytes.
Blob all_of(TreeReader& reader, std::size_t piece) {
  Blob all;
  while (true) {
    const Blob bytes = reader.next(piece);
    if (bytes.empty()) return all;
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
}

Blob entry(Kind kind, const std::string& name) {
  std::uint8_t made[copy_stream::kEntryMax];
  const std::size_t size = copy_stream::write_entry(made, kind, 0644, name.data(), name.size());
  return Blob(made, made + size);
}

Blob file(const std::string& name, const std::string& content) {
  Blob bytes = entry(Kind::kFile, name);
  std::uint8_t head[4];
  copy_stream::write_chunk_head(head, static_cast<std::uint32_t>(content.size()));
  bytes.insert(bytes.end(), head, head + 4);
  bytes.insert(bytes.end(), content.begin(), content.end());
  bytes.insert(bytes.end(), 4, 0);
  return bytes;
}

Blob word(Kind kind) {
  return Blob{static_cast<std::uint8_t>(kind)};
}

Blob joined(std::initializer_list<Blob> parts) {
  Blob all;
  for (const Blob& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

class CopiedTrees : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return scratch_.path() + "/" + name; }

  void make_tree() const {
    fs::create_directories(at("here/sub/empty"));
    write_text(at("here/a"), "abc");
    write_text(at("here/sub/big"), std::string(100'000, 'x'));
    fs::permissions(at("here/a"), fs::perms::owner_all);
  }

  /// What the error is, or "" for none.
  static std::string written(TreeWriter& writer, const Blob& bytes) {
    const Status taken = writer.take(bytes);
    if (!taken) return taken.error().message;
    const Status whole = writer.finish();
    return whole ? "" : whole.error().message;
  }

  ScratchFolder scratch_;
};

TEST_F(CopiedTrees, a_folder_comes_over_as_it_is_in_whatever_pieces) {
  make_tree();
  for (const std::size_t piece : {1u, 1000u, 1u << 20}) {
    auto reader = TreeReader::open(at("here"));
    ASSERT_TRUE(reader) << reader.error().describe();
    const std::string to = at("there-" + std::to_string(piece));
    TreeWriter writer(to, "here");

    EXPECT_EQ(written(writer, all_of(*reader, piece)), "");

    EXPECT_EQ(text_of(to + "/a"), "abc");
    EXPECT_EQ(text_of(to + "/sub/big"), std::string(100'000, 'x'));
    EXPECT_TRUE(fs::is_directory(to + "/sub/empty"));
    EXPECT_EQ(::access((to + "/a").c_str(), X_OK), 0) << "with its mode";
    EXPECT_TRUE(reader->left_out().is_empty());
    EXPECT_EQ(writer.bytes(), 100'003u);
  }
}

TEST_F(CopiedTrees, what_is_copied_goes_into_a_folder_that_is_there_and_is_named_so_else) {
  const Blob one = joined({file("what the guest calls it", "abc"), word(Kind::kEnd)});
  fs::create_directory(at("folder"));
  TreeWriter into(at("folder"), "model.pt");
  EXPECT_EQ(written(into, one), "");
  EXPECT_EQ(text_of(at("folder/model.pt")), "abc");
  TreeWriter as(at("new.pt"), "model.pt");
  EXPECT_EQ(written(as, one), "");
  EXPECT_EQ(text_of(at("new.pt")), "abc");
  TreeWriter made(at("made/"), "model.pt");
  EXPECT_EQ(written(made, one), "");
  EXPECT_EQ(text_of(at("made/model.pt")), "abc");

  const Blob folder =
      joined({entry(Kind::kFolder, "x"), file("in", "1"), word(Kind::kUp), word(Kind::kEnd)});
  TreeWriter inside(at("all"), "");
  EXPECT_EQ(written(inside, folder), "");
  EXPECT_EQ(text_of(at("all/in")), "1") << "of JOB: what is in the folder";
}

TEST_F(CopiedTrees, a_hostile_guest_writes_nothing_elsewhere) {
  fs::create_directories(at("home/secret"));
  write_text(at("home/secret/key"), "mine");
  fs::create_directory(at("to"));
  fs::create_directory_symlink(at("home/secret"), at("to/link"));
  fs::create_symlink(at("home/secret/key"), at("to/alias"));

  for (const std::string name : {"..", "../home/secret/key", "/etc/x", "a/b", "."}) {
    TreeWriter writer(at("to"), "");
    const std::string said =
        written(writer, joined({entry(Kind::kFolder, "x"), file(name, "evil")}));
    EXPECT_EQ(said, "what the guest sent is refused: a name in it is none") << name;
  }
  TreeWriter through(at("to"), "");
  const Blob below = joined({entry(Kind::kFolder, "x"), entry(Kind::kFolder, "link")});
  EXPECT_NE(written(through, below), "") << "a link is not followed";
  TreeWriter over(at("to"), "");
  EXPECT_EQ(
      written(
          over,
          joined(
              {entry(Kind::kFolder, "x"), file("alias", "new"), word(Kind::kUp), word(Kind::kEnd)}
          )
      ),
      ""
  );

  EXPECT_EQ(text_of(at("home/secret/key")), "mine");
  EXPECT_FALSE(fs::is_symlink(at("to/alias"))) << "the link itself was replaced";
  EXPECT_EQ(text_of(at("to/alias")), "new");
  EXPECT_FALSE(fs::exists(at("home/x")));
}

TEST_F(CopiedTrees, nothing_is_written_where_git_would_run_it) {
  TreeWriter writer(at("to"), "");
  const Blob stream = joined(
      {entry(Kind::kFolder, "x"),
       entry(Kind::kFolder, ".GIT"),
       entry(Kind::kFolder, "hooks"),
       file("pre-commit", "evil"),
       word(Kind::kUp),
       word(Kind::kUp),
       file(".git", "gitdir: elsewhere"),
       file("good", "1"),
       word(Kind::kUp),
       word(Kind::kEnd)}
  );

  EXPECT_EQ(written(writer, stream), "");

  EXPECT_EQ(text_of(at("to/good")), "1");
  EXPECT_FALSE(fs::exists(at("to/.GIT")));
  EXPECT_FALSE(fs::exists(at("to/.git")));
  EXPECT_EQ(writer.left_out().named.size(), 2u);
}

TEST_F(CopiedTrees, what_breaks_off_leaves_the_old_file_and_nothing_of_the_new_one) {
  write_text(at("model.pt"), "old");
  {
    TreeWriter writer(at("model.pt"), "model.pt");
    Blob half = file("model.pt", "new, and longer");
    half.resize(half.size() - 6);
    EXPECT_EQ(written(writer, half), "what the guest sent broke off");
  }
  EXPECT_EQ(text_of(at("model.pt")), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch_.path()), {}), 1);
}

TEST_F(CopiedTrees, a_folder_or_a_pipe_is_not_replaced_by_a_file) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  TreeWriter pipe(at("pipe"), "x");
  EXPECT_EQ(
      written(pipe, joined({file("x", "1"), word(Kind::kEnd)})), "pipe is there, and is no file"
  );
  fs::create_directories(at("to/x"));
  TreeWriter folder(at("to"), "x");
  EXPECT_EQ(
      written(folder, joined({file("x", "1"), word(Kind::kEnd)})), "x is there, and is no file"
  );
}

TEST_F(CopiedTrees, links_and_pipes_here_are_left_out_and_named) {
  make_tree();
  fs::create_symlink("/etc/passwd", at("here/link"));
  ASSERT_EQ(::mkfifo(at("here/pipe").c_str(), 0600), 0);
  auto reader = TreeReader::open(at("here"));
  ASSERT_TRUE(reader);
  TreeWriter writer(at("there"), "here");

  EXPECT_EQ(written(writer, all_of(*reader, 4096)), "");

  EXPECT_EQ(reader->left_out().named.size(), 2u);
  EXPECT_FALSE(fs::exists(fs::symlink_status(at("there/link"))));
  EXPECT_EQ(TreeReader::open(at("here/pipe")).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(TreeReader::open(at("gone")).error().code, ErrorCode::kNotFound);
}

TEST(CopySides, are_jobs_where_a_colon_says_so_and_paths_here_else) {
  EXPECT_EQ(copy_side("7:out")->job, "7");
  EXPECT_EQ(copy_side("7:out")->path, "out");
  EXPECT_EQ(copy_side("7:")->path, "");
  EXPECT_EQ(copy_side("a-1/3:/tmp/x:y")->job, "a-1/3");
  EXPECT_EQ(copy_side("a-1/3:/tmp/x:y")->path, "/tmp/x:y");
  for (const std::string here : {"x", "./a:b", "/a:b", ".", "a/b"})
    EXPECT_EQ(copy_side(here)->job, "") << here;
  for (const std::string wrong : {":x", "a b:x", "7/x:y"})
    EXPECT_EQ(copy_side(wrong).error().code, ErrorCode::kInvalid) << wrong;
}

TEST(ExecKeys, tilde_and_dot_at_the_beginning_of_a_line_leave_and_nowhere_else) {
  TerminalKeys keys;
  EXPECT_EQ(keys.take("ls ~.\r"), "ls ~.\r");
  EXPECT_EQ(keys.take("~~/x\r"), "~/x\r");
  EXPECT_EQ(keys.take("~"), "") << "kept back";
  EXPECT_EQ(keys.take("a\r~"), "~a\r");
  EXPECT_FALSE(keys.leaves());
  EXPECT_EQ(keys.take(".x"), "");
  EXPECT_TRUE(keys.leaves());
}

TEST(ExecFrame, has_what_the_guest_reads_from_it) {
  const auto body = run_frame({"ls", "-l", ""}, {true, 24, 80, "xterm"}, true);
  ASSERT_TRUE(body);
  visit::Run run{};
  ASSERT_TRUE(visit::read_run(body->data(), body->size(), run));
  EXPECT_TRUE(run.has_terminal && run.has_input);
  EXPECT_EQ(run.columns, 80);
  EXPECT_STREQ(run.terminal, "xterm");
  EXPECT_STREQ(run.words[1], "-l");
  EXPECT_EQ(run.words[3], nullptr);

  EXPECT_EQ(run_frame({}, {}, false).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(run_frame({"", "x"}, {}, false).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(run_frame({std::string(20'000, 'x')}, {}, false).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(
      run_frame(std::vector<std::string>(600, "x"), {}, false).error().code, ErrorCode::kInvalid
  );
}

}  // namespace
}  // namespace rn::cli
