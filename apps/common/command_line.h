// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/whole_number.h"

// What the command lines of all programs have in common.
namespace rn {

/// Exit status of a command line that cannot be understood.
inline constexpr int kUsageStatus = 2;

/// Gives the application its --version, parses, then runs `command` and answers what the process
/// exits with. Standard output that could not be written is a failure, also that of --help
/// (io/standard_output.h). `usage` names commands that answer another status than kUsageStatus when
/// what was given to them cannot be understood. Called once, first thing in main.
int run_command_line(
    CLI::App& app,
    int argc,
    char** argv,
    const char* program,
    const std::function<int()>& command,
    const std::map<std::string, int>& usage = {}
);

/// For check(): an empty word, mostly a variable of the shell that is not set, is no value.
std::string filled(const std::string& text);

/// For check(): an id, a number or a name of the site's: letters, digits and "-_.@:", so that it is
/// one step of a path in a URL.
std::string name_word(const std::string& text);

/// A flag that takes a secret: "-" reads its first line from standard input, so that it stands
/// neither in the list of processes nor in the shell's history.
CLI::Option* add_secret(
    CLI::App& app, const std::string& flag, std::string& out, const std::string& what
);

namespace command_line_detail {

template <class Value>
struct NumberOf {
  using Type = Value;
};

template <class Value>
struct NumberOf<std::optional<Value>> {
  using Type = Value;
};

template <class Value>
using Number = typename NumberOf<Value>::Type;

template <class T>
T number_of(const std::string& flag, const std::string& text, T least, T most) {
  const auto number = whole_number<T>(text, least, most);
  if (number) return *number;
  const std::string& hint = number.error().hint;
  throw CLI::ValidationError(
      flag, number.error().message + (hint.empty() ? "" : "; next: " + hint)
  );
}

}  // namespace command_line_detail

/// A flag or argument that takes a whole number, by base/whole_number.h: CLI11's own reader takes
/// -1 for a huge number and 010 for 8.
template <class Value, class T = command_line_detail::Number<Value>>
CLI::Option* add_number(
    CLI::App& app,
    const std::string& flag,
    Value& out,
    const std::string& what,
    std::type_identity_t<T> least = 0,
    std::type_identity_t<T> most = std::numeric_limits<T>::max()
) {
  CLI::Option* const option = app.add_option_function<std::string>(
      flag,
      [flag, &out, least, most](const std::string& text) {
        out = command_line_detail::number_of<T>(flag, text, least, most);
      },
      what
  );
  if constexpr (std::is_same_v<T, Value>) {
    if (out != 0) option->default_str(std::to_string(out));
  }
  return option->type_name("NUMBER");
}

/// The same, repeatable.
template <class T>
CLI::Option* add_numbers(
    CLI::App& app,
    const std::string& flag,
    std::vector<T>& out,
    const std::string& what,
    std::type_identity_t<T> least = 0,
    std::type_identity_t<T> most = std::numeric_limits<T>::max()
) {
  return app
      .add_option_function<std::vector<std::string>>(
          flag,
          [flag, &out, least, most](const std::vector<std::string>& texts) {
            for (const std::string& text : texts)
              out.push_back(command_line_detail::number_of<T>(flag, text, least, most));
          },
          what
      )
      ->type_name("NUMBER");
}

}  // namespace rn
