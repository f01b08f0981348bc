// SPDX-License-Identifier: Apache-2.0
#include "cli_job_file.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include <nlohmann/json.hpp>

#include "base/fs.h"
#include "base/utf8.h"
#include "base/whole_number.h"
#include "io/real_fs.h"
#include "model/codec.h"
#include "model/codec_detail.h"
#include "model/what_is.h"
#include "model/yaml.h"

namespace rn::cli {

namespace {

using nlohmann::json;

/// What belongs there, and what a document has instead.
tl::unexpected<Error> mistaken(const json& found, const std::string& path, const char* expected) {
  return fail(ErrorCode::kInvalid, path + ": expected " + expected + ", found " + what_is(found));
}

/// A scalar of a document as people wrote it.
Result<std::string> scalar(const json& value, const std::string& path) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  return mistaken(value, path, "a word or a number");
}

Result<std::vector<std::string>> words(const json& value, const std::string& path) {
  if (value.is_string()) return std::vector{value.get<std::string>()};
  if (!value.is_array()) {
    const Error wrong = mistaken(value, path, "text, or a list of texts").value();
    const bool is_scalar = value.is_boolean() || value.is_number();
    return fail(is_scalar ? wrong.hinting("put it in quotes: \"" + value.dump() + "\"") : wrong);
  }
  std::vector<std::string> list;
  for (const json& one : value) {
    RN_TRY(std::string word, scalar(one, path + "[" + std::to_string(list.size()) + "]"));
    list.push_back(std::move(word));
  }
  return list;
}

using Setter = std::function<Status(const json& value, const std::string& path)>;
using Setters = std::map<std::string, Setter>;

/// The field of this name that belongs below another one, "resources.cpus"; "" if there is none.
std::string word_below(const std::string& key) {
  const std::vector<std::string> all = job_file_words();
  const auto found = std::find_if(all.begin(), all.end(), [&](const std::string& word) {
    return word.ends_with("." + key);
  });
  return found == all.end() ? "" : *found;
}

/// Fields of SkyPilot and dstack that a job here cannot have, and what to do in their place.
Status check_foreign(const std::string& path) {
  struct Foreign {
    std::string_view path;
    const char* what;
    const char* next;
  };

  constexpr const char* kNoFiles = "no files are mounted or copied from elsewhere";
  constexpr const char* kFiles =
      "name a folder with 'workdir', and big data that nodes have with 'data'";
  static constexpr Foreign kFields[] = {
      {"files", kNoFiles, kFiles},
      {"file_mounts", kNoFiles, kFiles},
      {"volumes", kNoFiles, kFiles},
      {"ports", "nothing reaches a job from outside", "leave it out; 'outputs' come home by files"},
      {"retry", "a job always goes on after a reclaim", "say 'max_restarts' for its own crashes"},
      {"schedule", "a job is submitted once", "leave it out and submit it by cron"},
      {"secrets",
       "what a job is given can be read by who sees the job",
       "put into 'env' what may be read there, and leave out the rest"},
      {"utilization_policy",
       "that a job stops when it uses no GPU has another word here",
       "write 'idle_stop: 2h'"}};
  for (const Foreign& field : kFields) {
    if (field.path != path) continue;
    return fail(ErrorCode::kInvalid, path + ": " + field.what, field.next);
  }
  return {};
}

/// Calls the setter of each field; an unknown one is refused with the nearest known.
Status read_object(const json& document, const std::string& at, const Setters& setters) {
  if (!document.is_object())
    return mistaken(document, at.empty() ? "the document" : at, "fields (NAME: value)");
  for (const auto& [key, value] : document.items()) {
    const std::string path = at.empty() ? key : at + "." + key;
    const auto found = setters.find(key);
    if (found != setters.end()) {
      const Status set = found->second(value, path);
      if (!set) {
        const Error& error = set.error();
        const bool names_it = error.message.starts_with(path);
        return fail(names_it ? error : error.with(path));
      }
      continue;
    }
    RN_CHECK(check_foreign(path));
    std::vector<std::string> known;
    for (const auto& [name, setter] : setters) known.push_back(name);
    const std::string below = at.empty() ? word_below(key) : "";
    const std::string near = below.empty() ? detail::nearest_word(key, known) : below;
    return fail(
        ErrorCode::kInvalid,
        path + ": no such field",
        near.empty() ? "remove it; docs/guests.md lists the fields" : "did you mean '" + near + "'?"
    );
  }
  return {};
}

template <class T, class Parse>
Setter parsed(T& out, Parse parse) {
  return [&out, parse](const json& value, const std::string& path) -> Status {
    RN_TRY(const std::string text, scalar(value, path));
    RN_TRY(out, parse(text));
    return {};
  };
}

Setter text_into(std::string& out) {
  return parsed(out, [](const std::string& text) -> Result<std::string> { return text; });
}

/// Text that says something.
Setter name_into(std::string& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    RN_TRY(out, scalar(value, path));
    if (!out.empty()) return {};
    return fail(ErrorCode::kInvalid, path + ": is empty", "name a file, or leave the field out");
  };
}

