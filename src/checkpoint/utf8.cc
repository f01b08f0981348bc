// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/utf8.h"

#include <cstdint>

namespace rn::checkpoint {

bool is_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<std::uint8_t>(text[at]);
    const std::size_t more = lead < 0x80                   ? 0
                             : lead >= 0xc2 && lead < 0xe0 ? 1
                             : lead >= 0xe0 && lead < 0xf0 ? 2
                                                           : 3;
    if (more == 3 && (lead < 0xf0 || lead > 0xf4)) return false;
    if (more > text.size() - at - 1) return false;
    std::uint32_t code = more == 0 ? lead : lead & (0x3fU >> more);
    for (std::size_t i = 1; i <= more; ++i) {
      const auto next = static_cast<std::uint8_t>(text[at + i]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    const bool is_overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
    if (is_overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    at += more + 1;
  }
  return true;
}

}  // namespace rn::checkpoint
