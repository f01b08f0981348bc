// SPDX-License-Identifier: Apache-2.0
#include "base/planted.h"

#ifdef RN_PLANTED
#include <cstring>

namespace rn {

namespace {
const char* chosen = nullptr;
}  // namespace

bool planted(const char* bug) {
  return chosen != nullptr && std::strcmp(chosen, bug) == 0;
}

void plant(const char* bug) {
  chosen = bug;
}

}  // namespace rn
#endif
