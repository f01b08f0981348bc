// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/error.h"

// The one way in which flags and words of people's files become whole numbers.
namespace rn {

/// Decimal digits and nothing else: no sign, blank, fraction or other base. A zero in front is
/// refused, because some read it as octal. kInvalid names the text and both bounds.
Result<std::uint64_t> whole_number_within(
    std::string_view text, std::uint64_t least, std::uint64_t most
);

template <std::unsigned_integral T>
Result<T> whole_number(std::string_view text, T least = 0, T most = std::numeric_limits<T>::max()) {
  RN_TRY(const std::uint64_t number, whole_number_within(text, least, most));
  return static_cast<T>(number);
}

}  // namespace rn
