// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_transfers.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "coordinator/core_evacuation.h"
#include "coordinator/core_fetches.h"
#include "coordinator/core_shortage.h"
#include "reclaim/spare_rates.h"

namespace rn::coordinator {

namespace {

constexpr milliseconds kPlanEvery{250};
constexpr milliseconds kPlanPause{100};         ///< between two plans, whatever happens
constexpr milliseconds kTransferSilence{2000};  ///< then a copy is over
constexpr milliseconds kRetold{500};            ///< rates that are still the same
constexpr std::uint32_t kRatesValid_ms = 2000;
constexpr milliseconds kOfferedAgain{2000};  ///< what was refused
constexpr milliseconds kDurableLag{1500};    ///< from the last byte to the row
constexpr std::uint32_t kDeadlineMax_ms = 7u * 86'400'000;
constexpr double kRateChange = 0.02;
constexpr reclaim::LinkGuard kSiteGuard{};

/// The attempt that the report speaks of, if the node holds it and may copy it there. Outputs come
/// to us, and when the guest is over.
const AttemptEntry* attempt_of(State& state, const NodeEntry& node, const wire::TransferReport& r) {
  if (!node.attempts.contains({r.job, r.epoch}) || !state.is_current(r.job, r.epoch))
    return nullptr;
  const AttemptEntry* const attempt = state.find_attempt(r.job, r.epoch);
  if (r.peer.empty()) {
    const bool is_over =
        attempt != nullptr && attempt->row.attempt.state == AttemptState::kDraining;
    return is_over ? attempt : nullptr;
  }
  const NodeEntry* const peer = state.find_node(r.peer);
  if (peer == nullptr || peer->row.is_revoked || r.peer == node.row.node) return nullptr;
  return peer->copies_of.contains(r.job) ? attempt : nullptr;
}

double believed_bytes(const State& state, const wire::TransferReport& report) {
  return std::min(static_cast<double>(report.bytes_left), most_bytes(state, report.job));
}

/// What would be done again if it came too late, in seconds of its processors or GPUs.
double worth_of(const State& state, const JobId& id, LeaseEpoch epoch) {
  const Job& job = state.jobs.at(id).row.job;
  double exposed_s = 0;
  const auto attempt = state.attempts.find({id, epoch});
  if (attempt != state.attempts.end())
    exposed_s = seconds_between(attempt->second.since, state.now.boot);
  const auto kept = state.generations.find(id);
  if (kept != state.generations.end() && !kept->second.empty()) {
    const std::int64_t ms = state.wall_ms() - kept->second.rbegin()->second.committed_wall_ms;
    exposed_s = std::min(exposed_s, static_cast<double>(std::max<std::int64_t>(ms, 0)) / 1000);
  }
  return std::max(exposed_s, 1.0) * std::max(1u, job.spec.resources.gpus);
}

void take_report(State& state, const NodeEntry& node, const wire::TransferReport& report) {
  const AttemptEntry* const attempt = attempt_of(state, node, report);
  if (attempt == nullptr) return;
  TransferBook& book = state.transfers;
  const auto [at, is_new] =
      book.entries.try_emplace({node.row.node, report.job, report.epoch, report.peer});
  TransferEntry& entry = at->second;
  const double bytes = believed_bytes(state, report);
  if (is_new) entry.number = book.next_number++;
  if (is_new) entry.begun = state.now.boot;
  entry.is_upload = report.peer.empty();
  if (!is_new && report.is_size_known && entry.report.is_size_known)
    entry.see(entry.bytes - bytes, bytes, state.now.boot);
  const TransferKind before = entry.report.kind;
  entry.report = report;
  const bool is_taken_back =
      attempt->was_noticed || (entry.is_upload && node.lending == LendingState::kReclaimed);
  const bool is_displaced = is_taken_back && report.deadline_ms > 0;
  if (entry.is_upload || (report.kind == TransferKind::kEvacuation && !is_displaced))
    entry.report.kind = TransferKind::kCheckpoint;
  const milliseconds left(is_displaced ? std::min(report.deadline_ms, kDeadlineMax_ms) : 0);
  entry.due = state.now.boot + left;
  entry.heard = state.now.boot;
  entry.bytes = bytes;
  if (is_new || before != entry.report.kind) book.is_changed = true;
  if (is_new || before == entry.report.kind) return;
  // What it got before is no measure: without a deadline it made way for others.
  entry.shown.forget();
}

/// Evacuations with a deadline that is still ahead.
bool is_evacuation(const TransferEntry& entry, Instant now) {
  return entry.report.kind == TransferKind::kEvacuation && entry.due > now;
}

bool is_offered(const TransferBook& book, const TransferEntry& entry, Instant now) {
  if (!is_evacuation(entry, now)) return false;
  if (entry.verdict != EvacuationVerdict::kRefused) return true;
  return book.freed_at > entry.refused_at || now - entry.refused_at >= kOfferedAgain;
}

void drop_silent(State& state) {
  TransferBook& book = state.transfers;
  for (auto at = book.entries.begin(); at != book.entries.end();) {
    const auto here = at++;
    const auto& [sender, job, epoch, peer] = here->first;
    const NodeEntry* const node = state.find_node(here->second.is_fetch ? peer : sender);
    // Of what we send ourselves the receiver's attempt is looked at anew with each report.
    const bool is_held =
        node != nullptr && (sender.empty() || node->attempts.contains({job, epoch}));
    if (!is_held || state.now.boot - here->second.heard >= kTransferSilence)
      book.end(here, state.now.boot);
  }
}

void tell_kept(State& state, JobEntry& job, const NodeId& peer, const EvacuationPromise& promise) {
  const double left_s = seconds_between(state.now.boot, promise.due);
  const double took_s = std::max(seconds_between(promise.made, state.now.boot), 1e-3);
  const double rate = promise.bytes / took_s;
  const std::string generation = std::to_string(job.row.job.durable.generation);
  state.note(
      job,
      "evacuation.in_time",
      "generation " + generation + " is durable " + decimal(std::abs(left_s), 1) + " s " +
          (left_s < 0 ? "after" : "before") + " the deadline of its evacuation to " +
          state.name_of(peer) + ", " + decimal(took_s, 1) + " s after the promise: " +
          megabytes(promise.bytes) + ", " + megabits(rate) + " on average",
      {{"to", peer.str()},
       {"generation", generation},
       {"bytes", decimal(promise.bytes, 0)},
       {"deadline_ms", decimal(left_s * 1000, 0)},
       {"rate_bps", decimal(rate * 8, 0)}}
  );
}

/// Told once, when they are known: in time, or not.
void settle_promises(State& state) {
  TransferBook& book = state.transfers;
  for (auto at = book.promises.begin(); at != book.promises.end();) {
    const auto& [sender, id, epoch, peer] = at->first;
    const EvacuationPromise& promise = at->second;
    JobEntry* const job = state.find_job(id);
    const bool is_durable =
        job != nullptr && job->row.job.durable.generation > promise.durable_then;
    const bool is_over = job == nullptr || is_terminal(job->row.job.state);
    const bool is_late = state.now.boot >= promise.due + kDurableLag;
    if (is_durable) {
      ++state.metrics.evacuations_in_time;
      tell_kept(state, *job, peer, promise);
    }
    if (!is_durable && !is_over && is_late) {
      ++state.metrics.evacuations_missed;
      state.note(
          *job,
          "evacuation.missed",
          "its evacuation to " + state.name_of(peer) + " was promised, and " +
              megabytes(promise.bytes) +
              " of it were not there in time; the last durable generation counts",
          {{"to", peer.str()}, {"bytes", decimal(promise.bytes, 0)}}
      );
    }
    at = is_durable || is_over || is_late ? book.promises.erase(at) : std::next(at);
  }
}

/// Promised ones keep their place; then who came first.
std::set<std::uint64_t> chosen_evacuations(const TransferBook& book, Instant now) {
  std::vector<std::pair<bool, std::uint64_t>> order;
  for (const auto& [key, entry] : book.entries) {
    if (is_offered(book, entry, now))
      order.emplace_back(entry.verdict != EvacuationVerdict::kPromised, entry.number);
  }
  std::sort(order.begin(), order.end());
  if (order.size() > kEvacuationsPlanned) order.resize(kEvacuationsPlanned);
  std::set<std::uint64_t> chosen;
  for (const auto& [is_later, number] : order) chosen.insert(number);
  return chosen;
}

/// Its node is taken back, and what does not get away is computed again.
bool is_upload_due(const TransferEntry& entry, Instant now) {
  return entry.is_upload && entry.due > now;
}

reclaim::TransferClass class_of(const TransferEntry& entry, Instant now) {
  using reclaim::TransferClass;
  if (entry.is_upload)
    return reclaim::class_of_upload(seconds_between(entry.begun, now), is_upload_due(entry, now));
  if (entry.is_fetch) return entry.is_awaited ? TransferClass::kRestore : TransferClass::kPrefetch;
  switch (entry.report.kind) {
    case TransferKind::kEvacuation:
      return TransferClass::kEvacuation;
    case TransferKind::kCheckpoint:
      return TransferClass::kCheckpoint;
    case TransferKind::kPrefetch:
      return TransferClass::kPrefetch;
  }
  return TransferClass::kPrefetch;
}

SitePlan gather(State& state) {
  TransferBook& book = state.transfers;
  SitePlan site;
  const std::set<std::uint64_t> chosen = chosen_evacuations(book, state.now.boot);
  for (auto at = book.entries.begin(); at != book.entries.end(); ++at) {
    const auto& [sender, job, epoch, peer] = at->first;
    const TransferEntry& entry = at->second;
    reclaim::Transfer transfer;
    transfer.id = entry.number;
    transfer.bytes = entry.bytes;
    transfer.value =
        entry.is_fetch ? worth_of_start(state, job, epoch) : worth_of(state, job, epoch);
    transfer.max_rate = entry.shown.most();
    transfer.kind = class_of(entry, state.now.boot);
    const bool is_normal = transfer.kind != reclaim::TransferClass::kEvacuation &&
                           !is_upload_due(entry, state.now.boot);
    const bool is_bound = chosen.contains(entry.number);
    if (is_bound) transfer.deadline_s = seconds_between(state.now.boot, entry.due);
    transfer.links = site.links.of(state, sender, peer, is_normal, is_bound, &transfer.rtt_s);
    site.transfers.push_back(std::move(transfer));
    site.entries.push_back(at);
  }
  site.links.lend_bursts(book, state.now.boot);
  return site;
}

/// What keeps it from being promised: its value, or the line with the least room left for it.
std::string shortage(const SitePlan& site, const reclaim::RatePlan& plan, std::size_t which) {
  const reclaim::Transfer& transfer = site.transfers[which];
  const double due_s = std::max(reclaim::due_s(transfer), 1e-3);
  if (!plan.is_outbid.empty() && plan.is_outbid[which])
    return "more comes over its lines than they carry, so that they are kept for what is worth "
           "more per byte";
  double least = transfer.max_rate * due_s;
  std::string name = "it";
  for (const std::uint32_t at : transfer.links) {
    double room = reclaim::burst_rate(site.links.links()[at], kSiteGuard) * due_s;
    for (std::size_t i = 0; i < site.transfers.size(); ++i) {
      const auto& links = site.transfers[i].links;
      const bool crosses = std::find(links.begin(), links.end(), at) != links.end();
      if (i != which && plan.is_admitted[i] && crosses) room -= site.transfers[i].bytes;
    }
    if (room >= least) continue;
    least = room;
    name = "\"" + site.links.names()[at] + "\"";
  }
  if (name == "it") return "it has got no more than " + megabits(transfer.max_rate) + " lately";
  return name + " has " + megabits(std::max(least, 0.0) / due_s) + " left beside what is promised";
}

void tell_promise(State& state, const TransferKey& key, TransferEntry& entry) {
  const auto& [sender, id, epoch, peer] = key;
  JobEntry& job = *state.find_job(id);
  entry.verdict = EvacuationVerdict::kPromised;
  entry.told_at = Instant{};  // news, whatever its rate
  state.transfers.promises[key] = {
      entry.due, job.row.job.durable.generation, entry.bytes, state.now.boot};
  ++state.metrics.evacuations_admitted;
  const double left_s = seconds_between(state.now.boot, entry.due);
  const std::string rate = std::isfinite(entry.rate) ? megabits(entry.rate) : "any rate";
  const std::string words = "its evacuation to " + state.name_of(peer) +
                            " arrives in time: " + megabytes(entry.bytes) +
                            " until the deadline in " + decimal(left_s, 1) + " s, now at " + rate;
  state.find_attempt(id, epoch)->evacuation = words;
  const auto chosen = state.evacuations.find(id);
  if (chosen != state.evacuations.end() && chosen->second.view.way == "last_durable")
    want_choice(state, "what it saved last arrives in time at " + state.name_of(peer));
  state.note(
      job,
      "evacuation.admitted",
      words,
      {{"to", peer.str()},
       {"bytes", decimal(entry.bytes, 0)},
       {"deadline_ms", decimal(left_s * 1000, 0)},
       {"rate_bps", std::isfinite(entry.rate) ? decimal(entry.rate * 8, 0) : "0"}}
  );
}

void tell_refusal(
    State& state, const TransferKey& key, TransferEntry& entry, const std::string& why
) {
  const auto& [sender, id, epoch, peer] = key;
  const bool was_promised = entry.verdict == EvacuationVerdict::kPromised;
  const bool is_known = entry.verdict == EvacuationVerdict::kRefused;
  entry.verdict = EvacuationVerdict::kRefused;
  entry.refused_at = state.now.boot;
  if (is_known) return;
  entry.told_at = Instant{};
  state.transfers.promises.erase(key);
  ++(was_promised ? state.metrics.evacuations_withdrawn : state.metrics.evacuations_refused);
  const double left_s = seconds_between(state.now.boot, entry.due);
  const std::string words =
      "its evacuation to " + state.name_of(peer) + (was_promised ? " is no longer" : " is not") +
      " promised: " + megabytes(entry.bytes) + " until the deadline in " + decimal(left_s, 1) +
      " s need " + megabits(entry.bytes / std::max(left_s, 1e-3)) + ", and " + why +
      "; it goes on with what is left, and the last durable generation counts if it is late";
  state.find_attempt(id, epoch)->evacuation = words;
  state.note(
      *state.find_job(id),
      "evacuation.refused",
      words,
      {{"to", peer.str()},
       {"bytes", decimal(entry.bytes, 0)},
       {"deadline_ms", decimal(left_s * 1000, 0)},
       {"was_promised", was_promised ? "true" : "false"}}
  );
}

void tell_verdicts(State& state, const SitePlan& site, const reclaim::RatePlan& plan) {
  for (std::size_t i = 0; i < site.entries.size(); ++i) {
    TransferEntry& entry = site.entries[i]->second;
    if (!std::isfinite(site.transfers[i].deadline_s)) continue;
    if (plan.is_admitted[i] && entry.verdict != EvacuationVerdict::kPromised)
      tell_promise(state, site.entries[i]->first, entry);
    if (!plan.is_admitted[i])
      tell_refusal(state, site.entries[i]->first, entry, shortage(site, plan, i));
  }
}

bool is_news(const TransferEntry& entry, std::uint64_t bps, Instant now) {
  if (entry.told_at == Instant{} || now - entry.told_at >= kRetold) return true;
  const double change = std::abs(static_cast<double>(bps) - static_cast<double>(entry.told_bps));
  return change > kRateChange * static_cast<double>(entry.told_bps);
}

/// 0: nothing bounds it.
std::uint64_t whole_rate(const TransferEntry& entry) {
  if (!std::isfinite(entry.rate)) return 0;
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(entry.rate * 8), 1);
}

void note_told(TransferEntry& entry, std::uint64_t bps, Instant now) {
  entry.told_bps = bps;
  entry.told_at = now;
}

/// For bench/rate_change.py.
void trace_rates(const State& state, const NodeId& node, const wire::TransferRates& message) {
  std::string rates;
  for (const wire::TransferRate& rate : message.rates)
    rates += (rates.empty() ? "" : ",") + std::to_string(rate.rate_bps);
  log::debug(
      "transfers.told", {{"node", node.str()}, {"at_ns", to_ns(state.now.boot)}, {"bps", rates}}
  );
}

/// Each node hears of all its copies at once, if one of them has news.
void tell_rates(State& state) {
  std::map<NodeId, std::vector<TransferEntry*>> by_node;
  for (auto& [key, entry] : state.transfers.entries) {
    const auto& [sender, job, epoch, peer] = key;
    if (!sender.empty()) {
      by_node[sender].push_back(&entry);
      continue;
    }
    const std::uint64_t bps = whole_rate(entry);
    if (!is_news(entry, bps, state.now.boot)) continue;
    note_told(entry, bps, state.now.boot);
    state.act(PaceBlobs{peer, bps});
  }
  for (auto& [node, entries] : by_node) {
    wire::TransferRates message;
    message.valid_ms = kRatesValid_ms;
    bool has_news = false;
    for (TransferEntry* const entry : entries) {
      const std::uint64_t bps = whole_rate(*entry);
      has_news = has_news || is_news(*entry, bps, state.now.boot);
      message.rates.push_back(
          {entry->report.id, bps, entry->verdict == EvacuationVerdict::kPromised, entry->is_awaited}
      );
    }
    if (!has_news) continue;
    for (std::size_t i = 0; i < entries.size(); ++i)
      note_told(*entries[i], message.rates[i].rate_bps, state.now.boot);
    trace_rates(state, node, message);
    state.send(node, std::move(message));
  }
}

void plan_now(State& state) {
  TransferBook& book = state.transfers;
  SitePlan site = gather(state);
  const double now_s = std::chrono::duration<double>(state.now.boot.time_since_epoch()).count();
  const std::vector<reclaim::Link>& links = site.links.links();
  reclaim::RatePlan plan = book.planner.plan(now_s, site.transfers, links, kRatesTick_s);
  reclaim::give_spare(site.transfers, links, kSiteGuard, plan);
  book.planned_rate = 0;
  for (std::size_t i = 0; i < site.entries.size(); ++i) {
    site.entries[i]->second.rate = plan.rates[i];
    if (std::isfinite(plan.rates[i])) book.planned_rate += plan.rates[i];
  }
  tell_verdicts(state, site, plan);
  move_refused(state, site, plan);
  tell_rates(state);
}

}  // namespace

