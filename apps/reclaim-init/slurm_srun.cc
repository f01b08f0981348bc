// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "slurm.h"
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rn::init {

namespace {

constexpr int kTasksMax = 1024;
/// Options of srun are for other machines and other queues: they are passed over, but for the
/// number of tasks. These take no value as the next word.
constexpr const char* kBare[] = {
    "--contiguous",
    "--exact",
    "--exclusive",
    "--immediate",
    "--kill-on-bad-exit",
    "--label",
    "--no-kill",
    "--overcommit",
    "--overlap",
    "--oversubscribe",
    "--preserve-env",
    "--propagate",
    "--pty",
    "--quiet",
    "--spread-job",
    "--unbuffered",
    "--use-min-nodes",
    "--verbose",
    "--whole"};
constexpr char kBareLetters[] = "EHIKOQXZklsuv";

/// The value of option `name`, or -`letter` (0 = it has none), that begins at `words`, and how many
/// words it takes; null if it is another one.
const char* value_at(char** words, const char* name, char letter, int& used) {
  const char* const word = words[0];
  const bool is_letter = letter != '\0' && word[0] == '-' && word[1] == letter;
  used = 2;
  if (strcmp(word, name) == 0 || (is_letter && word[2] == '\0')) return words[1];
  used = 1;
  const std::size_t size = strlen(name);
  if (strncmp(word, name, size) == 0 && word[size] == '=') return word + size + 1;
  return is_letter ? word + 2 : nullptr;
}

/// How many words to pass over at `words`.
int words_of_option(char** words) {
  const char* const word = words[0];
  if (word[1] != '-') {
    const bool has_value = word[2] == '\0' && strchr(kBareLetters, word[1]) == nullptr;
    return has_value ? 2 : 1;
  }
  if (strchr(word, '=') != nullptr) return 1;
  for (const char* bare : kBare) {
    if (strcmp(word, bare) == 0) return 1;
  }
  return 2;
}

struct SrunLine {
  const char* tasks = nullptr;
  const char* tasks_per_node = nullptr;
  char** command = nullptr;  ///< its first word may be null

  static SrunLine read(int argc, char** argv) {
    SrunLine line;
    int at = 1;
    while (at < argc && argv[at][0] == '-' && argv[at][1] != '\0') {
      if (strcmp(argv[at], "--") == 0) {
        ++at;
        break;
      }
      int used = 0;
      if (const char* const count = value_at(argv + at, "--ntasks", 'n', used))
        line.tasks = count;
      else if (const char* const each = value_at(argv + at, "--ntasks-per-node", '\0', used))
        line.tasks_per_node = each;
      else
        used = words_of_option(argv + at);
      at += used;
    }
    line.command = argv + (at < argc ? at : argc);
    return line;
  }
};

/// 0 = no such number.
int number_of_tasks(const char* text) {
  char* end = nullptr;
  const long count = strtol(text, &end, 10);
  const bool is_number = *text >= '0' && *text <= '9' && *end == '\0';
  return is_number && count > 0 && count <= kTasksMax ? static_cast<int>(count) : 0;
}

void set_number(const char* name, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  setenv(name, text, 1);
}

[[noreturn]] void become_task(int rank, int tasks, const char* tasks_per_node, char** command) {
  set_number("SLURM_NTASKS", tasks);
  set_number("SLURM_NPROCS", tasks);
  set_number("SLURM_STEP_NUM_TASKS", tasks);
  set_number("SLURM_STEP_NUM_NODES", 1);
  set_number("SLURM_PROCID", rank);
  set_number("SLURM_LOCALID", rank);
  set_number("SLURM_NODEID", 0);
  set_number("SLURM_TASK_PID", getpid());
  setenv("SLURM_STEP_NODELIST", variable("SLURM_JOB_NODELIST", "localhost"), 1);
  if (tasks_per_node != nullptr) setenv("SLURM_NTASKS_PER_NODE", tasks_per_node, 1);
  execvp(command[0], command);
  const int error = errno;
  fprintf(stderr, "srun: error: cannot run %s: %s\n", command[0], strerror(error));
  fflush(stderr);
  _exit(error == ENOENT ? 127 : 126);
}

/// Tasks side by side. Signals are passed on to them, as srun does: it blocks these and reads them
/// from a descriptor, so that by SigCgt it catches none and the node signals the tasks alone.
struct Step {
  pid_t pids[kTasksMax] = {};  ///< 0 = it has ended
  int tasks = 0;
  int running = 0;
  int worst = 0;
  sigset_t before{};

  int block() {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int one : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCHLD})
      sigaddset(&mask, one);
    sigprocmask(SIG_BLOCK, &mask, &before);
    return signalfd(-1, &mask, SFD_CLOEXEC);
  }

  void signal_all(int number) const {
    for (int i = 0; i < tasks; ++i) {
      if (pids[i] != 0) kill(pids[i], number);
    }
  }

  /// srun's own code is the greatest of theirs.
  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      for (int i = 0; i < tasks; ++i) {
        if (pids[i] != pid) continue;
        pids[i] = 0;
        --running;
        if (code > worst) worst = code;
      }
    }
  }

  void wait(int signals) {
    signalfd_siginfo got{};
    while (running > 0) {
      if (read(signals, &got, sizeof got) != static_cast<ssize_t>(sizeof got)) continue;
      const int number = static_cast<int>(got.ssi_signo);
      // What the guest's first process sends it sends to all of them.
      if (number == SIGCHLD)
        reap();
      else if (got.ssi_pid != 1)
        signal_all(number);
    }
  }
};

}  // namespace

int run_srun(int argc, char** argv) {
  const SrunLine line = SrunLine::read(argc, argv);
  const char* text = line.tasks;
  if (text == nullptr) text = line.tasks_per_node;
  if (text == nullptr) text = variable("SLURM_NTASKS", "1");
  const int tasks = number_of_tasks(text);
  if (tasks == 0 || line.command[0] == nullptr) {
    if (tasks == 0)
      fprintf(stderr, "srun: error: '%s' is no number of tasks from 1 to %d\n", text, kTasksMax);
    else
      fprintf(stderr, "srun: error: no command; next: srun [-n TASKS] COMMAND...\n");
    return 1;
  }
  if (tasks == 1) become_task(0, 1, line.tasks_per_node, line.command);
  static Step step;
  const int signals = step.block();
  if (signals < 0) {
    fprintf(stderr, "srun: error: signalfd: %s\n", strerror(errno));
    return 1;
  }
  for (; step.tasks < tasks; ++step.tasks) {
    const pid_t pid = fork();
    if (pid == 0) {
      sigprocmask(SIG_SETMASK, &step.before, nullptr);
      become_task(step.tasks, tasks, line.tasks_per_node, line.command);
    }
    if (pid < 0) {
      fprintf(stderr, "srun: error: task %d cannot be started: %s\n", step.tasks, strerror(errno));
      step.signal_all(SIGTERM);
      step.worst = 1;
      break;
    }
    step.pids[step.tasks] = pid;
    ++step.running;
  }
  step.wait(signals);
  return step.worst;
}

}  // namespace rn::init
