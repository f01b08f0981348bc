// SPDX-License-Identifier: Apache-2.0
//
// Linked into reclaim-warden: `reclaim-warden kill` shuts the gate as soon as its libraries are
// loaded, before one of them sets itself up, and before a file is read or a flag understood: a disk
// that hangs holds up no cut.
#include "ahead.h"

namespace rn {
namespace {

bool is_kill(const char* word) {
  for (const char* want = "kill";; ++want, ++word) {
    if (*want != *word) return false;
    if (*want == '\0') return true;
  }
}

void cut_before_libraries(int count, char** words, char**) {
  if (count > 1 && is_kill(words[1])) cut_ahead(count - 2, words + 2);
}

/// What the loader runs first.
[[gnu::section(".preinit_array"), gnu::used]] void (*run_first
)(int, char**, char**) = cut_before_libraries;

}  // namespace
}  // namespace rn
