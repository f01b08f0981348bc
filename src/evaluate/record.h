// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/agenda.h"
#include "model/reclaim.h"

// What happened, row by row, and the figures that follow from it (DESIGN, "Definitions"). The rows
// are complete: docs/formats/evaluation-log.md says how to count everything again from them.
namespace rn::evaluate {

using JobNumber = std::size_t;  ///< by submission
using NodeNumber = std::size_t;
using RunNumber = std::uint64_t;  ///< one stay of a job on a node

/// Why a run ended.
enum class RunEnd : std::uint8_t {
  kFinished,   ///< all of its work is done
  kAnnounced,  ///< its owner had said when they come
  kNotice,
  kEmergency,
  kLost,   ///< the machine is gone
  kMoved,  ///< by its policy, nobody took the machine
};

std::string_view to_string(RunEnd end);
RunEnd run_end_of(ReclaimKind kind);

/// Of one kind of end, or of all that were taken back.
struct LossFigures {
  std::size_t displaced = 0;   ///< runs
  std::size_t resumed = 0;     ///< of these, whose job has run again
  double lost_gpu_s = 0;       ///< useful, and not in the state from which it resumed
  double downtime_s = 0;       ///< until the first new useful step, of those that got there
  std::size_t caught_up = 0;   ///< so many
  std::vector<double> losses;  ///< GPU-seconds, of each that resumed
  std::vector<double> downtimes;
};

struct Figures {
  std::map<std::string, LossFigures> by_end;
  LossFigures all;  ///< announced, notice, emergency and lost
  std::size_t reclaims = 0;
  std::size_t reclaims_with_guests = 0;
  std::size_t submitted = 0;
  std::size_t finished = 0;
  double lent_gpu_s = 0;
  double used_gpu_s = 0;      ///< of these, with a guest that has begun
  double useful_gpu_s = 0;    ///< steps done for the first time
  double redone_gpu_s = 0;    ///< steps done again
  double paused_gpu_s = 0;    ///< guests stood still to be saved
  double slowed_gpu_s = 0;    ///< guests were slower for it
  std::size_t overstays = 0;  ///< runs that were still there when the machine was its owner's
  double simulated_s = 0;
  double moved_bytes = 0;                ///< over lines
  std::size_t scheduled_departures = 0;  ///< runs that had a notice of more than nothing
  std::size_t clean_departures = 0;      ///< of these, that lost at most `kCleanLoss_s`
};

inline constexpr double kCleanLoss_s = 60;  ///< a migration that lost no more has succeeded

/// Counts. One per evaluation.
class Record {
 public:
  /// Rows go to `out`, one line each, without a line's end; none: nowhere. The first are the names
  /// of the columns.
  explicit Record(std::function<void(const std::string&)> out);

  void submitted(
      Moment at, JobNumber job, std::uint32_t gpus, double work_s, std::string_view kind
  );
  void lent(Moment at, NodeNumber node, std::uint32_t gpus);
  void declared(Moment at, NodeNumber node, ReclaimKind kind, Moment deadline);
  void taken(Moment at, NodeNumber node, ReclaimKind kind);
  /// `progress_s` is the work that its state holds.
  void started(Moment at, RunNumber run, JobNumber job, NodeNumber node, double progress_s);
  /// From here on it does so many seconds of work in a second: 0 while it is saved.
  void goes_at(Moment at, RunNumber run, double speed);
  /// Of a run on several nodes `node` is the one for which it ends; none: the one of its start.
  void ended(Moment at, RunNumber run, RunEnd end, std::optional<NodeNumber> node = std::nullopt);
  void overstayed(Moment at, RunNumber run);
  /// A transfer has ended; so much of it went over lines. Rows alone: nothing is counted here.
  void carried(Moment at, double bytes);
  /// The last row.
  void over(Moment at);

  double progress_s(Moment at, RunNumber run) const;
  /// What was counted, as if it ended now: open runs and lent nodes count up to here.
  Figures figures(Moment at) const;

 private:
  struct JobState {
    std::uint32_t gpus = 1;
    double work_s = 0;
    double reached_s = 0;  ///< the most work that any run of it had done
    // Of a run that was taken back, until the job has resumed (loss) and caught up (downtime).
    bool is_displaced = false;
    bool has_resumed = false;
    RunEnd end = RunEnd::kMoved;       ///< whose downtime it is
    RunEnd last_end = RunEnd::kMoved;  ///< of its newest run: whose loss it is
    double useful_until_s = 0;         ///< work
    double useful_from_s = 0;          ///< the part of that run that was new began here
    Moment last_useful{0};
    bool had_notice = false;
  };

  struct RunState {
    JobNumber job = 0;
    NodeNumber node = 0;
    double progress_s = 0;  ///< at `since`
    double speed = 0;
    Moment since{0};
    double new_from_s = 0;  ///< work beyond this was never done before
    Moment last_useful{0};  ///< it did something at this moment, or was started
  };

  struct NodeState {
    bool is_lent = false;
    std::uint32_t gpus = 0;
    Moment since{0};
    bool has_notice = false;
    std::size_t runs = 0;
  };

  /// Of one row; what is empty does not apply.
  struct Fields {
    std::string job = {};
    std::string run = {};
    std::string node = {};
    std::string gpus = {};
    std::string number = {};
    std::string_view note = {};
  };

  static Fields fields_of(const RunState& run, RunNumber number);
  void row(Moment at, std::string_view event, const Fields& fields);
  void advance(RunState& run, Moment at);
  void resume(JobState& job, double progress_s);
  void catch_up(JobState& job, Moment at);

  std::function<void(const std::string&)> out_;
  std::map<JobNumber, JobState> jobs_;
  std::map<RunNumber, RunState> runs_;
  std::map<NodeNumber, NodeState> nodes_;
  Figures figures_;
};

}  // namespace rn::evaluate
