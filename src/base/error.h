// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace rn {

/// The few canonical codes. The same words travel on the wire and in REST errors.
enum class ErrorCode : std::uint8_t {
  kInvalid,      ///< the request is wrong; repeating it cannot help
  kNotFound,     ///< no such thing
  kConflict,     ///< stale epoch, or the thing is in another state than the caller assumed
  kDenied,       ///< not allowed to this caller
  kUnavailable,  ///< not now; retry later
  kTimeout,      ///< no answer in time; the effect may have happened
  kExhausted,    ///< a bound, a quota or a disk is full
  kCorrupt,      ///< bytes are not what they claim to be
  kUnsupported,  ///< this build, kernel or peer cannot do it
  kInternal,     ///< our own failure
};

std::string_view to_string(ErrorCode code);

/// True for codes after which the same request may succeed later: kUnavailable, kTimeout,
/// kExhausted.
bool is_retryable(ErrorCode code);

/// What went wrong, and what the person who reads it can do next.
struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string hint;  ///< what to do next; may be empty below the API, never at the CLI

  /// The same error with context in front: "restoring job j-1: chunk 3 is missing".
  Error with(std::string_view context) const;
  /// The same error with `next` as its hint, unless it already has one.
  Error hinting(std::string_view next) const;
  std::string describe() const;  ///< "kCorrupt: message (hint)"

  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string hint = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(hint)});
}

inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace rn

#define RN_CONCAT_INNER(a, b) a##b
#define RN_CONCAT(a, b) RN_CONCAT_INNER(a, b)

/// `RN_TRY(auto x, f());` declares x from f()'s value, or returns f()'s error from this function.
#define RN_TRY(declaration, ...) \
  RN_TRY_INNER(declaration, RN_CONCAT(rn_try_, __LINE__), __VA_ARGS__)
#define RN_TRY_INNER(declaration, temporary, ...)                                     \
  auto temporary = (__VA_ARGS__);                                                     \
  if (!temporary) return ::tl::unexpected<::rn::Error>(std::move(temporary).error()); \
  declaration = *std::move(temporary)

/// `RN_CHECK(f());` returns f()'s error from this function, if it has one.
#define RN_CHECK(...)                                                           \
  do {                                                                          \
    auto rn_check_result = (__VA_ARGS__);                                       \
    if (!rn_check_result)                                                       \
      return ::tl::unexpected<::rn::Error>(std::move(rn_check_result).error()); \
  } while (false)
