// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

// What is sent from node to node, and over what. Pure. Seconds from now, bytes, bytes per second.
namespace rn::reclaim {

enum class TransferClass : std::uint8_t {
  kEvacuation,  ///< has a deadline, and may use a link's burst
  kRestore,     ///< a guest waits for it; no deadline
  kCheckpoint,
  kPrefetch,
};

struct Transfer {
  std::uint64_t id = 0;                                         ///< the same from plan to plan
  double bytes = 0;                                             ///< left to send
  double deadline_s = std::numeric_limits<double>::infinity();  ///< from now; for evacuations
  double value = 0;  ///< expected loss averted if it arrives in time, in weighted seconds
  TransferClass kind = TransferClass::kEvacuation;
  std::vector<std::uint32_t> links;                           ///< that it crosses, each once
  double max_rate = std::numeric_limits<double>::infinity();  ///< what its ends can do
  double rtt_s = 0;
  double restore_s = 0;  ///< after the last byte and before the deadline
};

struct Link {
  double capacity = 0;
  double background = 0;    ///< ĝ: what others than guests use of it now
  double burst_left_s = 0;  ///< for so long evacuations may still take `burst_share` of it
};

struct LinkGuard {
  double margin_share = 0.05;  ///< ε: of the capacity, left free beside the background
  double burst_share = 0.9;    ///< φ: of the capacity, while a link's burst lasts
  /// Of C − ĝ − ε·C: so much restores have beside promised evacuations that have time for it.
  double restore_share = 0.25;
};

/// C − ĝ − ε·C: what guests may use of a link at any time. Numbers that cannot be count as 0.
double guarded_rate(const Link& link, const LinkGuard& guard);
/// φ·C, or guarded_rate() if that is more: what evacuations may use while the burst lasts.
double burst_rate(const Link& link, const LinkGuard& guard);

/// When the last byte has to be there: the deadline, less the restore and a slack of
/// max(3·RTT, 5 % of what remains). Never negative; infinite without a deadline.
double due_s(const Transfer& transfer);

}  // namespace rn::reclaim
