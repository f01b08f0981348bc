// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rn::io {

/// `key="value"`, escaped: values may hold anything that a person typed.
std::string metric_label(std::string_view key, std::string_view value);
/// Enough digits for a count of bytes.
std::string metric_number(double value);
/// "name" or "name{labels}".
std::string metric_name(std::string_view name, const std::string& labels);

/// A page in Prometheus' text format 0.0.4, which `promtool check metrics` must pass: each metric
/// has its help and type in front of all its samples, units are base units (seconds, bytes, watts,
/// ratios) and stand last in the name, counters end in _total.
class MetricsPage {
 public:
  static constexpr const char* kContentType = "text/plain; version=0.0.4";

  void head(std::string_view name, std::string_view type, std::string_view help);
  void value(std::string_view name, const std::string& labels, double v);

  void counter(std::string_view name, std::string_view help, std::uint64_t v);
  void gauge(std::string_view name, std::string_view help, double v);

  /// Lines that are complete already, such as a histogram's.
  void raw(std::string_view lines) { text_ += lines; }

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace rn::io
