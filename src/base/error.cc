// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

namespace rn {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return "invalid";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kConflict:
      return "conflict";
    case ErrorCode::kDenied:
      return "denied";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

bool is_retryable(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kTimeout ||
         code == ErrorCode::kExhausted;
}

Error Error::with(std::string_view context) const {
  return Error{code, std::string(context) + ": " + message, hint};
}

Error Error::hinting(std::string_view next) const {
  return Error{code, message, hint.empty() ? std::string(next) : hint};
}

std::string Error::describe() const {
  std::string text(to_string(code));
  text += ": " + message;
  if (!hint.empty()) text += " (" + hint + ")";
  return text;
}

}  // namespace rn
