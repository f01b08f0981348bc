// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/log.h"
#include "base/printable.h"
#include "io/standard_output.h"
#include "model/codec_detail.h"

namespace rn {

std::string filled(const std::string& text) {
  return text.empty() ? "is empty; next: give it a value, or leave it out if it is optional" : "";
}

std::string name_word(const std::string& text) {
  const bool is_word = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.@:").find(c) != std::string_view::npos;
  });
  if (is_word && text.find_first_not_of('.') != std::string::npos) return "";
  return "'" + printable(text) + "' is no id or name: letters, digits and -_.@: are";
}

CLI::Option* add_secret(
    CLI::App& app, const std::string& flag, std::string& out, const std::string& what
) {
  const auto take = [flag, &out](const std::string& text) {
    out = text;
    if (text.empty())
      throw CLI::ValidationError(
          flag, "is empty; next: give it whole, as it was shown; -: from standard input"
      );
    if (text != "-") return;
    std::getline(std::cin, out);
    while (!out.empty() && (out.back() == '\r' || out.back() == ' ')) out.pop_back();
    if (out.empty())
      throw CLI::ValidationError(
          flag, "standard input has no line to read it from; next: give it there, or after the flag"
      );
  };
  return app
      .add_option_function<std::string>(flag, take, what + "; -: read it from standard input")
      ->type_name("TEXT");
}

namespace {

/// What separates an error's own advice from its message (number_of()).
constexpr std::string_view kNextMark = "; next: ";

/// The option that a word gives to a command or to one of those above it; nullptr for none.
const CLI::Option* option_of(const std::vector<const CLI::App*>& path, const std::string& word) {
  for (auto command = path.rbegin(); command != path.rend(); ++command)
    if (const CLI::Option* option = (*command)->get_option_no_throw(word)) return option;
  return nullptr;
}

/// Whether words that are no flag mean something to it, beside the commands below it.
bool has_positionals(const CLI::App& command) {
  const auto options = command.get_options();
  return std::any_of(options.begin(), options.end(), [](const CLI::Option* option) {
    return option->get_positional();
  });
}

/// What was typed, as far as its words are commands.
struct Typed {
  std::vector<const CLI::App*> path;  ///< the program first
  std::string unknown;                ///< the word after them that is no command, where one must be
};

Typed commands_typed(const CLI::App& app, int argc, char** argv) {
  Typed typed{{&app}, {}};
  for (int i = 1; i < argc; ++i) {
    const CLI::App& command = *typed.path.back();
    const auto below = command.get_subcommands([](const CLI::App*) { return true; });
    const std::string word = argv[i];
    if (below.empty() || word == "--") return typed;
    if (word.size() > 1 && word[0] == '-') {
      const CLI::Option* option = option_of(typed.path, word);
      if (option != nullptr && option->get_items_expected_max() > 0) ++i;
      continue;
    }
    const auto known = std::find_if(below.begin(), below.end(), [&](const CLI::App* one) {
      return one->check_name(word);
    });
    if (known != below.end()) {
      typed.path.push_back(*known);
      continue;
    }
    if (!has_positionals(command)) typed.unknown = word;
    return typed;
  }
  return typed;
}

/// The long flag that a misspelt one stands for most probably, of the command and those above it;
/// empty for none.
std::string nearest_flag(const std::vector<const CLI::App*>& path, const std::string& flag) {
  if (!flag.starts_with("--")) return {};
  std::vector<std::string> known;
  for (const CLI::App* command : path) {
    for (const CLI::Option* option : command->get_options()) {
      const auto& names = option->get_lnames();
      if (!option->get_group().empty()) known.insert(known.end(), names.begin(), names.end());
    }
  }
  const std::string word = flag.substr(2);
  // One letter is wrong in --cpus, too, where --gpus was meant for --gpu.
  const auto is_plural = [&](const std::string& one) {
    return one + "s" == word || word + "s" == one;
  };
  const auto same = std::find_if(known.begin(), known.end(), is_plural);
  const std::string near = same != known.end() ? *same : detail::nearest_word(word, known);
  return near.empty() ? near : "--" + near;
}

/// The first word that looks like a flag and is none, of the command and those above it; empty for
/// none.
std::string unknown_flag(const Typed& typed, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") return {};
    if (word.size() < 2 || word[0] != '-') continue;
    const auto equals = word.find('=');
    const std::string name = word[1] == '-' ? word.substr(0, equals) : word.substr(0, 2);
    const CLI::Option* option = option_of(typed.path, name);
    if (option == nullptr) return name;
    const bool takes_next = option->get_items_expected_max() > 0 &&
                            (word[1] == '-' ? equals == std::string::npos : word.size() == 2);
    if (takes_next) ++i;
  }
  return {};
}

