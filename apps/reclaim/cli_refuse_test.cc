// SPDX-License-Identifier: Apache-2.0
// What is refused, before anything is uploaded or waited for, and in which words.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli_client.h"
#include "cli_commands.h"
#include "cli_config.h"
#include "cli_job_file.h"
#include "cli_run.h"
#include "cli_upload.h"
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/scratch_folder.h"

namespace rn::cli {
namespace {

/// Writes a file below it.
void write_into(const ScratchFolder& folder, const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(folder.path()) / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(JobFile, a_value_of_another_kind_is_said_with_what_belongs_there) {
  const auto words = [](const std::string& text) {
    const Error error = parse_job_file(text).error();
    return error.message + (error.hint.empty() ? "" : "; next: " + error.hint);
  };

  EXPECT_EQ(
      words("run: true\n"),
      "run: expected text, or a list of texts, found true; next: put it in quotes: \"true\""
  );
  EXPECT_EQ(
      words("run: 7\n"),
      "run: expected text, or a list of texts, found the number 7; next: put it in quotes: \"7\""
  );
  EXPECT_EQ(words("run:\n"), "run: expected text, or a list of texts, found nothing");
  EXPECT_EQ(words("run: [[x]]\n"), "run[0]: expected a word or a number, found a list");
  EXPECT_EQ(words("run: x\nname: {a: b}\n"), "name: expected a word or a number, found an object");
  EXPECT_EQ(
      words("run: x\nstateless: \"yes\"\n"),
      "stateless: expected true or false, found the string \"yes\"; next: write it without quotes, "
      "in small letters"
  );
  EXPECT_EQ(words("run: x\nenv: 7\n"), "env: expected fields (NAME: value), found the number 7");
  EXPECT_EQ(
      words("run: x\nresources: 4\n"),
      "resources: expected fields (NAME: value), found the number 4"
  );
  EXPECT_EQ(words("7\n"), "the document: expected fields (NAME: value), found the number 7");
  EXPECT_EQ(words(R"({"command": "x"})"), "command: expected a list, found the string \"x\"");
}

TEST(JobFile, a_field_that_belongs_below_another_is_told_where) {
  const auto next = [](const std::string& text) { return parse_job_file(text).error().hint; };

  EXPECT_EQ(next("run: x\ncpus: 2\n"), "did you mean 'resources.cpus'?");
  EXPECT_EQ(next("run: x\ntell_file: a\n"), "did you mean 'interrupt.tell_file'?");
  EXPECT_EQ(next("run: x\noutput: a\n"), "did you mean 'outputs'?");
}

TEST(JobFile, what_other_tools_files_have_and_a_job_here_cannot_is_refused_with_what_to_do) {
  const auto words = [](const std::string& line) {
    const auto job = parse_job_file("run: x\n" + line + "\n");
    return job ? "" : job.error().message + "; next: " + job.error().hint;
  };

  EXPECT_EQ(
      words("num_nodes: 4"),
      "num_nodes: a job runs on one machine; next: ask for more GPUs there, or submit jobs that do "
      "not speak to each other"
  );
  EXPECT_EQ(
      words("file_mounts: {/data: s3://x}"),
      "file_mounts: no files are mounted or copied from elsewhere; next: name a folder with "
      "'workdir', and big data that nodes have with 'data'"
  );
  EXPECT_EQ(
      words("type: service"),
      "type: a job runs a command and ends; there is no 'service'; next: write 'type: task', or "
      "leave it out"
  );
  EXPECT_EQ(
      words("env: [HF_TOKEN]"),
      "env: 'HF_TOKEN' is not NAME=VALUE; next: give its value; variables of this machine are not "
      "taken along"
  );
  EXPECT_EQ(
      words("resources: {memory: 4GB, shm_size: 8GB}"),
      "resources.shm_size: /dev/shm is half as large as the job's memory; next: ask for memory: "
      "16384MB"
  );
  for (const char* field :
       {"files", "volumes", "ports", "retry", "schedule", "secrets", "utilization_policy"}) {
    const std::string said = words(std::string(field) + ": {a: 1}");
    EXPECT_TRUE(said.starts_with(std::string(field) + ": ")) << said;
    EXPECT_EQ(said.find("no such field"), std::string::npos) << said;
  }
}

TEST(JobFile, a_gpu_that_is_a_model_is_told_from_one_that_is_no_number) {
  Resources resources;
  EXPECT_EQ(
      parse_gpu("A100:2", resources).error().message,
      "gpu 'A100:2': GPU models cannot be asked for, only a number and memory"
  );
  EXPECT_EQ(
      parse_gpu("!x", resources).error().message,
      "gpu '!x': '!x' is no number of GPUs and no amount of memory"
  );
  EXPECT_EQ(
      parse_gpu("-1", resources).error().message, "gpu '-1': expected a whole number up to 64"
  );
}

TEST(JobFile, only_a_regular_file_is_read_and_a_pipe_is_not_waited_for) {
  const ScratchFolder folder;
  write_into(folder, "job.yaml", "run: x\n");
  write_into(folder, "long", std::string(kJobFileMaxBytes + 1, '#'));
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("job.yaml", folder.path() + "/link");
  const auto refusal = [&](const std::string& name) {
    const auto text = read_job_file(folder.path() + name);
    EXPECT_FALSE(text) << name;
    EXPECT_FALSE(text.error().hint.empty()) << name;
    return text ? Error{} : text.error();
  };

  EXPECT_EQ(read_job_file(folder.path() + "/job.yaml").value(), "run: x\n");
  EXPECT_EQ(read_job_file(folder.path() + "/link").value(), "run: x\n");
  EXPECT_EQ(refusal("/pipe").message, pipe + " is not a regular file");
  EXPECT_EQ(refusal("/pipe").code, ErrorCode::kInvalid);
  EXPECT_EQ(refusal("").message, folder.path() + " is a folder");
  EXPECT_EQ(refusal("").code, ErrorCode::kInvalid);
  EXPECT_EQ(refusal("/long").code, ErrorCode::kExhausted);
  EXPECT_EQ(refusal("/none").code, ErrorCode::kNotFound);
}

TEST(Login, a_file_that_is_none_is_said_once_with_what_to_do) {
  const ScratchFolder home;
  const std::string file = home.path() + "/reclaimnet/config.json";
  for (const char* name : {"RECLAIM_URL", "RECLAIM_TOKEN"}) ::unsetenv(name);
  ::setenv("XDG_CONFIG_HOME", home.path().c_str(), 1);
  const auto words = [&] {
    const auto login = load_login();
    return login ? "" : login.error().message + "; next: " + login.error().hint;
  };

  EXPECT_TRUE(words().starts_with("not logged in; next: reclaim login https://")) << words();
  ::setenv("RECLAIM_URL", "https://c:7443", 1);
  EXPECT_TRUE(words().starts_with("not logged in: RECLAIM_URL is set, RECLAIM_TOKEN is not; "));
  ::unsetenv("RECLAIM_URL");
  ::setenv("RECLAIM_TOKEN", "t", 1);
  EXPECT_TRUE(words().starts_with("not logged in: RECLAIM_TOKEN is set, RECLAIM_URL is not; "));
  ::unsetenv("RECLAIM_TOKEN");
  write_into(home, "reclaimnet/config.json", "");
  EXPECT_EQ(words(), file + " is empty; next: log in again: reclaim login URL --token T");
  write_into(home, "reclaimnet/config.json", "{");
  EXPECT_TRUE(words().starts_with(file + ": parse error at line 1, column 2: ")) << words();
  ::setenv("RECLAIM_URL", "https://c:7443", 1);
  ::setenv("RECLAIM_TOKEN", ("rnu1.t-1.secret." + std::string(64, 'a')).c_str(), 1);
  EXPECT_EQ(words(), "") << "all is said without the file";
  for (const char* name : {"RECLAIM_URL", "RECLAIM_TOKEN"}) ::unsetenv(name);
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_EQ(words(), file + " is a folder; next: move it away; a login writes a file there");
  ::unsetenv("XDG_CONFIG_HOME");
}

TEST(Login, its_file_lies_where_the_desktops_rules_put_it) {
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  ::setenv("HOME", "/home/ada", 1);
  ::unsetenv("XDG_CONFIG_HOME");

  EXPECT_EQ(login_path(), "/home/ada/.config/reclaimnet/config.json");
  ::setenv("XDG_CONFIG_HOME", "relative", 1);
  EXPECT_EQ(login_path(), "/home/ada/.config/reclaimnet/config.json") << "only a whole path counts";
  ::setenv("XDG_CONFIG_HOME", "/etc/ada", 1);
  EXPECT_EQ(login_path(), "/etc/ada/reclaimnet/config.json");
  ::unsetenv("XDG_CONFIG_HOME");
  ::unsetenv("HOME");
  EXPECT_TRUE(login_path().starts_with("/"));
  EXPECT_NE(login_path(), "/.config/reclaimnet/config.json") << "nobody's home is the root";
  ::setenv("HOME", home.c_str(), 1);
}

TEST(Login, a_fingerprint_that_is_none_is_named) {
  const auto words = [](const LoginOptions& options) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(login(options), 2);
    return testing::internal::GetCapturedStderr();
  };

  EXPECT_NE(words({"https://c", "t", ""}).find("this token does not carry one"), std::string::npos);
  EXPECT_NE(words({"https://c", "", ""}).find("there is no token to carry one"), std::string::npos);
  EXPECT_NE(words({"https://c", "t", "abc"}).find("--ca-fingerprint: 'abc'"), std::string::npos);
}

TEST(ImageAdd, what_is_no_file_is_named_once_before_anything_is_uploaded) {
  const ScratchFolder folder;
  const Client nobody(Login{"https://127.0.0.1:1", "secret", std::string(64, 'a')});
  const auto refusal = [&](const std::string& path) {
    return add_image(nobody, "x", path, "").error();
  };

  EXPECT_EQ(refusal(folder.path()).message, folder.path() + " is a folder");
  EXPECT_EQ(refusal(folder.path()).code, ErrorCode::kInvalid);
  const std::string none = folder.path() + "/none";
  EXPECT_EQ(refusal(none).message, "opening " + none + ": No such file or directory");
}

/// What run_job says of it, with an address where nobody answers: 6 is "it began to upload".
std::string words_of_run(const JobSpec& spec, int code) {
  const ScratchFolder folder;
  write_into(folder, "train.py", "x");
  const Client nobody(Login{"https://127.0.0.1:1", "secret", std::string(64, 'a')});
  RunOptions options;
  options.spec = spec;
  options.spec.command = {"true"};
  options.folder = folder.path();
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_job(nobody, options), code);
  return testing::internal::GetCapturedStderr();
}

TEST(Run, what_the_coordinator_would_refuse_is_refused_before_the_upload) {
  const auto said = [](auto change) {
    JobSpec spec;
    change(spec);
    return words_of_run(spec, 2);
  };
  const auto has = [](const std::string& words, const char* part) {
    EXPECT_NE(words.find(part), std::string::npos) << words;
  };

  has(said([](JobSpec& s) { s.checkpoint.is_told = true; }),
      "no signal to tell it with\n  next: name");
  has(said([](JobSpec& s) { s.checkpoint.tell_file = "/tmp/SAVE"; }),
      "checkpoint.tell_file: '/tmp/SAVE' is not the plain name of a file inside the job's folder\n"
      "  next: name a file relative to the folder");
  has(said([](JobSpec& s) {
        s.checkpoint.tell_hook = "sh save.sh";
        s.checkpoint.tell_api = true;
      }),
      "checkpoint.tell_hook: contradicts checkpoint.tell_api: it is told to save in one way\n"
      "  next: leave --tell-hook (interrupt.tell_hook) out, or --tell-api");
  has(said([](JobSpec& s) { s.env["RECLAIM_X"] = "1"; }),
      "env.RECLAIM_X: RECLAIM_ variables are set by the platform\n  next: leave it out");
  has(said([](JobSpec& s) { s.env["LD_PRELOAD"] = "1"; }), "env.LD_PRELOAD: steers the runtime");
  has(said([](JobSpec& s) { s.notice_s = 1200; }),
      "notice_s: more than 900\n  next: owners grant at most 15 min");
  has(said([](JobSpec& s) { s.checkpoint.paths = {"../x"}; }), "checkpoint.paths: '../x' is not");
  has(words_of_run({}, 6), "127.0.0.1");
}

}  // namespace
}  // namespace rn::cli
