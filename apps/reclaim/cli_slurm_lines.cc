// SPDX-License-Identifier: Apache-2.0
#include "cli_slurm_lines.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/utf8.h"

namespace rn::cli {

namespace {

constexpr std::string_view kMark = "#SBATCH";
constexpr std::size_t kExcerptBytes = 60;

constexpr std::string_view kNoMail =
    "no mail is sent for it; 'reclaim notify add --mail ADDRESS' has it sent";
constexpr std::string_view kNoSites =
    "there are no partitions, accounts and reservations; it runs on any machine that has room";
constexpr std::string_view kNoNames =
    "machines cannot be chosen or left out by name or feature; it runs on any that has room";
constexpr std::string_view kOneLog =
    "what it prints is kept in its log, both outputs in order ('reclaim logs JOB'), in no file";
constexpr std::string_view kShared = "it shares the machine with others, and gets what it asks for";
constexpr std::string_view kNoMeaning = "it has no meaning here and is left out";
constexpr std::string_view kNoMounts =
    "nothing is mounted; its folder is /work, and data sets of the node are read as /data/NAME";

// What sbatch(1) lists, up to Slurm 24. Options that change nothing where a job has one machine and
// is always queued again have a reader that does nothing (cli_slurm_script.cc).
constexpr SlurmKind kKinds[] = {
    {"account", 'A', SlurmValue::kNeeded, kNoSites},
    {"acctg-freq", 0, SlurmValue::kNeeded, kNoMeaning},
    {"array", 'a', SlurmValue::kNeeded, {}},
    {"batch", 0, SlurmValue::kNeeded, kNoNames},
    {"bb", 0, SlurmValue::kNeeded, "there are no burst buffers; its disk is all there is"},
    {"bbf", 0, SlurmValue::kNeeded, "there are no burst buffers; its disk is all there is"},
    {"begin", 'b', SlurmValue::kNeeded, {}},
    {"chdir", 'D', SlurmValue::kNeeded, {}},
    {"clusters", 'M', SlurmValue::kNeeded, kNoSites},
    {"comment", 0, SlurmValue::kNeeded, "it is not kept with the job"},
    {"constraint", 'C', SlurmValue::kNeeded, kNoNames},
    {"container", 0, SlurmValue::kNeeded, "the image is that of --container-image, or base"},
    {"container-image", 0, SlurmValue::kNeeded, {}},
    {"container-mounts", 0, SlurmValue::kNeeded, kNoMounts},
    {"container-workdir", 0, SlurmValue::kNeeded, kNoMounts},
    {"contiguous", 0, SlurmValue::kNone, {}},
    {"core-spec", 'S', SlurmValue::kNeeded, kNoMeaning},
    {"cores-per-socket", 0, SlurmValue::kNeeded, kNoMeaning},
    {"cpu-freq", 0, SlurmValue::kNeeded, kNoMeaning},
    {"cpus-per-gpu", 0, SlurmValue::kNeeded, {}},
    {"cpus-per-task", 'c', SlurmValue::kNeeded, {}},
    {"deadline", 0, SlurmValue::kNeeded, "it is not removed when it cannot end in time"},
    {"delay-boot", 0, SlurmValue::kNeeded, kNoMeaning},
    {"dependency", 'd', SlurmValue::kNeeded, {}},
    {"distribution", 'm', SlurmValue::kNeeded, kNoMeaning},
    {"error", 'e', SlurmValue::kNeeded, kOneLog},
    {"exclude", 'x', SlurmValue::kNeeded, kNoNames},
    {"exclusive", 0, SlurmValue::kAfterEquals, kShared},
    {"export", 0, SlurmValue::kNeeded, {}},
    {"export-file", 0, SlurmValue::kNeeded, "no variables are read from there"},
    {"extra-node-info", 'B', SlurmValue::kNeeded, kNoMeaning},
    {"get-user-env", 0, SlurmValue::kAfterEquals, "the environment is that of the image"},
    {"gid", 0, SlurmValue::kNeeded, kNoMeaning},
    {"gpu-bind", 0, SlurmValue::kNeeded, "each task sees all of its job's GPUs"},
    {"gpu-freq", 0, SlurmValue::kNeeded, kNoMeaning},
    {"gpus", 'G', SlurmValue::kNeeded, {}},
    {"gpus-per-node", 0, SlurmValue::kNeeded, {}},
    {"gpus-per-socket", 0, SlurmValue::kNeeded, kNoMeaning},
    {"gpus-per-task", 0, SlurmValue::kNeeded, {}},
    {"gres", 0, SlurmValue::kNeeded, {}},
    {"gres-flags", 0, SlurmValue::kNeeded, kNoMeaning},
    {"hint", 0, SlurmValue::kNeeded, kNoMeaning},
    {"hold", 'H', SlurmValue::kNone, {}},
    {"ignore-pbs", 0, SlurmValue::kNone, {}},
    {"input", 'i', SlurmValue::kNeeded, {}},
    {"job-name", 'J', SlurmValue::kNeeded, {}},
    {"kill-on-invalid-dep", 0, SlurmValue::kNeeded, {}},
    {"licenses", 'L', SlurmValue::kNeeded, "licenses are not counted; it does not wait for one"},
    {"mail-type", 0, SlurmValue::kNeeded, kNoMail},
    {"mail-user", 0, SlurmValue::kNeeded, kNoMail},
    {"mcs-label", 0, SlurmValue::kNeeded, kNoMeaning},
    {"mem", 0, SlurmValue::kNeeded, {}},
    {"mem-bind", 0, SlurmValue::kNeeded, kNoMeaning},
    {"mem-per-cpu", 0, SlurmValue::kNeeded, {}},
    {"mem-per-gpu", 0, SlurmValue::kNeeded, {}},
    {"mincpus", 0, SlurmValue::kNeeded, kNoMeaning},
    {"network", 0, SlurmValue::kNeeded, kNoMeaning},
    {"nice", 0, SlurmValue::kAfterEquals, "its place in the queue stays as it is"},
    {"no-kill", 'k', SlurmValue::kAfterEquals, {}},
    {"no-requeue", 0, SlurmValue::kNone, {}},
    {"nodefile", 'F', SlurmValue::kNeeded, kNoNames},
    {"nodelist", 'w', SlurmValue::kNeeded, kNoNames},
    {"nodes", 'N', SlurmValue::kNeeded, {}},
    {"ntasks", 'n', SlurmValue::kNeeded, {}},
    {"ntasks-per-core", 0, SlurmValue::kNeeded, kNoMeaning},
    {"ntasks-per-gpu", 0, SlurmValue::kNeeded, "say --ntasks; it is not counted from the GPUs"},
    {"ntasks-per-node", 0, SlurmValue::kNeeded, {}},
    {"ntasks-per-socket", 0, SlurmValue::kNeeded, kNoMeaning},
    {"open-mode", 0, SlurmValue::kNeeded, {}},
    {"output", 'o', SlurmValue::kNeeded, kOneLog},
    {"overcommit", 'O', SlurmValue::kNone, kNoMeaning},
    {"oversubscribe", 's', SlurmValue::kAfterEquals, kShared},
    {"parsable", 0, SlurmValue::kNone, {}},
    {"partition", 'p', SlurmValue::kNeeded, kNoSites},
    {"prefer", 0, SlurmValue::kNeeded, kNoNames},
    {"priority", 0, SlurmValue::kNeeded, "its place in the queue stays as it is"},
    {"profile", 0, SlurmValue::kNeeded, kNoMeaning},
    {"propagate", 0, SlurmValue::kAfterEquals, "limits are those of the guest (docs/guests.md)"},
    {"qos", 'q', SlurmValue::kNeeded, kNoSites},
    {"quiet", 'Q', SlurmValue::kNone, {}},
    {"reboot", 0, SlurmValue::kNone, "no machine is started anew for it"},
    {"requeue", 0, SlurmValue::kNone, {}},
    {"reservation", 0, SlurmValue::kNeeded, kNoSites},
    {"segment", 0, SlurmValue::kNeeded, kNoMeaning},
    {"signal", 0, SlurmValue::kNeeded, {}},
    {"sockets-per-node", 0, SlurmValue::kNeeded, kNoMeaning},
    {"spread-job", 0, SlurmValue::kNone, {}},
    {"switches", 0, SlurmValue::kNeeded, kNoMeaning},
    {"test-only", 0, SlurmValue::kNone, {}},
    {"thread-spec", 0, SlurmValue::kNeeded, kNoMeaning},
    {"threads-per-core", 0, SlurmValue::kNeeded, kNoMeaning},
    {"time", 't', SlurmValue::kNeeded, {}},
    {"time-min", 0, SlurmValue::kNeeded, "its time is that of --time, and never made shorter"},
    {"tmp", 0, SlurmValue::kNeeded, {}},
    {"tres-bind", 0, SlurmValue::kNeeded, kNoMeaning},
    {"tres-per-task", 0, SlurmValue::kNeeded, "say --cpus-per-task and --gpus-per-task"},
    {"uid", 0, SlurmValue::kNeeded, kNoMeaning},
    {"use-min-nodes", 0, SlurmValue::kNone, {}},
    {"verbose", 'v', SlurmValue::kNone, {}},
    {"wait", 'W', SlurmValue::kNone, "say 'reclaim submit --wait'"},
    {"wait-all-nodes", 0, SlurmValue::kNeeded, {}},
    {"wckey", 0, SlurmValue::kNeeded, kNoSites},
    {"workdir", 0, SlurmValue::kNeeded, {}},
    {"wrap", 0, SlurmValue::kNeeded, {}},
};

const SlurmKind* kind_of_letter(char letter) {
  const auto* const found = std::find_if(
      std::begin(kKinds), std::end(kKinds), [&](const SlurmKind& k) { return k.letter == letter; }
  );
  return found == std::end(kKinds) ? nullptr : found;
}

std::string at_line(std::size_t line) {
  return "line " + std::to_string(line) + ": ";
}

/// The words of a directive, as sbatch splits them: by blanks; quotes and backslashes protect, and
/// '#' begins a comment.
Result<std::vector<std::string>> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool is_within = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && i + 1 < text.size()) {
      word += text[++i];
      is_within = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      is_within = true;
    } else if (c == '#') {
      break;
    } else if (c == ' ' || c == '\t') {
      if (is_within) words.push_back(std::exchange(word, {}));
      is_within = false;
    } else {
      word += c;
      is_within = true;
    }
  }
  if (quote != 0)
    return fail(
        ErrorCode::kInvalid,
        std::string("a quote ") + quote + " is not closed",
        "close it on the same line"
    );
  if (is_within) words.push_back(word);
  return words;
}

