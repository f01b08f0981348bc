// SPDX-License-Identifier: Apache-2.0
// For tests that play many cases alike: a sanitizer needs twenty times as long for each, and sees
// in a few what it sees in all.
#pragma once

namespace rn {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace rn
