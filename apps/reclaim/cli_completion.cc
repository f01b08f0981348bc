// SPDX-License-Identifier: Apache-2.0
#include "cli_completion.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace rn::cli {

namespace {

constexpr std::size_t kCompletedWordsMax = 72;

std::string kind_of_type(const std::string& type, const std::string& path) {
  static constexpr std::pair<std::string_view, std::string_view> kTypeKinds[] = {
      {"JOB", "job"},
      {"JOB:PATH", "job-path"},
      {"NODE", "node"},
      {"IMAGE", "image"},
      {"DATA", "data"},
      {"LAB", "lab"},
      {"FILE", "file"},
      {"FOLDER", "folder"}};
  if (const auto open = type.find('{'); open != std::string::npos) {
    std::string words = type.substr(open + 1, type.find('}', open) - open - 1);
    std::replace(words.begin(), words.end(), ',', ' ');
    return "=" + words;
  }
  for (const auto& [name, kind] : kTypeKinds) {
    if (type != name) continue;
    // These take less than others do.
    if (path == "stop") return "unfinished-job";
    if (path == "events" && kind == "node") return "node-id";
    return std::string(kind);
  }
  return "value";
}

/// Its first sentence.
std::string short_words(const std::string& text) {
  std::string words = text.substr(0, std::min({text.find(". "), text.find("; "), text.find('\n')}));
  if (words.ends_with('.')) words.pop_back();
  if (words.size() <= kCompletedWordsMax) return words;
  return words.substr(0, words.rfind(' ', kCompletedWordsMax)) + " ...";
}

CompletedFlag flag_of(const CLI::Option& option, const std::string& path) {
  CompletedFlag flag;
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  flag.what = short_words(option.get_description());
  if (option.get_items_expected_max() > 0) flag.kind = kind_of_type(option.get_type_name(), path);
  return flag;
}

void add_completed(
    const CLI::App& app, const std::string& path, std::vector<CompletedCommand>& out
) {
  CompletedCommand command;
  command.path = path;
  command.what = short_words(app.get_description());
  const auto below =
      app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
  for (const CLI::App* one : below) command.below.push_back(one->get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      command.places.push_back(kind_of_type(option->get_type_name(), path));
      command.repeats = option->get_items_expected_max() > 1;
    } else {
      command.flags.push_back(flag_of(*option, path));
    }
  }
  out.push_back(std::move(command));
  for (const CLI::App* one : below)
    add_completed(*one, path.empty() ? one->get_name() : path + " " + one->get_name(), out);
}

/// For all three shells; ours have no backslashes.
std::string single_quoted(const std::string& text, const char* quote) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += quote;
    } else if (c != '\\') {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out + "'";
}

constexpr const char* kShellQuote = "'\\''";
constexpr const char* kFishQuote = "\\'";

/// The kinds of what follows a flag or stands at a place, by "=PATH --flag", "=PATH 0", "=PATH *".
std::vector<std::pair<std::string, std::string>> kinds_of(
    const std::vector<CompletedCommand>& commands
) {
  std::vector<std::pair<std::string, std::string>> kinds;
  for (const CompletedCommand& command : commands) {
    for (const CompletedFlag& flag : command.flags) {
      if (flag.kind.empty()) continue;
      for (const std::string& name : flag.names)
        kinds.emplace_back("=" + command.path + " " + name, flag.kind);
    }
    for (std::size_t i = 0; i < command.places.size(); ++i) {
      const bool is_last = i + 1 == command.places.size();
      const std::string place = command.repeats && is_last ? "*" : std::to_string(i);
      kinds.emplace_back("=" + command.path + " " + place, command.places[i]);
    }
  }
  return kinds;
}

std::string what_of(
    const std::vector<CompletedCommand>& commands, const std::string& above, const std::string& name
) {
  const std::string path = above.empty() ? name : above + " " + name;
  const auto found =
      std::find_if(commands.begin(), commands.end(), [&](const CompletedCommand& one) {
        return one.path == path;
      });
  return found == commands.end() ? "" : found->what;
}

// ---- bash

