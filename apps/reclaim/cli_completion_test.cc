// SPDX-License-Identifier: Apache-2.0
// Scripts for shells, made from a table like ours, and played in the shells that are here.
#include "cli_completion.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli_complete.h"
#include <gtest/gtest.h>

#include "base/scratch_folder.h"

namespace rn::cli {
namespace {

/// Some commands, as main.cc enters them.
class Sample {
 public:
  Sample() {
    CLI::App* run = app.add_subcommand("run", "Run it's command. More is said in --help.");
    run->add_option("--image", text, "image; of the list")->type_name("IMAGE");
    run->add_option("--role", text, "one of two")->check(CLI::IsMember({"user", "admin"}));
    run->add_option("--name", text, "a name");
    run->add_flag("-d,--detach", is_set, "only submit");
    run->add_option("command", texts, "the command");
    CLI::App* image = app.add_subcommand("image", "Images.");
    CLI::App* save = image->add_subcommand("save", "Fetch one.");
    save->add_option("name", text, "its name")->type_name("IMAGE");
    save->add_option("file", text, "where to")->type_name("FILE");
    app.add_subcommand("stop", "Stop jobs.")->add_option("job", texts, "ids")->type_name("JOB");
    CLI::App* cp = app.add_subcommand("cp", "Copy.");
    cp->add_option("from", text, "JOB:path")->type_name("JOB:PATH");
    cp->add_option("to", text, "folder")->type_name("FOLDER");
    app.add_subcommand("__complete", "not shown")->group("");
  }

  CLI::App app{"Run things."};
  std::string text;
  std::vector<std::string> texts;
  bool is_set = false;
};

std::string quoted(const std::string& word) {
  return "'" + word + "'";
}

std::string said_by(const std::string& command) {
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string said;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) said += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  while (said.ends_with('\n')) said.pop_back();
  return said;
}

bool has_shell(const std::string& name) {
  return std::filesystem::exists("/usr/bin/" + name) || std::filesystem::exists("/bin/" + name);
}

/// The sample's script, and a program that answers to __complete and notes what it was asked.
class Shell {
 public:
  explicit Shell(const std::string& name) : name_(name) {
    const Sample sample;
    std::ofstream(path("script")
    ) << completion_script(completed_commands(sample.app), "reclaim", name);
    std::ofstream(path("reclaim")) << "#!/bin/sh\necho \"$*\" >>" << path("asked")
                                   << "\nprintf 'a-1\\tone\\na-2\\ttwo: 2\\n'\n";
    std::filesystem::permissions(path("reclaim"), std::filesystem::perms(0755));
  }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  /// What it offers for the last of the words behind the program, between blanks.
  std::string offers(const std::vector<std::string>& words) const {
    std::string line = name_ == "bash" ? kBash : kZsh;
    line += " x " + quoted(path("script")) + " " + quoted(path("reclaim"));
    for (const std::string& word : words) line += " " + quoted(word);
    return said_by(line);
  }

