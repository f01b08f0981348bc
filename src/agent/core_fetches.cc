// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"

// What peers fetch here: generations, where a job goes on, and pieces of images. The node that
// serves is the one that sends, so it plans, paces and claims them as it does its copies. What it
// knows of them is the ticket, which the coordinator has signed, and what was asked and is not sent
// (checkpoint/transfer.h). Several connections of one ticket have one rate together.
namespace rn::agent {

namespace {

constexpr std::uint64_t kLeastGuess = 1u << 20;
constexpr double kLookSpan_s = 0.2;  ///< shorter ones say nothing of a rate

/// Over all connections of one ticket; until something was asked, a guess.
std::uint64_t bytes_left_of(const std::vector<ServedFetch*>& fetch) {
  std::uint64_t bytes = 0;
  for (const ServedFetch* const one : fetch)
    bytes += one->transfer.bytes_left.value_or(kLeastGuess);
  return bytes;
}

}  // namespace

/// What is not seen any more is over.
void Core::State::see_fetches(const std::vector<FetchProgress>& seen) {
  std::map<WorkId, ServedFetch> now;
  for (const FetchProgress& one : seen) {
    const WorkId id = one.progress.id;
    if (id < kFirstFetch) continue;
    auto known = fetches_.extract(id);
    if (known) {
      now.insert(std::move(known));
    } else {
      now.emplace(id, ServedFetch{one.job, one.epoch, one.peer, one.image});
      now.at(id).since = now_.boot;
    }
    ServedFetch& fetch = now.at(id);
    see_path(fetch.peer, fetch.transfer, one.progress);
    see_progress(fetch.transfer, one.progress);
  }
  fetches_ = std::move(now);
}

std::uint64_t Core::State::connections_of(const ServedFetch& fetch) const {
  return static_cast<std::uint64_t>(std::count_if(
      fetches_.begin(), fetches_.end(), [&](const auto& one) { return one.second.is_same(fetch); }
  ));
}

/// The coordinator speaks of one of its connections and means all.
void Core::State::share_rate(const ServedFetch& fetch, const wire::TransferRate& told) {
  const std::uint64_t connections = connections_of(fetch);
  for (auto& [id, one] : fetches_) {
    if (!one.is_same(fetch)) continue;
    one.is_awaited = told.is_awaited;
    one.transfer.told_at = now_.boot;
    one.transfer.told_bps =
        told.rate_bps == 0 ? 0 : std::max<std::uint64_t>(told.rate_bps / connections, 1);
  }
}

std::vector<std::vector<ServedFetch*>> Core::State::fetches_by_ticket() {
  std::vector<std::vector<ServedFetch*>> all;
  for (auto& [id, fetch] : fetches_) {
    const auto same = std::find_if(all.begin(), all.end(), [&, &one = fetch](const auto& known) {
      return known.front()->is_same(one);
    });
    if (same == all.end())
      all.push_back({&fetch});
    else
      same->push_back(&fetch);
  }
  return all;
}

/// Alone. How many GPUs wait for it only the coordinator knows; one that asks and does not read
/// must not keep the line from others.
reclaim::Transfer Core::State::fetch_to_plan(const std::vector<ServedFetch*>& fetch) {
  ServedFetch& first = *fetch.front();
  std::uint64_t sent = 0;
  std::uint64_t rate_bps = 0;
  bool is_bounded = true;
  for (const ServedFetch* const one : fetch) {
    sent += one->transfer.bytes_sent;
    rate_bps += one->transfer.rate_bps;
    is_bounded = is_bounded && one->transfer.rate_bps != 0;
  }
  const std::uint64_t left = bytes_left_of(fetch);
  const double span_s = std::chrono::duration<double>(now_.boot - first.looked_at).count();
  const bool is_first = first.looked_at == Instant{} || sent < first.sent_then;
  if (!is_first && span_s >= kLookSpan_s) {
    const double granted =
        is_bounded ? static_cast<double>(rate_bps) / 8 : std::numeric_limits<double>::infinity();
    const double got = static_cast<double>(sent - first.sent_then) / span_s;
    first.shown.observe(got, granted, static_cast<double>(left) > granted * span_s);
  }
  if (is_first || span_s >= kLookSpan_s) {
    first.looked_at = now_.boot;
    first.sent_then = sent;
  }
  reclaim::Transfer transfer;
  transfer.id = std::find_if(fetches_.begin(), fetches_.end(), [&](const auto& one) {
                  return &one.second == &first;
                })->first;
  transfer.bytes = static_cast<double>(left);
  transfer.kind =
      first.is_awaited ? reclaim::TransferClass::kRestore : reclaim::TransferClass::kPrefetch;
  transfer.value = std::max(std::chrono::duration<double>(now_.boot - first.since).count(), 1.0);
  transfer.max_rate = first.shown.most();
  return transfer;
}

/// One for each ticket, by the id of its oldest connection.
std::vector<wire::FetchReport> Core::State::fetch_reports() const {
  std::vector<wire::FetchReport> reports;
  std::vector<const ServedFetch*> firsts;
  for (const auto& [id, fetch] : fetches_) {
    const auto is_it = [&, &one = fetch](const ServedFetch* known) { return known->is_same(one); };
    const auto at = std::find_if(firsts.begin(), firsts.end(), is_it);
    const auto index = static_cast<std::size_t>(at - firsts.begin());
    if (at == firsts.end()) {
      if (reports.size() >= wire::kMaxTransfers) continue;
      firsts.push_back(&fetch);
      reports.push_back({id, fetch.job, fetch.epoch, fetch.peer, fetch.image, 0, true, 0});
    }
    wire::FetchReport& report = reports[index];
    report.bytes_left += fetch.transfer.bytes_left.value_or(kLeastGuess);
    report.is_size_known = report.is_size_known && fetch.transfer.bytes_left.has_value();
    report.sent_bps += static_cast<std::uint64_t>(fetch.transfer.sent_bps);
  }
  return reports;
}

/// The kernel counts fetches with the class whose part of the contract they have.
std::string Core::State::name_of_claim(const warden_wire::Transfer& claim) const {
  const auto fetch = fetches_.find(claim.id);
  if (fetch != fetches_.end()) return fetch->second.image.empty() ? "restore" : "image";
  const auto work = works_.find(claim.id);
  if (work != works_.end() && work->second.task == Task::kUpload) return "outputs";
  return claim.id < kFirstFetch ? std::string(to_string(claim.purpose)) : "restore";
}

}  // namespace rn::agent
