// SPDX-License-Identifier: Apache-2.0
#include "ahead.h"

namespace rn {

void begin(int count, const char* const* words) {
  if (!ahead_of_all.is_over) cut_ahead(count, words);
}

}  // namespace rn
