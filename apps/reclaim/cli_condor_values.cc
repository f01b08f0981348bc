// SPDX-License-Identifier: Apache-2.0
#include "cli_condor_values.h"

#include <algorithm>
#include <cctype>

#include "cli_condor_lines.h"

#include "base/utf8.h"

namespace rn::cli {

namespace {

constexpr int kCondorDepthMax = 30;
constexpr std::size_t kCondorStepsMax = 10'000;  ///< of one value: bounds what doubles itself

tl::unexpected<Error> bad_value(const std::string& message, const std::string& hint) {
  return fail(ErrorCode::kInvalid, message, hint);
}

tl::unexpected<Error> too_long_value() {
  return bad_value("is too long when its macros are filled in", "put long text into a file");
}

/// Where the parenthesis that is open before `from` closes; npos = nowhere.
std::size_t closing(std::string_view text, std::size_t from) {
  int open = 1;
  for (std::size_t i = from; i < text.size(); ++i) {
    if (text[i] == '(') ++open;
    if (text[i] == ')' && --open == 0) return i;
  }
  return std::string_view::npos;
}

/// What "$(NAME)" stands for within a value that is about to be called NAME itself.
std::string with_itself(const std::string& value, const std::string& name, const std::string& old) {
  std::string out;
  for (std::size_t i = 0; i < value.size() && out.size() <= kCondorValueBytes;) {
    const std::size_t length = value[i] == '$' ? name.size() + 3 : 0;
    const std::string word = condor_lower(std::string_view(value).substr(i, length));
    if (length > 0 && word == "$(" + name + ")") {
      out += old;
      i += length;
    } else {
      out += value[i++];
    }
  }
  return out;
}

/// Words between blanks; single quotes keep blanks, and a doubled one within them is one.
Result<std::vector<std::string>> single_quoted_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool is_within = false;
  bool is_quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'' && is_quoted && i + 1 < text.size() && text[i + 1] == '\'') {
      word += c;
      ++i;
    } else if (c == '\'') {
      is_quoted = !is_quoted;
      is_within = true;
    } else if ((c == ' ' || c == '\t') && !is_quoted) {
      if (is_within) words.push_back(std::exchange(word, {}));
      is_within = false;
    } else {
      word += c;
      is_within = true;
    }
  }
  if (is_quoted) return bad_value("a quote ' is not closed", "close it, or write '' for one");
  if (is_within) words.push_back(word);
  return words;
}

/// What stands between the double quotes around all of it, a doubled one being one.
Result<std::string> within_double_quotes(const std::string& text) {
  constexpr const char* kHow =
      "put all of it in double quotes, and write a double quote within as \"\"";
  if (text.size() < 2 || text.back() != '"') return bad_value("a quote \" is not closed", kHow);
  std::string inner;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    inner += text[i];
    if (text[i] != '"') continue;
    if (i + 2 >= text.size() || text[i + 1] != '"')
      return bad_value("a double quote stands alone in the middle", kHow);
    ++i;
  }
  return inner;
}

Result<std::pair<std::string, std::string>> variable_of(const std::string& entry) {
  const auto equals = entry.find('=');
  if (equals == std::string::npos || equals == 0)
    return bad_value(
        "'" + condor_excerpt(entry) + "' is not NAME=VALUE",
        "for example environment = \"SEED=7 MODE='two words'\""
    );
  return std::pair(entry.substr(0, equals), entry.substr(equals + 1));
}

}  // namespace

// ---- macros

const std::string* CondorMacros::find(const std::string& name) const {
  const auto own = own_.find(name);
  if (own != own_.end()) return &own->second;
  const auto line = lines_.find(name);
  return line == lines_.end() ? nullptr : &line->second;
}

Status CondorMacros::set(const std::string& name, const std::string& value) {
  const auto before = lines_.find(name);
  const std::string old = before == lines_.end() ? "" : before->second;
  std::string whole = with_itself(value, name, old);
  if (whole.size() > kCondorValueBytes) return too_long_value();
  lines_[name] = std::move(whole);
  return {};
}

Result<std::string> CondorMacros::fill(std::string_view text) {
  steps_ = 0;
  std::string out;
  RN_CHECK(fill_into(text, 0, out));
  return out;
}

Status CondorMacros::fill_into(std::string_view text, int depth, std::string& out) {
  if (depth > kCondorDepthMax || ++steps_ > kCondorStepsMax)
    return bad_value("its macros go round in a circle", "write out what they stand for");
  while (true) {
    const std::size_t dollar = text.find('$');
    out += text.substr(0, dollar);
    if (out.size() > kCondorValueBytes) return too_long_value();
    if (dollar == std::string_view::npos) return {};
    text.remove_prefix(dollar + 1);
    if (text.starts_with("$("))
      return bad_value(
          "$$(…) asks for what the machine says of itself, which is not known here",
          "write out what it is to be"
      );
    const auto end = std::find_if(text.begin(), text.end(), [](char c) {
      return std::isalpha(static_cast<unsigned char>(c)) == 0 && c != '_';
    });
    const auto length = static_cast<std::size_t>(end - text.begin());
    if (length >= text.size() || text[length] != '(') {
      out += '$';
      continue;
    }
    const std::size_t close = closing(text, length + 1);
    if (close == std::string_view::npos)
      return bad_value(
          "'$" + condor_excerpt(text) + "' has no closing parenthesis",
          "close it, or write $(DOLLAR) for a dollar"
      );
    RN_CHECK(
        fill_one(text.substr(0, length), text.substr(length + 1, close - length - 1), depth, out)
    );
    text.remove_prefix(close + 1);
  }
}