void on_transfers(State& state, NodeEntry& node, const wire::Transfers& message) {
  if (message.transfers.size() > wire::kMaxTransfers ||
      message.fetches.size() > wire::kMaxTransfers)
    return;
  TransferBook& book = state.transfers;
  std::set<TransferKey> told;
  for (const wire::TransferReport& report : message.transfers) {
    told.insert({node.row.node, report.job, report.epoch, report.peer});
    take_report(state, node, report);
  }
  for (const wire::FetchReport& report : message.fetches) {
    // By this key a copy and a fetch cannot both be true: an attempt is at one node.
    const bool is_taken =
        !told.insert({node.row.node, report.job, report.epoch, report.peer}).second;
    if (!is_taken) take_fetch(state, node, report);
  }
  const auto first =
      book.entries.lower_bound(TransferKey(node.row.node, JobId(), LeaseEpoch(), NodeId()));
  for (auto at = first; at != book.entries.end() && std::get<0>(at->first) == node.row.node;) {
    const auto here = at++;
    if (!told.contains(here->first)) book.end(here, state.now.boot);
  }
  if (told.empty()) {
    book.foreign_bps.erase(node.row.node);
  } else {
    book.foreign_bps[node.row.node] = message.foreign_bps;
  }
}

void plan_transfers(State& state) {
  if (transfers_wake(state, state.now.boot + seconds(1)) > state.now.boot) return;
  TransferBook& book = state.transfers;
  drop_silent(state);
  settle_promises(state);
  book.planned_at = state.now.boot;
  book.is_changed = false;
  plan_now(state);
}

Instant transfers_wake(const State& state, Instant otherwise) {
  const TransferBook& book = state.transfers;
  if (book.entries.empty() && book.promises.empty() && !book.is_changed) return otherwise;
  return std::min(otherwise, book.planned_at + (book.is_changed ? kPlanPause : kPlanEvery));
}

}  // namespace rn::coordinator
