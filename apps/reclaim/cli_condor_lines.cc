// SPDX-License-Identifier: Apache-2.0
#include "cli_condor_lines.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "base/utf8.h"

namespace rn::cli {

namespace {

constexpr std::size_t kCondorExcerptBytes = 60;
constexpr std::string_view kBlanks = " \t";

/// Words that begin a statement which is no NAME = VALUE; all but queue are refused.
const std::set<std::string, std::less<>>& condor_words() {
  static const std::set<std::string, std::less<>> kWords = {
      "queue", "if", "elif", "else", "endif", "include", "use", "error", "warning"};
  return kWords;
}

bool is_name_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '+' ||
         c == '-';
}

/// A line's first word, and what follows it without blanks in front.
std::pair<std::string, std::string_view> first_word(std::string_view line) {
  const auto end = std::find_if_not(line.begin(), line.end(), is_name_letter);
  const auto length = static_cast<std::size_t>(end - line.begin());
  std::string_view rest = line.substr(length);
  rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
  return {condor_lower(line.substr(0, length)), rest};
}

bool is_assignment(const std::string& word, std::string_view rest) {
  return !word.empty() && rest.starts_with('=') && !rest.starts_with("==");
}

/// `queue` as a word of its own, and not as a name or a key.
bool is_queue_statement(const std::string& word, std::string_view line, std::string_view rest) {
  if (word != "queue" || rest.starts_with('=') || rest.starts_with(':')) return false;
  return line.size() == word.size() || kBlanks.find(line[word.size()]) != std::string_view::npos;
}

tl::unexpected<Error> wrong_line(
    std::size_t line, const std::string& message, const std::string& hint
) {
  return fail(ErrorCode::kInvalid, "line " + std::to_string(line) + ": " + message, hint);
}

Status check_condor_bytes(std::string_view text) {
  if (!is_utf8(text)) return fail(ErrorCode::kInvalid, "is not text in UTF-8", "save it in UTF-8");
  const auto odd = std::find_if(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < ' ' && c != '\t' && c != '\n' && c != '\r';
  });
  if (odd == text.end()) return {};
  return wrong_line(
      1 + static_cast<std::size_t>(std::count(text.begin(), odd, '\n')),
      "has a control character",
      "give a submit file, and no program"
  );
}

/// Lines without their ends and the blanks around them.
class CondorReader {
 public:
  explicit CondorReader(std::string_view text) : rest_(text) {}

  Result<std::vector<CondorStatement>> read() {
    std::string line;
    while (next(line)) {
      const std::size_t first = line_;
      if (line.empty() || line.front() == '#') continue;
      while (line.ends_with('\\')) {
        line.pop_back();
        std::string more;
        if (!next(more)) break;
        line += more;
      }
      line = condor_trimmed(line);
      if (line.empty()) continue;
      RN_CHECK(take(first, line));
    }
    return std::move(statements_);
  }

 private:
  bool next(std::string& line) {
    if (rest_.empty()) return false;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string_view found = rest_.substr(0, end);
    while (found.ends_with('\r')) found.remove_suffix(1);
    line = condor_trimmed(found);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    return true;
  }

  Status take(std::size_t first, const std::string& line) {
    const auto [word, rest] = first_word(line);
    CondorStatement statement;
    statement.line = first;
    statement.written = condor_excerpt(line);
    if (is_queue_statement(word, line, rest)) {
      statement.is_queue = true;
      statement.value = rest;
      RN_CHECK(read_items(statement));
    } else if (rest.starts_with("@=")) {
      return wrong_line(
          first,
          statement.written + ": values of several lines are not read",
          "write it on one line; a backslash at its end goes on with the next"
      );
    } else if (is_assignment(word, rest)) {
      const bool is_attribute = word.starts_with('+');
      statement.name = is_attribute ? "my." + word.substr(1) : word;
      statement.value = condor_trimmed(rest.substr(1));
    } else if (condor_words().contains(word)) {
      return wrong_line(
          first,
          statement.written + ": conditions, templates and files within files are not read",
          "write out the lines that count, each as NAME = VALUE"
      );
    } else {
      return wrong_line(
          first,
          "'" + statement.written + "' is no statement",
          "expected NAME = VALUE, or queue as the last line"
      );
    }
    statements_.push_back(std::move(statement));
    return {};
  }

  /// A list that its line opens and does not close goes on until a line that begins with ')'.
  Status read_items(CondorStatement& statement) {
    const std::size_t open = statement.value.find('(');
    if (open == std::string::npos || statement.value.find(')', open) != std::string::npos)
      return {};
    statement.has_items = true;
    const std::string begun = condor_trimmed(std::string_view(statement.value).substr(open + 1));
    if (!begun.empty()) statement.items.push_back(begun);
    statement.value = condor_trimmed(std::string_view(statement.value).substr(0, open));
    std::string line;
    while (next(line)) {
      if (line.starts_with(')')) return {};
      if (!line.empty() && line.front() != '#') statement.items.push_back(line);
    }
    return wrong_line(
        statement.line,
        statement.written + ": its list has no end",
        "close it with a line that begins with )"
    );
  }

  std::string_view rest_;
  std::size_t line_ = 0;
  std::vector<CondorStatement> statements_;
};

/// Calls `look` with each line that says something, until it answers true.
template <class Look>
bool any_condor_line(std::string_view text, Look look) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line = condor_trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.front() != '#' && look(line)) return true;
  }
  return false;
}

bool has_queue_statement(std::string_view text) {
  return any_condor_line(text, [](const std::string& line) {
    const auto [word, rest] = first_word(line);
    return is_queue_statement(word, line, rest);
  });
}

}  // namespace

bool is_condor_file(std::string_view text) {
  bool is_one = false;
  any_condor_line(text, [&](const std::string& line) {
    const auto [word, rest] = first_word(line);
    is_one = is_assignment(word, rest) || (!word.empty() && rest.starts_with("@=")) ||
             (condor_words().contains(word) && has_queue_statement(text));
    return true;
  });
  return is_one;
}

Result<std::vector<CondorStatement>> read_condor_lines(std::string_view text) {
  RN_CHECK(check_condor_bytes(text));
  return CondorReader(text).read();
}

std::string condor_trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") + 1 - first));
}

std::string condor_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string condor_excerpt(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  if (line.size() <= kCondorExcerptBytes) return std::string(line);
  std::size_t end = kCondorExcerptBytes - 3;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
  return std::string(line.substr(0, end)) + "...";
}

}  // namespace rn::cli