std::string words_of(const std::vector<const CLI::App*>& path, const char* program) {
  std::string words = program;
  for (std::size_t i = 1; i < path.size(); ++i) words += " " + path[i]->get_name();
  return words;
}

/// CLI11 says of a verb that it does not know only that one is required.
void check_verb(const Typed& typed) {
  if (typed.unknown.empty()) return;
  std::vector<std::string> verbs;
  std::string list;
  for (const CLI::App* verb :
       typed.path.back()->get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_group().empty()) continue;
    verbs.push_back(verb->get_name());
    list += (list.empty() ? "" : ", ") + verb->get_name();
  }
  const std::string above = words_of(typed.path, "");
  const std::string near = detail::nearest_word(typed.unknown, verbs);
  throw CLI::ParseError(
      "there is no command '" + (above.empty() ? "" : above.substr(1) + " ") +
          printable(typed.unknown) + "'" + (near.empty() ? "." : "; did you mean '" + near + "'?") +
          " There " + (verbs.size() == 1 ? "is: " : "are: ") + list,
      CLI::ExitCodes::ExtrasError
  );
}

/// CLI11 looks for what is missing before it looks at what is too much, and so does not name a flag
/// that was misspelt; and it counts the -- after one among what is too much.
void parse(CLI::App& app, const Typed& typed, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool may_hide_it =
        error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) ||
        error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
    const std::string flag = may_hide_it ? unknown_flag(typed, argc, argv) : std::string();
    if (flag.empty()) throw;
    const std::string near = nearest_flag(typed.path, flag);
    throw CLI::ParseError(
        "The following argument was not expected: " + flag +
            (near.empty() ? "" : std::string(kNextMark) + "did you mean " + near + "?"),
        CLI::ExitCodes::ExtrasError
    );
  }
}

int usage_status(const Typed& typed, const std::map<std::string, int>& usage) {
  const auto own = typed.path.size() < 2 ? usage.end() : usage.find(typed.path[1]->get_name());
  return own == usage.end() ? kUsageStatus : own->second;
}

/// As every error of ours: what is wrong, and what to do next.
std::string usage_words(const std::string& what, const Typed& typed, const char* program) {
  const std::size_t mark = what.find(kNextMark);
  const std::string help = "see '" + words_of(typed.path, program) + " --help'";
  std::string next = mark == std::string::npos ? help : what.substr(mark + kNextMark.size());
  if (next.ends_with('?')) next += " Else " + help;
  return std::string(program) + ": " + printable_lines(what.substr(0, mark)) +
         "\n  next: " + printable_lines(next) + "\n";
}

/// RN_LOG_LEVEL=debug also says what benches look at; nothing else reads it. Any other word is told
/// and no more: a variable that somebody left in a shell must not keep an owner's `kill` from it.
void take_log_level(const char* program) {
  const char* const level = std::getenv("RN_LOG_LEVEL");
  const std::string word = level == nullptr ? "" : level;
  if (word == "debug") log::set_level(log::Level::kDebug);
  if (word.empty() || word == "debug" || word == "info") return;
  std::cerr << program << ": RN_LOG_LEVEL: '" << printable(word)
            << "' is none of debug and info, and counts as info\n  next: unset the variable\n";
}

}  // namespace

int run_command_line(
    CLI::App& app,
    int argc,
    char** argv,
    const char* program,
    const std::function<int()>& command,
    const std::map<std::string, int>& usage
) {
  io::take_standard_files();
  app.name(program);  // and not the path by which it was called
  app.set_version_flag("--version", RN_VERSION);
  const Typed typed = commands_typed(app, argc, argv);
  app.failure_message([&](const CLI::App*, const CLI::Error& error) {
    return usage_words(error.what(), typed, program);
  });
  int code = kUsageStatus;
  try {
    take_log_level(program);
    check_verb(typed);
    parse(app, typed, argc, argv);
    code = command();
  } catch (const CLI::ParseError& error) {
    code = app.exit(error) == 0 ? 0 : usage_status(typed, usage);
  }
  return io::finish_output(program, code);
}

}  // namespace rn
