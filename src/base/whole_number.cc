// SPDX-License-Identifier: Apache-2.0
#include "base/whole_number.h"

#include <charconv>
#include <string>

namespace rn {

namespace {

constexpr std::size_t kQuotedBytes = 40;

}  // namespace

Result<std::uint64_t> whole_number_within(
    std::string_view text, std::uint64_t least, std::uint64_t most
) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [last, code] = std::from_chars(text.data(), end, number);
  const bool is_octal = text.size() > 1 && text.front() == '0';
  if (code == std::errc() && last == end && !is_octal && number >= least && number <= most)
    return number;
  return fail(
      ErrorCode::kInvalid,
      "'" + std::string(text.substr(0, kQuotedBytes)) + (text.size() > kQuotedBytes ? "…" : "") +
          "' is no whole number from " + std::to_string(least) + " to " + std::to_string(most),
      code == std::errc() && is_octal ? "leave out the zeros in front" : ""
  );
}

}  // namespace rn
