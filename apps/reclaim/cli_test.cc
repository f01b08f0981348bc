// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli_client.h"
#include "cli_commands.h"
#include "cli_config.h"
#include "cli_ignore.h"
#include "cli_job_file.h"
#include "cli_log_output.h"
#include "cli_print.h"
#include "cli_run.h"
#include "cli_run_flags.h"
#include "cli_save_file.h"
#include "cli_upload.h"
#include "command_line.h"
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/error_words.h"
#include "base/fenced_fs_fixture.h"
#include "base/places_fixture.h"
#include "base/scratch_folder.h"
#include "io/real_fs.h"

namespace rn::cli {
namespace {

/// A folder with files, removed at the end.
class Folder {
 public:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((std::filesystem::path(path()) / name).parent_path());
    std::ofstream(std::filesystem::path(path()) / name) << text;
  }

  const std::string& path() const { return scratch_.path(); }

 private:
  ScratchFolder scratch_;
};

std::vector<std::string> paths_of(const Listing& listing) {
  std::vector<std::string> paths;
  for (const ListedFile& file : listing.files) paths.push_back(file.path);
  return paths;
}

TEST(Nodes, what_an_owner_grants_to_copies_is_told_and_of_who_grants_all_nothing) {
  NodeFacts facts;
  EXPECT_EQ(words_of_facts(facts), "");
  facts.transfers_bps = 90'000'000;
  EXPECT_EQ(words_of_facts(facts), "  copies: its owner lets them send 90.0 Mbit/s together\n");
  facts.are_transfers_cut = true;
  facts.warnings = {"odd\n"};
  EXPECT_EQ(
      words_of_facts(facts),
      "  copies: none goes out or comes in, its owner has cut them\n  warning: odd\\n\n"
  );
}

TEST(Ignore, patterns_are_read_as_git_reads_them) {
  IgnoreRules rules;
  rules.add("", "*.log\n/build/\ndata/**/raw\n!keep.log\n# comment\n\n");

  EXPECT_TRUE(rules.ignores("a.log", false));
  EXPECT_TRUE(rules.ignores("sub/a.log", false));
  EXPECT_FALSE(rules.ignores("keep.log", false));
  EXPECT_TRUE(rules.ignores("build", true));
  EXPECT_FALSE(rules.ignores("build", false));
  EXPECT_FALSE(rules.ignores("sub/build", true));
  EXPECT_TRUE(rules.ignores("data/a/b/raw", true));
  EXPECT_FALSE(rules.ignores("data/raw.txt", false));
}

TEST(Ignore, a_folders_own_file_counts_from_there) {
  IgnoreRules rules;
  rules.add("sub", "/only\n");

  EXPECT_TRUE(rules.ignores("sub/only", false));
  EXPECT_FALSE(rules.ignores("only", false));
}

TEST(Ignore, globs_do_not_cross_folders_and_end_on_hostile_patterns) {
  EXPECT_TRUE(glob_matches("ckpt-[0-9]?.pt", "ckpt-42.pt"));
  EXPECT_FALSE(glob_matches("*.pt", "a/b.pt"));
  EXPECT_FALSE(glob_matches("*a*a*a*a*a*a*a*a*a*a*b", std::string(200, 'a')));
}

TEST(Upload, a_folder_is_listed_sorted_without_what_is_ignored) {
  const Folder folder;
  folder.write("train.py", "x");
  folder.write("data/digits.csv", "1,2");
  folder.write("data/big.bin", "y");
  folder.write(".git/config", "z");
  folder.write(".reclaim/j-1/attempt-1.log", "old");
  folder.write(".reclaimignore", "*.bin\n");

  const auto scan = scan_folder(folder.path(), 1 << 20);

  ASSERT_TRUE(scan.has_value()) << scan.error().describe();
  EXPECT_EQ(
      paths_of(scan->listing),
      (std::vector<std::string>{".reclaimignore", "data", "data/digits.csv", "train.py"})
  );
  EXPECT_EQ(
      words_of_left_out(*scan),
      "not uploaded, by .reclaimignore: data/big.bin (1 file, 1 B); a line !NAME in .reclaimignore "
      "takes NAME along"
  );
}

TEST(Upload, what_gitignore_leaves_out_is_said_and_reclaimignore_takes_it_along) {
  const Folder folder;
  folder.write("train.py", "x");
  folder.write("data/digits.csv", "1,2");
  folder.write("data/raw/more.csv", std::string(1024, '7'));
  std::filesystem::create_symlink("more.csv", folder.path() + "/data/raw/link");
  folder.write("model.pt", "m");
  folder.write(".gitignore", "data/\n*.pt\n");

  auto scan = scan_folder(folder.path(), 1 << 20);
  ASSERT_TRUE(scan);
  EXPECT_EQ(scan->left_out, (std::vector<std::string>{"data/", "model.pt"}));
  EXPECT_TRUE(words_of_left_out(*scan).starts_with(
      "not uploaded, by .gitignore: data/, model.pt (4 files, 1.0 KiB); "
  )) << words_of_left_out(*scan);

  folder.write(".reclaimignore", "!data/\n!*.pt\n");
  scan = scan_folder(folder.path(), 1 << 20);
  ASSERT_TRUE(scan);
  EXPECT_EQ(words_of_left_out(*scan), "");
}

TEST(Upload, a_folder_that_cannot_be_read_is_named_with_what_to_do) {
  const Folder folder;
  folder.write("closed/secret", "x");
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod((folder.path() + "/closed").c_str(), 0), 0);
  Result<FolderScan> scan = FolderScan{};
  std::thread([&] {
    constexpr uid_t kNobody = 65'534;  // root reads everything; the call is for this thread alone
    if (::geteuid() == 0 && ::syscall(SYS_setresuid, kNobody, kNobody, kNobody) != 0) return;
    scan = scan_folder(folder.path(), 1 << 20);
  }).join();

