// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <algorithm>
#include <string_view>

#include "base/printable.h"
#include "io/standard_output.h"
#include "model/codec_detail.h"

namespace rn {

std::string filled(const std::string& text) {
  return text.empty() ? "is empty; leave the flag out, or give it a value" : "";
}

std::string name_word(const std::string& text) {
  const bool is_word = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.@:").find(c) != std::string_view::npos;
  });
  if (is_word && text.find_first_not_of('.') != std::string::npos) return "";
  return "'" + printable(text) + "' is no id or name: letters, digits and -_.@: are";
}

namespace {

/// CLI11 says of a verb that it does not know only that one is required.
void check_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-' || app.get_require_subcommand_min() == 0) return;
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->check_name(argv[1])) return;
    if (!verb->get_group().empty()) verbs.push_back(verb->get_name());
  }
  const std::string near = detail::nearest_word(argv[1], verbs);
  throw CLI::ParseError(
      "there is no command '" + printable(argv[1]) + "'" +
          (near.empty() ? "" : "; did you mean '" + near + "'?"),
      CLI::ExitCodes::ExtrasError
  );
}

}  // namespace

int run_command_line(
    CLI::App& app, int argc, char** argv, const char* program, const std::function<int()>& command
) {
  io::take_standard_files();
  app.set_version_flag("--version", RN_VERSION);
  int code = kUsageStatus;
  try {
    check_verb(app, argc, argv);
    app.parse(argc, argv);
    code = command();
  } catch (const CLI::ParseError& error) {
    code = app.exit(error) == 0 ? 0 : kUsageStatus;
  }
  return io::finish_output(program, code);
}

}  // namespace rn