Setter words_into(std::vector<std::string>& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    RN_TRY(out, words(value, path));
    return {};
  };
}

Setter flag_into(bool& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    if (!value.is_boolean()) {
      const Error wrong = mistaken(value, path, "true or false").value();
      return fail(wrong.hinting("write it without quotes, in small letters"));
    }
    out = value.get<bool>();
    return {};
  };
}

Setter gpu_into(Resources& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    RN_TRY(const std::string text, scalar(value, path));
    return parse_gpu(text, out);
  };
}

/// "NAME=VALUE" each.
Status read_pairs(
    const json& value, const std::string& path, std::map<std::string, std::string>& out
) {
  RN_TRY(const auto pairs, words(value, path));
  for (const std::string& pair : pairs) {
    const auto equals = pair.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(
          ErrorCode::kInvalid,
          path + ": '" + pair + "' is not NAME=VALUE",
          "give its value; variables of this machine are not taken along"
      );
    out[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return {};
}

Setter environment_into(std::map<std::string, std::string>& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    if (value.is_array()) return read_pairs(value, path, out);
    if (!value.is_object()) return mistaken(value, path, "fields (NAME: value)");
    for (const auto& [name, one] : value.items()) {
      RN_TRY(out[name], scalar(one, path + "." + name));
    }
    return {};
  };
}

Setter peers_into(std::vector<NetworkAllow>& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    RN_TRY(const auto list, words(value, path));
    out.clear();
    for (const std::string& text : list) {
      RN_TRY(out.emplace_back(), parse_peer(text));
    }
    return {};
  };
}

Setter after_into(std::vector<AfterJob>& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    std::vector<std::string> list;
    if (value.is_number()) {
      list = {value.dump()};
    } else {
      RN_TRY(list, words(value, path));
    }
    out.clear();
    for (const std::string& text : list) {
      RN_TRY(out.emplace_back(), parse_after(text));
    }
    return {};
  };
}

/// A whole number within bounds.
Setter number_into(std::uint32_t& out, std::uint32_t least, std::uint32_t most) {
  return parsed(out, [least, most](const std::string& text) {
    return whole_number<std::uint32_t>(text, least, most);
  });
}

/// A line, or a list of lines: for one shell.
Result<std::string> script_of(const json& value, const std::string& path) {
  RN_TRY(const auto lines, words(value, path));
  std::string script;
  for (const std::string& line : lines) script += (script.empty() ? "" : "\n") + line;
  return script;
}

Setter hook_into(std::string& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    RN_TRY(out, script_of(value, path));
    if (!out.empty()) return {};
    return fail(ErrorCode::kInvalid, path + ": is empty", "name a command, or leave the field out");
  };
}

/// Of the fields that say how many machines: one.
Setter one_node() {
  return [](const json& value, const std::string& path) -> Status {
    RN_TRY(const std::string text, scalar(value, path));
    if (text == "1") return {};
    return fail(
        ErrorCode::kInvalid,
        path + ": a job runs on one machine",
        "ask for more GPUs there, or submit jobs that do not speak to each other"
    );
  };
}

Setter only_tasks() {
  return [](const json& value, const std::string& path) -> Status {
    RN_TRY(const std::string text, scalar(value, path));
    if (text == "task") return {};
    return fail(
        ErrorCode::kInvalid,
        path + ": a job runs a command and ends; there is no '" + text + "'",
        "write 'type: task', or leave it out"
    );
  };
}

Setter script_into(std::string& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    RN_TRY(out, script_of(value, path));
    return {};
  };
}

/// "run: cmd".
Setter command_into(std::vector<std::string>& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    RN_TRY(const std::string script, script_of(value, path));
    if (script.empty()) return fail(ErrorCode::kInvalid, path + ": the command is empty", "");
    out = {"/bin/sh", "-ec", script};
    return {};
  };
}

constexpr std::uint64_t kShmMibAlways = 64;  ///< docs/guests.md

/// A native job file as it is read.
struct NativeFile {
  JobFile file;
  std::string setup;
  std::uint64_t shm_mib = 0;
};

Setters resource_setters(Resources& resources, std::uint64_t& shm_mib) {
  return {
      {"gpu", gpu_into(resources)},
      {"accelerators", gpu_into(resources)},
      {"compute_capability", text_into(resources.compute_capability_min)},
      {"cpus", parsed(resources.cpu_milli, parse_cpu_milli)},
      {"cpus_min", parsed(resources.cpu_milli_min, parse_cpu_milli)},
      {"memory", parsed(resources.memory_mib, parse_memory_mib)},
      {"disk_size", parsed(resources.disk_mib, parse_memory_mib)},
      {"shm_size", parsed(shm_mib, parse_memory_mib)}};
}

Setters interrupt_setters(JobSpec& spec) {
  return {
      {"notice", parsed(spec.notice_s, parse_duration_s)},
      {"signal", parsed(spec.checkpoint.signal, parse_signal)},
      {"tell", flag_into(spec.checkpoint.is_told)},
      {"tell_file", name_into(spec.checkpoint.tell_file)},
      {"tell_hook", hook_into(spec.checkpoint.tell_hook)},
      {"tell_api", flag_into(spec.checkpoint.tell_api)},
      {"checkpoint", words_into(spec.checkpoint.paths)},
      {"every", parsed(spec.checkpoint.min_interval_s, parse_duration_s)}};
}

