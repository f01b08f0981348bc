// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "agent/core_state.h"
#include "reclaim/spare_rates.h"

// How fast goes what this node sends: copies, outputs, and what peers fetch. The coordinator, who
// knows whom else a line serves, says so several times a second; while it does not, the node plans
// by itself, with the same function over what it knows: its own uplink and its contract.
namespace rn::agent {

namespace {

constexpr milliseconds kTransferPeriod{250};  ///< between reports, and between own plans
constexpr double kSentMemory_s = 0.5;
constexpr std::uint64_t kLeastEstimate = 1u << 20;
/// A copy that gets less stands still so long between two frames that its peer gives it up.
constexpr std::uint64_t kLeastRate_bps = 1'000'000;
constexpr milliseconds kRatesValidMax{5000};
constexpr double kSameRate = 0.02;
constexpr reclaim::LinkGuard kAloneGuard{};

double bytes_per_s(std::uint64_t bps) {
  return static_cast<double>(bps) / 8;
}

/// Of one of so many connections.
std::uint64_t whole_bps(double bytes_per_second, std::size_t connections) {
  if (!(bytes_per_second < 1e14)) return 0;  // nothing bounds it
  return std::max(static_cast<std::uint64_t>(bytes_per_second * 8), kLeastRate_bps / connections);
}

bool is_same_rate(std::uint64_t a, std::uint64_t b) {
  if (a == 0 || b == 0) return a == b;
  const double change = std::abs(static_cast<double>(a) - static_cast<double>(b));
  return change <= kSameRate * static_cast<double>(std::max(a, b));
}

}  // namespace

/// Of the contract, for one copy; 0 = none.
std::uint64_t Core::State::cap_of(const Attempt& a) const {
  return a.row.phase >= Phase::kNoticed ? contract_.uplink_bps_evacuation
                                        : contract_.uplink_bps_normal;
}

/// Until the deadline of the reclaim that displaces the attempt; none if there is none, or it has
/// passed: what goes out then has all the time that the contract gives.
std::optional<nanoseconds> Core::State::evacuation_left(const Attempt& a) const {
  const StopOrder& stop = a.row.stop;
  if (a.row.phase < Phase::kNoticed || stop.reclaim.empty()) return std::nullopt;
  const nanoseconds left(stop.deadline_ns - to_ns(now_.boot));
  if (left <= nanoseconds(0)) return std::nullopt;
  return left;
}

/// Of what is left, also before the peer has said what it has.
std::uint64_t Core::State::estimate(const Attempt& a, const PendingWork& pending) const {
  const TransferState& transfer = pending.transfer;
  if (transfer.bytes_left) return *transfer.bytes_left;
  const auto whole = static_cast<std::uint64_t>(lacking_bytes(a, pending.peer, pending.generation));
  return std::max(whole - std::min(whole, transfer.bytes_sent), kLeastEstimate);
}

wire::TransferReport Core::State::transfer_report(WorkId id, const PendingWork& pending) const {
  const Attempt& a = attempts_.at(pending.guest);
  const auto left = evacuation_left(a);
  wire::TransferReport report;
  report.id = id;
  report.job = pending.guest.job;
  report.epoch = pending.guest.epoch;
  report.peer = pending.peer;
  report.kind = left                 ? TransferKind::kEvacuation
                : pending.is_precopy ? TransferKind::kPrefetch
                                     : TransferKind::kCheckpoint;
  report.bytes_left = estimate(a, pending);
  // Of a save with which it began: known since that is whole, although the peer says it later.
  const bool is_whole = pending.was_ahead && !pending.is_ahead;
  report.is_size_known = pending.transfer.bytes_left.has_value() || is_whole;
  if (left) report.deadline_ms = static_cast<std::uint32_t>(std::max(*left / milliseconds(1), 1L));
  report.sent_bps = static_cast<std::uint64_t>(pending.transfer.sent_bps);
  return report;
}

void Core::State::see_progress(TransferState& transfer, const TransferProgress& seen) const {
  if (transfer.measured_at != Instant{}) {
    const double span_s = std::chrono::duration<double>(now_.boot - transfer.measured_at).count();
    const double sent =
        static_cast<double>(seen.bytes_sent - std::min(seen.bytes_sent, transfer.bytes_sent));
    if (span_s > 0)
      transfer.sent_bps +=
          (sent * 8 / span_s - transfer.sent_bps) * (1 - std::exp(-span_s / kSentMemory_s));
  }
  transfer.measured_at = now_.boot;
  transfer.bytes_left = seen.bytes_left;
  transfer.bytes_sent = seen.bytes_sent;
  transfer.local = seen.local;
  transfer.remote = seen.remote;
}

void Core::State::on(const TransfersMeasured& e) {
  foreign_bps_ = e.foreign_bps;
  for (const TransferProgress& seen : e.transfers) {
    const auto found = works_.find(seen.id);
    if (found == works_.end()) continue;
    see_path(found->second.peer, found->second.transfer, seen);
    see_progress(found->second.transfer, seen);
  }
  see_fetches(e.fetches);
  look_at_paths();
}

void Core::State::on_message(const wire::TransferRates& m) {
  rates_valid_ = std::min(milliseconds(m.valid_ms), kRatesValidMax);
  for (const wire::TransferRate& rate : m.rates) {
    if (const auto fetch = fetches_.find(rate.id); fetch != fetches_.end())
      share_rate(fetch->second, rate);
    const auto found = works_.find(rate.id);
    if (found == works_.end() || !found->second.is_sent()) continue;
    found->second.transfer.told_bps = rate.rate_bps;
    found->second.transfer.told_at = now_.boot;
  }
}

std::vector<Sending> Core::State::sendings() {
  std::vector<Sending> all;
  for (auto& [id, pending] : works_) {
    if (!pending.is_sent()) continue;
    if (pending.task == Task::kUpload) {
      all.push_back(upload_sending(id, pending));
      continue;
    }
    const TransferPurpose purpose = purpose_of(pending);
    const bool is_urgent = purpose == TransferPurpose::kEvacuation;
    const std::uint64_t cap = cap_of(attempts_.at(pending.guest));
    all.push_back({id, &pending.transfer, pending.peer, purpose, is_urgent, cap, kLeastRate_bps});
  }
  for (auto& [id, fetch] : fetches_) {
    const TransferPurpose purpose =
        fetch.is_awaited ? TransferPurpose::kCheckpoint : TransferPurpose::kPrefetch;
    const std::uint64_t least = kLeastRate_bps / connections_of(fetch);
    const std::uint64_t cap = contract_.uplink_bps_normal;
    all.push_back({id, &fetch.transfer, fetch.peer, purpose, fetch.is_awaited, cap, least});
  }
  return all;
}

void Core::State::step_transfers() {
  const std::vector<Sending> all = sendings();
  bool is_any_alone = false;
  bool is_new = false;
  for (const Sending& one : all) {
    TransferState& transfer = *one.transfer;
    const bool is_told =
        is_welcome_ && transfer.told_at && now_.boot - *transfer.told_at < rates_valid_;
    if (is_told) continue;
    is_any_alone = true;
    is_new = is_new || !transfer.is_planned || transfer.told_at;
    transfer.told_at.reset();
  }
  if (is_any_alone && (is_new || now_.boot - planned_alone_at_ >= kTransferPeriod)) plan_alone();
  if (!all.empty()) set_rates(all);
  step_claims();
  report_transfers();
}

reclaim::Transfer Core::State::copy_to_plan(WorkId id, const PendingWork& pending) const {
  const Attempt& a = attempts_.at(pending.guest);
  const auto left = evacuation_left(a);
  reclaim::Transfer transfer;
  transfer.id = id;
  transfer.bytes = static_cast<double>(estimate(a, pending));
  transfer.kind = left                 ? reclaim::TransferClass::kEvacuation
                  : pending.is_precopy ? reclaim::TransferClass::kPrefetch
                                       : reclaim::TransferClass::kCheckpoint;
  if (left) transfer.deadline_s = in_s(*left);
  const std::int64_t saved_ns =
      a.row.generations.empty() ? a.row.started_ns : a.row.generations.back().ref.snapshot_boot_ns;
  transfer.value = static_cast<double>(std::max<std::int64_t>(to_ns(now_.boot) - saved_ns, 1)) *
                   1e-9 * static_cast<double>(std::max<std::size_t>(a.row.grant.gpus.size(), 1));
  return transfer;
}

/// All that is sent, over the node's own uplink and what its contract grants of it.
void Core::State::plan_alone() {
  planned_alone_at_ = now_.boot;
  std::vector<reclaim::Link> links;
  const auto add = [&](std::uint64_t bps,
                       std::uint64_t background) -> std::optional<std::uint32_t> {
    if (bps == 0) return std::nullopt;
    links.push_back({bytes_per_s(bps), bytes_per_s(background), 0});
    return static_cast<std::uint32_t>(links.size() - 1);
  };
  const auto line = add(facts_.uplink_bps, foreign_bps_);
  const auto grant = add(has_edge() ? warden_.transfers.bytes_per_s * 8 : 0, 0);
  const auto all_guests = add(contract_.uplink_bps_evacuation, 0);
  const auto in_normal_times = add(contract_.uplink_bps_normal, 0);
  const auto cross = [&](reclaim::Transfer& transfer, bool is_normal) {
    for (const auto& link : {line, grant, all_guests}) {
      if (link) transfer.links.push_back(*link);
    }
    if (in_normal_times && is_normal) transfer.links.push_back(*in_normal_times);
  };
  std::vector<reclaim::Transfer> transfers;
  std::vector<std::vector<TransferState*>> states;
  for (auto& [id, pending] : works_) {
    if (!pending.is_sent()) continue;
    const Attempt& a = attempts_.at(pending.guest);
    const bool is_upload = pending.task == Task::kUpload;
    transfers.push_back(is_upload ? upload_to_plan(id, pending) : copy_to_plan(id, pending));
    cross(transfers.back(), is_upload ? !upload_left(a) : a.row.phase < Phase::kNoticed);
    states.push_back({&pending.transfer});
  }
  for (const std::vector<ServedFetch*>& fetch : fetches_by_ticket()) {
    transfers.push_back(fetch_to_plan(fetch));
    cross(transfers.back(), true);
    states.emplace_back();
    for (ServedFetch* const one : fetch) states.back().push_back(&one->transfer);
  }
  const double now_s = std::chrono::duration<double>(now_.boot.time_since_epoch()).count();
  const double tick_s = std::chrono::duration<double>(kTransferPeriod).count();
  reclaim::RatePlan plan = planner_.plan(now_s, transfers, links, tick_s);
  reclaim::give_spare(transfers, links, kAloneGuard, plan);
  for (std::size_t i = 0; i < states.size(); ++i) {
    for (TransferState* const state : states[i]) {
      state->is_planned = true;
      state->alone_bps =
          whole_bps(plan.rates[i] / static_cast<double>(states[i].size()), states[i].size());
    }
  }
}

void Core::State::set_rates(const std::vector<Sending>& all) {
  for (const Sending& one : all) {
    TransferState& transfer = *one.transfer;
    std::uint64_t wanted = transfer.told_at ? transfer.told_bps : transfer.alone_bps;
    if (wanted != 0) wanted = std::max(wanted, one.least_bps);
    if (one.cap_bps != 0) wanted = wanted == 0 ? one.cap_bps : std::min(wanted, one.cap_bps);
    transfer.wanted_bps = slowed(one, wanted);
  }
  fit_into_grant(all);
  for (const Sending& one : all) {
    TransferState& transfer = *one.transfer;
    if (is_same_rate(transfer.wanted_bps, transfer.rate_bps)) {
      transfer.wanted_bps = transfer.rate_bps;
      transfer.waits_since.reset();
      continue;
    }
    if (waits_for_claim(one.id, transfer)) continue;
    transfer.rate_bps = transfer.wanted_bps;
    out_.effects.emplace_back(SetRate{one.id, transfer.rate_bps});
  }
}

/// What the owner lets all copies have at the uplink, less a margin; 0 = no bound.
std::uint64_t Core::State::granted_bps() const {
  if (!has_edge()) return 0;
  return static_cast<std::uint64_t>(
      static_cast<double>(warden_.transfers.bytes_per_s) * 8 * (1 - kAloneGuard.margin_share)
  );
}

/// What is more than that would be dropped at the uplink: each gives the same part.
void Core::State::fit_into_grant(const std::vector<Sending>& all) const {
  const std::uint64_t granted = granted_bps();
  if (granted == 0) return;
  double sum = 0;
  for (const Sending& one : all) {
    std::uint64_t& wanted = one.transfer->wanted_bps;
    if (wanted == 0 || wanted > granted) wanted = granted;
    sum += static_cast<double>(wanted);
  }
  const double part = static_cast<double>(granted) / sum;
  if (!(part < 1)) return;
  for (const Sending& one : all) {
    std::uint64_t& wanted = one.transfer->wanted_bps;
    wanted = static_cast<std::uint64_t>(static_cast<double>(wanted) * part);
  }
}

/// Nothing while nothing is sent, but for the one report that says so.
void Core::State::report_transfers() {
  if (!is_welcome_) {
    told_transfers_.clear();
    return;
  }
  wire::Transfers message;
  std::set<WorkId> told;
  bool is_evacuating = false;
  for (const auto& [id, pending] : works_) {
    if (!pending.is_sent() || pending.transfer.measured_at == Instant{}) continue;
    if (message.transfers.size() >= wire::kMaxTransfers) break;
    const bool is_upload = pending.task == Task::kUpload;
    message.transfers.push_back(
        is_upload ? upload_report(id, pending) : transfer_report(id, pending)
    );
    is_evacuating |= message.transfers.back().kind == TransferKind::kEvacuation;
    told.insert(id);
  }
  message.fetches = fetch_reports();
  for (const wire::FetchReport& fetch : message.fetches) told.insert(fetch.id);
  const bool is_news = told != told_transfers_ || is_evacuating != is_evacuating_told_;
  if (told.empty() && told_transfers_.empty()) return;
  if (!is_news && now_.boot - transfers_told_at_ < kTransferPeriod) return;
  told_transfers_ = std::move(told);
  is_evacuating_told_ = is_evacuating;
  transfers_told_at_ = now_.boot;
  message.foreign_bps = foreign_bps_;
  send(std::move(message));
}

}  // namespace rn::agent
