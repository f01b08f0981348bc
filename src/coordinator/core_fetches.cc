// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_fetches.h"

#include <algorithm>
#include <cmath>

namespace rn::coordinator {

namespace {

constexpr double kMostBytes = 1e15;

/// The attempt for which a peer fetches from `node`, if it is there and is the job's newest.
const AttemptEntry* fetching_attempt(
    State& state, const NodeEntry& node, const wire::FetchReport& r
) {
  const NodeEntry* const peer = state.find_node(r.peer);
  if (peer == nullptr || peer->row.is_revoked || r.peer == node.row.node) return nullptr;
  if (!peer->attempts.contains({r.job, r.epoch}) || !state.is_current(r.job, r.epoch))
    return nullptr;
  return state.find_attempt(r.job, r.epoch);
}

/// As resume_grants() takes it: by a receipt, or because it made it.
bool has_generation_of(const State& state, const NodeId& node, const JobId& job) {
  const auto kept = state.generations.find(job);
  if (kept == state.generations.end()) return false;
  return std::any_of(kept->second.begin(), kept->second.end(), [&](const auto& one) {
    const GenerationRow& row = one.second;
    return row.source == node ||
           std::any_of(row.receipts.begin(), row.receipts.end(), [&](const Receipt& receipt) {
             return receipt.holder == node;
           });
  });
}

/// The sender has what it says that it serves: as holder of the job, or by its own list of images.
bool may_serve(const State& state, const NodeEntry& node, const wire::FetchReport& r) {
  if (r.image.empty()) return has_generation_of(state, node.row.node, r.job);
  const auto& images = node.row.facts.images;
  return r.image == state.jobs.at(r.job).row.job.image_digest &&
         std::find(images.begin(), images.end(), r.image) != images.end();
}

/// By its digest.
const Image* listed_image(const State& state, const std::string& digest) {
  for (const auto& [name, image] : state.images)
    if (!digest.empty() && image.digest == digest) return &image;
  return nullptr;
}

/// Not larger than the job's disk, or than the image where it is listed.
double believed_bytes(const State& state, const wire::FetchReport& report) {
  const auto told = static_cast<double>(report.bytes_left);
  const Image* const image = listed_image(state, report.image);
  if (image != nullptr) return std::min(told, static_cast<double>(image->bytes));
  return std::min(told, most_bytes(state, report.job));
}

/// Without what is fetched its guest cannot start.
bool is_before_start(AttemptState state) {
  return state == AttemptState::kLeased || state == AttemptState::kFetching ||
         state == AttemptState::kPreparing;
}

/// What a node asks us for.
struct Asking {
  JobId job;  ///< empty: it has no attempt
  LeaseEpoch epoch;
  bool is_awaited = false;
  std::string image;             ///< of which the blobs are; empty: of none that the job has
  std::optional<double> behind;  ///< bytes of that image behind them
};

/// Pieces are of one size, but for the last.
std::optional<double> bytes_behind(const Image& image, const std::vector<Digest>& asked) {
  std::optional<std::size_t> last;
  for (const Digest& blob : asked) {
    const auto at = std::find(image.blobs.begin(), image.blobs.end(), blob);
    if (at == image.blobs.end()) continue;
    last = std::max(last.value_or(0), static_cast<std::size_t>(at - image.blobs.begin()));
  }
  if (!last) return std::nullopt;
  const auto pieces = static_cast<double>(image.blobs.size());
  return static_cast<double>(image.bytes) * (pieces - 1 - static_cast<double>(*last)) / pieces;
}

/// Of its attempts the one that most likely waits for it: not started yet, with that image, and the
/// one for which it asked until now.
Asking asking_of(
    State& state, const NodeEntry& node, const std::vector<Digest>& asked, const JobId& before
) {
  Asking best;
  int best_rank = -1;
  for (const auto& [id, epoch] : node.attempts) {
    const AttemptEntry* const attempt = state.find_attempt(id, epoch);
    if (attempt == nullptr || !state.is_current(id, epoch)) continue;
    const Image* const image = listed_image(state, state.jobs.at(id).row.job.image_digest);
    const auto behind = image == nullptr ? std::nullopt : bytes_behind(*image, asked);
    const bool is_awaited = is_before_start(attempt->row.attempt.state);
    const int rank = (is_awaited ? 4 : 0) + (behind ? 2 : 0) + (id == before ? 1 : 0);
    if (rank <= best_rank) continue;
    best_rank = rank;
    best = {id, epoch, is_awaited, behind ? image->digest : "", behind};
  }
  return best;
}

using Sent = std::map<TransferKey, TransferEntry>::iterator;

/// What we send, by receiver.
std::map<NodeId, Sent> all_sent(TransferBook& book) {
  std::map<NodeId, Sent> all;
  for (auto at = book.entries.begin(); at != book.entries.end(); ++at) {
    if (!std::get<0>(at->first).empty()) break;
    all.emplace(std::get<3>(at->first), at);
  }
  return all;
}

void take_sent(State& state, const BlobsToNode& told, std::map<NodeId, Sent>& before) {
  const NodeEntry* const node = state.find_node(told.node);
  if (node == nullptr || node->row.is_revoked) return;
  TransferBook& book = state.transfers;
  const auto known = before.find(told.node);
  const JobId for_job = known == before.end() ? JobId() : std::get<1>(known->second->first);
  const Asking asking = asking_of(state, *node, told.asked, for_job);
  const TransferKey key{NodeId(), asking.job, asking.epoch, told.node};
  const auto [at, is_new] = book.entries.try_emplace(key);
  if (!is_new) before.erase(known);  // what stays there is over
  TransferEntry& entry = at->second;
  if (is_new) entry.number = book.next_number++;
  if (asking.behind) {
    const bool is_first = entry.image != asking.image;
    entry.behind = is_first ? *asking.behind : std::min(entry.behind, *asking.behind);
    entry.image = asking.image;
  }
  const double bytes = entry.behind + static_cast<double>(told.bytes_waiting);
  const std::uint64_t got = told.bytes_sent - std::min(told.bytes_sent, entry.given);
  if (!is_new) entry.see(static_cast<double>(got), bytes, state.now.boot);
  if (is_new || entry.is_awaited != asking.is_awaited) book.is_changed = true;
  entry.is_fetch = true;
  entry.is_awaited = asking.is_awaited;
  entry.given = told.bytes_sent;
  entry.heard = state.now.boot;
  entry.bytes = bytes;
}

}  // namespace

double most_bytes(const State& state, const JobId& job) {
  const std::uint64_t disk_mib = state.jobs.at(job).row.job.spec.resources.disk_mib;
  return disk_mib == 0 ? kMostBytes : static_cast<double>(disk_mib) * 1048576;
}

double worth_of_start(const State& state, const JobId& id, LeaseEpoch epoch) {
  const auto job = state.jobs.find(id);
  if (job == state.jobs.end()) return 0;  // nobody waits for it
  const auto attempt = state.attempts.find({id, epoch});
  Instant since = attempt == state.attempts.end() ? state.now.boot : attempt->second.since;
  const auto evacuation = state.evacuations.find(id);
  if (evacuation != state.evacuations.end() && evacuation->second.waits_since != Instant{})
    since = std::min(since, evacuation->second.waits_since);
  const std::uint32_t gpus = job->second.row.job.spec.resources.gpus;
  return std::max(seconds_between(since, state.now.boot), 1.0) * std::max(1u, gpus);
}

void take_fetch(State& state, const NodeEntry& node, const wire::FetchReport& report) {
  const AttemptEntry* const attempt = fetching_attempt(state, node, report);
  if (attempt == nullptr || !may_serve(state, node, report)) return;
  TransferBook& book = state.transfers;
  const auto [at, is_new] =
      book.entries.try_emplace({node.row.node, report.job, report.epoch, report.peer});
  TransferEntry& entry = at->second;
  const double bytes = believed_bytes(state, report);
  const bool is_awaited = is_before_start(attempt->row.attempt.state);
  if (is_new) entry.number = book.next_number++;
  const bool is_another = is_new || entry.image != report.image;
  if (is_another)
    entry.shown.forget();
  else if (report.is_size_known && entry.report.is_size_known)
    entry.see(entry.bytes - bytes, bytes, state.now.boot);
  if (is_another || entry.is_awaited != is_awaited) book.is_changed = true;
  entry.is_fetch = true;
  entry.is_awaited = is_awaited;
  entry.image = report.image;
  entry.report = {};
  entry.report.id = report.id;
  entry.report.is_size_known = report.is_size_known;
  entry.heard = state.now.boot;
  entry.bytes = bytes;
}

void on_blobs_sent(State& state, const BlobsSent& event) {
  TransferBook& book = state.transfers;
  std::map<NodeId, Sent> before = all_sent(book);
  std::set<NodeId> seen;
  for (const BlobsToNode& told : event.nodes) {
    if (seen.insert(told.node).second) take_sent(state, told, before);
  }
  for (const auto& [node, at] : before) book.end(at, state.now.boot);
}

std::string fetch_words(const State& state, const JobEntry& job) {
  std::string words;
  for (const auto& [key, entry] : state.transfers.entries) {
    const auto& [sender, id, epoch, peer] = key;
    const bool is_told = entry.is_upload || (entry.is_fetch && entry.is_awaited);
    if (!is_told || id != job.row.job.id) continue;
    const std::string what = entry.is_upload       ? "its outputs come from "
                             : entry.image.empty() ? "its files come from "
                                                   : "its image comes from ";
    const std::string whom = sender.empty() ? "the coordinator" : state.name_of(sender);
    words += (words.empty() ? "" : "; ") + what + whom + ", " + megabytes(entry.bytes) + " left";
    if (std::isfinite(entry.rate)) words += " at " + megabits(entry.rate);
  }
  return words;
}

}  // namespace rn::coordinator