  ASSERT_FALSE(scan);
  EXPECT_TRUE(scan.error().message.starts_with("closed cannot be read")) << scan.error().message;
  EXPECT_EQ(scan.error().hint, "make it readable, or name it in .reclaimignore");
}

TEST(Upload, files_that_are_named_one_by_one_lie_side_by_side) {
  const Folder folder;
  folder.write("bin/run.sh", "true");
  folder.write("data/digits.csv", "1,2");
  folder.write("data/.gitignore", "*.csv\n");
  folder.write("lib/a/b.py", "x");
  std::filesystem::create_symlink("digits.csv", folder.path() + "/data/link.csv");

  auto scan = scan_inputs(
      {{folder.path() + "/bin/run.sh", "run.sh", true},
       {folder.path() + "/data/link.csv", "link.csv", false},
       {folder.path() + "/data", "data", false},
       {folder.path() + "/lib", "", false}},
      1 << 20
  );

  ASSERT_TRUE(scan.has_value()) << scan.error().describe();
  EXPECT_EQ(
      paths_of(scan->listing),
      (std::vector<std::string>{
          "a",
          "a/b.py",
          "data",
          "data/.gitignore",
          "data/digits.csv",
          "data/link.csv",
          "link.csv",
          "run.sh"})
  );
  EXPECT_EQ(scan->listing.files[7].mode & 0111, 0111u);
  EXPECT_EQ(scan->listing.files[6].kind, FileKind::kRegular) << "a link is what it leads to";
  ASSERT_TRUE(hash_files(scan->source, scan->listing).has_value());
  EXPECT_EQ(scan->listing.files[6].blobs, scan->listing.files[4].blobs);
  const auto gone = scan_inputs({{folder.path() + "/gone.py", "gone.py", false}}, 1 << 20);
  ASSERT_FALSE(gone.has_value());
  EXPECT_EQ(gone.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(scan_inputs({{folder.path() + "/lib", "lib", true}}, 1 << 20).has_value());
  EXPECT_EQ(
      scan_inputs({{folder.path() + "/data", "", false}}, 3).error().code, ErrorCode::kExhausted
  );
}

TEST(Upload, a_folder_above_the_limit_is_refused_with_its_biggest_files) {
  const Folder folder;
  folder.write("small.txt", "x");
  folder.write("big.bin", std::string(3000, 'y'));

  const auto scan = scan_folder(folder.path(), 1000);

  ASSERT_FALSE(scan.has_value());
  EXPECT_EQ(scan.error().code, ErrorCode::kExhausted);
  EXPECT_NE(scan.error().message.find("big.bin"), std::string::npos);
  EXPECT_NE(scan.error().hint.find(".reclaimignore"), std::string::npos);
}

TEST(Upload, files_are_named_by_the_digests_of_their_pieces) {
  const Folder folder;
  folder.write("two.bin", std::string(kPieceBytes, 'a') + "b");
  folder.write("empty", "");
  auto scan = scan_folder(folder.path(), 1 << 30);

  ASSERT_TRUE(hash_files(scan->source, scan->listing).has_value());

  EXPECT_TRUE(scan->listing.files[0].blobs.empty());
  ASSERT_EQ(scan->listing.files[1].blobs.size(), 2u);
  EXPECT_EQ(scan->listing.files[1].blobs[1], crypto::sha256(as_bytes("b")));
}

TEST(Upload, a_script_that_never_saves_is_noticed) {
  const Folder silent;
  silent.write("train.py", "for step in range(100): pass\n");
  const Folder saving;
  saving.write("train.py", "torch.save(model.state_dict(), 'c.pt')\n");
  const auto seems = [](const Folder& folder, const std::vector<std::string>& command) {
    return seems_to_save(
        {folder.path(), {}}, scan_folder(folder.path(), 1 << 20)->listing, command
    );
  };

  EXPECT_FALSE(seems(silent, {"python3", "train.py"}));
  EXPECT_TRUE(seems(saving, {"python3", "train.py"}));
  EXPECT_TRUE(seems(silent, {"echo", "hello"}));
}

TEST(Upload, a_script_that_saves_and_never_reads_back_is_told_from_one_that_goes_on) {
  const Folder saving;
  saving.write("main.py", "torch.save(model.state_dict(), 'model.pt')\n");
  const Folder resuming;
  resuming.write("main.py", "torch.save(state, 'c.pt')\n");
  resuming.write("lib/state.py", "model.load_state_dict(torch.load('c.pt'))\n");
  const auto seems = [](const Folder& folder, const std::vector<std::string>& command) {
    return seems_to_resume(
        {folder.path(), {}}, scan_folder(folder.path(), 1 << 20)->listing, command
    );
  };

  EXPECT_FALSE(seems(saving, {"python", "main.py"}));
  EXPECT_TRUE(seems(resuming, {"python", "main.py"}));
  EXPECT_TRUE(seems(saving, {"./main"}));
}

TEST(JobFile, native_fields_become_a_specification) {
  const auto job = parse_job_file(
      "name: digits\n"
      "workdir: .\n"
      "image: base\n"
      "resources: {cpus: 0.5, memory: 512MB, gpu: '24GB:2'}\n"
      "env: {SEED: 7}\n"
      "run:\n  - python3 train.py\n"
      "interrupt: {notice: 5m, signal: USR1, tell: true, checkpoint: checkpoint.pt, every: 30s}\n"
  );

  ASSERT_TRUE(job.has_value()) << job.error().describe();
  EXPECT_EQ(job->spec.name, "digits");
  EXPECT_EQ(job->folder, ".");
  EXPECT_EQ(job->spec.resources.cpu_milli, 500u);
  EXPECT_EQ(job->spec.resources.memory_mib, 512u);
  EXPECT_EQ(job->spec.resources.gpus, 2u);
  EXPECT_EQ(job->spec.resources.gpu_memory_mib, 24u * 1024);
  EXPECT_EQ(job->spec.env.at("SEED"), "7");
  EXPECT_EQ(job->spec.command, (std::vector<std::string>{"/bin/sh", "-ec", "python3 train.py"}));
  EXPECT_EQ(job->spec.notice_s, 300u);
  EXPECT_EQ(job->spec.checkpoint.signal, SaveSignal::kUsr1);
  EXPECT_TRUE(job->spec.checkpoint.is_told);
  EXPECT_EQ(job->spec.checkpoint.paths, std::vector<std::string>{"checkpoint.pt"});
  EXPECT_EQ(job->spec.checkpoint.min_interval_s, 30u);
}

TEST(JobFile, says_where_copies_lie_what_ends_a_save_and_whom_the_job_speaks_to) {
  const auto job = parse_job_file(
      "run: x\n"
      "copies: 2\n"
      "copies_at: [lab-b, n-7]\n"
      "complete_marker: done.txt\n"
      "max_restarts: 3\n"
      "peers: ['10.1.2.0/24:5000/udp', 10.9.9.9]\n"
      "data: [imagenet, digits]\n"
      "resources: {cpus_min: 0.25, compute_capability: '8.0'}\n"
  );

  ASSERT_TRUE(job.has_value()) << job.error().describe();
  EXPECT_EQ(job->spec.checkpoint.copies, 2u);
  EXPECT_EQ(job->spec.checkpoint.destinations, (std::vector<std::string>{"lab-b", "n-7"}));
  EXPECT_EQ(job->spec.checkpoint.complete_marker, "done.txt");
  EXPECT_EQ(job->spec.max_restarts, 3u);
  EXPECT_EQ(job->spec.data, (std::vector<std::string>{"imagenet", "digits"}));
  EXPECT_EQ(
      parse_job_file("run: x\ndata: digits\n")->spec.data, std::vector{std::string("digits")}
  );
  EXPECT_EQ(job->spec.resources.cpu_milli_min, 250u);
  EXPECT_EQ(job->spec.resources.compute_capability_min, "8.0");
  ASSERT_EQ(job->spec.peers.size(), 2u);
  EXPECT_EQ(job->spec.peers[0].prefix, "10.1.2.0/24");
  EXPECT_EQ(job->spec.peers[0].port, 5000u);
  EXPECT_EQ(job->spec.peers[0].protocol, "udp");
  EXPECT_EQ(job->spec.peers[1].prefix, "10.9.9.9/32");
  EXPECT_EQ(parse_peer("fd00::7")->prefix, "fd00::7/128");
  EXPECT_EQ(
      parse_job_file("run: x\ncopies: two\n").error().message,
      "copies: 'two' is no whole number from 1 to 8"
  );
  EXPECT_FALSE(parse_job_file("run: x\npeers: ['10.1.2.3:http']\n").has_value());
}

TEST(JobFile, files_of_skypilot_and_dstack_are_read_in_their_words) {
  const auto sky = parse_job_file(
      "name: my-task\nworkdir: .\nnum_nodes: 1\n"
      "resources: {accelerators: 2, cpus: 4+, memory: 32+, disk_size: 256}\n"
      "envs: {MODEL_SIZE: 13b}\n"
      "setup: |\n  echo set up  # once\n"
      "run: |\n  python train.py --size $MODEL_SIZE\n"
  );
  ASSERT_TRUE(sky.has_value()) << sky.error().describe();
  EXPECT_EQ(sky->spec.resources.gpus, 2u);
  EXPECT_EQ(sky->spec.resources.memory_mib, 32u * 1024);
  EXPECT_EQ(
      sky->spec.command.back(), "(\necho set up  # once\n\n)\npython train.py --size $MODEL_SIZE\n"
  );

  const auto dstack = parse_job_file(
      "type: task\nname: train\nnodes: 1\nenv: [SEED=7, EMPTY=]\n"
      "commands: [python train.py]\n"
      "resources: {gpu: '24GB..:1', memory: 16GB.., shm_size: 8GB}\nmax_duration: 2h\n"
  );
  ASSERT_TRUE(dstack.has_value()) << dstack.error().describe();
  EXPECT_EQ(dstack->spec.env, (std::map<std::string, std::string>{{"EMPTY", ""}, {"SEED", "7"}}));
  EXPECT_EQ(dstack->spec.resources.gpu_memory_mib, 24u * 1024);
}

TEST(JobFile, numbers_and_times_that_mean_nothing_are_refused) {
  for (const char* line :
       {"copies: 0",
        "copies: 9",
        "copies: -1",
        "priority: 8",
        "max_restarts: 1001",
        "max_duration: 0",
        "max_duration: -5m",
        "interrupt: {every: 0s}",
        "interrupt: {notice: 1x}",
        "resources: {cpus: 0}",
        "resources: {cpus: -2}",
        "resources: {memory: 1e99}",
        "resources: {memory: inf}",
        "resources: {gpu: -1}",
        "peers: [lab-a]",
        "peers: ['10.0.0.0/33']",
        "peers: ['10.1.2.3:0']",
        "peers: ['10.1.2.3:70000']"})
    EXPECT_FALSE(parse_job_file("run: x\n" + std::string(line) + "\n").has_value()) << line;
  EXPECT_EQ(parse_duration_s("0.2s").value(), 1u) << "never less than was asked for";
}

/// The first cell of each row of the table that follows `heading`, without its back-quotes.
std::vector<std::string> words_of_table(const std::string& file, const std::string& heading) {
  std::ifstream in(std::string(places::kDocs) + "/" + file);
  std::vector<std::string> words;
  std::string line;
  while (std::getline(in, line) && line != heading) {
  }
  while (std::getline(in, line) && !line.starts_with("#")) {
    if (!line.starts_with("| `")) continue;
    std::string cell = line.substr(2, line.find(" | ") - 2);
    for (std::size_t begin = cell.find('`'); begin != std::string::npos;) {
      const std::size_t end = cell.find('`', begin + 1);
      words.push_back(cell.substr(begin + 1, end - begin - 1));
      begin = cell.find('`', end + 1);
    }
  }
  std::sort(words.begin(), words.end());
  return words;
}

TEST(JobFile, names_the_jobs_that_it_waits_for) {
  const auto one = parse_job_file("run: x\nafter: 17\n");
  ASSERT_TRUE(one.has_value()) << one.error().describe();
  EXPECT_EQ(one->spec.after, (std::vector<AfterJob>{{"17", AfterWhen::kOk}}));
  const auto more = parse_job_file("run: x\nafter: [ok:17, fail:j-2, any:3, started:4]\n");
  ASSERT_TRUE(more.has_value()) << more.error().describe();
  EXPECT_EQ(
      more->spec.after,
      (std::vector<AfterJob>{
          {"17", AfterWhen::kOk},
          {"j-2", AfterWhen::kFail},
          {"3", AfterWhen::kAny},
          {"4", AfterWhen::kStarted}})
  );
  for (const char* wrong : {"later:17", "'ok:'", "''"}) {
    const auto refused = parse_job_file("run: x\nafter: " + std::string(wrong) + "\n");
    ASSERT_FALSE(refused.has_value()) << wrong;
    EXPECT_TRUE(refused.error().message.starts_with("after: ")) << refused.error().message;
  }
}

TEST(JobFile, its_fields_are_those_of_the_documentation) {
  EXPECT_EQ(words_of_table("guests.md", "## The job file"), job_file_words());
}

TEST(JobFile, an_unknown_field_is_refused_with_the_nearest_known_one) {
  const auto job = parse_job_file("run: x\nresources: {memroy: 1GB}\n");

  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().message, "resources.memroy: no such field");
  EXPECT_EQ(job.error().hint, "did you mean 'memory'?");
}

