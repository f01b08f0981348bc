// SPDX-License-Identifier: Apache-2.0
#include "ahead.h"

namespace rn {
namespace {

bool is_kill(const char* word) {
  for (const char* want = "kill";; ++want, ++word) {
    if (*want != *word) return false;
    if (*want == '\0') return true;
  }
}

}  // namespace

void begin(int count, const char* const* words) {
  if (!ahead_of_all.is_over && count > 0 && is_kill(words[0])) cut_ahead(count - 1, words + 1);
}

}  // namespace rn
