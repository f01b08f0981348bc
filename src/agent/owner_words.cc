// SPDX-License-Identifier: Apache-2.0
#include "agent/owner_words.h"

#include <algorithm>

#include "arbiter/calendar.h"
#include "reclaim/last_moment.h"

namespace rn::agent {

namespace {

constexpr std::int64_t kNsPerS = 1'000'000'000;
constexpr std::uint32_t kNoticeMaxS = 900;

bool is_among(std::uint32_t gpu, const std::vector<std::uint32_t>& gpus) {
  return std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
}

std::vector<std::uint32_t> gpus_of(const NodeView& view) {
  std::vector<std::uint32_t> out;
  for (const Gpu& gpu : view.facts.gpus) out.push_back(gpu.index);
  std::sort(out.begin(), out.end());
  return out;
}

std::string span_words(std::int64_t ns) {
  const std::int64_t s = std::max<std::int64_t>(ns / kNsPerS, 0);
  if (s < 120) return std::to_string(s) + " s";
  if (s < 7200) return std::to_string(s / 60) + " min";
  return std::to_string(s / 3600) + " h";
}

/// "9 min 40 s".
std::string exact_span(std::int64_t ms) {
  const std::int64_t s = std::max<std::int64_t>((ms + 500) / 1000, 0);
  const auto two = [](std::int64_t large, const char* unit, std::int64_t small, const char* part) {
    std::string out = std::to_string(large) + unit;
    return small == 0 ? out : out + " " + std::to_string(small) + part;
  };
  if (s < 60) return std::to_string(s) + " s";
  if (s < 3600) return two(s / 60, " min", s % 60, " s");
  return two(s / 3600, " h", s % 3600 / 60, " min");
}

/// "14:10", with the day where that is not today.
std::string clock_time(Now now, std::int64_t in_ms, std::int32_t utc_offset_s) {
  const auto today = arbiter::local_time(now.wall, utc_offset_s);
  const auto then = arbiter::local_time(now.wall + milliseconds(in_ms), utc_offset_s);
  const std::string text = arbiter::describe(then);
  return then.day == today.day ? text.substr(text.find(' ') + 1) : text;
}

bool has_one_of(const AttemptView& guest, const std::vector<std::uint32_t>& gpus) {
  return gpus.empty() || std::any_of(guest.gpus.begin(), guest.gpus.end(), [&](std::uint32_t gpu) {
           return is_among(gpu, gpus);
         });
}

/// Who leaves, and who stays how long.
std::string stayers_words(
    const std::vector<std::uint32_t>& gpus,
    const std::vector<AttemptView>& guests,
    Now now,
    std::int32_t utc_offset_s
) {
  std::int64_t leaving = 0;
  std::int64_t staying = 0;
  std::int64_t longest_ms = 0;
  for (const AttemptView& guest : guests) {
    if (!has_one_of(guest, gpus) || guest.phase == "ended") continue;
    ++(guest.stays_ms < 0 ? leaving : staying);
    longest_ms = std::max(longest_ms, guest.stays_ms);
  }
  if (leaving + staying == 0) return "no guest is there";
  const auto count = [](std::int64_t n) {
    return std::to_string(n) + (n == 1 ? " guest" : " guests");
  };
  std::string out;
  if (leaving > 0) out = count(leaving) + (leaving == 1 ? " is leaving" : " are leaving");
  if (staying == 0) return out;
  return out + (out.empty() ? "" : ", ") + count(staying) +
         (staying == 1 ? " stays until " : " stay until ") +
         clock_time(now, longest_ms, utc_offset_s) + ", as nobody can take " +
         (staying == 1 ? "it" : "them") + " now";
}

}  // namespace

std::string gpu_words(const std::vector<std::uint32_t>& gpus) {
  if (gpus.empty()) return "the whole node";
  std::string out = gpus.size() == 1 ? "GPU " : "GPUs ";
  for (std::size_t i = 0; i < gpus.size(); ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(gpus[i]);
  return out;
}

std::uint32_t notice_s_of(const Contract& contract) {
  return std::min(contract.notice_s, kNoticeMaxS);
}

Notice notice_of(
    const Result<Contract>& file, const std::function<Result<Contract>()>& ask_the_agent
) {
  if (file) return {notice_s_of(*file), ""};
  const Contract usual;
  if (file.error().code == ErrorCode::kNotFound) return {notice_s_of(usual), ""};
  const auto told = ask_the_agent();
  if (told) return {notice_s_of(*told), ""};
  return {
      notice_s_of(usual),
      "the contract cannot be read (" + file.error().message +
          ") and the agent does not tell it (" + told.error().message + "): with the usual " +
          std::to_string(notice_s_of(usual)) + " s of notice"};
}

std::vector<std::uint32_t> gpus_not_there(
    const std::vector<std::uint32_t>& asked,
    const std::optional<NodeView>& view,
    const std::function<bool(std::uint32_t)>& has_device
) {
  if (!view) return {};
  std::vector<std::uint32_t> known = gpus_of(*view);
  for (const ReclaimRecord& reclaim : view->reclaims) {
    if (reclaim.phase == ReclaimPhase::kReturned) continue;
    known.insert(known.end(), reclaim.gpus.begin(), reclaim.gpus.end());
  }
  std::vector<std::uint32_t> out;
  for (const std::uint32_t gpu : asked) {
    if (!is_among(gpu, known) && !has_device(gpu)) out.push_back(gpu);
  }
  return out;
}

Error no_such_gpus(const std::vector<std::uint32_t>& not_there, const NodeView& view) {
  const std::vector<std::uint32_t> there = gpus_of(view);
  const std::string has = there.empty() ? "it has none" : "it has " + gpu_words(there);
  return {
      ErrorCode::kNotFound,
      "this machine has no " + gpu_words(not_there) + "; " + has,
      there.empty() ? "leave --gpu out: the whole node is meant then"
                    : "name one of them with --gpu, or leave --gpu out for the whole node"};
}

std::string reclaim_words(
    const std::vector<std::uint32_t>& gpus, const ReclaimRecord& reclaim, Instant asked_at, Now now
) {
  const std::string id = reclaim.id.str();
  const std::int64_t now_ns = to_ns(now.boot);
  const auto since = [&](std::int64_t at_ns) { return span_words(now_ns - at_ns); };
  const bool is_older = reclaim.declared_ns < to_ns(asked_at);
  std::string out = gpu_words(gpus) + ": ";
  out += is_older ? "reclaim " + id + " (" + gpu_words(reclaim.gpus) + "), declared " +
                        since(reclaim.declared_ns) + " ago, holds already; "
                  : "reclaim " + id + " declared; ";
  if (reclaim.phase == ReclaimPhase::kWedged) return out + "something of a guest remains (wedged)";
  if (reclaim.cleared_ns != 0) return out + "yours for " + since(reclaim.cleared_ns);
  if (reclaim.cut_ns != 0)
    return out + "cut " + since(reclaim.cut_ns) + " ago, guests are being ended";
  if (reclaim.deadline_ns == 0) return out + "guests are being ended";
  const std::int64_t left_s =
      std::max<std::int64_t>((reclaim.deadline_ns - now_ns + kNsPerS / 2) / kNsPerS, 0);
  out += "guests save and leave within " + std::to_string(left_s) + " s";
  const double least_s = reclaim::last_moments({}).tell_s + reclaim::kLeastStay_s;
  if (reclaim.kind == ReclaimKind::kAnnounced && static_cast<double>(left_s) >= least_s)
    out += "; who nobody can take stays until the last save is due";
  return out;
}

bool is_taken_back(
    const std::vector<std::uint32_t>& gpus, const std::vector<ReclaimRecord>& reclaims
) {
  return std::any_of(reclaims.begin(), reclaims.end(), [&](const ReclaimRecord& r) {
    if (r.phase == ReclaimPhase::kReturned) return false;
    if (gpus.empty() || r.gpus.empty()) return true;
    return std::any_of(gpus.begin(), gpus.end(), [&](std::uint32_t gpu) {
      return is_among(gpu, r.gpus);
    });
  });
}

std::string taking_words(
    const std::vector<ReclaimRecord>& reclaims,
    const std::vector<AttemptView>& guests,
    Now now,
    std::int32_t utc_offset_s
) {
  std::string out;
  for (const ReclaimRecord& r : reclaims) {
    const std::int64_t left_ms = (r.deadline_ns - to_ns(now.boot)) / 1'000'000;
    const bool is_ahead =
        (r.phase == ReclaimPhase::kDeclared || r.phase == ReclaimPhase::kEvacuating) &&
        r.kind != ReclaimKind::kEmergency && left_ms > 0;
    if (!is_ahead) continue;
    out += (out.empty() ? "the owner takes " : "; the owner takes ") +
           (r.gpus.empty() ? "the node" : gpu_words(r.gpus)) + " back at " +
           clock_time(now, left_ms, utc_offset_s) + " (in " + exact_span(left_ms) + "); " +
           stayers_words(r.gpus, guests, now, utc_offset_s);
  }
  return out;
}

std::optional<ReclaimRecord> emergency_at_work(
    const warden_wire::WardenState& state, const std::vector<std::uint32_t>& gpus
) {
  for (const ReclaimRecord& reclaim : state.reclaims) {
    const bool is_meant =
        reclaim.gpus.empty() ||
        (!gpus.empty() && std::all_of(gpus.begin(), gpus.end(), [&](std::uint32_t gpu) {
          return is_among(gpu, reclaim.gpus);
        }));
    if (reclaim.kind != ReclaimKind::kEmergency || reclaim.phase == ReclaimPhase::kReturned ||
        !is_meant)
      continue;
    const bool has_guests =
        std::any_of(state.guests.begin(), state.guests.end(), [&](const auto& guest) {
          const bool is_covered =
              reclaim.gpus.empty() ||
              std::any_of(guest.gpus.begin(), guest.gpus.end(), [&](std::uint32_t gpu) {
                return is_among(gpu, reclaim.gpus);
              });
          return is_covered && guest.state == GuestState::kRunning;
        });
    if (!has_guests) return reclaim;
  }
  return std::nullopt;
}

}  // namespace rn::agent
