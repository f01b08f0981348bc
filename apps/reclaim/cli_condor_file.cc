// SPDX-License-Identifier: Apache-2.0
#include "cli_condor_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "cli_condor_job.h"
#include "cli_condor_lines.h"
#include "cli_condor_values.h"

#include "base/utf8.h"
#include "base/whole_number.h"
#include "model/codec_detail.h"

namespace rn::cli {

namespace {

/// What `queue` says: so many jobs for each item.
struct CondorQueue {
  std::uint32_t count = 1;
  std::vector<std::string> names;
  std::vector<std::string> items;
  bool has_list = false;
};

Error refused_line(const CondorStatement& by, const std::string& what, const std::string& next) {
  return {
      ErrorCode::kInvalid,
      "line " + std::to_string(by.line) + ": " + by.written + ": " + what,
      next};
}

/// The word at the front of `rest`, which is taken away; a parenthesis ends it, too.
std::string take_word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  const std::size_t end = std::min(rest.find_first_of(" \t(", rest.empty() ? 0 : 1), rest.size());
  std::string word(rest.substr(0, end));
  rest.remove_prefix(end);
  return word;
}

/// An item's words for so many variables; the last one gets the rest.
std::vector<std::string> values_of(const std::string& item, std::size_t count) {
  std::vector<std::string> values;
  std::string_view rest = item;
  while (values.size() + 1 < count) {
    const std::size_t end = std::min(rest.find_first_of(", \t"), rest.size());
    values.push_back(condor_trimmed(rest.substr(0, end)));
    rest.remove_prefix(end);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    if (rest.starts_with(',')) rest.remove_prefix(1);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  }
  values.push_back(condor_trimmed(rest));
  return values;
}

class CondorSubmit {
 public:
  explicit CondorSubmit(const CondorPlace& place) : place_(place), macros_(place.variable) {}

  Result<CondorFile> read(std::string_view text) {
    RN_TRY(const auto statements, read_condor_lines(text));
    bool has_queue = false;
    for (const CondorStatement& one : statements) {
      has_queue = has_queue || one.is_queue;
      RN_CHECK(one.is_queue ? queue(one) : set(one));
    }
    if (!has_queue)
      return fail(ErrorCode::kInvalid, "has no statement queue", "add one as the last line: queue");
    if (file_.jobs.empty())
      return fail(ErrorCode::kInvalid, "queues no job", "say queue, or queue and how many");
    warn_of_unused();
    if (file_.jobs.size() > 1) {
      for (std::size_t i = 0; i < file_.jobs.size(); ++i)
        file_.jobs[i].spec.name += "." + std::to_string(i);
    }
    return std::move(file_);
  }

 private:
  Status set(const CondorStatement& one) {
    if (const Status taken = macros_.set(one.name, one.value); !taken)
      return fail(refused_line(one, taken.error().message, taken.error().hint));
    const bool is_command = is_condor_command(one.name);
    (is_command ? commands_ : variables_)[one.name] = {one.line, one.value, one.written};
    return {};
  }

  void warn(const std::string& warning) {
    if (told_.insert(warning).second) file_.warnings.push_back(warning);
  }

  Result<std::string> fill(const CondorStatement& by, const std::string& text) {
    auto filled = macros_.fill(text);
    if (!filled) return fail(refused_line(by, filled.error().message, filled.error().hint));
    for (const std::string& name : macros_.take_undefined())
      warn(
          "line " + std::to_string(by.line) + ": " + by.written + ": $(" + condor_excerpt(name) +
          ") is said nowhere; nothing stands in its place"
      );
    return *std::move(filled);
  }

  Status queue(const CondorStatement& by);
  Result<CondorQueue> read_queue(const CondorStatement& by);
  Status read_list(
      const CondorStatement& by, const std::string& how, std::string_view rest, CondorQueue& out
  );
  Status read_items_of_file(const CondorStatement& by, const std::string& name, CondorQueue& out);
  Status add_job(const CondorStatement& by, const std::map<std::string, std::string>& variables);
  Result<CondorSettings> settings_with(
      const CondorStatement& by, const std::map<std::string, std::string>& variables
  );
  void warn_of_unused();

