// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "base/error.h"

/// What crosses a border of a process for an error: a word on the wire, a number for the shell.
namespace rn {

inline constexpr std::array kErrorCodes = {
    ErrorCode::kInvalid,
    ErrorCode::kNotFound,
    ErrorCode::kConflict,
    ErrorCode::kDenied,
    ErrorCode::kUnavailable,
    ErrorCode::kTimeout,
    ErrorCode::kExhausted,
    ErrorCode::kCorrupt,
    ErrorCode::kUnsupported,
    ErrorCode::kInternal};

/// The code whose to_string() is `word`; nothing for any other word.
std::optional<ErrorCode> error_code_of(std::string_view word);

/// The exit status of a command that failed so; stable: 1 internal, corrupt or unsupported, 2
/// usage, 3 not found, 4 denied, 5 conflict, 6 unavailable, 7 timeout, 8 exhausted.
int exit_code_of(ErrorCode code);

}  // namespace rn