Setters job_setters(NativeFile& native) {
  JobFile& file = native.file;
  JobSpec& spec = file.spec;
  const auto nested = [](Setters setters) -> Setter {
    return [setters = std::move(setters)](const json& value, const std::string& path) {
      return read_object(value, path, setters);
    };
  };
  return {
      {"name", text_into(spec.name)},
      {"image", text_into(spec.image)},
      {"workdir", text_into(file.folder)},
      {"working_dir", text_into(file.folder)},
      {"gpu", gpu_into(spec.resources)},
      {"resources", nested(resource_setters(spec.resources, native.shm_mib))},
      {"env", environment_into(spec.env)},
      {"envs", environment_into(spec.env)},
      {"type", only_tasks()},
      {"nodes", one_node()},
      {"num_nodes", one_node()},
      {"setup", script_into(native.setup)},
      {"run", command_into(spec.command)},
      {"commands", command_into(spec.command)},
      {"priority", number_into(spec.priority, 0, 7)},
      {"max_duration", parsed(spec.max_duration_s, parse_duration_s)},
      {"idle_stop", parsed(spec.idle_stop_s, parse_duration_s)},
      {"interrupt", nested(interrupt_setters(spec))},
      {"checkpoint", words_into(spec.checkpoint.paths)},
      {"stateless", flag_into(spec.checkpoint.is_stateless)},
      {"outputs", words_into(spec.checkpoint.outputs)},
      {"temporary", words_into(spec.checkpoint.temporary)},
      {"complete_marker", text_into(spec.checkpoint.complete_marker)},
      {"copies", number_into(spec.checkpoint.copies, 1, 8)},
      {"copies_at", words_into(spec.checkpoint.destinations)},
      {"max_restarts", number_into(spec.max_restarts, 0, 1000)},
      {"data", words_into(spec.data)},
      {"peers", peers_into(spec.peers)},
      {"labs", words_into(spec.only_labs)},
      {"after", after_into(spec.after)},
      {"notify", words_into(file.notify)}};
}

Result<JobFile> parse_native(const json& document) {
  NativeFile native;
  JobSpec& spec = native.file.spec;
  RN_CHECK(read_object(document, "", job_setters(native)));
  if (document.contains("run") && document.contains("commands"))
    return fail(
        ErrorCode::kInvalid,
        "run and commands both say what the job does",
        "put all of it into one of them"
    );
  if (spec.command.empty())
    return fail(ErrorCode::kInvalid, "run: the job has no command", "add 'run: python train.py'");
  // A shell of its own, as in other tools: what it sets and where it goes ends with it.
  if (!native.setup.empty())
    spec.command.back() = "(\n" + native.setup + "\n)\n" + spec.command.back();
  if (native.shm_mib > std::max<std::uint64_t>(kShmMibAlways, spec.resources.memory_mib / 2))
    return fail(
        ErrorCode::kInvalid,
        "resources.shm_size: /dev/shm is half as large as the job's memory",
        "ask for memory: " + std::to_string(2 * native.shm_mib) + "MB"
    );
  return std::move(native.file);
}

}  // namespace

Result<JobFile> parse_job_file(std::string_view text) {
  if (!is_utf8(text)) return fail(ErrorCode::kInvalid, "is not text in UTF-8", "save it in UTF-8");
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  RN_TRY(const json document, is_json ? parse_json(text) : parse_yaml(text));
  if (!document.is_object() || !document.contains("command")) return parse_native(document);
  JobFile file;
  RN_TRY(file.spec, from_document<JobSpec>(document));
  return file;
}

Error job_file_too_long(const std::string& what) {
  return {
      ErrorCode::kExhausted,
      what + " has more than 1 MiB",
      "put what is long into files of the job's folder"};
}

Result<std::string> read_job_file(const std::string& path) {
  io::RealFileSystem fs;
  std::error_code ignored;
  const std::string whole = std::filesystem::absolute(path, ignored).lexically_normal().string();
  const auto bytes = read_named(fs, whole, kJobFileMaxBytes);
  if (bytes) return std::string(as_text(*bytes));
  if (bytes.error().code == ErrorCode::kExhausted) return fail(job_file_too_long(path));
  return fail(bytes.error().hinting("give a job file, or - for standard input"));
}

std::vector<std::string> job_file_words() {
  NativeFile native;
  JobSpec& spec = native.file.spec;
  std::vector<std::string> words;
  const auto add = [&](const std::string& prefix, const Setters& setters) {
    for (const auto& [word, setter] : setters) {
      if (word != "resources" && word != "interrupt") words.push_back(prefix + word);
    }
  };
  add("", job_setters(native));
  add("resources.", resource_setters(spec.resources, native.shm_mib));
  add("interrupt.", interrupt_setters(spec));
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace rn::cli
