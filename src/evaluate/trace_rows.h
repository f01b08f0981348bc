// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

// Tables of recorded behaviour as text: names of columns in the first line, then rows. What is
// wrong is said with file and line.
namespace rn::evaluate {

inline constexpr std::size_t kMaxTraceBytes = 256u << 20;  ///< unpacked
inline constexpr std::size_t kMaxTraceColumns = 64;

/// The whole file, unpacked if it is gzip. kNotFound if it cannot be opened, kCorrupt if it does
/// not unpack, kExhausted above kMaxTraceBytes. Reads a file, blocks.
Result<std::string> read_trace_text(const std::string& path);

/// Rows of a table, one after the other. Borrows the text.
class TraceRows {
 public:
  /// kInvalid if the first line lacks one of the columns, has one twice, or is not there.
  static Result<TraceRows> open(
      std::string_view text, std::string file, std::initializer_list<std::string_view> columns
  );

  /// False at the end. kInvalid for a row that has not as many fields as there are columns.
  Result<bool> next();

  /// Of the row, by the column's place in the list given to open().
  std::string_view field(std::size_t column) const { return fields_[places_[column]]; }

  /// A whole number in [low, high]; kInvalid names the column.
  Result<std::int64_t> integer(std::size_t column, std::int64_t low, std::int64_t high) const;
  /// A finite number in [low, high].
  Result<double> number(std::size_t column, double low, double high) const;
  /// "2020-05-01 00:00:00", a moment that exists, without a time zone: milliseconds since 1970 as
  /// if it were UTC.
  Result<std::int64_t> local_time_ms(std::size_t column) const;

  /// kInvalid: "FILE:LINE: WHAT".
  tl::unexpected<Error> fail_here(std::string_view what, std::string hint = {}) const;

 private:
  TraceRows() = default;
  bool next_line(std::string_view& line);
  std::string column_words(std::size_t column) const;

  std::string_view rest_;
  std::string file_;
  std::size_t line_ = 0;
  std::vector<std::string> names_;
  std::vector<std::size_t> places_;
  std::size_t width_ = 0;
  std::vector<std::string_view> fields_;
};

/// "2020-05-01 00:00:00" of milliseconds since 1970.
std::string local_time_words(std::int64_t at_ms);

}  // namespace rn::evaluate
