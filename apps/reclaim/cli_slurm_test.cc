// SPDX-License-Identifier: Apache-2.0
// Scripts as people have them, on the left what they ask sbatch for, on the right what becomes of
// it.
#include <array>
#include <cstdio>
#include <map>
#include <optional>

#include "cli_slurm_lines.h"
#include "cli_slurm_script.h"
#include "cli_slurm_values.h"
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/job_rules.h"

namespace rn::cli {
namespace {

SlurmPlace a_place() {
  SlurmPlace place;
  place.script = "train.sbatch";
  place.folder = "/home/ada/digits";
  place.variable = [](const std::string& name) -> std::optional<std::string> {
    if (name == "WANDB_MODE") return "offline";
    return std::nullopt;
  };
  return place;
}

/// A script with these lines #SBATCH, each without it, and enough memory.
std::string a_script(const std::vector<std::string>& directives) {
  std::string text = "#!/bin/bash\n";
  for (const std::string& line : directives) text += "#SBATCH " + line + "\n";
  return text + "#SBATCH --mem=4G\npython3 train.py\n";
}

SlurmJob job_of(const std::vector<std::string>& directives) {
  auto job = parse_slurm_script(a_script(directives), a_place());
  EXPECT_TRUE(job.has_value()) << job.error().describe();
  return job ? *std::move(job) : SlurmJob{};
}

/// "message; next: hint" of a script that is refused.
std::string refusal_of(const std::string& text) {
  const auto job = parse_slurm_script(text, a_place());
  if (job) return "";
  EXPECT_EQ(job.error().code, ErrorCode::kInvalid);
  return job.error().message + "; next: " + job.error().hint;
}

std::string refusal(const std::string& directive) {
  return refusal_of(a_script({directive}));
}

std::string warning(const std::string& directive) {
  const SlurmJob job = job_of({directive});
  return job.warnings.empty() ? "" : job.warnings.front();
}

TEST(SlurmScript, a_training_script_of_a_tutorial_is_taken_as_it_is) {
  const auto job = parse_slurm_script(
      "#!/bin/bash\n"
      "#SBATCH --job-name=resnet        # shown by squeue\n"
      "#SBATCH --nodes=1\n"
      "#SBATCH --ntasks-per-node=2\n"
      "#SBATCH --cpus-per-task 4\n"
      "#SBATCH --gres=gpu:2\n"
      "#SBATCH --mem=32G\n"
      "#SBATCH -t 1-12:30:00\n"
      "#SBATCH --signal=B:USR1@120\n"
      "##SBATCH --nodes=8\n"
      "# SBATCH --nodes=8\n"
      "\n"
      "set -euo pipefail\n"
      "srun python train.py\n",
      a_place()
  );

  ASSERT_TRUE(job.has_value()) << job.error().describe();
  const JobSpec& spec = job->spec;
  EXPECT_EQ(spec.name, "resnet");
  EXPECT_EQ(spec.resources.gpus, 2u);
  EXPECT_EQ(spec.resources.cpu_milli, 8000u);
  EXPECT_EQ(spec.resources.memory_mib, 32u * 1024);
  EXPECT_EQ(spec.max_duration_s, 86'400u + 12 * 3600 + 30 * 60);
  EXPECT_EQ(spec.checkpoint.signal, SaveSignal::kUsr1);
  EXPECT_EQ(spec.notice_s, 120u);
  EXPECT_EQ(job->folder, "/home/ada/digits");
  EXPECT_TRUE(job->tasks.empty());
  ASSERT_EQ(spec.command.size(), 4u);
  EXPECT_EQ(spec.command[0], "/bin/bash");
  EXPECT_EQ(spec.command[1], "-c");
  EXPECT_TRUE(spec.command[2].ends_with("\nset -euo pipefail\nsrun python train.py\n"));
  EXPECT_EQ(spec.command[3], "train.sbatch");
  EXPECT_TRUE(check_spec(spec).has_value());
  EXPECT_EQ(
      job->warnings,
      std::vector<std::string>{
          "line 9: --signal=B:USR1@120: it is sent when the owner takes the machine back, not "
          "before --time is over"}
  );
}

TEST(SlurmScript, its_lines_keep_their_numbers_for_the_shells_own_errors) {
  const std::string text = job_of({"-J x"}).spec.command[2];

  std::size_t line = 1;
  const auto found = text.find("python3 train.py");
  ASSERT_NE(found, std::string::npos);
  for (std::size_t i = 0; i < found; ++i) line += text[i] == '\n' ? 1 : 0;
  EXPECT_EQ(line, 4u);
}

TEST(SlurmScript, its_own_shell_with_its_flags_runs_it) {
  const auto command = [](const std::string& first) {
    const auto job = parse_slurm_script(first + "\n#SBATCH --mem=1G\ntrue\n", a_place());
    std::vector<std::string> words;
    if (job) words = {job->spec.command.begin(), job->spec.command.end() - 3};
    return words;
  };

  EXPECT_EQ(command("#!/bin/bash -l"), (std::vector<std::string>{"/bin/bash", "-l"}));
  EXPECT_EQ(command("#! /bin/sh"), (std::vector<std::string>{"/bin/sh"}));
  EXPECT_EQ(
      command("#!/usr/bin/env -S bash -e"), (std::vector<std::string>{"/usr/bin/env", "-S bash -e"})
  );
  EXPECT_EQ(
      refusal_of("#!/usr/bin/env python3\nprint(1)\n"),
      "line 1: '#!/usr/bin/env python3' is none of sh, bash, dash and ksh; next: call it from a "
      "script that begins with #!/bin/bash, or by reclaim run -- COMMAND"
  );
}

TEST(SlurmScript, what_scripts_read_of_slurm_is_set_where_it_is_true) {
  const auto env = job_of({"-J x", "-n 4", "-c 2", "--gpus=1"}).spec.env;

  EXPECT_EQ(env.at("SLURM_JOB_NAME"), "x");
  EXPECT_EQ(env.at("SLURM_NTASKS"), "4");
  EXPECT_EQ(env.at("SLURM_CPUS_PER_TASK"), "2");
  EXPECT_EQ(env.at("SLURM_SUBMIT_DIR"), "/work");
  EXPECT_EQ(env.at("SLURM_NNODES"), "1");
  EXPECT_EQ(env.at("SLURM_GPUS"), "1");
  EXPECT_EQ(env.at("SLURM_MEM_PER_NODE"), "4096");
  const auto plain = job_of({"-J x"}).spec.env;
  EXPECT_FALSE(plain.contains("SLURM_NTASKS")) << "Lightning would take its world size from it";
  EXPECT_FALSE(plain.contains("SLURM_CPUS_PER_TASK")) << "sbatch sets it only if a line says it";
  EXPECT_FALSE(plain.contains("SLURM_ARRAY_TASK_ID"));
}

TEST(SlurmScript, memory_and_cores_are_counted_for_one_machine) {
  const auto resources = [](const std::string& lines) {
    const auto job = parse_slurm_script("#!/bin/sh\n" + lines + "true\n", a_place());
    EXPECT_TRUE(job.has_value()) << job.error().describe();
    return job ? job->spec.resources : Resources{};
  };

  EXPECT_EQ(resources("#SBATCH -n 4 -c 2 --mem-per-cpu=2G\n").memory_mib, 16u * 1024);
  EXPECT_EQ(resources("#SBATCH -G 2 --mem-per-gpu=10G\n").memory_mib, 20u * 1024);
  EXPECT_EQ(resources("#SBATCH -G 2 --cpus-per-gpu=3\n").cpu_milli, 6000u);
  EXPECT_EQ(resources("#SBATCH --mem=500\n").memory_mib, 500u) << "a bare number counts MiB";
  EXPECT_EQ(resources("#SBATCH --ntasks=2 --gpus-per-task=1\n").gpus, 2u);
  EXPECT_EQ(resources("#SBATCH --tmp=50G\n").disk_mib, 50u * 1024);
  EXPECT_EQ(resources("#SBATCH --gres=gpu\n").gpus, 1u);
  EXPECT_EQ(resources("#SBATCH --gres=gpu:a100:2,gpu:v100:1\n").gpus, 3u);
  EXPECT_EQ(resources("#SBATCH --gres=gpu:0\n").gpus, 0u);
}

TEST(SlurmScript, who_says_no_memory_is_told_how_much_it_gets) {
  const auto job = parse_slurm_script("#!/bin/bash\ntrue\n", a_place());

  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(
      job->warnings,
      std::vector<std::string>{
          "no line says how much memory it needs: it gets 1 GiB; for example #SBATCH --mem=16G"}
  );
}

TEST(SlurmScript, a_line_that_cannot_be_honoured_is_named_with_what_happens_instead) {
  EXPECT_EQ(
      warning("--partition=gpu"),
      "line 2: --partition=gpu: there are no partitions, accounts and reservations; it runs on any "
      "machine that has room"
  );
  EXPECT_EQ(
      warning("-o logs/%x-%j.out"),
      "line 2: -o logs/%x-%j.out: what it prints is kept in its log, both outputs in order "
      "('reclaim logs JOB'), in no file"
  );
  EXPECT_EQ(
      warning("--gres=gpu:a100:2"),
      "line 2: --gres=gpu:a100:2: models cannot be asked for; any GPU will do in place of a100 (a "
      "job file can ask for memory: gpu: 40GB:2)"
  );
  EXPECT_EQ(
      warning("--cpus-per-taks=4"),
      "line 2: --cpus-per-taks=4: sbatch has no such option (did you mean --cpus-per-task?); it is "
      "left out"
  );
  EXPECT_EQ(
      warning("--no-requeue"),
      "line 2: --no-requeue: an exit code that asks for another run fails it; after a reclaim it "
      "goes on"
  );
  EXPECT_EQ(
      warning("--signal=INT@30"),
      "line 2: --signal=INT@30: it is sent what it catches of USR1, USR2 and TERM"
  );
  EXPECT_EQ(
      warning("--signal=USR1@3600"),
      "line 2: --signal=USR1@3600: owners grant at most 900 s of notice"
  );
  EXPECT_EQ(job_of({"--no-requeue"}).spec.max_restarts, 0u);
  for (const char* silent :
       {"--requeue", "--open-mode=append", "-N 1", "--nodes=1-2", "-Q", "--begin=now", "--time=0"})
    EXPECT_EQ(warning(silent), "") << silent;
}

TEST(SlurmScript, a_line_below_the_first_command_is_said_to_be_too_late) {
  const auto job = parse_slurm_script(
      "#!/bin/bash\n#SBATCH --mem=1G\ncd src\n#SBATCH --nodes=4\ntrue\n", a_place()
  );

  ASSERT_TRUE(job.has_value()) << job.error().describe();
  EXPECT_EQ(
      job->warnings,
      std::vector<std::string>{"line 4: stands after the first command, where sbatch does not look "
                               "either; it is left out"}
  );
}

TEST(SlurmScript, commands_that_are_not_there_are_told_before_it_runs) {
  const auto job = parse_slurm_script(
      "#!/bin/bash\n#SBATCH --mem=1G\nmodule load cuda\nmodule load python\n"
      "# sbatch next.sh\ncd /home/ada/digits/src\n",
      a_place()
  );

  ASSERT_TRUE(job.has_value()) << job.error().describe();
  EXPECT_EQ(
      job->warnings,
      (std::vector<std::string>{
          "line 3: module: nothing is loaded; the job has what its image has (reclaim image ls)",
          "line 6: names /home/ada/digits: in the job this folder is /work ($SLURM_SUBMIT_DIR)"})
  );
}

TEST(SlurmScript, what_would_be_another_job_is_refused_with_what_to_do) {
  EXPECT_EQ(
      refusal("--nodes=4"),
      "line 2: --nodes=4: a job runs on one machine; next: ask for --nodes=1 and more GPUs there, "
      "or make an --array of jobs that do not speak to each other"
  );
  EXPECT_EQ(
      refusal("-n 8 --ntasks-per-node=4"),
      "line 2: -n 8: with --ntasks-per-node=4 it takes more than one machine; next: a job runs on "
      "one: ask for fewer tasks"
  );
  for (const char* line :
       {"-N 2-4",
        "--begin=20:00",
        "-H",
        "--test-only",
        "--input=in.txt",
        "--wrap=true",
        "--mem=0",
        "--mem-per-cpu=1G",  // beside --mem
        "hetjob"}) {
    const std::string said = refusal(line);
    EXPECT_TRUE(said.starts_with("line 2: ") || said.starts_with("line 3: ")) << line << said;
    EXPECT_FALSE(said.ends_with("next: ")) << line;
  }
}

TEST(SlurmScript, jobs_that_it_waits_for_are_taken_from_its_dependency) {
  const SlurmJob job =
      job_of({"-d afterany:3", "--dependency=afterok:17:18,afternotok:j-1,after:9"});

  EXPECT_EQ(
      job.spec.after,
      (std::vector<AfterJob>{
          {"17", AfterWhen::kOk},
          {"18", AfterWhen::kOk},
          {"j-1", AfterWhen::kFail},
          {"9", AfterWhen::kStarted}})
  ) << "the last line counts";
  EXPECT_TRUE(job.warnings.empty());
  EXPECT_TRUE(check_spec(job.spec).has_value());
  EXPECT_EQ(
      warning("--kill-on-invalid-dep=no"),
      "line 2: --kill-on-invalid-dep=no: it is cancelled when what it waits for can happen no more"
  );
  EXPECT_EQ(
      refusal("--dependency=singleton"),
      "line 2: --dependency=singleton: 'singleton' is none of afterok, afternotok, afterany and "
      "after, with the jobs behind it; next: for example --dependency=afterok:17:18, which waits "
      "for both"
  );
  for (const char* line :
       {"-d afterok",
        "-d afterok:",
        "-d 17",
        "-d afterok:17?afterok:18",
        "-d after:17+5",
        "-d afterok:17_3",
        "-d aftercorr:17",
        "-d afterok:17,,afterok:18"})
    EXPECT_TRUE(refusal(line).starts_with("line 2: ")) << line << refusal(line);
}

TEST(SlurmScript, values_that_mean_nothing_are_refused_with_their_line) {
  for (const char* line :
       {"--time=soon",
        "--time=1-",
        "--time=1:2:3:4",
        "--time=-5",
        "--time=99999999999999999999",
        "--mem=lots",
        "--mem=16X",
        "--mem=-1",
        "--mem=99999T",
        "--gres=gpu:65",
        "--gres=gpu:",
        "--gres=gpu:a100:x",
        "--gres=gpu:a:b:1",
        "--gpus=-1",
        "--gpus=4294967297",
        "-c 0",
        "-c 4.5",
        "-n 1001",
        "-N zero",
        "-c 1000 -n 1000",
        "--gpus-per-task=64 -n 2",
        "--array=",
        "--array=3-1",
        "--array=1-5:0",
        "--array=a",
        "--array=1,,2",
        "--array=0-9%0",
        "--array=1-2-3",
        "--signal=@30",
        "--signal=USR1@x",
        "--job-name='a",
        "--mem",
        "--requeue=yes",
        "oops"})
    EXPECT_TRUE(refusal(line).starts_with("line ")) << line << ": " << refusal(line);
}

TEST(SlurmScript, a_text_that_is_no_script_is_refused) {
  const auto begins = [](const std::string& text, const std::string& words) {
    const std::string said = refusal_of(text);
    EXPECT_TRUE(said.starts_with(words)) << said;
  };

  begins("", "its first line names no shell");
  begins("#SBATCH --mem=1G\ntrue\n", "its first line names no shell");
  begins("#!\ntrue\n", "line 1: no shell behind #!");
  begins("#!/bin/bash\n#SBATCH --mem=1G\n# nothing\n", "has no command, only comments");
  begins("#!/bin/bash\r\ntrue\r\n", "has line ends of DOS");
  begins(std::string("#!/bin/bash\n\0true\n", 18), "has a zero byte");
  begins("#!/bin/bash\necho \xff\n", "is not text in UTF-8");
}

TEST(SlurmScript, quotes_and_comments_are_read_as_sbatch_reads_them) {
  EXPECT_EQ(job_of({R"(--job-name="my job" # mine)"}).spec.name, "my job");
  EXPECT_EQ(job_of({R"(-J my\ job)"}).spec.name, "my job");
  EXPECT_EQ(job_of({"-Jx"}).spec.name, "x");
  EXPECT_EQ(job_of({"--job-name=a", "--job-name=b"}).spec.name, "b") << "the last one counts";
  EXPECT_EQ(job_of({}).spec.name, "train.sbatch");
}

TEST(SlurmScript, variables_are_passed_on_if_a_line_names_them) {
  const SlurmJob job = job_of({"--export=ALL,WANDB_MODE,SEED=7,NOT_THERE"});

  EXPECT_EQ(job.spec.env.at("WANDB_MODE"), "offline");
  EXPECT_EQ(job.spec.env.at("SEED"), "7");
  EXPECT_FALSE(job.spec.env.contains("NOT_THERE"));
  ASSERT_EQ(job.warnings.size(), 2u);
  EXPECT_NE(job.warnings[0].find("only variables that it names"), std::string::npos);
  EXPECT_NE(job.warnings[1].find("NOT_THERE is not set here"), std::string::npos);
  EXPECT_EQ(job_of({"--export=SLURM_NNODES=9"}).spec.env.at("SLURM_NNODES"), "1")
      << "what is true is not up to a line";
}

TEST(SlurmScript, its_folder_is_where_it_was_submitted_or_chdir) {
  EXPECT_EQ(job_of({"-D ../other/"}).folder, "/home/ada/other");
  EXPECT_EQ(job_of({"--chdir=/data/run"}).folder, "/data/run");
}

TEST(SlurmArray, its_tasks_and_how_many_of_them_run_at_once_are_taken) {
  const SlurmJob job = job_of({"--array=1-3,9,20-30:5%3"});

  EXPECT_EQ(job.tasks, (std::vector<std::uint32_t>{1, 2, 3, 9, 20, 25, 30}));
  EXPECT_EQ(job.at_most, 3u);
  EXPECT_TRUE(job.warnings.empty());
  EXPECT_EQ(job_of({"--array=1-9%1"}).at_most, 1u);
  EXPECT_EQ(job_of({"--array=1-9%1", "--array=0-4"}).at_most, 0u) << "the last line counts";
}

TEST(SlurmArray, a_million_tasks_are_refused_at_once) {
  EXPECT_EQ(
      refusal("--array=0-999999"),
      "line 2: --array=0-999999: more than 1000 tasks, each a job of its own; next: submit it in "
      "pieces, or let each task do a part of the work"
  );
  EXPECT_EQ(job_of({"--array=0-999999:1000"}).tasks.size(), 1000u);
  EXPECT_NE(refusal("--array=0-999,1000"), "");
}

TEST(SlurmTime, is_read_in_all_its_forms) {
  const std::map<std::string, std::uint64_t> forms = {
      {"90", 5400},
      {"90:30", 5430},
      {"01:30:00", 5400},
      {"1-12", 129'600},
      {"1-00:30", 88'200},
      {"2-08:00:09", 201'609},
      {"0", 0},
      {"UNLIMITED", 0}};
  for (const auto& [text, expected] : forms) EXPECT_EQ(slurm_seconds(text), expected) << text;
  EXPECT_FALSE(slurm_seconds("").has_value());
}

/// What a shell says that runs the prelude and these lines, and its exit code behind it.
std::string said_by(const std::string& shell, const std::string& lines) {
  const std::string text = slurm_prelude() + "\n" + lines;
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "no pipe";
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    for (const char* pair :
         {"RECLAIM_JOB_NUMBER=17", "RECLAIM_RESTART_COUNT=0", "RECLAIM_GPUS_NUM=2"})
      ::putenv(const_cast<char*>(pair));
    ::execlp(shell.c_str(), shell.c_str(), "-euc", text.c_str(), "x.sbatch", nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string said;
  std::array<char, 4096> buffer{};
  ssize_t got = 0;
  while ((got = ::read(ends[0], buffer.data(), buffer.size())) > 0)
    said.append(buffer.data(), static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return said + "exit " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 255);
}

class SlurmPrelude : public testing::TestWithParam<const char*> {};

TEST_P(SlurmPrelude, what_only_the_node_knows_is_in_variables) {
  EXPECT_EQ(
      said_by(GetParam(), "echo $SLURM_JOB_ID $SLURM_GPUS_ON_NODE ${SLURM_RESTART_COUNT-none}"),
      "17 2 none\nexit 0"
  );
  EXPECT_EQ(said_by(GetParam(), "echo $0"), "x.sbatch\nexit 0");
}

TEST_P(SlurmPrelude, srun_runs_its_command_once_for_each_task) {
  const char* const rank = R"(sh -c 'echo "$SLURM_PROCID of $SLURM_NTASKS"')";
  EXPECT_EQ(
      said_by(GetParam(), std::string("srun --cpu-bind=cores -u -c 4 --label ") + rank),
      "0 of 1\nexit 0"
  );
  EXPECT_EQ(
      said_by(GetParam(), std::string("srun -n 2 ") + rank + " | sort"), "0 of 2\n1 of 2\nexit 0"
  );
  EXPECT_EQ(
      said_by(GetParam(), std::string("export SLURM_NTASKS=2; srun -- ") + rank + " | sort"),
      "0 of 2\n1 of 2\nexit 0"
  );
}

TEST_P(SlurmPrelude, srun_ends_as_its_worst_task) {
  EXPECT_EQ(said_by(GetParam(), "srun sh -c 'exit 3'; echo no"), "exit 3");
  EXPECT_EQ(said_by(GetParam(), "srun -n3 sh -c 'exit $SLURM_PROCID'; echo no"), "exit 2");
  EXPECT_EQ(said_by(GetParam(), "srun false || echo handled"), "handled\nexit 0");
  EXPECT_EQ(said_by(GetParam(), "srun -n two true 2>/dev/null"), "exit 1");
}

TEST_P(SlurmPrelude, a_signal_that_the_script_traps_ends_no_srun) {
  EXPECT_EQ(
      said_by(
          GetParam(),
          "d=$(mktemp -d); trap 'touch $d/trapped' USR1; code=0\n"
          "srun -n 2 sh -c 'kill -USR1 $PPID; until [ -e $0/trapped ]; do :; done; exit 4' $d ||\n"
          "  code=$?\n"
          "rm -r $d; exit $code"
      ),
      "exit 4"
  );
}

TEST_P(SlurmPrelude, a_job_that_asks_scontrol_for_another_run_ends_so_that_it_gets_one) {
  EXPECT_EQ(said_by(GetParam(), "scontrol requeue $SLURM_JOB_ID; echo no"), "exit 99");
  EXPECT_EQ(said_by(GetParam(), "scontrol show hostnames x"), "localhost\nexit 0");
  EXPECT_EQ(
      said_by(GetParam(), "trap 'scontrol requeue $SLURM_JOB_ID' USR1; kill -USR1 $$; echo no"),
      "exit 99"
  );
}

TEST_P(SlurmPrelude, module_loads_nothing_and_fails_nothing) {
  EXPECT_EQ(said_by(GetParam(), "module load cuda 2>/dev/null; echo on"), "on\nexit 0");
}

INSTANTIATE_TEST_SUITE_P(Shells, SlurmPrelude, testing::Values("dash", "bash"));

}  // namespace
}  // namespace rn::cli