/// The options of one line.
class Directive {
 public:
  Directive(std::size_t line, std::vector<std::string> words, std::vector<SlurmOption>& out)
      : line_(line), words_(std::move(words)), out_(out) {}

  Status read() {
    while (next_ < words_.size()) {
      const std::string word = words_[next_++];
      if (word.size() > 2 && word.starts_with("--")) {
        RN_CHECK(read_long(word));
      } else if (word.size() > 1 && word.front() == '-' && word != "--") {
        RN_CHECK(read_letters(word));
      } else if (word == "hetjob" || word == "packjob") {
        return wrong(
            "a job of several parts is not possible here", "give each part a script of its own"
        );
      } else {
        return wrong(
            "'" + slurm_excerpt(word) + "' is no option",
            "options begin with dashes, for example --time=2:00:00"
        );
      }
    }
    return {};
  }

 private:
  Status read_long(const std::string& word) {
    const auto equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    SlurmOption option{line_, slurm_kind(name), name, "", word};
    if (equals != std::string::npos) option.value = word.substr(equals + 1);
    const bool has_value = equals != std::string::npos;
    if (option.kind != nullptr && option.kind->value == SlurmValue::kNone && has_value)
      return wrong("--" + name + " takes no value", "leave out what follows the '='");
    return finish(std::move(option), has_value);
  }

