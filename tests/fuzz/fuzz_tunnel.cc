// SPDX-License-Identifier: Apache-2.0
// Whatever packets come to an end of a tunnel: it keeps no more than its window, gives no more
// credit than was used, sends no more than it was given, and writes bytes in the order in which
// they came.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/assert.h"
#include "model/tunnel.h"

namespace {

using End = rn::tunnel::End<rn::tunnel::kWindowToGuest>;

/// Writes half of what waits, and gives the credit that is due.
void write_some(End& end, std::deque<std::uint8_t>& expected) {
  const std::size_t size = end.waiting_bytes() / 2 + end.waiting_bytes() % 2;
  for (std::size_t i = 0; i < size; ++i) {
    RN_ASSERT(end.waiting()[i] == expected.front(), "bytes stay in order");
    expected.pop_front();
  }
  end.wrote(size);
  std::uint8_t credit[End::kCreditPacket];
  if (end.credit_packet(credit) == 0) return;
  RN_ASSERT(
      rn::tunnel::read_u32(credit + 1) <= rn::tunnel::kWindowToGuest, "no more credit than was used"
  );
  end.gave_credit();
}

/// As much as it may.
void send_all(End& end) {
  std::uint32_t cost = 0;
  while (const std::size_t size = end.may_send()) {
    cost += rn::tunnel::cost_of(size);
    end.sent(size);
  }
  RN_ASSERT(cost <= rn::tunnel::kWindowToUser, "no more is sent than a window");
}

}  // namespace

/// Packets: two bytes, whose first bit asks for some writing, then as many bytes as the others say.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto end = std::make_unique<End>();
  end->begin(rn::tunnel::kWindowToUser);
  std::deque<std::uint8_t> expected;
  while (size >= 2) {
    const bool writes = (data[0] & 0x80) != 0;
    const std::size_t asked = (std::size_t{data[0]} & 0x7f) << 8 | data[1];
    data += 2;
    size -= 2;
    const std::size_t length = std::min(asked, size);
    const bool is_data =
        length > 0 && data[0] == static_cast<std::uint8_t>(rn::tunnel::Kind::kData);
    if (end->hear(data, length) != End::Heard::kFine) return 0;
    if (is_data) expected.insert(expected.end(), data + 1, data + length);
    data += length;
    size -= length;
    RN_ASSERT(end->waiting_bytes() == expected.size(), "what came waits");
    RN_ASSERT(end->waiting_bytes() <= rn::tunnel::kWindowToGuest, "no more waits than a window");
    if (writes) write_some(*end, expected);
    send_all(*end);
    if (end->must_shut()) end->shut();
  }
  return 0;
}
