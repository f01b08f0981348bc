// SPDX-License-Identifier: Apache-2.0
#include "io/metrics_page.h"

#include <cstdio>

namespace rn::io {

std::string metric_label(std::string_view key, std::string_view value) {
  std::string text = std::string(key) + "=\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text + "\"";
}

std::string metric_number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.15g", value);
  return text;
}

std::string metric_name(std::string_view name, const std::string& labels) {
  return labels.empty() ? std::string(name) : std::string(name) + "{" + labels + "}";
}

void MetricsPage::head(std::string_view name, std::string_view type, std::string_view help) {
  text_ += "# HELP " + std::string(name) + " " + std::string(help) + "\n# TYPE " +
           std::string(name) + " " + std::string(type) + "\n";
}

void MetricsPage::value(std::string_view name, const std::string& labels, double v) {
  text_ += metric_name(name, labels) + " " + metric_number(v) + "\n";
}

void MetricsPage::counter(std::string_view name, std::string_view help, std::uint64_t v) {
  head(name, "counter", help);
  value(name, "", static_cast<double>(v));
}

void MetricsPage::gauge(std::string_view name, std::string_view help, double v) {
  head(name, "gauge", help);
  value(name, "", v);
}

}  // namespace rn::io
