// SPDX-License-Identifier: Apache-2.0
// Submit files as people have them, and what becomes of their lines.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "cli_condor_file.h"
#include "cli_condor_lines.h"
#include "cli_condor_values.h"
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/job_rules.h"

namespace rn::cli {
namespace {

using Words = std::vector<std::string>;

CondorPlace a_folder() {
  CondorPlace place;
  place.folder = "/home/ada/digits";
  place.variable = [](const std::string& name) -> std::optional<std::string> {
    if (name == "WANDB_MODE") return "offline";
    return std::nullopt;
  };
  place.read = [](const std::string& path) -> Result<std::string> {
    if (path == "/home/ada/digits/list.txt") return "a 1\n# no\n\nb 2, 3\n";
    return fail(ErrorCode::kNotFound, "there is no file " + path);
  };
  return place;
}

/// With an executable, enough memory, and `queue` at its end.
std::string a_submit_file(const std::string& lines, const std::string& queue = "queue") {
  return "executable = train.sh\nrequest_memory = 4GB\n" + lines + "\n" + queue + "\n";
}

CondorFile file_of(const std::string& text) {
  auto file = parse_condor_file(text, a_folder());
  EXPECT_TRUE(file.has_value()) << file.error().describe();
  return file ? *std::move(file) : CondorFile{{CondorJob{}}, {}};
}

CondorJob condor_job_of(const std::string& lines) {
  return file_of(a_submit_file(lines)).jobs.front();
}

/// "message; next: hint" of a file that is refused.
std::string condor_refusal_of(const std::string& text) {
  const auto file = parse_condor_file(text, a_folder());
  if (file) return "";
  EXPECT_EQ(file.error().code, ErrorCode::kInvalid);
  return file.error().message + "; next: " + file.error().hint;
}

std::string condor_refusal_of_line(const std::string& line) {
  return condor_refusal_of(a_submit_file(line));
}

Words condor_warnings(const std::string& lines) {
  return file_of(a_submit_file(lines)).warnings;
}

TEST(CondorFile, a_training_job_of_a_tutorial_is_taken_as_it_is) {
  const CondorFile file = file_of(
      "# trains the digits\n"
      "executable     = train.sh\n"
      "arguments      = --epochs 20 --seed $(Process)\n"
      "Request_Cpus   = 4\n"
      "request_memory = 8GB\n"
      "request_disk   = 20GB\n"
      "request_gpus   = 1\n"
      "gpus_minimum_memory = 20GB\n"
      "gpus_minimum_capability = 8.0\n"
      "transfer_input_files = train.py, data/digits.csv, \\\n"
      "                       ../common/\n"
      "transfer_output_files = model.pt\n"
      "+SuccessCheckpointExitCode = 85\n"
      "queue\n"
  );

  ASSERT_EQ(file.jobs.size(), 1u);
  const JobSpec& spec = file.jobs[0].spec;
  EXPECT_EQ(spec.name, "train.sh");
  EXPECT_EQ(spec.command, (Words{"./train.sh", "--epochs", "20", "--seed", "0"}));
  EXPECT_EQ(spec.resources.cpu_milli, 4000u);
  EXPECT_EQ(spec.resources.memory_mib, 8u * 1024);
  EXPECT_EQ(spec.resources.disk_mib, 20u * 1024);
  EXPECT_EQ(spec.resources.gpus, 1u);
  EXPECT_EQ(spec.resources.gpu_memory_mib, 20u * 1024);
  EXPECT_EQ(spec.resources.compute_capability_min, "8.0");
  EXPECT_EQ(spec.checkpoint.outputs, (Words{"model.pt", "model.pt/"}));
  EXPECT_EQ(spec.env.at("_CONDOR_SCRATCH_DIR"), "/work");
  EXPECT_EQ(file.jobs[0].folder, "/home/ada/digits");
  EXPECT_EQ(
      file.jobs[0].inputs,
      (std::vector<InputFile>{
          {"/home/ada/digits/train.sh", "train.sh", true},
          {"/home/ada/digits/train.py", "train.py", false},
          {"/home/ada/digits/data/digits.csv", "digits.csv", false},
          {"/home/ada/common", "", false}})
  );
  EXPECT_EQ(file.warnings, Words{});
  EXPECT_TRUE(check_spec(spec).has_value());
}

TEST(CondorFile, is_known_by_its_first_statement_and_no_job_file_is_taken_for_one) {
  EXPECT_TRUE(is_condor_file("# a\n\n  Executable = a.sh\nqueue\n"));
  EXPECT_TRUE(is_condor_file("+Group = \"x\"\nqueue\n"));
  EXPECT_TRUE(is_condor_file("if true\nx = 1\nendif\nqueue 3\n"));
  EXPECT_TRUE(is_condor_file("executable = a.sh\n")) << "its error says what is missing";
  EXPECT_FALSE(is_condor_file("run: python3 train.py\nenv: [A=1]\n"));
  EXPECT_FALSE(is_condor_file("run: |\n  queue = 3\n  queue x\n"));
  EXPECT_FALSE(is_condor_file("{\"command\": [\"queue\"]}"));
  EXPECT_FALSE(is_condor_file("queue: 3\n"));
  EXPECT_FALSE(is_condor_file("include: x\n"));
  EXPECT_FALSE(is_condor_file(""));
}

TEST(CondorFile, arguments_are_read_in_both_quotings) {
  EXPECT_EQ(
      condor_arguments("one \\\"two\\\" 'three'").value(), (Words{"one", "\"two\"", "'three'"})
  );
  EXPECT_EQ(
      condor_arguments("\"one \"\"two\"\" 'spacey ''quoted'' argument' ''\"").value(),
      (Words{"one", "\"two\"", "spacey 'quoted' argument", ""})
  );
  EXPECT_EQ(condor_arguments("\"a\\b\"").value(), Words{"a\\b"});
  EXPECT_EQ(condor_arguments("\"\"").value(), Words{});
  for (const char* wrong : {"a \"b\"", "\"a", "\"a 'b\"", "\"a\"b\"", "\""})
    EXPECT_FALSE(condor_arguments(wrong).has_value()) << wrong;
  EXPECT_EQ(
      condor_refusal_of_line("arguments = \"a 'b\""),
      "line 3: arguments = \"a 'b\": a quote ' is not closed; next: close it, or write '' for one"
  );
}

TEST(CondorFile, variables_are_read_in_both_quotings) {
  const auto quoted =
      condor_job_of("environment = \"one=1 two=\"\"2\"\" three='spacey ''quoted'' value'\"")
          .spec.env;
  const auto plain = condor_job_of("env = one=1; two=a b;three=\"x\"").spec.env;

  EXPECT_EQ(quoted.at("two"), "\"2\"");
  EXPECT_EQ(quoted.at("three"), "spacey 'quoted' value");
  EXPECT_EQ(plain.at("two"), "a b");
  EXPECT_EQ(plain.at("three"), "\"x\"");
  EXPECT_EQ(condor_job_of("getenv = WANDB_MODE, HOME").spec.env.at("WANDB_MODE"), "offline");
  EXPECT_EQ(
      condor_warnings("getenv = true"),
      Words{
          "line 3: getenv = true: only variables that it names are passed on; others are those of "
          "the image"}
  );
  EXPECT_NE(
      condor_refusal_of_line("environment = \"A\"").find("'A' is not NAME=VALUE"), std::string::npos
  );
}

TEST(CondorFile, macros_are_filled_in_when_jobs_are_queued) {
  const CondorFile file = file_of(
      "base = run\n"
      "executable = $(base).sh\n"
      "request_memory = $(mib:512)\n"
      "arguments = $(item) $(later) $ENV(WANDB_MODE) $Fn(item)$Fx(item) $(DOLLAR)HOME $5\n"
      "later = $(base)-$(Process)\n"
      "base = $(base)2\n"
      "queue in (data/a.csv)\n"
  );

  EXPECT_EQ(
      file.jobs[0].spec.command,
      (Words{"./run2.sh", "data/a.csv", "run2-0", "offline", "a.csv", "$HOME", "$5"})
  );
  EXPECT_EQ(file.jobs[0].spec.resources.memory_mib, 512u);
  EXPECT_EQ(file.warnings, Words{});
  EXPECT_EQ(
      condor_warnings("arguments = --x $(nope)"),
      Words{"line 3: arguments = --x $(nope): $(nope) is said nowhere; nothing stands in its place"}
  );
  EXPECT_NE(
      condor_refusal_of_line("arguments = $(A)\nA = $(B)\nB = $(A)").find("in a circle"),
      std::string::npos
  );
  EXPECT_NE(
      condor_refusal_of_line("arguments = $$(Memory)").find("what the machine says"),
      std::string::npos
  );
  EXPECT_NE(
      condor_refusal_of_line("arguments = $INT(x)").find("is not filled in here"), std::string::npos
  );
  EXPECT_NE(
      condor_refusal_of_line("arguments = $(x").find("no closing parenthesis"), std::string::npos
  );
  EXPECT_NE(
      condor_refusal_of_line("arguments = $ENV(NOPE)").find("is not set here"), std::string::npos
  );
}

TEST(CondorFile, macros_that_double_themselves_end) {
  std::string lines = "a0 = xx\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "$(a" + std::to_string(i - 1) + ")";
    lines += "a" + std::to_string(i) + " = " + before + before + "\n";
  }

