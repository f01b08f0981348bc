// SPDX-License-Identifier: Apache-2.0
// The warden's requests and replies: the decoder that stands between an unprivileged agent and
// root.

#include "base/assert.h"
#include "model/warden.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace wire = rn::warden_wire;
  if (const auto request = wire::decode_request({data, size})) {
    const auto again = wire::decode_request(wire::encode(*request));
    RN_ASSERT(again && *again == *request, "a decoded request survives the socket");
  }
  if (const auto reply = wire::decode_reply({data, size})) {
    const auto again = wire::decode_reply(wire::encode(*reply));
    RN_ASSERT(again && *again == *reply, "a decoded reply survives the socket");
  }
  return 0;
}
