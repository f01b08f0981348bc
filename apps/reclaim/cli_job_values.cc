// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>

#include "cli_job_file.h"

#include "base/whole_number.h"
#include "io/url.h"

namespace rn::cli {

namespace {

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

}  // namespace

Result<AfterJob> parse_after(const std::string& text) {
  AfterJob after;
  const auto colon = text.find(':');
  after.job = colon == std::string::npos ? text : text.substr(colon + 1);
  const std::string when = colon == std::string::npos ? "ok" : text.substr(0, colon);
  constexpr auto& kWords = EnumWords<AfterWhen>::kWords;
  const auto* const found = std::find(std::begin(kWords), std::end(kWords), when);
  if (after.job.empty() || found == std::end(kWords))
    return fail(
        ErrorCode::kInvalid,
        "'" + text + "' names no job to wait for",
        "give an id or number, for example 17, fail:17, any:17 or started:17"
    );
  after.when = static_cast<AfterWhen>(found - std::begin(kWords));
  return after;
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