  EXPECT_NE(condor_refusal_of_line(lines + "arguments = $(a25)"), "");
  EXPECT_NE(condor_refusal_of_line(lines + "arguments = $(a39)"), "");
}

TEST(CondorFile, a_queue_makes_a_job_of_each_item) {
  const auto arguments = [](const std::string& queue, const std::string& line) {
    std::string all;
    for (const CondorJob& job : file_of(a_submit_file(line, queue)).jobs) {
      all += all.empty() ? "" : "|";
      for (std::size_t i = 1; i < job.spec.command.size(); ++i)
        all += (i == 1 ? "" : " ") + job.spec.command[i];
    }
    return all;
  };

  EXPECT_EQ(arguments("queue 3", "arguments = $(ProcId)"), "0|1|2");
  EXPECT_EQ(arguments("Queue x in (a b, c)", "arguments = $(x)$(Process)"), "a0|b1|c2");
  EXPECT_EQ(arguments("queue x in a, b", "arguments = $(X)"), "a|b");
  EXPECT_EQ(
      arguments("queue 2 x in (\n a\n b c\n)", "arguments = $(x)$(Step)$(Row)"),
      "a00|a10|b01|b11|c02|c12"
  );
  EXPECT_EQ(arguments("queue x,y from (\n a 1\n b, 2 3\n)", "arguments = $(x):$(y)"), "a:1|b:2 3");
  EXPECT_EQ(arguments("queue x, y from list.txt", "arguments = $(x):$(y)"), "a:1|b:2, 3");
  EXPECT_EQ(arguments("queue\narguments = two\nqueue 2", "arguments = one"), "one|two|two");
  EXPECT_EQ(arguments("queue $(n)", "n = 2\narguments = x"), "x|x");
  EXPECT_EQ(arguments("queue arguments in (a b)", ""), "a|b");
  EXPECT_EQ(file_of(a_submit_file("", "queue 2")).jobs[1].spec.name, "train.sh.1");
  EXPECT_EQ(file_of(a_submit_file("", "queue 1000")).jobs.size(), 1000u);
}

TEST(CondorFile, a_queue_that_means_no_jobs_here_is_refused_with_what_to_do) {
  const auto refusal = [](const std::string& queue) {
    return condor_refusal_of(a_submit_file("", queue));
  };

  EXPECT_EQ(
      condor_refusal_of("executable = a.sh\n"),
      "has no statement queue; next: add one as the last line: queue"
  );
  EXPECT_EQ(refusal("queue 0"), "queues no job; next: say queue, or queue and how many");
  EXPECT_EQ(
      refusal("queue x matching *.csv"),
      "line 4: queue x matching *.csv: names of files are not looked for; next: list them: queue x "
      "in (a.txt b.txt)"
  );
  for (const char* queue :
       {"queue 1001",
        "queue 600\nqueue 600",
        "queue x in (\na",
        "queue many",
        "queue x from ls |",
        "queue x from none.txt",
        "queue x in [1:] (a b)",
        "queue 3 (\na\n)"})
    EXPECT_NE(refusal(queue), "") << queue;
}

TEST(CondorFile, the_number_of_its_cluster_is_known_only_where_it_runs) {
  const CondorFile file = file_of(a_submit_file(
      "arguments = \"$(Cluster).$(Process) 'it''s'\"\nenvironment = RUN=c$(ClusterId)\n"
      "transfer_output_files = model_$(Cluster).pt",
      "queue 2"
  ));
  const auto said = [](const JobSpec& spec, const std::string& before) {
    std::string line = spec.command.at(2);
    line.replace(line.find("exec './train.sh'"), 17, "printf '%s|' \"$RUN\"");
    FILE* const pipe = ::popen((before + line).c_str(), "r");
    char text[200] = {};
    const std::size_t bytes = ::fread(text, 1, sizeof(text) - 1, pipe);
    EXPECT_EQ(::pclose(pipe), 0);
    return std::string(text, bytes);
  };

  ASSERT_EQ(file.jobs[0].spec.command.size(), 4u);
  EXPECT_EQ(file.jobs[0].spec.command[0], "/bin/sh");
  EXPECT_EQ(said(file.jobs[0].spec, "RECLAIM_JOB_NUMBER=17; "), "c17|17.0|it's|");
  EXPECT_EQ(
      said(file.jobs[1].spec, "RECLAIM_JOB_NUMBER=18; _CONDOR_CLUSTER_ID=17; "), "c17|17.1|it's|"
  );
  EXPECT_EQ(file.jobs[0].spec.checkpoint.outputs, (Words{"model_*.pt", "model_*.pt/"}));
  EXPECT_FALSE(file.jobs[0].spec.env.contains("RUN")) << "the shell sets it";
  EXPECT_NE(condor_refusal_of_line("initialdir = run$(Cluster)"), "");
  EXPECT_NE(condor_refusal_of_line("transfer_input_files = $(Cluster).csv"), "");
}

/// How `sh` ends that runs the job's line, in which the program is a shell that ends with `code`.
int status_of(const std::string& lines, int code) {
  const JobSpec spec = file_of(
                           "executable = /bin/sh\narguments = \"-c 'exit " + std::to_string(code) +
                           "'\"\nrequest_memory = 1GB\n" + lines + "\nqueue\n"
  )
                           .jobs.front()
                           .spec;
  Words words = spec.command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::fclose(stderr);
    ::execv(arguments.front(), arguments.data());
    ::_exit(126);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

TEST(CondorFile, codes_that_ask_for_another_run_are_ours_where_it_runs) {
  EXPECT_EQ(status_of("", 77), 77) << "a program without such lines runs as it is";
  EXPECT_EQ(status_of("checkpoint_exit_code = 77", 77), 85);
  EXPECT_EQ(status_of("checkpoint_exit_code = 77", 3), 3);
  EXPECT_EQ(status_of("My.SuccessCheckpointExitCode = 77", 0), 0);
  EXPECT_EQ(status_of("max_retries = 2", 3), 99);
  EXPECT_EQ(status_of("max_retries = 2", 0), 0);
  EXPECT_EQ(status_of("max_retries = 2\ncheckpoint_exit_code = 85", 85), 85);
  EXPECT_EQ(status_of("max_retries = 2\ncheckpoint_exit_code = 77", 77), 85);
  EXPECT_EQ(condor_job_of("max_retries = 2").spec.max_restarts, 2u);
  EXPECT_EQ(condor_job_of("checkpoint_exit_code = 85").spec.command, Words{"./train.sh"});
}

TEST(CondorFile, its_standard_input_is_a_file_that_is_uploaded) {
  const CondorJob job = condor_job_of("initialdir = run 1\ninput = in/it's.txt");

  EXPECT_EQ(job.spec.command[2], "exec './train.sh' <'it'\\''s.txt'");
  EXPECT_EQ(job.inputs[0].from, "/home/ada/digits/train.sh") << "whatever initialdir says";
  EXPECT_EQ(job.inputs[1].from, "/home/ada/digits/run 1/in/it's.txt");
  EXPECT_EQ(condor_job_of("input = /dev/null").inputs.size(), 1u);
}

TEST(CondorFile, a_program_of_the_image_is_not_uploaded) {
  const auto job = [](const std::string& lines) {
    return file_of("request_memory = 1GB\n" + lines + "\nqueue\n");
  };

  const CondorFile system = job("executable = /usr/bin/python3\narguments = -V");
  EXPECT_TRUE(system.jobs[0].inputs.empty());
  EXPECT_EQ(system.jobs[0].spec.command, (Words{"/usr/bin/python3", "-V"}));
  EXPECT_EQ(
      system.warnings,
      Words{"line 2: executable = /usr/bin/python3: the image's own is run, and not this machine's"}
  );
  EXPECT_EQ(job("executable = /home/ada/x.sh").jobs[0].spec.command, Words{"./x.sh"});
  EXPECT_EQ(
      job("transfer_executable = false\nexecutable = python3").jobs[0].spec.command,
      Words{"python3"}
  );
  const CondorFile container = job("container_image = docker://torch\nexecutable = /app/run");
  EXPECT_EQ(container.jobs[0].spec.image, "torch");
  EXPECT_EQ(container.jobs[0].spec.command, Words{"/app/run"});
  EXPECT_EQ(container.warnings, Words{});
}

TEST(CondorFile, amounts_are_counted_as_condor_submit_counts_them) {
  const auto resources = [](const std::string& line) {
    return file_of("executable = a.sh\n" + line + "\nqueue\n").jobs[0].spec.resources;
  };

  EXPECT_EQ(resources("request_memory = 500").memory_mib, 500u) << "a bare number counts MiB";
  EXPECT_EQ(resources("request_memory = 4 GB").memory_mib, 4096u);
  EXPECT_EQ(resources("request_disk = 5242880").disk_mib, 5120u) << "and of disk KiB";
  EXPECT_EQ(resources("request_disk = 1GB").disk_mib, 2048u) << "never less than a job has anyway";
  EXPECT_EQ(resources("gpus_minimum_memory = 4000").gpu_memory_mib, 4000u);
  EXPECT_EQ(
      file_of("executable = a.sh\nqueue\n").warnings,
      Words{
          "no line says how much memory it needs: it gets 1 GiB; for example request_memory = 16GB"}
  );
}

TEST(CondorFile, a_line_that_cannot_be_honoured_is_named_with_what_happens_instead) {
  const auto warning = [](const std::string& line) {
    const Words all = condor_warnings(line);
    return all.empty() ? std::string() : all.front();
  };

  EXPECT_EQ(
      warning("requirements = (Memory > 4000)"),
      "line 3: requirements = (Memory > 4000): machines cannot be chosen by expressions; it runs "
      "on "
      "any that has room"
  );
  EXPECT_EQ(
      warning("output = $(Process).$(nope).out"),
      "line 3: output = $(Process).$(nope).out: what it prints is kept in its log, both outputs in "
      "order ('reclaim logs JOB'), in no file"
  );
  EXPECT_EQ(
      warning("+ProjectName = \"x\""),
      "line 3: +ProjectName = \"x\": attributes are not kept with the job; it is left out"
  );
  EXPECT_EQ(
      warning("reqest_cpus = 4"),
      "line 3: reqest_cpus = 4: condor_submit has no such command, and nothing uses it (did you "
      "mean request_cpus?); it is left out"
  );
  EXPECT_EQ(
      warning("when_to_transfer_output = ON_EXIT"),
      "line 3: when_to_transfer_output = ON_EXIT: what it wrote is brought home only if it ends "
      "with 0; its log always"
  );
  EXPECT_EQ(warning("notification = Never"), "");
  EXPECT_EQ(warning("hold = False"), "");
  EXPECT_EQ(warning("should_transfer_files = IF_NEEDED"), "");
  EXPECT_EQ(file_of(a_submit_file("rank = Memory", "queue 3")).warnings.size(), 1u) << "said once";
}

TEST(CondorFile, what_would_make_it_another_job_is_refused_with_what_to_do) {
  EXPECT_EQ(
      condor_refusal_of_line("universe = parallel"),
      "line 3: universe = parallel: a job runs on one machine; next: ask for more cores and GPUs "
      "there, or queue jobs that do not speak to each other"
  );
  EXPECT_EQ(
      condor_refusal_of_line("should_transfer_files = NO"),
      "line 3: should_transfer_files = NO: there is no file system that all machines share; next: "
      "say YES, and name in transfer_input_files what it reads"
  );
  for (const char* line :
       {"universe = grid",
        "hold = true",
        "machine_count = 4",
        "deferral_time = 1700000000",
        "transfer_input_files = https://example.org/x",
        "transfer_output_files = /tmp/x",
        "transfer_output_files = ../x",
        "request_cpus = 2 * 2",
        "request_cpus = 0",
        "request_memory = lots",
        "request_memory = 0",
        "request_gpus = 65",
        "gpus_minimum_capability = >8",
        "checkpoint_exit_code = 256",
        "max_retries = -1",
        "success_exit_code = 3",
        "when_to_transfer_output = LATER",
        "preserve_relative_paths = True",
        "input = data/",
        "if true",
        "use feature : GPUs",
        "notes @=end",
        "just words",
        "arguments = \x02",
        "executable ="})
    EXPECT_NE(condor_refusal_of_line(line), "") << line;
  EXPECT_EQ(
      condor_refusal_of("request_memory = 1GB\nqueue\n"),
      "names no executable; next: add a line such as: executable = run.sh"
  );
}

TEST(CondorFile, its_times_signal_and_name_are_taken) {
  const JobSpec spec =
      condor_job_of(
          "kill_sig = SIGUSR1\njob_max_vacate_time = 1200\nallowed_execute_duration = 7200\n"
          "+MaxRuntime = 3600\nJobBatchName = \"sweep\"\ntransfer_checkpoint_files = ckpt.pt\n"
          "transfer_output_files = \"\""
      )
          .spec;

  EXPECT_EQ(spec.checkpoint.signal, SaveSignal::kUsr1);
  EXPECT_EQ(spec.notice_s, 900u);
  EXPECT_EQ(spec.max_duration_s, 3600u);
  EXPECT_EQ(spec.name, "sweep");
  EXPECT_EQ(spec.checkpoint.paths, (Words{"ckpt.pt", "ckpt.pt/"}));
  EXPECT_EQ(spec.checkpoint.outputs, Words{".condor-no-outputs/"});
  EXPECT_TRUE(check_spec(spec).has_value());
}

TEST(CondorFile, line_ends_of_dos_and_text_that_is_none) {
  EXPECT_EQ(
      file_of("executable = a.sh\r\nrequest_memory = 1GB\r\nqueue\r\n").jobs[0].spec.command,
      Words{"./a.sh"}
  );
  EXPECT_NE(condor_refusal_of("executable = \xff\nqueue\n").find("UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace rn::cli