// What the coordinator says becomes words of compgen -W, which expands them: cli_complete.cc lets
// nothing through that a shell reads.
constexpr std::string_view kBashWalk = R"sh(  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == "=" ]]; then continue
    elif [[ -n $kind ]]; then kind=
    elif [[ $word == -- ]]; then return 0
    elif [[ $word == -* ]]; then kind=${kinds["=$path $word"]-}
    elif ((place == 0)) && [[ -n ${words["=${path:+$path }$word"]+is} ]]; then
      path=${path:+$path }$word
    else place=$((place + 1)); fi
  done
  [[ $cur != "=" ]] || cur=
  if [[ -n $kind || $cur != -* ]]; then
    [[ -n $kind ]] || kind=${kinds["=$path $place"]-${kinds["=$path *"]-}}
  fi
  case $kind in
    '') mapfile -t COMPREPLY < <(compgen -W "${words["=$path"]}" -- "$cur") ;;
    value | file) ;;
    folder) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    "="*) mapfile -t COMPREPLY < <(compgen -W "${kind#=}" -- "$cur") ;;
    *)
      word=$("$program" __complete "$kind" ${cur:+"$cur"} 2>/dev/null </dev/null | cut -f 1)
      mapfile -t COMPREPLY < <(compgen -W "$word" -- "$cur")
      [[ $kind != job-path ]] || compopt -o nospace 2>/dev/null || true ;;
  esac
}
)sh";

std::string bash_script(const std::vector<CompletedCommand>& commands, const std::string& program) {
  std::string text =
      "_" + program +
      "() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]/#\\~/${HOME-}}\n"
      "  local path= kind= word i place=0\n"
      "  local -A words=(\n";
  for (const CompletedCommand& command : commands) {
    std::string words;
    for (const std::string& name : command.below) words += " " + name;
    for (const CompletedFlag& flag : command.flags) {
      for (const std::string& name : flag.names) words += " " + name;
    }
    text += "    [\"=" + command.path + "\"]=\"" + words.substr(words.empty() ? 0 : 1) + "\"\n";
  }
  text += "  )\n  local -A kinds=(\n";
  for (const auto& [key, kind] : kinds_of(commands))
    text += "    [\"" + key + "\"]=\"" + kind + "\"\n";
  text += "  )\n";
  text += kBashWalk;
  return text + "complete -o default -F _" + program + " " + program + "\n";
}

// ---- zsh

constexpr std::string_view kZshWalk =
    R"sh(  local cur=${words[CURRENT]} at= kind= word line key i place=0
  local -a found
  for ((i = 2; i < CURRENT; i++)); do
    word=${words[i]}
    key="=${at:+$at }$word"
    if [[ -n $kind ]]; then kind=
    elif [[ $word == -- ]]; then _default; return
    elif [[ $word == -* ]]; then key="=$at $word"; kind=${kinds[$key]}
    elif ((place == 0 && ${+flags[$key]})); then at=${key#=}
    else place=$((place + 1)); fi
  done
  if [[ -z $kind && $cur == -* ]]; then
    key="=$at"; found=("${(@f)flags[$key]}")
    _describe -o flag found
    return
  fi
  if [[ -z $kind ]]; then key="=$at $place"; kind=${kinds[$key]}; fi
  if [[ -z $kind ]]; then key="=$at *"; kind=${kinds[$key]}; fi
  case $kind in
    '')
      key="=$at"
      [[ -n ${below[$key]} ]] || return 1
      found=("${(@f)below[$key]}")
      _describe command found ;;
    value) return 1 ;;
    file) _files ;;
    folder) _files -/ ;;
    "="*) compadd -- ${=kind#=} ;;
    *)
      line=$("${(Q)words[1]}" __complete $kind ${cur:+"$cur"} 2>/dev/null </dev/null)
      for line in ${(f)line}; do
        found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
      done
      (($#found)) || return 1
      [[ $kind == job-path ]] && _describe $kind found -S '' || _describe $kind found ;;
  esac
}
)sh";

/// "NAME:WHAT" each, as _describe takes them: one quoted word with a line for each.
std::string described(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string text = "'";
  for (const auto& [name, what] : entries) {
    const std::string quoted = single_quoted(name + ":" + what, kShellQuote);
    text += (text.size() > 1 ? "\n" : "") + quoted.substr(1, quoted.size() - 2);
  }
  return text + "'";
}

std::string zsh_script(const std::vector<CompletedCommand>& commands, const std::string& program) {
  std::string below;
  std::string flags;
  for (const CompletedCommand& command : commands) {
    std::vector<std::pair<std::string, std::string>> entries;
    for (const std::string& name : command.below)
      entries.emplace_back(name, what_of(commands, command.path, name));
    if (!entries.empty()) below += "    '=" + command.path + "' " + described(entries) + "\n";
    entries.clear();
    for (const CompletedFlag& flag : command.flags) {
      for (const std::string& name : flag.names) entries.emplace_back(name, flag.what);
    }
    flags += "    '=" + command.path + "' " + described(entries) + "\n";
  }
  std::string text = "#compdef " + program + "\n_" + program + "() {\n";
  text += "  local -A below flags kinds\n";
  text += "  below=(\n" + below + "  )\n  flags=(\n" + flags + "  )\n  kinds=(\n";
  for (const auto& [key, kind] : kinds_of(commands)) text += "    '" + key + "' '" + kind + "'\n";
  text += "  )\n";
  text += kZshWalk;
  // Loaded by its name it is this function already; else it is read by `source`.
  text += "if [[ ${funcstack[1]} == _" + program + " ]]; then _" + program + " \"$@\"\n";
  return text + "elif (( ${+functions[compdef]} )); then compdef _" + program + " " + program +
         "; fi\n";
}