TEST(JobFile, a_wrong_value_names_its_field) {
  const auto job = parse_job_file("run: x\nresources: {memory: lots}\n");

  ASSERT_FALSE(job.has_value());
  EXPECT_TRUE(
      job.error().message.starts_with("resources: resources.memory: ") ||
      job.error().message.starts_with("resources.memory: ")
  ) << job.error().message;
}

TEST(JobFile, json_with_a_command_is_the_apis_own_form_and_strict) {
  EXPECT_EQ(parse_job_file(R"({"command": ["true"], "priority": 2})")->spec.priority, 2u);
  EXPECT_EQ(
      parse_job_file(R"({"command": ["true"], "priorty": 2})").error().hint,
      "did you mean 'priority'?"
  );
}

TEST(JobFile, a_file_by_which_a_job_is_told_to_save_is_named_and_not_empty) {
  const auto job = parse_job_file("run: x\ninterrupt: {tell_file: ctl/SAVE}\n");
  ASSERT_TRUE(job.has_value()) << job.error().describe();
  EXPECT_EQ(job->spec.checkpoint.tell_file, "ctl/SAVE");
  EXPECT_TRUE(saves_when_told(job->spec.checkpoint));

  const auto none = parse_job_file("run: x\ninterrupt: {tell_file: ''}\n");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "interrupt.tell_file: is empty");
  EXPECT_EQ(none.error().hint, "name a file, or leave the field out");
}

