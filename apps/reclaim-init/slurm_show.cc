// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "slurm.h"
#include <getopt.h>
#include <strings.h>
#include <unistd.h>

// squeue, sacct and `scontrol show job`: one row, the job that asks.
namespace rn::init {

namespace {

constexpr const char* kNodeList = "localhost";
constexpr int kColumnWidth = 12;

int unknown_option(const char* command) {
  fprintf(stderr, "%s: it shows this job alone; next: -j JOBID, -o FORMAT, -h\n", command);
  return 1;
}

/// "R" and "RUNNING" of a list with commas, in either case.
bool has_state(const char* list, const OwnJob& job) {
  const char* const brief = strcmp(job.state, "RUNNING") == 0 ? "R" : "CG";
  while (true) {
    const std::size_t size = strcspn(list, ",");
    for (const char* one : {job.state, brief, "all"}) {
      if (strlen(one) == size && strncasecmp(one, list, size) == 0) return true;
    }
    if (list[size] == '\0') return false;
    list += size + 1;
  }
}

/// What squeue's format calls by a letter: its title and its value. Null for letters that say
/// something that is not known in a job.
struct SqueueField {
  const char* title = nullptr;
  const char* value = nullptr;
};

SqueueField squeue_field(char letter, const OwnJob& job) {
  static char uid[16];
  static char elapsed[32];
  snprintf(uid, sizeof uid, "%u", static_cast<unsigned>(getuid()));
  print_time(elapsed, sizeof elapsed, job.run_s, false);
  switch (letter) {
    case 'i':
      return {"JOBID", job.id};
    case 'A':
      return {"JOBID", job.number};
    case 'F':
      return {"ARRAY_JOB_ID", variable("SLURM_ARRAY_JOB_ID", job.number)};
    case 'K':
      return {"ARRAY_TASK_ID", variable("SLURM_ARRAY_TASK_ID", "N/A")};
    case 'j':
      return {"NAME", job.name};
    case 'u':
      return {"USER", variable("USER", uid)};
    case 'U':
      return {"UID", uid};
    case 't':
      return {"ST", strcmp(job.state, "RUNNING") == 0 ? "R" : "CG"};
    case 'T':
      return {"STATE", job.state};
    case 'M':
      return {"TIME", elapsed};
    case 'D':
      return {"NODES", "1"};
    case 'N':
      return {"NODELIST", kNodeList};
    case 'B':
      return {"EXEC_HOST", kNodeList};
    case 'R':
      return {"NODELIST(REASON)", kNodeList};
    case 'Z':
      return {"WORK_DIR", variable("SLURM_SUBMIT_DIR", "/work")};
    default:
      return {};
  }
}

/// One line by squeue's format: "%.18i %T". False where it names what is not known.
bool print_by_letters(const char* format, const OwnJob& job, bool is_title) {
  for (const char* at = format; *at != '\0'; ++at) {
    if (*at != '%') {
      putchar(*at);
      continue;
    }
    ++at;
    const bool is_right = *at == '.';
    if (is_right) ++at;
    int width = 0;
    for (; isdigit(static_cast<unsigned char>(*at)) != 0; ++at)
      width = width > 999 ? width : width * 10 + (*at - '0');
    const SqueueField field = squeue_field(*at, job);
    if (field.title == nullptr) {
      fprintf(stderr, "squeue: error: '%%%c' of %s is not known inside a job\n", *at, format);
      return false;
    }
    const char* const text = is_title ? field.title : field.value;
    if (width == 0)
      fputs(text, stdout);
    else
      printf(is_right ? "%*.*s" : "%-*.*s", width, width, text);
  }
  putchar('\n');
  return true;
}

struct SacctField {
  const char* name;
  const char* value;
};

/// The fields of `sacct --format` that are known in a job; the last one's name is null.
const SacctField* sacct_fields(const OwnJob& job) {
  static char uid[16];
  static char elapsed[32];
  snprintf(uid, sizeof uid, "%u", static_cast<unsigned>(getuid()));
  print_time(elapsed, sizeof elapsed, job.run_s, true);
  static SacctField fields[] = {
      {"JobID", job.id},
      {"JobIDRaw", job.number},
      {"JobName", job.name},
      {"State", job.state},
      {"ExitCode", "0:0"},
      {"Elapsed", elapsed},
      {"NodeList", kNodeList},
      {"NNodes", "1"},
      {"NTasks", variable("SLURM_NTASKS", "1")},
      {"Restarts", job.restarts},
      {"UID", uid},
      {"User", variable("USER", uid)},
      {"WorkDir", variable("SLURM_SUBMIT_DIR", "/work")},
      {nullptr, nullptr}};
  return fields;
}

enum class Columns { kAligned, kBars, kBarsAtEnd };

/// The field that a word of the format names ("State", "jobname%20"), and its width.
const SacctField* find_field(const OwnJob& job, const char* word, std::size_t size, int& width) {
  const auto* const percent = static_cast<const char*>(memchr(word, '%', size));
  const std::size_t name = percent == nullptr ? size : static_cast<std::size_t>(percent - word);
  const long said = percent == nullptr ? kColumnWidth : strtol(percent + 1, nullptr, 10);
  width = said > -1000 && said < 1000 ? static_cast<int>(said) : kColumnWidth;
  for (const SacctField* one = sacct_fields(job); one->name != nullptr; ++one) {
    if (strlen(one->name) == name && strncasecmp(one->name, word, name) == 0) return one;
  }
  fprintf(
      stderr,
      "sacct: error: field \"%.*s\" is not known inside a job\n",
      static_cast<int>(size),
      word
  );
  return nullptr;
}

enum class SacctLine { kTitles, kDashes, kValues };

bool print_sacct_line(const OwnJob& job, const char* format, Columns columns, SacctLine line) {
  static constexpr char kDashes[] = "--------------------------------------------------";
  for (const char* at = format;;) {
    const std::size_t size = strcspn(at, ",");
    int width = 0;
    const SacctField* const field = find_field(job, at, size, width);
    if (field == nullptr) return false;
    const char* text = line == SacctLine::kTitles ? field->name : field->value;
    if (line == SacctLine::kDashes) text = kDashes;
    const bool is_last = at[size] == '\0';
    if (columns == Columns::kAligned)
      printf("%*.*s ", width, abs(width), text);
    else
      printf("%s%s", text, is_last && columns == Columns::kBars ? "" : "|");
    if (is_last) break;
    at += size + 1;
  }
  putchar('\n');
  return true;
}

}  // namespace

int run_squeue(int argc, char** argv) {
  static const option kOptions[] = {
      {"array", no_argument, nullptr, 'r'},
      {"format", required_argument, nullptr, 'o'},
      {"job", required_argument, nullptr, 'j'},
      {"jobs", required_argument, nullptr, 'j'},
      {"me", no_argument, nullptr, 'r'},
      {"noheader", no_argument, nullptr, 'h'},
      {"states", required_argument, nullptr, 't'},
      {"user", required_argument, nullptr, 'u'},
      {nullptr, 0, nullptr, 0}};
  const OwnJob job = OwnJob::read();
  const char* format = "%.18i %.20j %.8u %.2t %.10M %.6D %R";
  bool has_titles = true;
  bool is_shown = true;
  for (int one = 0; (one = getopt_long(argc, argv, "j:o:t:u:hr", kOptions, nullptr)) != -1;) {
    if (one == '?') return unknown_option("squeue");
    if (one == 'h') has_titles = false;
    if (one == 'o') format = optarg;
    if (one == 't') is_shown = has_state(optarg, job);
    if (one != 'j' || job.is_one_of(optarg)) continue;
    fprintf(stderr, "slurm_load_jobs error: Invalid job id specified\n");
    return 1;
  }
  if (has_titles && !print_by_letters(format, job, true)) return 1;
  return !is_shown || print_by_letters(format, job, false) ? 0 : 1;
}

int run_sacct(int argc, char** argv) {
  static const option kOptions[] = {
      {"allocations", no_argument, nullptr, 'X'},
      {"endtime", required_argument, nullptr, 'E'},
      {"format", required_argument, nullptr, 'o'},
      {"job", required_argument, nullptr, 'j'},
      {"jobs", required_argument, nullptr, 'j'},
      {"noheader", no_argument, nullptr, 'n'},
      {"parsable", no_argument, nullptr, 'p'},
      {"parsable2", no_argument, nullptr, 'P'},
      {"starttime", required_argument, nullptr, 'S'},
      {"user", required_argument, nullptr, 'u'},
      {nullptr, 0, nullptr, 0}};
  const OwnJob job = OwnJob::read();
  const char* format = "JobID,JobName,State,ExitCode";
  Columns columns = Columns::kAligned;
  bool has_titles = true;
  bool names_jobs = false;
  bool names_this = false;
  for (int one = 0; (one = getopt_long(argc, argv, "E:S:Xj:no:pPu:", kOptions, nullptr)) != -1;) {
    if (one == '?') return unknown_option("sacct");
    if (one == 'n') has_titles = false;
    if (one == 'o') format = optarg;
    if (one == 'p') columns = Columns::kBarsAtEnd;
    if (one == 'P') columns = Columns::kBars;
    if (one != 'j') continue;
    names_jobs = true;
    names_this = names_this || job.is_one_of(optarg);
  }
  if (has_titles && !print_sacct_line(job, format, columns, SacctLine::kTitles)) return 1;
  if (has_titles && columns == Columns::kAligned)
    print_sacct_line(job, format, columns, SacctLine::kDashes);
  if (names_jobs && !names_this) return 0;  // as sacct: no such job, no line
  return print_sacct_line(job, format, columns, SacctLine::kValues) ? 0 : 1;
}

int show_job(const OwnJob& job) {
  char elapsed[32];
  print_time(elapsed, sizeof elapsed, job.run_s, true);
  printf("JobId=%s", job.number);
  const char* const task = variable("SLURM_ARRAY_TASK_ID", "");
  if (*task != '\0')
    printf(" ArrayJobId=%s ArrayTaskId=%s", variable("SLURM_ARRAY_JOB_ID", job.number), task);
  const auto id = static_cast<unsigned>(getuid());
  printf(" JobName=%s\n   UserId=%u GroupId=%u\n", job.name, id, static_cast<unsigned>(getgid()));
  printf("   JobState=%s Reason=None\n   Restarts=%s ExitCode=0:0\n", job.state, job.restarts);
  printf("   RunTime=%s\n   NodeList=%s\n   BatchHost=%s\n", elapsed, kNodeList, kNodeList);
  printf("   NumNodes=1 NumTasks=%s\n", variable("SLURM_NTASKS", "1"));
  printf("   WorkDir=%s\n\n", variable("SLURM_SUBMIT_DIR", "/work"));
  return 0;
}

}  // namespace rn::init