// ---- fish

// fish shows files wherever nothing says that it should not.
constexpr std::string_view kFishWalk = R"sh(
# Whether the words so far are those of this command, and so many arguments of it.
function __PROGRAM_at --argument-names path count
    set -l words (commandline -opc)
    set -e words[1]
    set -l at ''
    set -l seen 0
    set -l takes 0
    for word in $words
        set -l next (string trim -- "$at $word")
        if test $takes = 1
            set takes 0
        else if test "x$word" = x--
            return 1
        else if string match -q -- '-*' $word
            contains -- "=$at $word" $__PROGRAM_takes; and set takes 1
        else if test $seen = 0; and contains -- $next $__PROGRAM_commands
            set at $next
        else
            set seen (math $seen + 1)
        end
    end
    test "x$at" = "x$path"; or return 1
    test -z "$count"; or test "$count" = $seen
end
function __PROGRAM_after_dashes
    contains -- -- (commandline -opc)
end
function __PROGRAM_live --argument-names kind
    set -l words (commandline -opc)
    $words[1] __complete $kind (commandline -ct) 2>/dev/null </dev/null
end
complete -c PROGRAM -e
complete -c PROGRAM -f
complete -c PROGRAM -n __PROGRAM_after_dashes -F
)sh";

/// What is offered for a value.
std::string fish_words(const std::string& kind, const std::string& program) {
  if (kind == "file") return " -F";
  if (kind == "value") return "";
  if (kind == "folder") return " -f -a '(__fish_complete_directories)'";
  if (kind.starts_with('=')) return " -f -a '" + kind.substr(1) + "'";
  return " -f -a '(__" + program + "_live " + kind + ")'";
}

std::string fish_flag(const CompletedFlag& flag, const std::string& program) {
  std::string text;
  for (const std::string& name : flag.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!flag.kind.empty()) text += " -r" + fish_words(flag.kind, program);
  return text + " -d " + single_quoted(flag.what, kFishQuote);
}

std::string fish_command(
    const std::vector<CompletedCommand>& commands,
    const CompletedCommand& command,
    const std::string& program
) {
  std::string text;
  const auto line = [&](const std::string& count, const std::string& rest) {
    text += "complete -c " + program + " -n \"__" + program + "_at '" + command.path + "'" + count +
            "\"" + rest + "\n";
  };
  for (const std::string& name : command.below)
    line(
        " 0",
        " -f -a '" + name + "' -d " +
            single_quoted(what_of(commands, command.path, name), kFishQuote)
    );
  for (const CompletedFlag& flag : command.flags) line("", fish_flag(flag, program));
  for (std::size_t i = 0; i < command.places.size(); ++i) {
    const bool is_any = command.repeats && i + 1 == command.places.size();
    const std::string words = fish_words(command.places[i], program);
    if (!words.empty()) line(is_any ? "" : " " + std::to_string(i), words);
  }
  return text;
}

std::string fish_script(const std::vector<CompletedCommand>& commands, const std::string& program) {
  std::string text = "set -g __" + program + "_commands";
  for (const CompletedCommand& command : commands) {
    if (!command.path.empty()) text += " '" + command.path + "'";
  }
  text += "\nset -g __" + program + "_takes";
  for (const auto& [key, kind] : kinds_of(commands)) {
    if (key.find(" -") != std::string::npos) text += " '" + key + "'";
  }
  std::string_view walk = kFishWalk;
  constexpr std::string_view kProgram = "PROGRAM";
  for (std::size_t at = 0; (at = walk.find(kProgram)) != std::string_view::npos;) {
    text.append(walk.substr(0, at)).append(program);
    walk.remove_prefix(at + kProgram.size());
  }
  text += walk;
  for (const CompletedCommand& command : commands) text += fish_command(commands, command, program);
  return text;
}

}  // namespace

std::vector<CompletedCommand> completed_commands(const CLI::App& app) {
  std::vector<CompletedCommand> commands;
  add_completed(app, "", commands);
  return commands;
}

std::string completion_script(
    const std::vector<CompletedCommand>& commands,
    const std::string& program,
    const std::string& shell
) {
  const std::string made = "completion of " + program + " for " + shell + ", made by '" + program +
                           " completion " + shell + "'\n";
  if (shell == "zsh") return zsh_script(commands, program);
  return "# " + made +
         (shell == "fish" ? fish_script(commands, program) : bash_script(commands, program));
}

}  // namespace rn::cli
