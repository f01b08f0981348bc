// SPDX-License-Identifier: Apache-2.0
#include "base/error_words.h"

#include <algorithm>

namespace rn {
std::optional<ErrorCode> error_code_of(std::string_view word) {
  const auto* const found =
      std::find_if(kErrorCodes.begin(), kErrorCodes.end(), [&](ErrorCode code) {
        return to_string(code) == word;
      });
  return found == kErrorCodes.end() ? std::nullopt : std::optional(*found);
}

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return 2;
    case ErrorCode::kNotFound:
      return 3;
    case ErrorCode::kDenied:
      return 4;
    case ErrorCode::kConflict:
      return 5;
    case ErrorCode::kUnavailable:
      return 6;
    case ErrorCode::kTimeout:
      return 7;
    case ErrorCode::kExhausted:
      return 8;
    case ErrorCode::kCorrupt:
    case ErrorCode::kUnsupported:
    case ErrorCode::kInternal:
      return 1;
  }
  return 1;
}

}  // namespace rn
