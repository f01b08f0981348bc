// SPDX-License-Identifier: Apache-2.0
// Whatever decodes must encode again to something that decodes to the same message.

#include "base/assert.h"
#include "model/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = rn::wire::decode({data, size});
  if (!message) return 0;
  const auto again = rn::wire::decode(rn::wire::encode(*message));
  RN_ASSERT(again && *again == *message, "a decoded message survives the wire");
  return 0;
}
