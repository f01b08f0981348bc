// SPDX-License-Identifier: Apache-2.0
// People's JSON: job specifications and contracts. Strict decoding accepts only what it writes back
// the same.

#include "base/assert.h"
#include "model/api.h"
#include "model/codec.h"
#include "model/job.h"
#include "model/node.h"

namespace {

template <class T>
void check(std::string_view text) {
  const auto value = rn::from_json<T>(text);
  if (!value) {
    RN_ASSERT(!value.error().message.empty(), "a refusal says why");
    return;
  }
  // NOTE: invalid UTF-8 in strings is replaced when written, so compare after one round.
  const auto once = rn::from_json<T>(rn::to_json(*value));
  RN_ASSERT(once.has_value(), "what was accepted can be written and read");
  RN_ASSERT(rn::to_json(*once) == rn::to_json(*value), "writing is stable");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check<rn::JobSpec>(text);
  check<rn::api::ArrayRequest>(text);
  check<rn::api::GangRequest>(text);
  check<rn::Contract>(text);
  check<rn::Listing>(text);
  return 0;
}
