// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_shortage.h"

#include <algorithm>
#include <cmath>

#include "coordinator/core_evacuation.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kMovesLookedAt = 4;   // in one plan: each is a choice of destinations
constexpr std::uint32_t kMovesAtMost = 3;   // of one evacuation
constexpr milliseconds kMoveAgain{2000};    // of one that found no way
constexpr milliseconds kMoveSilence{3000};  // then it has not been begun
constexpr reclaim::LinkGuard kShortageGuard{};

/// What a plan leaves of the lines beside what it promises.
class Leftover {
 public:
  Leftover(SitePlan& site, const reclaim::RatePlan& plan) : site_(site) {
    for (std::size_t i = 0; i < site.transfers.size(); ++i) {
      if (plan.is_admitted[i]) take(site.transfers[i].links, site.transfers[i].bytes);
    }
  }

  void take(const std::vector<std::uint32_t>& links, double bytes) {
    for (const std::uint32_t link : links) taken_[link] += bytes;
  }

  /// Bytes a second until then; infinite where nothing that is known bounds it. Who is promised
  /// later deadlines is counted as if it went first.
  double rate(const std::vector<std::uint32_t>& links, double due_s) const {
    double least = std::numeric_limits<double>::infinity();
    for (const std::uint32_t at : links) {
      const reclaim::Link& link = site_.links.links()[at];
      const bool is_burst = link.burst_left_s >= due_s;
      const double all = is_burst ? reclaim::burst_rate(link, kShortageGuard)
                                  : reclaim::guarded_rate(link, kShortageGuard);
      const auto taken = taken_.find(at);
      const double gone = taken == taken_.end() ? 0 : taken->second / due_s;
      least = std::min(least, std::max(all - gone, 0.0));
    }
    return least;
  }

 private:
  SitePlan& site_;
  std::map<std::uint32_t, double> taken_;
};

/// The last of its attempt, and late by the rate that it has now.
bool is_to_be_moved(const State& state, const SitePlan& site, std::size_t i) {
  const auto& [sender, id, epoch, peer] = site.entries[i]->first;
  const TransferEntry& entry = site.entries[i]->second;
  if (entry.verdict != EvacuationVerdict::kRefused || !entry.report.is_size_known) return false;
  if (entry.report.kind != TransferKind::kEvacuation || entry.due <= state.now.boot) return false;
  if (entry.moved_at != Instant{} && state.now.boot - entry.moved_at < kMoveAgain) return false;
  const auto attempt = state.attempts.find({id, epoch});
  const auto evacuation = state.evacuations.find(id);
  if (attempt == state.attempts.end() || evacuation == state.evacuations.end()) return false;
  const Evacuation& e = evacuation->second;
  // Of several copies at once each would have to be weighed against the others.
  const bool is_one = attempt->second.plan.wanted == 1;
  const bool is_last = attempt->second.row.attempt.state == AttemptState::kDraining;
  if (!is_one || !is_last || e.is_stranded || e.source != sender || e.moves >= kMovesAtMost)
    return false;
  const double left_s = std::chrono::duration<double>(entry.due - state.now.boot).count();
  return !(entry.rate * left_s >= entry.bytes);
}

/// What was sent elsewhere and is not told yet keeps its room.
void keep_moves(State& state, SitePlan& site, Leftover& left) {
  TransferBook& book = state.transfers;
  std::erase_if(book.moves, [&](const auto& move) {
    return book.entries.contains(move.first) || state.now.boot >= move.second.until;
  });
  for (const auto& [key, move] : book.moves) {
    double rtt_s = 0;
    left.take(
        site.links.of(state, std::get<0>(key), std::get<3>(key), false, false, &rtt_s), move.bytes
    );
  }
}

void move_one(State& state, SitePlan& site, std::size_t i, Leftover& left) {
  const auto& [from, id, epoch, peer] = site.entries[i]->first;
  const NodeId& sender = from;  // NOTE(clang 14): no lambda may name a structured binding
  TransferEntry& entry = site.entries[i]->second;
  entry.moved_at = state.now.boot;
  reclaim::Transfer now = site.transfers[i];
  now.deadline_s = std::chrono::duration<double>(entry.due - state.now.boot).count();
  const double due_s = std::max(reclaim::due_s(now), 1e-3);
  const auto links_to = [&](const NodeId& to) {
    double rtt_s = 0;
    return site.links.of(state, sender, to, false, false, &rtt_s);
  };
  CopyShortage shortage;
  shortage.peer = peer;
  shortage.bytes = entry.sent + entry.bytes;
  shortage.left_s = now.deadline_s;
  // What it has got lately may be all that its node can send.
  shortage.rate_to = [&](const NodeId& to) {
    return std::min(left.rate(links_to(to), due_s), entry.shown.most());
  };
  const auto moved = choose_by_what_is_left(state, id, shortage);
  if (!moved) return;
  left.take(links_to(moved->holder), moved->bytes);
  state.transfers.moves[{sender, id, epoch, moved->holder}] = {
      moved->bytes, state.now.boot + kMoveSilence};
}

}  // namespace

void move_refused(State& state, SitePlan& site, const reclaim::RatePlan& plan) {
  std::vector<std::size_t> late;
  for (std::size_t i = 0; i < site.entries.size(); ++i) {
    if (is_to_be_moved(state, site, i)) late.push_back(i);
  }
  if (late.empty()) return;
  std::stable_sort(late.begin(), late.end(), [&](std::size_t a, std::size_t b) {
    return site.transfers[a].value > site.transfers[b].value;
  });
  if (late.size() > kMovesLookedAt) late.resize(kMovesLookedAt);
  Leftover left(site, plan);
  keep_moves(state, site, left);
  for (const std::size_t i : late) move_one(state, site, i, left);
}

}  // namespace rn::coordinator
