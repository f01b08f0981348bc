// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <utility>

#include "agent/core_state.h"
#include "agent/pacing.h"
#include "base/error_words.h"
#include "base/log.h"

// What is sent, copies and what peers fetch, as the warden is told of it: by their connections,
// with what each may send. The kernel holds them to that at the node's uplink. One request is under
// way at a time; what changes meanwhile goes with the next, so that nothing gathers.
namespace rn::agent {

namespace {

/// Between two tellings of what has not changed, while a copy is under way: for the counters, and
/// because the maps may have been cleared meanwhile.
constexpr seconds kClaimsPeriod{2};
/// Of a copy that is to go faster, for the warden's word that the kernel knows: on a busy machine
/// it may take a while, and what goes before it is refused.
constexpr seconds kClaimPatience{1};

/// An address with a zone ("fe80::1%eth0") is none that the warden knows: such a copy stays
/// unclaimed, for one claim that is refused would be the end of all.
bool is_claimable(const std::string& end) {
  return end.find(':') != std::string::npos && end.find('%') == std::string::npos;
}

/// 0 = no limit, which is the most.
std::uint64_t faster_of(std::uint64_t a, std::uint64_t b) {
  return a == 0 || b == 0 ? 0 : std::max(a, b);
}

std::string mbit(std::uint64_t bytes) {
  if (bytes == 0) return "no bound";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f Mbit/s", static_cast<double>(bytes) * 8e-6);
  return text.data();
}

}  // namespace

bool Core::State::has_edge() const {
  return is_warden_connected_ && is_reconciled_ && warden_.transfers.is_there && !is_claim_void_;
}

/// As the contract counts them: a copy is evacuated from the notice on, also after its deadline.
TransferPurpose Core::State::purpose_of(const PendingWork& pending) const {
  if (attempts_.at(pending.guest).row.phase >= Phase::kNoticed) return TransferPurpose::kEvacuation;
  return pending.is_precopy ? TransferPurpose::kPrefetch : TransferPurpose::kCheckpoint;
}

/// What has a connection, copies and fetches. One that slows down has done so already; one that is
/// to go faster is claimed so before it does.
warden_wire::SetTransfers Core::State::wanted_claims() {
  warden_wire::SetTransfers wanted;
  wanted.coordinator_port = config_.coordinator_port;
  wanted.rest_port = config_.rest_port;
  wanted.evacuation_bytes_per_s = pacing_bytes_per_s(contract_.uplink_bps_evacuation);
  wanted.checkpoint_bytes_per_s = pacing_bytes_per_s(contract_.uplink_bps_normal);
  wanted.prefetch_bytes_per_s = wanted.checkpoint_bytes_per_s;
  std::set<std::pair<std::string, std::string>> connections;
  for (const Sending& one : sendings()) {
    const TransferState& transfer = *one.transfer;
    if (!is_claimable(transfer.local) || !is_claimable(transfer.remote)) continue;
    if (wanted.transfers.size() >= warden_wire::kMaxTransfers) break;
    if (!connections.emplace(transfer.local, transfer.remote).second) continue;
    const std::uint64_t rate_bps = faster_of(transfer.rate_bps, transfer.wanted_bps);
    wanted.transfers.push_back(
        {one.id, transfer.local, transfer.remote, one.purpose, pacing_bytes_per_s(rate_bps), false}
    );
  }
  return wanted;
}

void Core::State::step_claims() {
  if (!has_edge() || claims_asked_) return;
  warden_wire::SetTransfers wanted = wanted_claims();
  const bool is_news = claims_ != wanted;
  const bool is_idle = wanted.transfers.empty();
  const nanoseconds since = now_.boot - claims_asked_at_;
  if (!is_news && (is_idle || since < kClaimsPeriod)) return;
  if (!claims_refusal_.empty() && since < config_.repeat) return;
  claims_asked_at_ = now_.boot;
  ask_node(Ask::kTransfers, wanted);
  claims_asked_ = std::move(wanted);
}

void Core::State::on_claims(const warden_wire::Answer& answer) {
  auto asked = std::exchange(claims_asked_, std::nullopt);
  if (answer.code.empty()) {
    claims_ = std::move(asked);
    transfer_counts_ = answer.transfers;
    claims_refusal_.clear();
    return;
  }
  is_claim_void_ = error_code_of(answer.code) == ErrorCode::kUnsupported;
  if (claims_refusal_ != answer.message)
    log::warning(
        "transfers.not_claimed",
        {{"code", answer.code},
         {"why", answer.message},
         {"next", answer.hint.empty() ? "see the log of reclaim-warden" : answer.hint}}
    );
  claims_refusal_ = answer.message;
}

/// Another warden, or the same one anew, may hold others.
void Core::State::forget_claims() {
  claims_.reset();
  claims_asked_.reset();
  is_claim_void_ = false;
  claims_refusal_.clear();
  transfer_counts_ = {};
}

/// A socket that goes faster before its claim does loses packets at the uplink, and TCP pays for
/// that with a pause. A warden that does not answer holds nobody back for long.
bool Core::State::waits_for_claim(WorkId id, TransferState& transfer) {
  const auto is_it = [id](const warden_wire::Transfer& one) { return one.id == id; };
  std::uint64_t held = 0;
  if (has_edge() && claims_) {
    const auto found = std::find_if(claims_->transfers.begin(), claims_->transfers.end(), is_it);
    if (found != claims_->transfers.end()) held = found->bytes_per_s;
  }
  const std::uint64_t wanted = pacing_bytes_per_s(transfer.wanted_bps);
  if (held == 0 || (wanted != 0 && wanted <= held)) {
    transfer.waits_since.reset();
    return false;
  }
  if (!transfer.waits_since) transfer.waits_since = now_.boot;
  return now_.boot - *transfer.waits_since < kClaimPatience;
}

std::string Core::State::copies_words() const {
  const warden_wire::TransfersEdge& edge = warden_.transfers;
  if (!is_warden_connected_ || !is_reconciled_) return "not known: the warden does not answer";
  const std::string by_agent = "paced by the agent alone: ";
  if (!edge.refusal.empty()) return by_agent + edge.refusal;
  if (!edge.is_there) return by_agent + "the warden serves without --transfers";
  if (is_claim_void_) return by_agent + claims_refusal_;
  std::string words =
      edge.interface.empty() ? "held at the default routes' uplinks" : "held at " + edge.interface;
  words += edge.bytes_per_s == 0 ? ", no rate granted" : " within " + mbit(edge.bytes_per_s);
  if (edge.is_cut) words += ", CUT by the owner";
  if (!claims_refusal_.empty()) return words + ", unclaimed: " + claims_refusal_;
  const std::size_t claims = claims_ ? claims_->transfers.size() : 0;
  words += "; " + std::to_string(claims) + " claimed";
  for (std::size_t i = 0; i < claims; ++i) {
    const warden_wire::Transfer& one = claims_->transfers[i];
    words += (i == 0 ? ": " : ", ") + name_of_claim(one) + " " + mbit(one.bytes_per_s);
  }
  std::uint64_t dropped = transfer_counts_.unclaimed.dropped_packets;
  for (const auto& one : transfer_counts_.transfers) dropped += one.dropped_packets;
  if (claims > 0) words += "; " + std::to_string(dropped) + " packets refused";
  return words;
}

}  // namespace rn::agent
