// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rn {

/// Known bugs that the checkers must catch. Only reclaim-sim-planted, which compiles the files that
/// hold one with RN_PLANTED, can have one; in every other program this is the constant false and
/// the planted line is not there.
#ifdef RN_PLANTED
bool planted(const char* bug);
void plant(const char* bug);  ///< the one bug of this process; nullptr = none
#else
constexpr bool planted(const char*) {
  return false;
}
#endif

}  // namespace rn
