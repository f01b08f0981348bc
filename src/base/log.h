// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace rn::log {

enum class Level : std::uint8_t { kDebug, kInfo, kWarning, kError };

/// One key with its value, rendered as `key=value` (values with blanks are quoted).
struct Field {
  std::string_view key;
  std::string value;

  Field(std::string_view k, std::string v) : key(k), value(std::move(v)) {}

  Field(std::string_view k, std::string_view v) : key(k), value(v) {}

  Field(std::string_view k, const char* v) : key(k), value(v) {}

  Field(std::string_view k, std::int64_t v) : key(k), value(std::to_string(v)) {}

  Field(std::string_view k, std::uint64_t v) : key(k), value(std::to_string(v)) {}

  Field(std::string_view k, int v) : key(k), value(std::to_string(v)) {}

  Field(std::string_view k, std::uint32_t v) : key(k), value(std::to_string(v)) {}
};

/// Structured events, one line per state change, none per packet: `log::info("attempt.started",
/// {{"job", id.str()}})`. Thread-safe; writes to standard error. An error-level event fails a
/// simulation run.
void debug(std::string_view event, std::initializer_list<Field> fields = {});
void info(std::string_view event, std::initializer_list<Field> fields = {});
void warning(std::string_view event, std::initializer_list<Field> fields = {});
void error(std::string_view event, std::initializer_list<Field> fields = {});

void set_level(Level lowest);
std::uint64_t error_count();  ///< error-level events of this process so far

}  // namespace rn::log