Status CondorMacros::fill_one(
    std::string_view function, std::string_view body, int depth, std::string& out
) {
  if (function.empty()) return fill_name(body, depth, out);
  if (function == "ENV") return fill_variable(body, out);
  const bool is_of_file =
      function.front() == 'F' && function.find_first_not_of("pnx", 1) == std::string_view::npos;
  if (is_of_file) return fill_file_part(function.substr(1), body, depth, out);
  return bad_value(
      "'$" + condor_excerpt(function) + "(…)' is not filled in here",
      "write out what it stands for; $(NAME), $ENV(NAME) and $Fpnx(NAME) are"
  );
}

Status CondorMacros::fill_name(std::string_view body, int depth, std::string& out) {
  const std::size_t colon = body.find(':');
  const std::string name = condor_lower(condor_trimmed(body.substr(0, colon)));
  if (name == "dollar") {
    out += '$';
    return {};
  }
  used_.insert(name);
  if (const std::string* value = find(name)) return fill_into(*value, depth + 1, out);
  if (colon != std::string_view::npos) return fill_into(body.substr(colon + 1), depth + 1, out);
  undefined_.insert(name);
  return {};
}

Status CondorMacros::fill_variable(std::string_view body, std::string& out) const {
  const std::size_t colon = body.find(':');
  const std::string name = condor_trimmed(body.substr(0, colon));
  const auto value = variable_ ? variable_(name) : std::nullopt;
  const bool is_text = value && is_utf8(*value) && value->find(kCondorCluster) == std::string::npos;
  if (value && !is_text)
    return bad_value("$ENV(" + condor_excerpt(name) + ") is not text", "write out its value");
  if (!value && colon == std::string_view::npos)
    return bad_value(
        "$ENV(" + condor_excerpt(name) + ") is not set here",
        "set it before the submit, or give another value behind a colon: $ENV(" +
            condor_excerpt(name) + ":VALUE)"
    );
  out += value ? *value : std::string(body.substr(colon + 1));
  return {};
}

Status CondorMacros::fill_file_part(
    std::string_view parts, std::string_view body, int depth, std::string& out
) {
  std::string path;
  RN_CHECK(fill_name(body, depth, path));
  const std::size_t slash = path.rfind('/');
  const std::size_t begin = slash == std::string::npos ? 0 : slash + 1;
  std::size_t dot = path.rfind('.');
  if (dot == std::string::npos || dot < begin) dot = path.size();
  if (parts.empty()) out += path;
  if (parts.find('p') != std::string_view::npos) out += path.substr(0, begin);
  if (parts.find('n') != std::string_view::npos) out += path.substr(begin, dot - begin);
  if (parts.find('x') != std::string_view::npos) out += path.substr(dot);
  return {};
}

// ---- values

Result<std::vector<std::string>> condor_arguments(const std::string& text) {
  if (text.starts_with('"')) {
    RN_TRY(const std::string inner, within_double_quotes(text));
    return single_quoted_words(inner);
  }
  std::vector<std::string> words;
  std::string word;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"')
      return bad_value(
          "a double quote in the middle is written \\\"",
          "or put all of it in double quotes: arguments = \"one 'two words'\""
      );
    if (text[i] == ' ' || text[i] == '\t') {
      if (!word.empty()) words.push_back(std::exchange(word, {}));
      continue;
    }
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == '"') ++i;
    word += text[i];
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

Result<std::vector<std::pair<std::string, std::string>>> condor_environment(const std::string& text
) {
  std::vector<std::string> entries;
  if (text.starts_with('"')) {
    RN_TRY(const std::string inner, within_double_quotes(text));
    RN_TRY(entries, single_quoted_words(inner));
  } else {
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(';'), rest.size());
      std::string_view entry = rest.substr(0, end);
      entry.remove_prefix(std::min(entry.find_first_not_of(" \t"), entry.size()));
      if (!entry.empty()) entries.emplace_back(entry);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  std::vector<std::pair<std::string, std::string>> variables;
  for (const std::string& entry : entries) {
    RN_TRY(auto variable, variable_of(entry));
    variables.push_back(std::move(variable));
  }
  return variables;
}

std::vector<std::string> condor_list(const std::string& text, bool blanks_separate) {
  std::vector<std::string> items;
  const char* const marks = blanks_separate ? ", \t" : ",";
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(marks, begin), text.size());
    std::string item = condor_trimmed(std::string_view(text).substr(begin, end - begin));
    if (!item.empty()) items.push_back(std::move(item));
    begin = end + 1;
  }
  return items;
}

std::string condor_unquoted(const std::string& text) {
  const bool is_quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

std::string condor_shell_word(const std::string& text, const std::string& cluster) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else if (c == kCondorCluster) {
      word += "'" + cluster + "'";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::optional<bool> condor_flag(const std::string& text) {
  const std::string word = condor_lower(text);
  if (word == "true" || word == "yes" || word == "t" || word == "y" || word == "1") return true;
  if (word == "false" || word == "no" || word == "f" || word == "n" || word == "0") return false;
  return std::nullopt;
}

}  // namespace rn::cli