  const CondorPlace& place_;
  CondorMacros macros_;
  CondorSettings commands_;   ///< as written
  CondorSettings variables_;  ///< of the file's own
  std::set<std::string> told_;
  CondorFile file_;
};

// ---- queue

Result<CondorQueue> CondorSubmit::read_queue(const CondorStatement& by) {
  RN_TRY(const std::string text, fill(by, by.value));
  CondorQueue out;
  std::string how;
  std::string before;
  std::string_view rest = text;
  while (how.empty()) {
    const std::string word = take_word(rest);
    if (word.empty()) break;
    const std::string lower = condor_lower(word);
    if (lower == "in" || lower == "from" || lower == "matching") {
      how = lower;
    } else {
      before += word + " ";
    }
  }
  std::vector<std::string> words = condor_list(before, true);
  if (!words.empty() && words.front().find_first_not_of("0123456789") == std::string::npos) {
    const auto count = whole_number<std::uint32_t>(words.front(), 0, kCondorJobsMax);
    if (!count)
      return fail(
          refused_line(by, count.error().message, "each is a job of its own: submit them in pieces")
      );
    out.count = *count;
    words.erase(words.begin());
  }
  if (how.empty() && (!words.empty() || by.has_items))
    return fail(
        refused_line(by, "is no number of jobs", "for example: queue 10, or queue x in (a b c)")
    );
  for (const std::string& word : words) out.names.push_back(condor_lower(word));
  if (out.names.empty()) out.names.emplace_back("item");
  out.has_list = !how.empty();
  if (out.has_list) RN_CHECK(read_list(by, how, rest, out));
  return out;
}

Status CondorSubmit::read_list(
    const CondorStatement& by, const std::string& how, std::string_view rest, CondorQueue& out
) {
  std::string list = condor_trimmed(rest);
  if (how == "matching")
    return fail(
        refused_line(by, "names of files are not looked for", "list them: queue x in (a.txt b.txt)")
    );
  if (list.starts_with('['))
    return fail(refused_line(by, "a part of a list is not taken", "list what is to be queued"));
  const bool is_inline = list.starts_with('(') && list.ends_with(')');
  if (is_inline) list = condor_trimmed(std::string_view(list).substr(1, list.size() - 2));
  std::vector<std::string> lines;
  if (by.has_items) {
    for (const std::string& item : by.items) {
      RN_TRY(std::string filled, fill(by, item));
      lines.push_back(std::move(filled));
    }
  } else if (how == "from" && !is_inline) {
    return read_items_of_file(by, list, out);
  } else if (!list.empty()) {
    lines.push_back(list);
  }
  for (const std::string& line : lines) {
    const auto items = how == "in" ? condor_list(line, true) : std::vector<std::string>{line};
    out.items.insert(out.items.end(), items.begin(), items.end());
  }
  return {};
}

Status CondorSubmit::read_items_of_file(
    const CondorStatement& by, const std::string& name, CondorQueue& out
) {
  if (name.empty() || name.ends_with('|'))
    return fail(refused_line(
        by, "no program is run for its list", "write what it says into a file: queue x from FILE"
    ));
  const auto path = (std::filesystem::path(place_.folder) / name).lexically_normal().string();
  if (path.find(kCondorCluster) != std::string::npos || !place_.read)
    return fail(refused_line(by, "is no file", "list the items: queue x in (a b c)"));
  const auto text = place_.read(path);
  if (!text)
    return fail(refused_line(by, text.error().message, "name a file with one item a line"));
  const bool is_plain =
      is_utf8(*text) && std::none_of(text->begin(), text->end(), [](char c) {
        return static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\r' && c != '\t';
      });
  if (!is_plain) return fail(refused_line(by, name + " is not text in UTF-8", "save it in UTF-8"));
  for (std::string_view rest = *text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string item = condor_trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!item.empty() && item.front() != '#') out.items.push_back(std::move(item));
  }
  return {};
}

