// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace rn {

/// The character at the front of a text in UTF-8 (RFC 3629).
struct CodePoint {
  enum class Kind : unsigned char {
    kWhole,
    kMalformed,  ///< `bytes` is 1: what cannot begin or go on a character is looked at alone
    kCutOff,     ///< the text ends within what may be a character; `bytes` is all of it
  };
  Kind kind = Kind::kMalformed;
  char32_t value = 0;
  std::size_t bytes = 0;
};

/// Of a text that is not empty. Overlong forms, surrogates and values above U+10FFFF are malformed.
CodePoint first_code_point(std::string_view text);

/// True for well-formed UTF-8 throughout.
bool is_utf8(std::string_view text);

}  // namespace rn
