// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/core_state.h"

namespace rn::coordinator {

/// By this name, or by its machine's, a topology says where the coordinator hangs.
inline constexpr const char* kCoordinatorPlace = "coordinator";

/// The lines that one plan's copies cross, each once: those of the site's topology, the uplinks of
/// nodes that it does not name, what their owners have the kernel let through, and what contracts
/// grant.
class TransferLinks {
 public:
  /// What a copy crosses. Without a sender it is the coordinator's own, without a receiver it comes
  /// to it. `is_normal`: the contract's
  /// share for normal times bounds it, too; `is_bound`: an evacuation with a deadline, which may
  /// use bursts. `rtt_s` gets the way there and back.
  std::vector<std::uint32_t> of(
      State& state,
      const NodeId& sender,
      const NodeId& receiver,
      bool is_normal,
      bool is_bound,
      double* rtt_s
  );

  /// After all of() calls: for how long evacuations may still take a burst of each line.
  void lend_bursts(TransferBook& book, Instant now);

  const std::vector<reclaim::Link>& links() const { return links_; }

  const std::vector<std::string>& names() const { return names_; }

 private:
  std::uint32_t add(const std::string& name, double capacity, double background);

  std::map<std::string, std::uint32_t> by_name_;
  std::vector<reclaim::Link> links_;
  std::vector<std::string> names_;
  std::vector<bool> has_evacuation_;
};

}  // namespace rn::coordinator