TEST(JobFile, a_hook_is_a_line_or_a_list_of_lines_and_not_empty) {
  const auto line = parse_job_file("run: x\ninterrupt: {tell_hook: sh save.sh}\n");
  ASSERT_TRUE(line.has_value()) << line.error().describe();
  EXPECT_EQ(line->spec.checkpoint.tell_hook, "sh save.sh");
  EXPECT_TRUE(saves_when_told(line->spec.checkpoint));
  const auto list = parse_job_file("run: x\ninterrupt: {tell_hook: [cd out, sh save.sh]}\n");
  ASSERT_TRUE(list.has_value()) << list.error().describe();
  EXPECT_EQ(list->spec.checkpoint.tell_hook, "cd out\nsh save.sh");

  for (const char* empty : {"''", "[]"}) {
    const auto none =
        parse_job_file("run: x\ninterrupt: {tell_hook: " + std::string(empty) + "}\n");
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().message, "interrupt.tell_hook: is empty");
    EXPECT_EQ(none.error().hint, "name a command, or leave the field out");
  }
}

TEST(JobFile, a_job_asks_the_api_itself_if_it_says_so) {
  const auto job = parse_job_file("run: x\ninterrupt: {tell_api: true}\n");
  ASSERT_TRUE(job.has_value()) << job.error().describe();
  EXPECT_TRUE(job->spec.checkpoint.tell_api);
  EXPECT_TRUE(saves_when_told(job->spec.checkpoint));
  EXPECT_FALSE(parse_job_file("run: x\ninterrupt: {tell_api: 'yes'}\n").has_value());
}

