// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>

#include "agent/core_state.h"

// Copies without a deadline make way when what they send makes others wait. The sender sees that in
// the round trips of its own connections, which stand in the same queues as everybody else's: so it
// works for lines that nobody declared, and with the coordinator away. Evacuations are never slowed
// (their deadline is), nor is what a job's start waits for; but what they lengthen slows others on
// the same way.
namespace rn::agent {

namespace {

constexpr milliseconds kGuardPeriod{250};
constexpr seconds kPathMemory{600};  ///< as long as its minimum counts
/// A copy that gets less stands still so long between two frames that its peer gives it up.
constexpr std::uint64_t kLeastSlowed_bps = 1'000'000;

}  // namespace

/// A copy of which nothing was acknowledged meanwhile says nothing: TCP keeps what it saw last.
void Core::State::see_path(
    const NodeId& peer, const TransferState& before, const TransferProgress& seen
) {
  if (seen.round_trip <= nanoseconds(0)) return;
  if (before.measured_at == Instant{} || seen.bytes_sent <= before.bytes_sent) return;
  PathToPeer& path = paths_[peer];
  path.seen_at = now_.boot;
  path.longest = std::max(path.longest, seen.round_trip);
  if (seen.least_round_trip <= nanoseconds(0)) return;
  path.least = path.least == nanoseconds(0) ? seen.least_round_trip
                                            : std::min(path.least, seen.least_round_trip);
}

void Core::State::look_at_paths() {
  if (now_.boot - paths_looked_at_ < kGuardPeriod) return;
  paths_looked_at_ = now_.boot;
  std::erase_if(paths_, [this](const auto& one) {
    return now_.boot - one.second.seen_at > kPathMemory;
  });
  for (auto& [peer, path] : paths_) {
    if (path.longest == nanoseconds(0)) continue;
    path.guard.observe(in_s(now_.boot.time_since_epoch()), in_s(path.longest), in_s(path.least));
    path.longest = path.least = nanoseconds(0);
  }
}

/// What the copy may send of `wanted` (0 = no bound). Its part is one of what it was wanted to send
/// when it began to make way, not of what it is planned with since: a planner that sees it send
/// little gives it little, and that must not be cut again. Without any bound it is a part of the
/// node's uplink, declared or else measured.
std::uint64_t Core::State::slowed(const Sending& one, std::uint64_t wanted) {
  TransferState& transfer = *one.transfer;
  const auto path = paths_.find(one.peer);
  if (one.is_urgent || path == paths_.end() || path->second.guard.share() >= 1) {
    transfer.slowed_from_bps = 0;
    return wanted;
  }
  if (transfer.slowed_from_bps == 0) {
    const auto lower = [](std::uint64_t a, std::uint64_t b) {
      return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
    };
    std::uint64_t from = lower(wanted, granted_bps());
    if (from == 0) from = facts_.uplink_bps;
    if (from == 0) from = static_cast<std::uint64_t>(uplink_rate() * 8);
    transfer.slowed_from_bps = std::max(from, kLeastSlowed_bps);
  }
  const double part = static_cast<double>(transfer.slowed_from_bps) * path->second.guard.share();
  const std::uint64_t most = std::max(static_cast<std::uint64_t>(part), kLeastSlowed_bps);
  return wanted == 0 ? most : std::min(wanted, most);
}

/// Of the copies that make way now; empty if none does.
std::string Core::State::slowed_words() const {
  std::string words;
  for (const auto& [peer, path] : paths_) {
    const auto makes_way = [&, &to = peer](const auto& one) {
      return one.second.peer == to && one.second.transfer.slowed_from_bps != 0;
    };
    if (std::none_of(works_.begin(), works_.end(), makes_way) &&
        std::none_of(fetches_.begin(), fetches_.end(), makes_way))
      continue;
    std::array<char, 96> text{};
    std::snprintf(
        text.data(),
        text.size(),
        " slowed to %.0f %% by a round trip %.0f ms over its least",
        path.guard.share() * 100,
        path.guard.waits_s() * 1e3
    );
    words += (peer.empty() ? "; what goes to the coordinator" : "; copies to " + peer.str());
    words += text.data();
  }
  return words;
}

}  // namespace rn::agent
