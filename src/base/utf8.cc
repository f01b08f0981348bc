// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <cstdint>

namespace rn {

namespace {

constexpr CodePoint kMalformedByte{CodePoint::Kind::kMalformed, 0, 1};

/// Bytes after the first one; 4 where none begins so.
std::size_t followers_of(std::uint8_t lead) {
  if (lead < 0x80) return 0;
  if (lead >= 0xc2 && lead < 0xe0) return 1;
  if (lead >= 0xe0 && lead < 0xf0) return 2;
  return lead >= 0xf0 && lead <= 0xf4 ? 3 : 4;
}

/// The second byte tells overlong forms, surrogates and what is above U+10FFFF.
bool may_follow(std::uint8_t lead, std::size_t index, std::uint8_t next) {
  if ((next & 0xc0) != 0x80) return false;
  if (index != 1) return true;
  if (lead == 0xe0) return next >= 0xa0;
  if (lead == 0xed) return next < 0xa0;
  if (lead == 0xf0) return next >= 0x90;
  return lead != 0xf4 || next < 0x90;
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const auto lead = static_cast<std::uint8_t>(text.front());
  const std::size_t more = followers_of(lead);
  if (more == 4) return kMalformedByte;
  char32_t value = more == 0 ? lead : lead & (0x3fU >> more);
  for (std::size_t i = 1; i <= more; ++i) {
    if (i == text.size()) return {CodePoint::Kind::kCutOff, 0, text.size()};
    const auto next = static_cast<std::uint8_t>(text[i]);
    if (!may_follow(lead, i, next)) return kMalformedByte;
    value = value << 6 | (next & 0x3fU);
  }
  return {CodePoint::Kind::kWhole, value, more + 1};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    if (point.kind != CodePoint::Kind::kWhole) return false;
    text.remove_prefix(point.bytes);
  }
  return true;
}

}  // namespace rn
