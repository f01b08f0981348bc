// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/core_state.h"
#include "base/log.h"

// Outputs on their way home. They are planned, paced and claimed as copies are, with the
// coordinator as the peer (an empty name). Nobody's state depends on them, so no promise is made
// for them and they make way for everybody; but a job ends only when they are there, so they never
// stand still.
namespace rn::agent {

namespace {

constexpr std::uint64_t kLeastUpload_bps = 1'000'000;
constexpr std::uint64_t kLeastUploadGuess = 1u << 20;
/// Until the coordinator has said more, which takes it a report and a plan; one that says nothing
/// in this time is older than the plan of outputs, and the node goes by its own.
constexpr std::uint64_t kFirstUpload_bps = 20'000'000;
constexpr seconds kFirstWord{2};
constexpr seconds kUploadPatience{10};  ///< with a coordinator that is away for a moment

std::uint64_t narrower(std::uint64_t a, std::uint64_t b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

}  // namespace

/// Until the machine, or the guest's part of it, is taken back, also where its owner came when the
/// guest was over already. What has not left by then is computed again.
std::optional<nanoseconds> Core::State::upload_left(const Attempt& a) const {
  std::optional<nanoseconds> least = evacuation_left(a);
  for (const auto& [id, row] : reclaims_) {
    const ReclaimRecord& record = row.record;
    const bool is_open =
        record.phase == ReclaimPhase::kDeclared || record.phase == ReclaimPhase::kEvacuating;
    const nanoseconds left(record.deadline_ns - to_ns(now_.boot));
    if (!is_open || left <= nanoseconds(0) || !covers(record, a)) continue;
    least = std::min(least.value_or(left), left);
  }
  return least;
}

/// Of the contract; 0 = none.
std::uint64_t Core::State::upload_cap(const Attempt& a) const {
  return upload_left(a) ? contract_.uplink_bps_evacuation : contract_.uplink_bps_normal;
}

void Core::State::begin_upload(Attempt& a) {
  if (!a.upload_since) a.upload_since = now_.boot;
  const std::uint64_t first = narrower(upload_cap(a), kFirstUpload_bps);
  const WorkId id = work(
      a,
      Task::kUpload,
      UploadOutputs{a.row.disk, a.commit.spec.checkpoint, a.commit.spec.workspace, first}
  );
  works_.at(id).transfer.rate_bps = first;
}

/// They are sent again and again, for what the guest computed is worth it; meanwhile its author
/// reads why they wait. In the same words until it is for another reason: messages count what is
/// free.
void Core::State::note_failed_upload(Attempt& a, const Error& error) {
  if (!a.upload_fails_since) a.upload_fails_since = now_.boot;
  const bool may_pass = error.code != ErrorCode::kExhausted;
  if (may_pass && now_.boot - *a.upload_fails_since < kUploadPatience) return;
  if (a.upload_trouble_of == error.code && !a.upload_trouble.empty()) return;
  a.upload_trouble_of = error.code;
  const char* const next = "see whether its node reaches the coordinator: `reclaim-agent doctor`";
  a.upload_trouble =
      "it has ended well, and its outputs wait to come home: " + readable(error.message) +
      "; next: " + (error.hint.empty() ? next : readable(error.hint));
  log::warning(
      "outputs.wait",
      {{"job", a.name.job.str()}, {"epoch", to_string(a.name.epoch)}, {"why", a.upload_trouble}}
  );
}

Sending Core::State::upload_sending(WorkId id, PendingWork& pending) {
  const Attempt& a = attempts_.at(pending.guest);
  const bool is_urgent = upload_left(a).has_value();
  Sending sending;
  sending.id = id;
  sending.transfer = &pending.transfer;
  sending.purpose = is_urgent ? TransferPurpose::kEvacuation : TransferPurpose::kCheckpoint;
  sending.is_urgent = is_urgent;
  sending.cap_bps = upload_cap(a);
  sending.least_bps = kLeastUpload_bps;
  const bool may_hear_more = is_welcome_ && now_.boot - pending.started_at < kFirstWord;
  if (may_hear_more && !pending.transfer.told_at)
    sending.cap_bps = narrower(sending.cap_bps, kFirstUpload_bps);
  return sending;
}

wire::TransferReport Core::State::upload_report(WorkId id, const PendingWork& pending) const {
  wire::TransferReport report;
  report.id = id;
  report.job = pending.guest.job;
  report.epoch = pending.guest.epoch;
  report.kind = TransferKind::kCheckpoint;
  report.bytes_left = pending.transfer.bytes_left.value_or(kLeastUploadGuess);
  report.is_size_known = pending.transfer.bytes_left.has_value();
  if (const auto left = upload_left(attempts_.at(pending.guest)))
    report.deadline_ms = static_cast<std::uint32_t>(std::max(*left / milliseconds(1), 1L));
  report.sent_bps = static_cast<std::uint64_t>(pending.transfer.sent_bps);
  return report;
}

/// Alone.
reclaim::Transfer Core::State::upload_to_plan(WorkId id, const PendingWork& pending) const {
  const Attempt& a = attempts_.at(pending.guest);
  const double waited_s = in_s(now_.boot - a.upload_since.value_or(now_.boot));
  reclaim::Transfer transfer;
  transfer.id = id;
  transfer.bytes = static_cast<double>(pending.transfer.bytes_left.value_or(kLeastUploadGuess));
  transfer.kind = reclaim::class_of_upload(waited_s, upload_left(a).has_value());
  transfer.value = std::max(waited_s, 1.0) *
                   static_cast<double>(std::max<std::size_t>(a.row.grant.gpus.size(), 1));
  return transfer;
}

}  // namespace rn::agent