TEST(JobFile, a_job_without_a_command_is_refused) {
  EXPECT_EQ(parse_job_file("name: x\n").error().hint, "add 'run: python train.py'");
}

TEST(JobFile, amounts_are_read_in_their_units) {
  EXPECT_EQ(parse_memory_mib("2").value(), 2048u);
  EXPECT_EQ(parse_memory_mib("32GB..").value(), 32u * 1024);
  EXPECT_FALSE(parse_memory_mib("2 parsecs").has_value());
  EXPECT_EQ(parse_cpu_milli("4+").value(), 4000u);
  EXPECT_FALSE(parse_cpu_milli("-1").has_value());
  EXPECT_EQ(parse_duration_s("2h").value(), 7200u);
  EXPECT_EQ(parse_signal("SIGTERM").value(), SaveSignal::kTerm);
  EXPECT_FALSE(parse_signal("KILL").has_value());
  Resources resources;
  EXPECT_TRUE(parse_gpu("2", resources).has_value());
  for (const char* number : {"-1", "65", "+1"}) {
    const Status none = parse_gpu(number, resources);
    ASSERT_FALSE(none) << number;
    EXPECT_NE(none.error().message.find("expected a whole number up to 64"), std::string::npos)
        << none.error().message;
  }
  EXPECT_EQ(resources.gpus, 2u);
  EXPECT_FALSE(parse_gpu("A100", resources).has_value());
}

