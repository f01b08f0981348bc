// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "agent/core_state.h"
#include "base/log.h"

// Guests that save when they are told: by the signal that their job names, or by a file that they
// delete when they have saved. At a notice they are told in the same way.
namespace rn::agent {

namespace {

constexpr double kTellFirst_s = 30;  // of its life
constexpr std::uint32_t kTellDoublings = 7;
constexpr std::uint32_t kTellsTold = 3;  // in vain, before its author hears of it
/// Before it is looked whether a file that lay there at a notice is gone.
constexpr seconds kTellFileRest{1};

/// The way in which it is told, for people.
std::string way_of(const CheckpointSpec& spec) {
  return spec.tell_file.empty() ? std::string(to_string(spec.signal))
                                : "the file " + spec.tell_file;
}

std::string telling_advice(const CheckpointSpec& spec) {
  if (spec.tell_file.empty())
    return "let it save on " + way_of(spec) + " and go on, or submit it without `tell`";
  return "let it save when the file appears, delete the file and go on, or submit it without "
         "`tell_file`";
}

}  // namespace

/// By which it hears that a save is due, or, once it is noticed, until when it has to leave.
warden_wire::Request Core::State::save_request(const Attempt& a) const {
  const CheckpointSpec& spec = a.commit.spec.checkpoint;
  if (spec.tell_file.empty()) return warden_wire::SignalGuest{a.name, spec.signal};
  if (a.row.phase != Phase::kNoticed)
    return warden_wire::TellGuest{a.name, spec.tell_file, "a save is due", 0, 0};
  const warden_wire::WriteNotice why = notice(a.name, a.row.stop);
  return warden_wire::TellGuest{
      a.name, spec.tell_file, why.reason, why.deadline_wall_ms, why.grace_s};
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
  if (spec.tell_file.empty())
    s.told_at = now_.boot;  // of a file its answer says whether it was told
  s.tell_after = now_.boot + kTellRest * (1 << std::min(s.tells_unheard, kTellDoublings));
  if (++s.tells_unheard <= kTellsTold) return;
  a.save_trouble = "it was told " + std::to_string(s.tells_unheard - 1) + " times to save (" +
                   way_of(spec) + (s.is_tell_file_there ? ", which still lies there" : "") +
                   "), and saved nothing; next: " + telling_advice(spec);
}

void Core::State::on_told(Attempt& a, std::uint32_t count) {
  const CheckpointSpec& spec = a.commit.spec.checkpoint;
  if (!spec.tell_file.empty()) return on_told_by_file(a, count > 0);
  log::info("attempt.told_to_save", {{"job", a.name.job.str()}, {"processes", count}});
  if (count > 0) return;
  a.save_trouble = "no process of it catches " + way_of(spec) + ", on which it is said to save; " +
                   "next: install the handler, or submit it without `tell`";
}

/// While the file lies there it is told already.
void Core::State::on_told_by_file(Attempt& a, bool is_new) {
  SaveSchedule& s = a.schedule;
  s.is_tell_file_there = !is_new;
  if (is_new) {
    log::info("attempt.told_to_save", {{"job", a.name.job.str()}, {"by", "file"}});
    s.told_at = now_.boot;
    return;
  }
  const GenerationRow* const last = newest(a);
  const bool has_saved =
      s.told_at && last != nullptr && last->ref.snapshot_boot_ns > to_ns(*s.told_at);
  if (!has_saved) return;
  const std::string& file = a.commit.spec.checkpoint.tell_file;
  a.save_trouble = "the file " + file + " still lies there after it has saved, so that it is not " +
                   "told again; next: let it delete the file after each save";
}

void Core::State::on_not_told(Attempt& a, ErrorCode code, const warden_wire::Answer& answer) {
  const std::string& file = a.commit.spec.checkpoint.tell_file;
  const bool passes = is_retryable(code) && code != ErrorCode::kExhausted;
  if (file.empty() || passes || code == ErrorCode::kConflict) return;  // it has just ended
  a.save_trouble = "it cannot be told to save: " + readable(answer.message) +
                   "; next: let it make the folder in which " + file +
                   " is to lie and keep room on its disk, or name another file";
}

/// At a notice. A file that lies there from before says nothing of it: it is made anew as soon as
/// the guest has deleted that one.
void Core::State::on_told_to_leave(Attempt& a, std::uint32_t count) {
  const bool is_by_file = !a.commit.spec.checkpoint.tell_file.empty();
  if (is_by_file && count == 0) {
    a.ask_after[Ask::kSignal] = now_.boot + kTellFileRest;
    return;
  }
  a.row.signalled = count;
  a.row.is_signalled = true;
  a.is_dirty = true;
  log::info("attempt.signalled", {{"job", a.name.job.str()}, {"processes", count}});
}

}  // namespace rn::agent
