// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace rn::log {

namespace {

std::atomic<std::uint64_t> errors{0};

spdlog::logger& sink() {
  static const std::shared_ptr<spdlog::logger> kLogger = [] {
    auto logger =
        std::make_shared<spdlog::logger>("rn", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
    logger->flush_on(spdlog::level::debug);
    return logger;
  }();
  return *kLogger;
}

void emit(
    spdlog::level::level_enum level, std::string_view event, std::initializer_list<Field> fields
) {
  if (!sink().should_log(level)) return;
  std::string line(event);
  for (const Field& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    const bool quote =
        field.value.empty() || field.value.find_first_of(" \"\n") != std::string::npos;
    if (!quote) {
      line += field.value;
      continue;
    }
    line += '"';
    for (const char c : field.value) {
      if (c == '"' || c == '\\') line += '\\';
      line += c == '\n' ? ' ' : c;
    }
    line += '"';
  }
  sink().log(level, line);
}

}  // namespace

void debug(std::string_view event, std::initializer_list<Field> fields) {
  emit(spdlog::level::debug, event, fields);
}

void info(std::string_view event, std::initializer_list<Field> fields) {
  emit(spdlog::level::info, event, fields);
}

void warning(std::string_view event, std::initializer_list<Field> fields) {
  emit(spdlog::level::warn, event, fields);
}

void error(std::string_view event, std::initializer_list<Field> fields) {
  errors.fetch_add(1, std::memory_order_relaxed);
  emit(spdlog::level::err, event, fields);
}

void set_level(Level lowest) {
  switch (lowest) {
    case Level::kDebug:
      return sink().set_level(spdlog::level::debug);
    case Level::kInfo:
      return sink().set_level(spdlog::level::info);
    case Level::kWarning:
      return sink().set_level(spdlog::level::warn);
    case Level::kError:
      return sink().set_level(spdlog::level::err);
  }
}

std::uint64_t error_count() {
  return errors.load(std::memory_order_relaxed);
}

}  // namespace rn::log
