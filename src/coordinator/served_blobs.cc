// SPDX-License-Identifier: Apache-2.0
#include "coordinator/served_blobs.h"

#include <algorithm>

#include "base/log.h"
#include "coordinator/blobs.h"

namespace rn::coordinator {

namespace {

/// Until it has a rate of its own, which takes a turn of the loop, or one commit.
constexpr std::uint64_t kFirstBlobs_bps = 20'000'000;
/// Of all connections of a node, as agents have it: none stands still.
constexpr std::uint64_t kLeastBlobs_bps = 1'000'000;
constexpr milliseconds kBlobsSilence{2000};  ///< without a question, and with nothing on its way
constexpr milliseconds kBetweenBlobs{500};   ///< a node hashes and keeps one before it asks again
constexpr std::size_t kAskedKept = 4;        ///< what was asked before says nothing more

}  // namespace

std::uint64_t ServedBlobs::Connection::waiting() const {
  if (!side.is_open()) return 0;
  if (side.bytes_given() == given_before) return kMaxBlobBytes;  // it is being read
  return side.bytes_waiting();
}

bool ServedBlobs::Connection::is_busy(Instant now) const {
  return side.is_open() && (waiting() > 0 || now - asked_at < kBetweenBlobs);
}

void ServedBlobs::share(Node& node, Instant now) {
  const auto is_busy = [now](const Connection& one) { return one.is_busy(now); };
  const auto busy = static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(
      std::count_if(node.connections.begin(), node.connections.end(), is_busy), 1
  ));
  const std::uint64_t each =
      node.rate_bps == 0 ? 0 : std::max(node.rate_bps, kLeastBlobs_bps) / busy;
  for (Connection& one : node.connections) {
    if (one.paced_bps == each || !one.side.is_open()) continue;
    one.paced_bps = each;
    const Status paced = one.side.pace((each + 7) / 8);
    if (!paced) log::warning("blobs.not_paced", {{"why", paced.error().describe()}});
  }
}

bool ServedBlobs::ask(
    const NodeId& node, const Digest& blob, const io::SendingSide& side, Instant now
) {
  const auto [at, is_new] = nodes_.try_emplace(node);
  Node& entry = at->second;
  if (is_new) entry.rate_bps = kFirstBlobs_bps;
  auto known =
      std::find_if(entry.connections.begin(), entry.connections.end(), [&](const Connection& one) {
        return one.side.is_same(side);
      });
  if (known == entry.connections.end()) {
    entry.connections.push_back({side, now, side.bytes_given(), 0, 0, 0});
    known = std::prev(entry.connections.end());
  }
  known->asked_at = now;
  known->given_before = side.bytes_given();
  if (entry.asked.size() >= kAskedKept) entry.asked.erase(entry.asked.begin());
  entry.asked.push_back(blob);
  share(entry, now);
  return is_new;
}

void ServedBlobs::pace(const NodeId& node, std::uint64_t rate_bps, Instant now) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  found->second.rate_bps = rate_bps;
  share(found->second, now);
}

std::vector<BlobsToNode> ServedBlobs::look(Instant now) {
  std::vector<BlobsToNode> seen;
  for (auto at = nodes_.begin(); at != nodes_.end();) {
    Node& node = at->second;
    BlobsToNode told{at->first, std::exchange(node.asked, {}), 0, 0};
    bool is_over = true;
    for (Connection& one : node.connections) {
      const std::uint64_t waiting = one.waiting();
      const std::uint64_t given = one.side.bytes_given();
      const std::uint64_t queued = one.side.bytes_waiting();
      if (given > one.given_first + queued)
        one.sent = std::max(one.sent, given - one.given_first - queued);
      told.bytes_waiting += waiting;
      told.bytes_sent += one.sent;
      is_over =
          is_over && (!one.side.is_open() || (waiting == 0 && now - one.asked_at >= kBlobsSilence));
    }
    told.bytes_sent += node.sent_before;
    std::erase_if(node.connections, [&node](const Connection& one) {
      if (!one.side.is_open()) node.sent_before += one.sent;
      return !one.side.is_open();
    });
    if (is_over) {
      node.rate_bps = 0;
      share(node, now);
      at = nodes_.erase(at);
      continue;
    }
    share(node, now);
    seen.push_back(std::move(told));
    ++at;
  }
  return seen;
}

}  // namespace rn::coordinator
