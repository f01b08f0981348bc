// SPDX-License-Identifier: Apache-2.0
#include "slurm.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "leave.h"
#include <fcntl.h>
#include <unistd.h>

namespace rn::init {

namespace {

constexpr const char* kNode = "localhost";

/// Seconds since PID 1 began, by /proc/1/stat; -1 = not known.
std::int64_t age_of_guest_s() {
  const int fd = open("/proc/1/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  char text[1024];
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return -1;
  text[size] = '\0';
  const char* at = strrchr(text, ')');  // a name may have blanks
  constexpr int kStartTime = 22;
  for (int field = 2; at != nullptr && field < kStartTime; ++field) {
    at = strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  const long ticks = sysconf(_SC_CLK_TCK);
  timespec now{};
  if (at == nullptr || ticks <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return -1;
  const auto began_s = static_cast<std::int64_t>(strtoull(at, nullptr, 10)) / ticks;
  return now.tv_sec >= began_s ? now.tv_sec - began_s : 0;
}

int leave(const char* command, int code) {
  if (ask_to_leave(code)) return 0;
  fprintf(
      stderr,
      "%s: error: the job's first process cannot be told: /reclaim: %s; next: keep room on its "
      "disk "
      "and leave /reclaim as it is\n",
      command,
      strerror(errno)
  );
  return 1;
}

/// Who asks for another job than its own is answered as by Slurm.
bool is_own(const char* command, const OwnJob& job, const char* id) {
  if (job.is_named_by(id)) return true;
  fprintf(
      stderr,
      "%s: error: Invalid job id specified: %s; a job knows itself alone%s%s\n",
      command,
      id,
      *job.number == '\0' ? "" : ", as ",
      job.id
  );
  return false;
}

int show_hostnames(const char* list) {
  if (list == nullptr) list = variable("SLURM_JOB_NODELIST", kNode);
  if (strchr(list, '[') != nullptr) {
    fprintf(stderr, "scontrol: error: %s: a job here has one machine, %s\n", list, kNode);
    return 1;
  }
  for (; *list != '\0'; ++list) putchar(*list == ',' ? '\n' : *list);
  putchar('\n');
  return 0;
}

int run_scontrol(int argc, char** argv) {
  const char* const verb = argc > 1 ? argv[1] : "";
  const char* const what = argc > 2 ? argv[2] : nullptr;
  const OwnJob job = OwnJob::read();
  if (strcmp(verb, "requeue") == 0 && what != nullptr)
    return is_own("scontrol", job, what) ? leave("scontrol", kQueueAgain) : 1;
  const bool is_show = strcmp(verb, "show") == 0 && what != nullptr;
  if (is_show && strncmp(what, "hostname", 8) == 0)
    return show_hostnames(argc > 3 ? argv[3] : nullptr);
  if (is_show && (strcmp(what, "job") == 0 || strcmp(what, "jobs") == 0))
    return argc > 3 && !is_own("scontrol", job, argv[3]) ? 1 : show_job(job);
  fprintf(
      stderr,
      "scontrol: error: %s%s%s: not available inside a job; there are `requeue JOBID`, `show job` "
      "and `show hostnames`\n",
      *verb == '\0' ? "no command" : verb,
      what == nullptr ? "" : " ",
      what == nullptr ? "" : what
  );
  return 1;
}

int run_scancel(int argc, char** argv) {
  const OwnJob job = OwnJob::read();
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] != '-') continue;
    fprintf(
        stderr,
        "scancel: error: %s: not available inside a job; next: name the job alone, or signal its "
        "processes by kill\n",
        argv[i]
    );
    return 1;
  }
  for (int i = 1; i < argc; ++i) {
    if (!is_own("scancel", job, argv[i])) return 1;
  }
  if (argc > 1) return leave("scancel", kCancelled);
  fprintf(stderr, "scancel: error: No job identification provided\n");
  return 1;
}

int run_sbatch(int, char**) {
  fprintf(
      stderr,
      "sbatch: error: a job cannot submit another one; next: `reclaim submit SCRIPT` where you are "
      "logged in, one after the other with --wait; to go on later in this job, save and say "
      "`scontrol requeue $SLURM_JOB_ID`\n"
  );
  return 1;
}

}  // namespace

const char* variable(const char* name, const char* otherwise) {
  const char* const value = getenv(name);
  return value == nullptr ? otherwise : value;
}

OwnJob OwnJob::read() {
  OwnJob job{};
  job.number = variable("RECLAIM_JOB_NUMBER", variable("SLURM_JOB_ID", ""));
  const char* const array = variable("SLURM_ARRAY_JOB_ID", "");
  const char* const task = variable("SLURM_ARRAY_TASK_ID", "");
  if (*array != '\0' && *task != '\0')
    snprintf(job.id, sizeof job.id, "%s_%s", array, task);
  else
    snprintf(job.id, sizeof job.id, "%s", job.number);
  job.name = variable("SLURM_JOB_NAME", variable("RECLAIM_JOB_NAME", ""));
  job.restarts = variable("RECLAIM_RESTART_COUNT", variable("SLURM_RESTART_COUNT", "0"));
  job.state = asked_to_leave() == 0 ? "RUNNING" : "COMPLETING";
  job.run_s = age_of_guest_s();
  return job;
}

bool OwnJob::is_named_by(const char* id_text) const {
  return *number != '\0' && (strcmp(id_text, number) == 0 || strcmp(id_text, id) == 0);
}

bool OwnJob::is_one_of(const char* list) const {
  char one[sizeof id];
  while (true) {
    const std::size_t size = strcspn(list, ",");
    if (size < sizeof one) {
      memcpy(one, list, size);
      one[size] = '\0';
      if (is_named_by(one)) return true;
    }
    if (list[size] == '\0') return false;
    list += size + 1;
  }
}

void print_time(char* out, std::size_t size, std::int64_t seconds, bool is_long) {
  if (seconds < 0) {
    snprintf(out, size, "INVALID");
    return;
  }
  const long long days = seconds / 86'400;
  const int hours = static_cast<int>(seconds / 3600 % 24);
  const int minutes = static_cast<int>(seconds / 60 % 60);
  const int rest = static_cast<int>(seconds % 60);
  if (days > 0)
    snprintf(out, size, "%lld-%02d:%02d:%02d", days, hours, minutes, rest);
  else if (is_long)
    snprintf(out, size, "%02d:%02d:%02d", hours, minutes, rest);
  else if (hours > 0)
    snprintf(out, size, "%d:%02d:%02d", hours, minutes, rest);
  else
    snprintf(out, size, "%d:%02d", minutes, rest);
}

bool run_slurm(int argc, char** argv, int& code) {
  using Command = int (*)(int argc, char** argv);

  struct Named {
    const char* name;
    Command command;
  };

  constexpr Named kCommands[] = {
      {"sacct", run_sacct},
      {"sbatch", run_sbatch},
      {"scancel", run_scancel},
      {"scontrol", run_scontrol},
      {"squeue", run_squeue},
      {"srun", run_srun}};
  const char* const path = argc > 0 ? argv[0] : "";
  const char* const slash = strrchr(path, '/');
  const char* const called = slash == nullptr ? path : slash + 1;
  for (const Named& one : kCommands) {
    if (strcmp(called, one.name) != 0) continue;
    code = one.command(argc, argv);
    return true;
  }
  return false;
}

}  // namespace rn::init
