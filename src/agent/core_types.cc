// SPDX-License-Identifier: Apache-2.0
#include "agent/core_types.h"

namespace rn::agent {

std::string_view name_of(const WorkBody& body) {
  static constexpr std::string_view kNames[] = {
      "fetch_image",
      "prepare_work",
      "take_snapshot",
      "copy_generation",
      "upload_outputs",
      "read_log",
      "collect_garbage",
      "list_holdings",
      "forget_attempt"};
  static_assert(std::size(kNames) == std::variant_size_v<WorkBody>);
  return kNames[body.index()];
}

}  // namespace rn::agent
