// SPDX-License-Identifier: Apache-2.0
#include "cli_job_file.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include <nlohmann/json.hpp>

#include "base/fs.h"
#include "base/utf8.h"
#include "base/whole_number.h"
#include "io/real_fs.h"
#include "io/url.h"
#include "model/codec.h"
#include "model/codec_detail.h"
#include "model/what_is.h"
#include "model/yaml.h"

namespace rn::cli {

namespace {

using nlohmann::json;

constexpr double kDurationMaxS = 10.0 * 365 * 86'400;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return text;
}

/// The number at the front of `text` and what follows it.
Result<double> leading_number(const std::string& text, std::string& rest, const char* next) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [last, code] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const bool has_digit_first = !text.empty() && text.front() >= '0' && text.front() <= '9';
  if (code != std::errc() || !has_digit_first)  // no sign, and no infinity
    return fail(ErrorCode::kInvalid, "'" + text + "' does not begin with a number", next);
  rest = lower(std::string(last, end));
  rest.erase(std::remove(rest.begin(), rest.end(), ' '), rest.end());
  while (!rest.empty() && (rest.back() == '+' || rest.back() == '.')) rest.pop_back();
  return value;
}

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

Setter environment_into(std::map<std::string, std::string>& out) {
  return [&out](const json& value, const std::string& path) -> Status {
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

/// "run: cmd".
Setter command_into(std::vector<std::string>& out) {
  return [&out](const json& value, const std::string& path) -> Status {
    RN_TRY(const std::string script, script_of(value, path));
    if (script.empty()) return fail(ErrorCode::kInvalid, path + ": the command is empty", "");
    out = {"/bin/sh", "-ec", script};
    return {};
  };
}

Setters resource_setters(Resources& resources) {
  return {
      {"gpu", gpu_into(resources)},
      {"accelerators", gpu_into(resources)},
      {"compute_capability", text_into(resources.compute_capability_min)},
      {"cpus", parsed(resources.cpu_milli, parse_cpu_milli)},
      {"cpus_min", parsed(resources.cpu_milli_min, parse_cpu_milli)},
      {"memory", parsed(resources.memory_mib, parse_memory_mib)},
      {"disk_size", parsed(resources.disk_mib, parse_memory_mib)}};
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

Setters job_setters(JobFile& file) {
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
      {"resources", nested(resource_setters(spec.resources))},
      {"env", environment_into(spec.env)},
      {"envs", environment_into(spec.env)},
      {"run", command_into(spec.command)},
      {"commands", command_into(spec.command)},
      {"priority", number_into(spec.priority, 0, 7)},
      {"max_duration", parsed(spec.max_duration_s, parse_duration_s)},
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
      {"labs", words_into(spec.only_labs)}};
}

Result<JobFile> parse_native(const json& document) {
  JobFile file;
  const JobSpec& spec = file.spec;
  RN_CHECK(read_object(document, "", job_setters(file)));
  if (document.contains("run") && document.contains("commands"))
    return fail(
        ErrorCode::kInvalid,
        "run and commands both say what the job does",
        "put all of it into one of them"
    );
  if (spec.command.empty())
    return fail(ErrorCode::kInvalid, "run: the job has no command", "add 'run: python train.py'");
  return file;
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
  JobFile file;
  std::vector<std::string> words;
  const auto add = [&](const std::string& prefix, const Setters& setters) {
    for (const auto& [word, setter] : setters) {
      if (word != "resources" && word != "interrupt") words.push_back(prefix + word);
    }
  };
  add("", job_setters(file));
  add("resources.", resource_setters(file.spec.resources));
  add("interrupt.", interrupt_setters(file.spec));
  std::sort(words.begin(), words.end());
  return words;
}

Result<NetworkAllow> parse_peer(const std::string& text) {
  NetworkAllow peer;
  std::string rest = text;
  for (const char* protocol : {"udp", "tcp"}) {
    const std::string suffix = std::string("/") + protocol;
    if (!rest.ends_with(suffix)) continue;
    peer.protocol = protocol;
    rest.resize(rest.size() - suffix.size());
  }
  const auto colon = rest.rfind(':');
  if (colon != std::string::npos && rest.find(':') == colon) {
    const auto port = whole_number<std::uint16_t>(rest.substr(colon + 1), 1);
    if (!port)
      return fail(
          ErrorCode::kInvalid,
          "peer '" + text + "': port " + port.error().message,
          "for example 10.1.2.3:5000/udp"
      );
    peer.port = *port;
    rest.resize(colon);
  }
  const std::size_t slash = rest.find('/');
  const std::string address = rest.substr(0, slash);
  const std::uint8_t bits = address.find(':') == std::string::npos ? 32 : 128;
  const auto length = slash == std::string::npos
                          ? Result<std::uint8_t>(bits)
                          : whole_number<std::uint8_t>(rest.substr(slash + 1), 0, bits);
  if (!io::is_ip_address(address) || !length)
    return fail(
        ErrorCode::kInvalid,
        "peer '" + text + "': '" + rest + "' is no address and no network; names are none",
        "for example 10.1.2.3 or 10.1.2.0/24"
    );
  peer.prefix = address + "/" + std::to_string(*length);
  return peer;
}

Result<std::uint64_t> parse_memory_mib(const std::string& text) {
  std::string unit;
  RN_TRY(const double value, leading_number(text, unit, "for example 512MB or 4GB"));
  double mib = 0;
  if (unit.empty() || unit == "g" || unit == "gb" || unit == "gib") {
    mib = value * 1024;
  } else if (unit == "m" || unit == "mb" || unit == "mib") {
    mib = value;
  } else if (unit == "t" || unit == "tb" || unit == "tib") {
    mib = value * 1024 * 1024;
  } else {
    return fail(
        ErrorCode::kInvalid, "'" + text + "' is no amount of memory", "for example 512MB or 4GB"
    );
  }
  if (mib < 1 || mib > 64.0 * 1024 * 1024)
    return fail(
        ErrorCode::kInvalid,
        "'" + text + "' is not within 1 MiB and 64 TiB",
        "for example 512MB or 4GB"
    );
  return static_cast<std::uint64_t>(std::ceil(mib));
}

Result<std::uint32_t> parse_cpu_milli(const std::string& text) {
  std::string unit;
  RN_TRY(const double value, leading_number(text, unit, "for example 2, 0.5 or 500m"));
  const double milli = unit == "m" ? value : value * 1000;
  if ((!unit.empty() && unit != "m") || milli < 1 || milli > 1e6)
    return fail(
        ErrorCode::kInvalid, "'" + text + "' is no number of CPUs", "for example 2, 0.5 or 500m"
    );
  return static_cast<std::uint32_t>(std::ceil(milli));
}

Status parse_gpu(const std::string& text, Resources& resources) {
  std::uint32_t count = 1;
  std::uint64_t memory_mib = 0;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    std::string unit;
    const auto value = leading_number(part, unit, "for example --gpu 2 or --gpu 24GB:1");
    if (!value && part.find_first_not_of("+-.0123456789") == std::string::npos) {
      return fail(
          ErrorCode::kInvalid,
          "gpu '" + text + "': expected a whole number up to 64",
          "for example --gpu 2 or --gpu 24GB:1"
      );
    }
    if (!value) {
      return fail(
          ErrorCode::kInvalid,
          "gpu '" + text + "': " +
              (std::isalpha(static_cast<unsigned char>(part.empty() ? '\0' : part.front())) != 0
                   ? "GPU models cannot be asked for, only a number and memory"
                   : "'" + part + "' is no number of GPUs and no amount of memory"),
          "for example --gpu 2 or --gpu 24GB:1"
      );
    }
    if (unit.empty()) {
      if (*value > 64 || *value != std::floor(*value))
        return fail(
            ErrorCode::kInvalid,
            "gpu '" + text + "': expected a whole number up to 64",
            "for example --gpu 2 or --gpu 24GB:1"
        );
      count = static_cast<std::uint32_t>(*value);
    } else {
      RN_TRY(memory_mib, parse_memory_mib(part));
    }
  }
  resources.gpus = count;
  resources.gpu_memory_mib = memory_mib;
  return {};
}

Result<std::uint32_t> parse_duration_s(const std::string& text) {
  std::string unit;
  RN_TRY(
      const double value,
      leading_number(text, unit, "for example 90s, 5m or 2h; leave it out for none")
  );
  static const std::map<std::string, double> kUnits = {
      {"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86'400}};
  const auto found = kUnits.find(unit);
  const double duration_s = found == kUnits.end() ? 0 : std::ceil(value * found->second);
  if (duration_s < 1 || duration_s > kDurationMaxS)
    return fail(
        ErrorCode::kInvalid,
        "'" + text + "' is no duration from one second to ten years",
        "for example 90s, 5m or 2h; leave it out for none"
    );
  return static_cast<std::uint32_t>(duration_s);
}

Result<SaveSignal> parse_signal(const std::string& text) {
  std::string word = lower(text);
  if (word.starts_with("sig")) word = word.substr(3);
  for (std::size_t i = 0; i < std::size(EnumWords<SaveSignal>::kWords); ++i) {
    if (EnumWords<SaveSignal>::kWords[i] == word) return static_cast<SaveSignal>(i);
  }
  return fail(
      ErrorCode::kInvalid,
      "'" + text + "' is no signal that a job can save on",
      "auto, none, TERM, USR1 or USR2"
  );
}

}  // namespace rn::cli
