// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fs.h"
#include "base/time.h"
#include "checkpoint/completeness.h"

// When is a generation complete? Pure: the shell feeds file events (inotify_watcher.h or scan.h),
// runs the structural checks that are due (unit_check.h), and takes a snapshot of each generation
// that is ready (snapshot.h).
//
//   on_event(...); ...; for (const auto& check : detector.due(now)) {
//     if (const auto ready = detector.on_checked(check, check_unit(...), now)) snapshot(*ready); }

namespace rn::checkpoint {

enum class FileEventKind : std::uint8_t {
  kMovedTo,     ///< a finished file (or folder) got its name: immutable from now on
  kCloseWrite,  ///< a writer closed it; it may be rewritten in place later
  kModified,    ///< bytes changed, or a scan found it new or different
  kDeleted,     ///< or renamed away
};

struct FileEvent {
  std::string path;  ///< relative to the work folder
  FileEventKind kind = FileEventKind::kModified;
  bool is_folder =
      false;  ///< the path itself is a folder (only kMovedTo and kDeleted matter for these)
};

/// Which files are checkpoints, and what belongs together.
struct WatchRules {
  std::vector<std::string>
      paths;  ///< globs of checkpoint files or folders; empty = usual_checkpoint_names()
  std::vector<std::string> temporary;  ///< globs that are never looked at
  std::string complete_marker;  ///< name of a file that says "complete"; empty = only ".complete"
  /// A file that is written in place, of a kind that no structural check knows, must hold still so
  /// long.
  milliseconds quiet{3000};
  /// After a close, a file whose structure says "complete" waits only so long: its end record is
  /// written last, and the snapshot takes it only if it holds still while it is read. Without this
  /// a job that saves in place more often than `quiet` would never have a generation.
  milliseconds quiet_after_close{200};
  /// A file that another one always follows waits for that one to begin, no longer than this:
  /// scripts save model and optimizer into files of their own, and one without the other is no
  /// state.
  milliseconds companion{20'000};
  /// A unit that has been changing for so long, without ever holding still, is told once.
  milliseconds restless{120'000};
};

const std::vector<std::string>& usual_checkpoint_names();

/// What a path belongs to: the file itself, or the folder that is saved as a whole
/// ("checkpoint-500/").
struct Unit {
  std::string path;  ///< empty: the whole work folder
  bool is_folder = false;

  friend auto operator<=>(const Unit&, const Unit&) = default;
};

/// nullopt if the path is no part of a checkpoint. A pattern that matches a folder above the path
/// makes that folder the unit (the topmost one that matches); a marker file makes its folder the
/// unit.
std::optional<Unit> unit_of(const WatchRules& rules, std::string_view path, bool is_folder);

/// What tells one state of a file from another: no write leaves all of these as they were.
struct FileState {
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t changed_ns = 0;

  friend bool operator==(const FileState&, const FileState&) = default;
};

inline FileState state_of(const FileStat& there) {
  return {there.inode, there.size, there.mtime_ns, there.changed_ns};
}

/// Regular files by path, each in the state in which the watch found it whole. Empty: nobody
/// looked.
using SeenFiles = std::map<std::string, FileState>;

/// True if the kernel says that one of them changed less than `quiet` (but a tenth of it, for
/// clocks that are slewed) before `now`: a long write is told by an event only when it ends. A
/// change in the future, of a clock that was set back, is none.
bool is_settling(const SeenFiles& seen, WallTime now, milliseconds quiet);

struct DueCheck {
  Unit unit;
  std::uint64_t sequence = 0;  ///< of the unit's last event: an answer for an older one is void
};

struct GenerationReady {
  Unit unit;
  bool is_renamed = false;   ///< renamed into place: an open handle on it cannot change
  bool is_declared = false;  ///< the job itself said so
  Instant changed_at{};      ///< of the last event
  Instant began_at{};        ///< of the first event since it was taken last
  SeenFiles seen;            ///< its files, and those of units of the same save that waited for it
};

/// A unit that will not be saved as it is, and why.
struct GivenUp {
  Unit unit;
  std::string reason;
  bool is_restless = false;  ///< it never held still, and is followed further
};

/// Bounded: at most kUnitsMax units are followed; the least recently changed one is forgotten first
/// (a scan finds it again).
class GenerationDetector {
 public:
  explicit GenerationDetector(WatchRules rules) : rules_(std::move(rules)) {}

  /// What lies there from an attempt before, with the time of its last change: units that were
  /// written one soon after the other, up to the newest one, are taken for the rounds of a job that
  /// saves into several files, until this attempt shows another rhythm. Before the first event.
  void expect(const std::vector<std::pair<std::string, WallTime>>& files);

  void on_event(const FileEvent& event, Instant now);
  /// The job said that what is there is complete (its output line).
  GenerationReady on_declared(Instant now);

  /// When due() will have something next; nullopt if nothing is pending.
  std::optional<Instant> next_check() const;
  /// Units whose structure should be looked at now. Each is handed out once until it is answered or
  /// changes.
  std::vector<DueCheck> due(Instant now);
  /// The answer to a due check; `seen`: the unit's files as they were before the structure was
  /// looked at. A verdict of kIncomplete is asked again later, less and less often
  /// (writers through a memory map cause no events), at most kRecheckMax times.
  std::optional<GenerationReady> on_checked(
      const DueCheck& check, const StructuralVerdict& verdict, Instant now, SeenFiles seen = {}
  );

  /// Units that, since the last call, stayed incomplete through all rechecks (each change of such a
  /// unit starts it anew), or that due() found changing for longer than `restless`.
  std::vector<GivenUp> take_given_up() { return std::exchange(given_up_, {}); }

  /// The unit is not, or did not stay, as it was seen: look again after the quiet period, also if
  /// no event tells of the change (a memory map, a new link).
  void on_unstable(const Unit& unit, Instant now);

  std::size_t pending() const { return pending_.size(); }

  static constexpr std::size_t kUnitsMax = 4096;
  static constexpr std::uint32_t kRecheckMax = 8;

 private:
  struct Pending {
    std::uint64_t sequence = 0;
    Instant first_at{};  ///< since when it changes without being taken
    Instant changed_at{};
    Instant due_at{};
    bool is_restless_told = false;
    bool is_renamed = false;
    bool is_marked = false;  ///< a marker file appeared
    bool is_asked = false;   ///< handed out by due()
    bool is_held = false;    ///< whole, and waits for the one that follows it
    std::uint32_t rechecks = 0;
    SeenFiles seen;  ///< as of the newest check
  };

  /// The rhythm of a job that saves into several files, learnt from what it did before.
  struct Followed {
    Unit by;              ///< the unit that was written next
    nanoseconds after{};  ///< from this one's last change to the other's first
  };

  void make_room();
  void learn(const Unit& unit, const Pending& pending);
  nanoseconds wait_for_companion(const Unit& unit) const;
  bool comes_after(const Unit& unit, const Unit& other) const;

  WatchRules rules_;
  std::map<Unit, Pending> pending_;
  std::map<Unit, Followed> followed_;  ///< as bounded as pending_
  std::optional<std::pair<Unit, Instant>> last_whole_;
  std::vector<GivenUp> given_up_;
  std::uint64_t next_sequence_ = 1;
};

}  // namespace rn::checkpoint