  std::string asked() const {
    std::ifstream file(path("asked"));
    std::string text{std::istreambuf_iterator<char>(file), {}};
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

 private:
  static constexpr const char* kBash =
      "bash -euc 'source \"$1\"; shift; COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)); _reclaim; "
      "echo \"${COMPREPLY[@]}\"'";
  // What zsh would show is told by stand-ins for its own functions.
  static constexpr const char* kZsh =
      "zsh -fc 'source \"$1\"; shift; words=(\"$@\") CURRENT=$#; "
      "_describe() { while [[ $1 == -* ]]; do shift; done; print -r -- ${(P)2} }; "
      "_files() { print -r -- files \"$@\" }; _default() { print default }; "
      "compadd() { shift; print -r -- \"$@\" }; _reclaim; true'";

  std::string name_;
  ScratchFolder folder_;
};

TEST(Completion, a_table_is_made_of_what_help_shows) {
  const Sample sample;

  const auto commands = completed_commands(sample.app);

  ASSERT_EQ(commands.size(), 6u);
  EXPECT_EQ(commands[0].path, "");
  EXPECT_EQ(commands[0].below, (std::vector<std::string>{"run", "image", "stop", "cp"}));
  EXPECT_EQ(commands[1].what, "Run it's command");
  EXPECT_EQ(commands[1].places, std::vector<std::string>{"value"});
  EXPECT_TRUE(commands[1].repeats);
  EXPECT_EQ(commands[3].path, "image save");
  EXPECT_EQ(commands[3].places, (std::vector<std::string>{"image", "file"}));
  EXPECT_EQ(commands[4].places, std::vector<std::string>{"unfinished-job"});
  EXPECT_EQ(commands[5].places, (std::vector<std::string>{"job-path", "folder"}));
  std::vector<std::string> flags;
  for (const CompletedFlag& flag : commands[1].flags)
    flags.push_back(flag.names.back() + ":" + flag.kind);
  EXPECT_EQ(
      flags,
      (std::vector<std::string>{
          "--help:", "--image:image", "--role:=user admin", "--name:value", "--detach:"})
  );
}

TEST(Completion, bash_offers_commands_flags_and_what_the_site_has) {
  const Shell bash("bash");

  EXPECT_EQ(bash.offers({"ru"}), "run");
  EXPECT_EQ(bash.offers({"image", "s"}), "save");
  EXPECT_EQ(bash.offers({"run", "--de"}), "--detach");
  EXPECT_EQ(bash.offers({"run", "--role", "a"}), "admin");
  EXPECT_EQ(bash.offers({"run", "--name", "a"}), "") << "files, by bash itself";
  EXPECT_EQ(bash.offers({"run", "--", "ru"}), "");
  EXPECT_EQ(bash.offers({"run", "run"}), "") << "a command is not looked for among arguments";
  EXPECT_EQ(bash.asked(), "");
  EXPECT_EQ(bash.offers({"run", "--image", ""}), "a-1 a-2");
  EXPECT_EQ(bash.offers({"run", "--image", "=", "a-2"}), "a-2") << "as bash splits --image=a-2";
  EXPECT_EQ(bash.offers({"run", "-d", "--image", "x", "--de"}), "--detach");
  EXPECT_EQ(bash.offers({"stop", "a-1", "a-"}), "a-1 a-2");
  EXPECT_EQ(bash.offers({"image", "save", "a-1", "x"}), "") << "a file";
  EXPECT_EQ(bash.asked(), "__complete image\n__complete image a-2\n__complete unfinished-job a-");
}

TEST(Completion, bash_is_silent_where_nobody_answers) {
  const Shell bash("bash");
  std::ofstream(bash.path("reclaim")) << "#!/bin/sh\necho noise >&2\nexit 6\n";

  EXPECT_EQ(bash.offers({"stop", ""}), "");
  std::filesystem::remove(bash.path("reclaim"));
  EXPECT_EQ(bash.offers({"stop", ""}), "");
}

TEST(Completion, zsh_offers_them_with_what_they_are) {
  if (!has_shell("zsh")) GTEST_SKIP() << "no zsh here";
  const Shell zsh("zsh");

  EXPECT_EQ(zsh.offers({""}), "run:Run it's command image:Images stop:Stop jobs cp:Copy");
  EXPECT_EQ(zsh.offers({"image", ""}), "save:Fetch one");
  EXPECT_NE(zsh.offers({"run", "-"}).find("--image:image -"), std::string::npos);
  EXPECT_EQ(zsh.offers({"run", "--role", ""}), "user admin");
  EXPECT_EQ(zsh.offers({"run", "--image", ""}), "a-1:one a-2:two: 2");
  EXPECT_EQ(zsh.offers({"image", "save", "x", ""}), "files");
  EXPECT_EQ(zsh.offers({"cp", "x", ""}), "files -/");
  EXPECT_EQ(zsh.offers({"run", "--", ""}), "default");
  EXPECT_EQ(zsh.asked(), "__complete image");
}

TEST(Completion, fish_offers_them_with_what_they_are) {
  if (!has_shell("fish")) GTEST_SKIP() << "no fish here";
  const Shell fish("fish");
  const auto offers = [&](const std::string& line) {
    return said_by(
        "cd " + quoted(fish.path("")) + " && HOME=" + quoted(fish.path("")) +
        " PATH=" + quoted(fish.path("")) +
        ":$PATH fish --no-config -c 'source script; complete -C \"reclaim " + line + "\"'"
    );
  };

  EXPECT_EQ(offers("im"), "image\tImages");
  EXPECT_EQ(offers("image "), "save\tFetch one");
  EXPECT_EQ(offers("run --det"), "--detach\tonly submit");
  EXPECT_EQ(offers("run --role a"), "admin\tone of two");
  EXPECT_EQ(offers("run --image a-"), "a-1\tone\na-2\ttwo: 2");
  EXPECT_EQ(offers("stop a-1 a-"), "a-1\tone\na-2\ttwo: 2");
  EXPECT_EQ(offers("image save a-1 scr"), "script");
  EXPECT_EQ(fish.asked(), "__complete image a-\n__complete unfinished-job a-");
}

TEST(Completion, jobs_are_offered_by_id_or_by_number_as_they_were_begun) {
  api::JobList list;
  list.jobs.resize(3);
  list.jobs[0].id = JobId("j-0a");
  list.jobs[0].number = 12;
  list.jobs[0].spec.name = "train";
  list.jobs[0].state = JobState::kRunning;
  list.jobs[1].id = JobId("j-1b");
  list.jobs[1].number = 7;
  list.jobs[1].state = JobState::kFailed;
  list.jobs[2].id = JobId("j-$(reboot)");
  list.jobs[2].number = 13;

  EXPECT_EQ(
      completed_jobs(list, "", false),
      (std::vector<Completion>{{"j-0a", "12 running train"}, {"j-1b", "7 failed"}})
  );
  EXPECT_EQ(completed_jobs(list, "j-1", true), std::vector<Completion>{});
  EXPECT_EQ(
      completed_jobs(list, "1", true),
      (std::vector<Completion>{{"12", "12 running train"}, {"13", "13 queued"}})
  );
}

TEST(Completion, what_others_named_is_offered_only_if_it_is_a_plain_word) {
  api::NodeList nodes;
  nodes.nodes.resize(2);
  nodes.nodes[0].id = NodeId("n-1");
  nodes.nodes[0].lab = LabId("lab-a");
  nodes.nodes[0].facts.hostname = "ada";
  nodes.nodes[0].facts.data_sets = {"digits", "a b", "$(id)"};
  nodes.nodes[1].id = NodeId("n-2");
  nodes.nodes[1].is_revoked = true;
  api::ImageList images;
  images.images.resize(2);
  images.images[0].name = "torch:2.1";
  images.images[1].name = "`id`";

  EXPECT_EQ(completed_nodes(nodes, "", false), (std::vector<Completion>{{"n-1", "lab-a/ada"}}));
  EXPECT_EQ(completed_nodes(nodes, "a", true), (std::vector<Completion>{{"ada", "n-1"}}));
  EXPECT_EQ(completed_labs(nodes, "lab"), (std::vector<Completion>{{"lab-a", "lab"}}));
  EXPECT_EQ(completed_data(nodes, ""), (std::vector<Completion>{{"digits", "data set"}}));
  EXPECT_EQ(completed_images(images, ""), (std::vector<Completion>{{"torch:2.1", "image"}}));
}

}  // namespace
}  // namespace rn::cli