  /// "-n4", "-n 4", and flags one after the other: "-HQ".
  Status read_letters(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const SlurmKind* kind = kind_of_letter(word[i]);
      SlurmOption option{line_, kind, word.substr(i), "", slurm_excerpt(word)};
      if (kind != nullptr) option.name = kind->name;
      if (kind != nullptr && kind->value != SlurmValue::kNeeded) {
        out_.push_back(std::move(option));
        continue;
      }
      option.value = kind == nullptr ? "" : word.substr(i + 1);
      const bool has_value = !option.value.empty();
      return finish(std::move(option), has_value);
    }
    return {};
  }

  /// Takes the next word as the value where one belongs to it; of an option that nobody knows, a
  /// word that is no option.
  Status finish(SlurmOption option, bool has_value) {
    const bool may_follow =
        option.kind == nullptr ? next_ < words_.size() && !words_[next_].starts_with('-')
                               : option.kind->value == SlurmValue::kNeeded && next_ < words_.size();
    if (!has_value && may_follow) {
      option.value = words_[next_++];
      option.written += " " + option.value;
      has_value = true;
    }
    const bool is_needed = option.kind != nullptr && option.kind->value == SlurmValue::kNeeded;
    if (is_needed && (!has_value || option.value.empty()))
      return wrong(
          slurm_excerpt(option.written) + " has no value", "give it one, or remove the line"
      );
    option.written = slurm_excerpt(option.written);
    out_.push_back(std::move(option));
    return {};
  }

  tl::unexpected<Error> wrong(const std::string& message, const std::string& hint) const {
    return fail(ErrorCode::kInvalid, at_line(line_) + message, hint);
  }

  std::size_t line_;
  std::vector<std::string> words_;
  std::vector<SlurmOption>& out_;
  std::size_t next_ = 0;
};

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

