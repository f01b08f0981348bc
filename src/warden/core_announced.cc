// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/planted.h"
#include "warden/core.h"

// What the contract takes back without a word of the owner's. The agent, which reads the contract,
// tells it ahead of time; from then on the warden keeps it alone.
namespace rn::warden {

namespace {

Status check(const warden_wire::Announce& request, Instant now) {
  if (request.declare_ns < 0 || request.deadline_ns < request.declare_ns)
    return fail(ErrorCode::kInvalid, "an announcement is declared before its deadline");
  if (request.deadline_ns > to_ns(now + kMaxAnnounced))
    return fail(ErrorCode::kInvalid, "a reclaim can be announced at most a week ahead");
  if (request.message.size() > kMaxMessageBytes)
    return fail(ErrorCode::kInvalid, "the message is longer than 1 KiB");
  return {};
}

Status check(const warden_wire::AnnounceGpu& request, Instant now) {
  RN_CHECK(warden_wire::check_gpus({request.gpu}));
  return check(
      warden_wire::Announce{request.declare_ns, request.deadline_ns, request.message}, now
  );
}

}  // namespace

void WardenCore::ask(const Caller& caller, const warden_wire::Announce& request) {
  if (const Status valid = check(request, now_.boot); !valid) return answer(caller, valid);
  if (request.deadline_ns == 0) return withdraw_announced(caller);
  warden_wire::Announced& announced = journal_.announced;
  if (ReclaimRecord* declared = find(announced.reclaim)) {
    const bool is_earlier =
        declared->phase == ReclaimPhase::kEvacuating && request.deadline_ns < declared->deadline_ns;
    if (is_earlier) {
      declared->deadline_ns = request.deadline_ns;
      changed();
    }
  } else {
    warden_wire::Announced wanted{request.declare_ns, request.deadline_ns, request.message, {}};
    if (announced != wanted) changed();
    announced = std::move(wanted);
  }
  advance_all();
  warden_wire::Answer reply;
  if (const ReclaimRecord* declared = find(announced.reclaim)) reply.reclaim = *declared;
  answer(caller, std::move(reply));
}

void WardenCore::withdraw_announced(const Caller& caller) {
  ReclaimRecord* declared = find(journal_.announced.reclaim);
  if (declared == nullptr) {
    if (journal_.announced != warden_wire::Announced{}) changed();
    journal_.announced = {};
    return answer(caller, Status());
  }
  give_back_if_clean(caller, *declared);
}

/// Its time has come, it is not declared, and no reclaim of the owner's takes the node by then.
bool WardenCore::is_due() const {
  const warden_wire::Announced& announced = journal_.announced;
  if (announced.deadline_ns == 0 || !announced.reclaim.empty()) return false;
  if (to_ns(now_.boot) < announced.declare_ns) return false;
  if (planted("warden.sleeps_through_windows")) return false;
  return std::none_of(
      journal_.reclaims.begin(),
      journal_.reclaims.end(),
      [&](const ReclaimRecord& reclaim) {
        if (!is_open(reclaim) || !reclaim.gpus.empty()) return false;
        const bool is_in_time =
            reclaim.deadline_ns != 0 && reclaim.deadline_ns <= announced.deadline_ns;
        return is_in_time || reclaim.phase != ReclaimPhase::kEvacuating ||
               clearings_.contains(reclaim.id);
      }
  );
}

void WardenCore::fall_due() {
  gpus_fall_due();
  if (!is_due()) return;
  warden_wire::Announced& announced = journal_.announced;
  ReclaimRecord& reclaim =
      declare(ReclaimKind::kAnnounced, {}, instant_from_ns(announced.deadline_ns));
  reclaim.message = announced.message;
  announced.reclaim = reclaim.id;
}

/// The GPU's guests are being ended, or have to be gone by then already.
bool WardenCore::is_taken_by(std::uint32_t gpu, std::int64_t deadline_ns) const {
  return std::any_of(
      journal_.reclaims.begin(),
      journal_.reclaims.end(),
      [&](const ReclaimRecord& reclaim) {
        if (!is_open(reclaim) || !covers(reclaim, {gpu})) return false;
        const bool is_in_time = reclaim.deadline_ns != 0 && reclaim.deadline_ns <= deadline_ns;
        return is_in_time || reclaim.phase != ReclaimPhase::kEvacuating ||
               clearings_.contains(reclaim.id);
      }
  );
}

/// As is_due() of the node.
bool WardenCore::is_gpu_due(const warden_wire::AnnouncedGpu& ahead) const {
  if (!ahead.reclaim.empty() || to_ns(now_.boot) < ahead.declare_ns) return false;
  if (planted("warden.sleeps_through_windows")) return false;
  return !is_taken_by(ahead.gpu, ahead.deadline_ns);
}

void WardenCore::gpus_fall_due() {
  for (warden_wire::AnnouncedGpu& held : journal_.announced_gpus) {
    if (!is_gpu_due(held)) continue;
    ReclaimRecord& reclaim =
        declare(ReclaimKind::kAnnounced, {held.gpu}, instant_from_ns(held.deadline_ns));
    reclaim.message = held.message;
    held = {held.gpu, reclaim.id};
  }
}

/// Kept until its time has come; a repetition writes nothing.
void WardenCore::keep_ahead(const warden_wire::AnnounceGpu& request) {
  auto& all = journal_.announced_gpus;
  auto held =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.gpu == request.gpu; });
  if (held == all.end()) held = all.insert(all.end(), warden_wire::AnnouncedGpu{request.gpu, {}});
  warden_wire::AnnouncedGpu ahead{
      request.gpu, {}, request.declare_ns, request.deadline_ns, request.message};
  if (*held == ahead) return;
  *held = std::move(ahead);
  changed();
}