TEST(Login, a_token_carries_the_fingerprint) {
  const std::string print(64, 'a');

  EXPECT_EQ(fingerprint_in_token("rnu1.t-1.secret." + print), print);
  EXPECT_EQ(fingerprint_in_token("just-a-secret"), "");
}

TEST(ExitCodes, follow_the_errors_and_the_jobs) {
  EXPECT_EQ(exit_code_of(ErrorCode::kNotFound), 3);
  EXPECT_EQ(exit_code_of(ErrorCode::kDenied), 4);
  EXPECT_EQ(exit_code_of(ErrorCode::kConflict), 5);
  EXPECT_EQ(exit_code_of(ErrorCode::kUnavailable), 6);
  EXPECT_EQ(exit_code_of(ErrorCode::kTimeout), 7);
  EXPECT_EQ(exit_code_of(ErrorCode::kExhausted), 8);
  Job job;
  job.state = JobState::kFailed;
  EXPECT_EQ(exit_code_of_job(job), 1);
  job.exit_code = 256;
  EXPECT_EQ(exit_code_of_job(job), 1) << "never 0 without success";
  job.exit_code = 143;
  EXPECT_EQ(exit_code_of_job(job), 143);
  job.state = JobState::kSucceeded;
  EXPECT_EQ(exit_code_of_job(job), 0);
}