/// "#!/bin/bash -l" as the kernel takes it: all after the program is one argument.
std::vector<std::string> interpreter_of(std::string_view line) {
  const std::string_view text = trimmed(line.substr(2));
  const auto blank = text.find_first_of(" \t");
  std::vector<std::string> words{std::string(text.substr(0, blank))};
  if (blank != std::string_view::npos) words.emplace_back(trimmed(text.substr(blank)));
  return words;
}

Status check_bytes(std::string_view text) {
  if (!is_utf8(text)) return fail(ErrorCode::kInvalid, "is not text in UTF-8", "save it in UTF-8");
  if (text.find('\0') != std::string_view::npos)
    return fail(ErrorCode::kInvalid, "has a zero byte", "give a script, and no program");
  if (text.find('\r') != std::string_view::npos)
    return fail(
        ErrorCode::kInvalid,
        "has line ends of DOS, which shells take for a part of each command",
        "remove them: sed -i 's/\\r//' SCRIPT"
    );
  return {};
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

const SlurmKind* slurm_kind(std::string_view name) {
  const auto* const found = std::find_if(
      std::begin(kKinds), std::end(kKinds), [&](const SlurmKind& k) { return k.name == name; }
  );
  return found == std::end(kKinds) ? nullptr : found;
}

std::vector<std::string> slurm_option_names() {
  std::vector<std::string> names;
  for (const SlurmKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::string slurm_excerpt(const std::string& text) {
  if (text.size() <= kExcerptBytes) return text;
  std::size_t end = kExcerptBytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

bool is_slurm_script(std::string_view text) {
  return text.starts_with("#!");
}

bool has_slurm_lines(std::string_view text) {
  return text.starts_with(kMark) || text.find("\n" + std::string(kMark)) != std::string_view::npos;
}

Result<SlurmScript> read_slurm_script(std::string_view text) {
  RN_CHECK(check_bytes(text));
  SlurmScript script;
  script.lines = lines_of(text);
  if (script.lines.empty() || !is_slurm_script(script.lines.front()))
    return fail(ErrorCode::kInvalid, "its first line names no shell", "begin it with #!/bin/bash");
  script.interpreter = interpreter_of(script.lines.front());
  if (script.interpreter.front().empty())
    return fail(ErrorCode::kInvalid, "line 1: no shell behind #!", "begin it with #!/bin/bash");
  bool has_begun = false;
  for (std::size_t i = 1; i < script.lines.size(); ++i) {
    const std::string_view line = script.lines[i];
    if (!line.starts_with(kMark)) {
      const std::string_view content = trimmed(line);
      has_begun = has_begun || (!content.empty() && !content.starts_with('#'));
      continue;
    }
    if (has_begun) {
      script.too_late.push_back(i + 1);
      continue;
    }
    auto words = words_of(line.substr(kMark.size()));
    if (!words) return fail(words.error().with("line " + std::to_string(i + 1)));
    RN_CHECK(Directive(i + 1, *std::move(words), script.options).read());
  }
  if (!has_begun)
    return fail(
        ErrorCode::kInvalid,
        "has no command, only comments",
        "add what it is to run, for example: python3 train.py"
    );
  return script;
}

}  // namespace rn::cli