void WardenCore::ask(const Caller& caller, const warden_wire::AnnounceGpu& request) {
  if (const Status valid = check(request, now_.boot); !valid) return answer(caller, valid);
  if (request.deadline_ns == 0) return withdraw_gpu(caller, request.gpu);
  auto& all = journal_.announced_gpus;
  const auto held =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.gpu == request.gpu; });
  ReclaimRecord* reclaim = held == all.end() ? nullptr : find(held->reclaim);
  if (reclaim != nullptr) {
    const bool is_earlier =
        reclaim->phase == ReclaimPhase::kEvacuating && request.deadline_ns < reclaim->deadline_ns;
    if (is_earlier) {
      reclaim->deadline_ns = request.deadline_ns;
      changed();
    }
  } else if (request.declare_ns > 0) {
    keep_ahead(request);
  } else if (!is_taken_by(request.gpu, request.deadline_ns)) {
    reclaim =
        &declare(ReclaimKind::kAnnounced, {request.gpu}, instant_from_ns(request.deadline_ns));
    reclaim->message = request.message;
    if (held == all.end())
      all.push_back({request.gpu, reclaim->id});
    else
      *held = {request.gpu, reclaim->id};
  }
  advance_all();
  warden_wire::Answer reply;
  for (const warden_wire::AnnouncedGpu& one : all) {
    if (one.gpu != request.gpu) continue;
    if (const ReclaimRecord* declared = find(one.reclaim)) reply.reclaim = *declared;
  }
  answer(caller, std::move(reply));
}

void WardenCore::withdraw_gpu(const Caller& caller, std::uint32_t gpu) {
  auto& all = journal_.announced_gpus;
  const auto held =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.gpu == gpu; });
  if (held == all.end()) return answer(caller, Status());
  ReclaimRecord* declared = find(held->reclaim);
  if (declared == nullptr) {
    all.erase(held);
    changed();
    return answer(caller, Status());
  }
  give_back_if_clean(caller, *declared);
}

/// The owner has spoken: from now on only the owner gives the node, or the GPU, back.
void WardenCore::hand_to_owner(const ReclaimRecord& reclaim) {
  if (std::erase_if(journal_.announced_gpus, [&](const auto& held) {
        return held.reclaim == reclaim.id;
      }) > 0)
    changed();
  if (reclaim.id != journal_.announced.reclaim) return;
  journal_.announced = {};
  changed();
}

}  // namespace rn::warden