Status CondorSubmit::queue(const CondorStatement& by) {
  macros_.clear_own();
  RN_TRY(CondorQueue wanted, read_queue(by));
  if (!wanted.has_list) wanted.items = {""};
  for (std::size_t row = 0; row < wanted.items.size(); ++row) {
    for (std::uint32_t step = 0; step < wanted.count; ++step) {
      if (file_.jobs.size() >= kCondorJobsMax)
        return fail(refused_line(
            by,
            "more than " + std::to_string(kCondorJobsMax) + " jobs",
            "submit them in pieces, or let each job do more of the work"
        ));
      std::map<std::string, std::string> variables;
      if (wanted.has_list) {
        const auto values = values_of(wanted.items[row], wanted.names.size());
        for (std::size_t i = 0; i < values.size(); ++i) variables[wanted.names[i]] = values[i];
      }
      macros_.clear_own();
      for (const auto& [name, value] : variables) macros_.set_own(name, value);
      for (const char* name : {"process", "procid"})
        macros_.set_own(name, std::to_string(file_.jobs.size()));
      for (const char* name : {"cluster", "clusterid"})
        macros_.set_own(name, std::string(1, kCondorCluster));
      macros_.set_own("step", std::to_string(step));
      for (const char* name : {"row", "itemindex"}) macros_.set_own(name, std::to_string(row));
      RN_CHECK(add_job(by, variables));
    }
  }
  macros_.clear_own();
  return {};
}

// ---- jobs

/// The commands as they stand at a queue; what is only warned of need not make sense.
Result<CondorSettings> CondorSubmit::settings_with(
    const CondorStatement& by, const std::map<std::string, std::string>& variables
) {
  CondorSettings lines = commands_;
  for (const auto& [name, value] : variables) {
    if (is_condor_command(name))
      lines[name] = {by.line, value, condor_excerpt(name + " = " + value)};
  }
  CondorSettings settings;
  for (const auto& [name, line] : lines) {
    const bool is_read = takes_condor_command(name) || !condor_refusal(name).what.empty();
    CondorSetting setting = line;
    CondorStatement at;
    at.line = line.line;
    at.written = line.written;
    // $(NAME) within its own line was filled in when it was read.
    const std::string whole = variables.contains(name) ? line.value : "$(" + name + ")";
    if (is_read) {
      RN_TRY(setting.value, fill(at, whole));
      setting.value = condor_trimmed(setting.value);
    } else {
      (void)macros_.fill(whole);
      (void)macros_.take_undefined();
    }
    settings.emplace(name, std::move(setting));
  }
  return settings;
}

Status CondorSubmit::add_job(
    const CondorStatement& by, const std::map<std::string, std::string>& variables
) {
  RN_TRY(const CondorSettings settings, settings_with(by, variables));
  RN_TRY(CondorJob job, condor_job(settings, place_, [this](const std::string& w) { warn(w); }));
  file_.jobs.push_back(std::move(job));
  return {};
}

/// As condor_submit does: mostly these are commands that are spelt wrong.
void CondorSubmit::warn_of_unused() {
  for (const auto& [name, line] : variables_) {
    if (macros_.is_used(name)) continue;
    const std::string near =
        name.size() > 100 ? "" : detail::nearest_word(name, condor_command_names());
    warn(
        "line " + std::to_string(line.line) + ": " + line.written +
        ": condor_submit has no such command, and nothing uses it" +
        (near.empty() ? "" : " (did you mean " + near + "?)") + "; it is left out"
    );
  }
}

}  // namespace

Result<CondorFile> parse_condor_file(std::string_view text, const CondorPlace& place) {
  return CondorSubmit(place).read(text);
}

}  // namespace rn::cli
