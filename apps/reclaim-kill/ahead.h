// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "order.h"

namespace rn {

/// What was done ahead of everything else.
struct CutAhead {
  bool is_over = false;   ///< cut_ahead() was here
  bool is_meant = false;  ///< by the order; false: nothing was tried
  int result = 0;         ///< 0: cut; -errno
  EarlyOrder order;
};

/// Shuts the pinned gates that the words mean, and notes it in `ahead_of_all`. On x86-64 the small
/// programs begin with it, before the C library sets itself up: that asks the processor some
/// thirty times what it is, and on a virtual machine each answer takes 20 to 30 µs (ADR 0012). So
/// it calls nothing of that library.
void cut_ahead(int count, const char* const* words);

/// The same by the words after a small program's name: each has its own. Does nothing when it was
/// there before.
void begin(int count, const char* const* words);

extern CutAhead ahead_of_all;

}  // namespace rn
