// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "agent/core_state.h"
#include "base/log.h"

// Guests that save when they are told: by the signal that their job names, or by a word that stands
// until they have saved (a file that they delete, a hook that runs, an answer of their API). At a
// notice they are told in the same way.
namespace rn::agent {

namespace {

constexpr double kTellFirst_s = 30;  // of its life
constexpr std::uint32_t kTellDoublings = 7;
constexpr std::uint32_t kTellsTold = 3;  // in vain, before its author hears of it
/// Before it is looked whether a word that stood at a notice is gone.
constexpr seconds kWordRest{1};

/// The way in which it is told, for people.
std::string way_of(const CheckpointSpec& spec) {
  if (!spec.tell_file.empty()) return "the file " + spec.tell_file;
  if (!spec.tell_hook.empty()) return "its hook";
  return spec.tell_api ? "the API" : std::string(to_string(spec.signal));
}

std::string telling_advice(const CheckpointSpec& spec) {
  if (!spec.tell_file.empty())
    return "let it save when the file appears, delete the file and go on, or submit it without "
           "`tell_file`";
  if (!spec.tell_hook.empty()) return "let the hook save and end, or submit it without `tell_hook`";
  if (spec.tell_api)
    return "let it ask GET /v1/notice at RECLAIM_API, save, and say so by POST /v1/saved, or "
           "submit "
           "it without `tell_api`";
  return "let it save on " + way_of(spec) + " and go on, or submit it without `tell`";
}

/// While its word stands, for people.
std::string standing_word_of(const CheckpointSpec& spec) {
  if (!spec.tell_file.empty()) return "which still lies there";
  return spec.tell_api ? "where it has not said that it has saved" : "which still runs";
}

/// It has saved, and its word stands.
std::string why_not_told_again(const CheckpointSpec& spec) {
  constexpr const char* kSo = " after it has saved, so that it is not told again; next: ";
  if (!spec.tell_file.empty())
    return "the file " + spec.tell_file + " still lies there" + kSo +
           "let it delete the file after each save";
  if (!spec.tell_hook.empty())
    return std::string("its hook still runs") + kSo + "let the hook end when it has saved";
  return std::string("it says nothing to the API") + kSo + "let it POST /v1/saved after each save";
}

std::string giving_advice(const CheckpointSpec& spec) {
  if (!spec.tell_file.empty())
    return "let it make the folder in which " + spec.tell_file +
           " is to lie and keep room on its disk, or name another file";
  return "let it keep room on its disk and leave /reclaim as it is; a node of an older version "
         "does "
         "not know " +
         std::string(spec.tell_api ? "the API" : "hooks");
}

}  // namespace

/// By which it hears that a save is due, or, once it is noticed, until when it has to leave.
warden_wire::Request Core::State::save_request(const Attempt& a) const {
  const CheckpointSpec& spec = a.commit.spec.checkpoint;
  if (!is_told_by_word(spec)) return warden_wire::SignalGuest{a.name, spec.signal};
  const bool is_for_init = spec.tell_file.empty();
  if (a.row.phase != Phase::kNoticed)
    return warden_wire::TellGuest{a.name, spec.tell_file, "a save is due", 0, 0, is_for_init};
  const warden_wire::WriteNotice why = notice(a.name, a.row.stop);
  return warden_wire::TellGuest{
      a.name, spec.tell_file, why.reason, why.deadline_wall_ms, why.grace_s, is_for_init};
}

void Core::State::tell_to_save(Attempt& a) {
  SaveSchedule& s = a.schedule;
  const CheckpointSpec& spec = a.commit.spec.checkpoint;
  const bool can_be_told = saves_when_told(spec) && plans_saves(a);
  if (!can_be_told || a.is_detected || a.works.contains(Task::kSnapshot)) return;
  if (now_.boot < s.tell_after || is_asking(a, Ask::kTell)) return;
  const GenerationRow* const last = newest(a);
  const bool waits = last != nullptr && !last->is_committed && !last->is_refused;
  const nanoseconds ran = now_.boot - instant_from_ns(a.row.started_ns);
  const bool has_begun = std::chrono::duration<double>(ran).count() >= kTellFirst_s;
  if (waits || s.answer != reclaim::SnapshotAnswer::kTake || !has_begun) return;
  ask(a, Ask::kTell, save_request(a));
  if (!is_asking(a, Ask::kTell)) return;
  if (!is_told_by_word(spec))
    s.told_at = now_.boot;  // of a word its answer says whether it was told
  s.tell_after = now_.boot + kTellRest * (1 << std::min(s.tells_unheard, kTellDoublings));
  if (++s.tells_unheard <= kTellsTold) return;
  a.save_trouble = "it was told " + std::to_string(s.tells_unheard - 1) + " times to save (" +
                   way_of(spec) + (s.is_word_standing ? ", " + standing_word_of(spec) : "") +
                   "), and saved nothing; next: " + telling_advice(spec);
}

void Core::State::on_told(Attempt& a, std::uint32_t count) {
  const CheckpointSpec& spec = a.commit.spec.checkpoint;
  if (is_told_by_word(spec)) return on_told_by_word(a, count > 0);
  log::info("attempt.told_to_save", {{"job", a.name.job.str()}, {"processes", count}});
  if (count > 0) return;
  a.save_trouble = "no process of it catches " + way_of(spec) + ", on which it is said to save; " +
                   "next: install the handler, or submit it without `tell`";
}

/// While the word stands it is told already.
void Core::State::on_told_by_word(Attempt& a, bool is_new) {
  SaveSchedule& s = a.schedule;
  s.is_word_standing = !is_new;
  if (is_new) {
    const CheckpointSpec& spec = a.commit.spec.checkpoint;
    log::info("attempt.told_to_save", {{"job", a.name.job.str()}, {"by", way_of(spec)}});
    s.told_at = now_.boot;
    return;
  }
  const GenerationRow* const last = newest(a);
  const bool has_saved =
      s.told_at && last != nullptr && last->ref.snapshot_boot_ns > to_ns(*s.told_at);
  if (has_saved) a.save_trouble = why_not_told_again(a.commit.spec.checkpoint);
}

void Core::State::on_not_told(Attempt& a, ErrorCode code, const warden_wire::Answer& answer) {
  const CheckpointSpec& spec = a.commit.spec.checkpoint;
  const bool passes = is_retryable(code) && code != ErrorCode::kExhausted;
  if (!is_told_by_word(spec) || passes || code == ErrorCode::kConflict)
    return;  // it has just ended
  a.save_trouble =
      "it cannot be told to save: " + readable(answer.message) + "; next: " + giving_advice(spec);
}

/// How the newest run of its hook ended.
void Core::State::hear_hook(Attempt& a, const HookEnd& end) {
  if (end.run == a.hook_run) return;
  a.hook_run = end.run;
  a.hook_trouble.clear();
  if (end.is_late) {
    a.hook_trouble =
        "its hook did not end in time and was ended, after the notice or ten minutes; "
        "next: let it save less, or faster, and end";
  } else if (end.exit_code != 0) {
    a.hook_trouble = "its hook ended with exit code " + std::to_string(end.exit_code) +
                     "; next: see what it prints in `reclaim logs`, and let it end with 0 when it "
                     "has saved";
  }
}

/// At a notice. A word that stands from before says nothing of it: it is given anew as soon as the
/// guest has answered that one.
void Core::State::on_told_to_leave(Attempt& a, std::uint32_t count) {
  if (a.row.signals_in_doubt > 0) --a.row.signals_in_doubt;
  a.is_dirty = true;
  if (is_told_by_word(a.commit.spec.checkpoint) && count == 0) {
    a.ask_after[Ask::kSignal] = now_.boot + kWordRest;
    return;
  }
  a.row.signalled = count;
  a.row.is_signalled = true;
  log::info("attempt.signalled", {{"job", a.name.job.str()}, {"processes", count}});
}

/// It was writing when it was told to leave, and may have taken that for what it was doing already:
/// what it saved there is not its last.
void Core::State::tell_again(Attempt& a) {
  const CheckpointSpec& spec = a.commit.spec.checkpoint;
  const bool was_writing = a.row.phase == Phase::kNoticed && a.detected_began < a.noticed_at;
  if (!was_writing || !saves_when_told(spec) || is_told_by_word(spec)) return;
  a.row.is_signalled = false;
  a.is_dirty = true;
}

}  // namespace rn::agent
