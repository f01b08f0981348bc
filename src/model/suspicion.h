// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rn {

/// Who crashes sooner after a resume blames the generation resumed from (ADR 0005). The coordinator
/// puts the job back by one then; its node makes no generation of what such a guest left behind.
inline constexpr std::uint32_t kCrashAfterResumeS = 120;

}  // namespace rn