TEST(Errors, always_say_what_to_do_next) {
  for (const ErrorCode code : kErrorCodes)
    EXPECT_FALSE(with_next_step({code, "x", ""}, "https://c:7443").hint.empty());
}

TEST(Print, what_others_chose_is_printable_and_aligned) {
  EXPECT_EQ(
      table({"NAME", "B"}, {{"\x1b[2J\nx", "1"}, {"Größe", "2"}}),
      "NAME        B\n\\x1b[2J\\nx  1\nGröße       2\n"
  );
}

/// What LogOutput writes in a process whose standard output is a file.
std::string written(bool is_terminal, const std::vector<std::string>& pieces) {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/out";
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(file, STDOUT_FILENO);
    LogOutput output(is_terminal);
    for (const std::string& piece : pieces) (void)output.write(as_bytes(piece));
    ::_exit(output.finish() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(LogOutput, a_log_is_raw_in_a_file_and_printable_on_a_terminal) {
  const std::vector<std::string> pieces = {"a\x1b[31m\xe2\x82", "\xac\rb\n", "\xff"};

  EXPECT_EQ(written(false, pieces), "a\x1b[31m€\rb\n\xff");
  EXPECT_EQ(written(true, pieces), "a\\x1b[31m€\nb\n\\xff");
}

class SaveFile : public testing::Test {
 protected:
  Status save(const std::string& name, Replace replace, const std::string& text = "new") {
    return save_file(fenced, folder.path() + "/" + name, 0644, replace, [&](File& out) {
      return out.append(as_bytes(text));
    });
  }

  std::string read(const std::string& name) const {
    std::ifstream in(folder.path() + "/" + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  Folder folder;
  io::RealFileSystem disk;
  FencedFileSystem fenced{disk, folder.path()};
};

TEST_F(SaveFile, replaces_a_file_only_if_it_may_and_only_when_the_new_one_is_whole) {
  folder.write("there", "old");

  EXPECT_EQ(save("there", Replace::kNothing).error().code, ErrorCode::kConflict);
  EXPECT_EQ(read("there"), "old");
  const Status broken =
      save_file(fenced, folder.path() + "/there", 0644, Replace::kFile, [](File& out) -> Status {
        RN_CHECK(out.append(as_bytes("half")));
        return fail(ErrorCode::kUnavailable, "it broke off");
      });
  EXPECT_EQ(broken.error().message, "it broke off");
  EXPECT_EQ(read("there"), "old");
  EXPECT_FALSE(std::filesystem::exists(fresh_name(folder.path() + "/there")));

  EXPECT_TRUE(save("there", Replace::kFile));
  EXPECT_TRUE(save("fresh", Replace::kNothing));

  EXPECT_EQ(read("there"), "new");
  EXPECT_EQ(read("fresh"), "new");
}

TEST_F(SaveFile, a_name_may_be_as_long_as_names_are) {
  const std::string longest(255, 'n');

  EXPECT_TRUE(save(longest, Replace::kNothing));

  EXPECT_EQ(read(longest), "new");
}

TEST_F(SaveFile, folders_and_devices_are_never_replaced) {
  folder.write("full/inside", "kept");
  std::filesystem::create_directory(folder.path() + "/empty");
  ASSERT_EQ(::mkfifo((folder.path() + "/pipe").c_str(), 0600), 0);

  EXPECT_EQ(save("full", Replace::kFile).error().hint, "name a file");
  EXPECT_EQ(save("empty", Replace::kFile).error().hint, "name a file");
  EXPECT_EQ(save("pipe", Replace::kFile).error().hint, "name another file");

  EXPECT_EQ(read("full/inside"), "kept");
  EXPECT_TRUE(std::filesystem::is_fifo(folder.path() + "/pipe"));
  EXPECT_TRUE(fenced.refused().empty());
}

TEST(RunFlags, what_contradicts_itself_or_is_empty_is_refused) {
  const auto refusal = [](const std::vector<std::string>& words) -> std::string {
    CLI::App app;
    RunFlags flags;
    add_run_flags(app, flags);
    try {
      app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    const auto options = options_of(flags);
    return options ? "" : options.error().message;
  };

  EXPECT_EQ(refusal({"--copies", "8", "--max-upload-mib", "1", "--", "true"}), "");
  EXPECT_EQ(
      refusal({"--copies", "-1", "--", "true"}), "--copies: '-1' is no whole number from 1 to 8"
  );
  EXPECT_EQ(
      refusal({"--copies", "010", "--", "true"}),
      "--copies: '010' is no whole number from 1 to 8; next: leave out the zeros in front"
  );
  EXPECT_NE(refusal({"--max-upload-mib", "18446744073709551615", "--", "true"}), "");
  EXPECT_NE(refusal({"--stateless", "--checkpoint", "*.pt", "--", "true"}), "");
  EXPECT_NE(refusal({"--json", "--", "true"}), "") << "its log is no JSON";
  EXPECT_NE(refusal({"--memory", "", "--", "true"}), "");
  EXPECT_NE(refusal({"--notice", "-5m", "--", "true"}), "");
  EXPECT_NE(refusal({}), "");
}

TEST(Words, an_id_is_one_step_of_a_path) {
  for (const char* good : {"7", "j-12ab", "base", "sha256:00", "ada@lab", "a.b"})
    EXPECT_EQ(name_word(good), "") << good;
  for (const char* bad : {"", ".", "..", "a/b", "a b", "a?b", "\x1b"})
    EXPECT_NE(name_word(bad), "") << bad;
}

TEST(Nodes, guests_of_a_node_that_is_away_are_those_last_seen) {
  api::NodeInfo node;
  node.is_connected = true;
  EXPECT_EQ(guests_of(node), "0");
  node.telemetry.guests = 2;
  EXPECT_EQ(guests_of(node), "2");
  node.is_connected = false;
  EXPECT_EQ(guests_of(node), "2 (last seen)");
  node.telemetry.guests = 0;
  EXPECT_EQ(guests_of(node), "-") << "its silence may have begun before a guest's start was heard";
}

TEST(Print, tables_align_and_times_are_relative) {
  EXPECT_EQ(table({"A", "BB"}, {{"long", "x"}}), "A     BB\nlong  x\n");
  EXPECT_EQ(relative_time(1'000'000, 1'300'000), "5 min ago");
  EXPECT_EQ(relative_time(0, 5), "-");
  EXPECT_EQ(absolute_time(1'700'000'000'123), "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
}

}  // namespace
}  // namespace rn::cli
