// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/checkpoint.h"
#include "model/fields.h"
#include "model/gang.h"
#include "model/node.h"

namespace rn {

struct Resources {
  std::uint32_t gpus = 0;
  std::uint64_t gpu_memory_mib = 0;    ///< per GPU
  std::string compute_capability_min;  ///< "7.0"; empty = any
  std::uint32_t cpu_milli = 1000;      ///< wanted; a node may lend less down to cpu_milli_min
  std::uint32_t cpu_milli_min = 100;
  std::uint64_t memory_mib = 1024;
  std::uint64_t disk_mib = 2048;

  RN_FIELDS(
      Resources,
      gpus,
      gpu_memory_mib,
      compute_capability_min,
      cpu_milli,
      cpu_milli_min,
      memory_mib,
      disk_mib
  )
};

/// How the job saves. `auto` finds out by looking (SigCgt): who has a handler is signalled, who has
/// none gets nothing.
enum class SaveSignal : std::uint8_t { kAuto, kNone, kTerm, kUsr1, kUsr2 };
RN_ENUM(SaveSignal, "auto", "none", "term", "usr1", "usr2")

struct CheckpointSpec {
  bool is_stateless = false;       ///< simply requeued from the start
  std::vector<std::string> paths;  ///< globs of checkpoint files, relative; empty = the usual names
  std::vector<std::string> temporary;  ///< globs left out of every generation
  std::vector<std::string>
      outputs;  ///< globs brought home at the end; empty = everything that changed
  SaveSignal signal = SaveSignal::kAuto;
  std::string
      complete_marker;  ///< a file whose appearance says "complete"; empty = structural checks
  std::uint32_t quiet_ms = 3000;  ///< an in-place file must hold still for so long
  std::uint32_t copies = 1;       ///< durable copies beside the source, in other failure domains
  std::vector<std::string> destinations;  ///< nodes or labs where copies may live; empty = anywhere
  std::uint32_t min_interval_s = 0;       ///< take at most one generation in so long
  bool is_told = false;  ///< it saves on `signal` at any time and goes on: told when a save is due
  /// In the job's folder, relative; empty = none. It is told by this file in place of a signal:
  /// made when a save is due or the node must be left, deleted by the job when it has saved.
  std::string tell_file;
  /// Lines for `/bin/sh -ec`; empty = none. In place of a signal they are run in the guest, one run
  /// at a time, whenever it is told.
  std::string tell_hook;
  /// In place of a signal it asks for the word at /reclaim/api.sock, and says there when it has
  /// saved.
  bool tell_api = false;

  RN_FIELDS(
      CheckpointSpec,
      is_stateless,
      paths,
      temporary,
      outputs,
      signal,
      complete_marker,
      quiet_ms,
      copies,
      destinations,
      min_interval_s,
      is_told,
      tell_file,
      tell_hook,
      tell_api
  )
};

/// In place of a signal it is given a word that stands until it has saved: a file, a hook that
/// runs, an answer of the API.
inline bool is_told_by_word(const CheckpointSpec& spec) {
  return !spec.tell_file.empty() || !spec.tell_hook.empty() || spec.tell_api;
}

/// It saves whenever it is told to, and goes on.
inline bool saves_when_told(const CheckpointSpec& spec) {
  const bool has_signal = spec.signal != SaveSignal::kNone;
  return !spec.is_stateless && ((spec.is_told && has_signal) || is_told_by_word(spec));
}

/// What must have become of a job before one that names it may begin.
enum class AfterWhen : std::uint8_t {
  kOk,      ///< it has succeeded
  kFail,    ///< it has ended, and not succeeded
  kAny,     ///< it has ended
  kStarted  ///< it has begun to run, or ended
};
RN_ENUM(AfterWhen, "ok", "fail", "any", "started")

/// A job of the same user's that is waited for (ADR 0021).
struct AfterJob {
  std::string job;  ///< its id or number, or an array's id: all of its tasks
  AfterWhen when = AfterWhen::kOk;

  RN_FIELDS(AfterJob, job, when)
};

inline constexpr std::size_t kAfterMax = 64;  ///< jobs that one waits for

/// What a user submits. Every field may be left out.
struct JobSpec {
  std::string name;
  std::string image = "base";  ///< name or "sha256:…" of the allow list
  std::vector<std::string> command;
  std::map<std::string, std::string> env;
  std::string work_dir = "/work";  ///< the same absolute path on every node
  Resources resources;
  std::uint32_t priority = 4;  ///< 0 highest … 7
  CheckpointSpec checkpoint;
  Digest workspace{};  ///< SHA-256 of the workspace listing in the coordinator's blob store; zero =
                       ///< empty
  std::vector<std::string> data;     ///< data sets of the node's, seen as /data/NAME (data_sets.h)
  std::vector<NetworkAllow> peers;   ///< wanted; granted only where the contract opens them
  std::uint32_t max_duration_s = 0;  ///< 0 = none
  /// Stopped when it used nothing of its GPUs, without any: of its cores, for so long; 0 = as its
  /// user's or lab's quota says.
  std::uint32_t idle_stop_s = 0;
  std::uint32_t notice_s = 0;  ///< asked for; the owner's contract decides
  std::uint32_t orphan_limit_s = 1800;
  std::uint32_t max_restarts = 20;     ///< crashes, not displacements
  std::vector<std::string> only_labs;  ///< trust group; empty = any
  std::vector<AfterJob> after;         ///< it is not placed before all of this has happened

  RN_FIELDS(
      JobSpec,
      name,
      image,
      command,
      env,
      work_dir,
      resources,
      priority,
      checkpoint,
      workspace,
      data,
      peers,
      max_duration_s,
      idle_stop_s,
      notice_s,
      orphan_limit_s,
      max_restarts,
      only_labs,
      after
  )
};

/// One job's life: ARCHITECTURE.md.
enum class JobState : std::uint8_t {
  kQueued,
  kPlacing,
  kStarting,
  kRunning,
  kNoticed,
  kSaving,
  kDraining,
  kSucceeded,
  kFailed,
  kCancelled
};
RN_ENUM(
    JobState,
    "queued",
    "placing",
    "starting",
    "running",
    "noticed",
    "saving",
    "draining",
    "succeeded",
    "failed",
    "cancelled"
)

constexpr bool is_terminal(JobState s) {
  return s == JobState::kSucceeded || s == JobState::kFailed || s == JobState::kCancelled;
}

/// True if a job may go from one state to the other (I12). Repetition is legal.
bool may_follow(JobState from, JobState to);

/// Jobs of one submit that differ by their index; each of them is a task of the array.
struct ArrayTask {
  std::string array;  ///< "a-" and 16 hex digits
  std::uint32_t index = 0;
  std::uint32_t tasks = 0;         ///< of the whole array
  std::uint32_t at_most = 0;       ///< so many run at once; 0: no bound
  std::uint64_t first_number = 0;  ///< of the first task's job; as a number it names the array

  RN_FIELDS(ArrayTask, array, index, tasks, at_most, first_number)
};

inline constexpr std::size_t kArrayTasksMax = 1000;  ///< each is a job of its own

struct Job {
  JobId id;
  std::uint64_t number = 0;  ///< short alias for people and Slurm's habits
  UserId owner;
  LabId lab;
  JobSpec spec;
  JobState state = JobState::kQueued;
  LeaseEpoch epoch;  ///< of the newest attempt; none before the first
  NodeId node;       ///< of the newest attempt; empty while queued
  std::string image_digest;
  std::int64_t submitted_wall_ms = 0;
  std::int64_t started_wall_ms = 0;
  std::int64_t finished_wall_ms = 0;
  std::int32_t exit_code = 0;
  std::uint32_t restarts = 0;       ///< after crashes of its own
  std::uint32_t displacements = 0;  ///< after reclaims
  std::string reason;               ///< one sentence: why it is in this state
  GenerationRef durable;            ///< newest durable generation; generation 0 = none
  GenerationRef previous;           ///< the one before it
  bool is_degraded = false;         ///< only volatile nodes were left; said to the user
  Digest outputs{};                 ///< listing of published outputs in the blob store; zero = none
  std::optional<ArrayTask> array;   ///< none: a job of its own
  /// It uses next to nothing of its GPUs since then; 0 = it does use them, or nobody knows.
  std::int64_t idle_since_wall_ms = 0;
  std::optional<GangPlace> gang;  ///< none: it is placed, stopped and resumed by itself

  RN_FIELDS(
      Job,
      id,
      number,
      owner,
      lab,
      spec,
      state,
      epoch,
      node,
      image_digest,
      submitted_wall_ms,
      started_wall_ms,
      finished_wall_ms,
      exit_code,
      restarts,
      displacements,
      reason,
      durable,
      previous,
      is_degraded,
      outputs,
      array,
      idle_since_wall_ms,
      gang
  )
};

enum class AttemptState : std::uint8_t {
  kLeased,
  kFetching,
  kPreparing,
  kReady,  ///< of a gang's member alone: its disk is filled, and it waits for the others
  kStarting,
  kRunning,
  kNoticed,
  kSaving,
  kDraining,
  kEnded
};
RN_ENUM(
    AttemptState,
    "leased",
    "fetching",
    "preparing",
    "ready",
    "starting",
    "running",
    "noticed",
    "saving",
    "draining",
    "ended"
)

enum class AttemptEnd : std::uint8_t {
  kNone,
  kSucceeded,
  kCrashed,
  kReclaimed,
  kMigrated,
  kCancelled,
  kLost,
  kFenced,
  kRefused,
  kTimedOut,
  kHolderAway  ///< its generation could not be fetched: it gave its place back
};
RN_ENUM(
    AttemptEnd,
    "none",
    "succeeded",
    "crashed",
    "reclaimed",
    "migrated",
    "cancelled",
    "lost",
    "fenced",
    "refused",
    "timed_out",
    "holder_away"
)

struct Attempt {
  JobId job;
  LeaseEpoch epoch;
  NodeId node;
  AttemptState state = AttemptState::kLeased;
  AttemptEnd end = AttemptEnd::kNone;
  std::int64_t leased_wall_ms = 0;
  std::int64_t started_wall_ms = 0;
  std::int64_t ended_wall_ms = 0;
  std::int32_t exit_code = 0;
  std::string detail;
  std::uint32_t resumed_generation = 0;  ///< 0 = from the start
  std::string placed_because;            ///< the numbers of the choice
  std::uint64_t memory_peak_mib = 0;     ///< most that was seen now and then; 0 = not known
  std::uint64_t gpu_memory_peak_mib = 0;

  RN_FIELDS(
      Attempt,
      job,
      epoch,
      node,
      state,
      end,
      leased_wall_ms,
      started_wall_ms,
      ended_wall_ms,
      exit_code,
      detail,
      resumed_generation,
      placed_because,
      memory_peak_mib,
      gpu_memory_peak_mib
  )
};

/// A file of a submitted workspace or of published outputs; contents are blobs named by their
/// SHA-256.
struct ListedFile {
  std::string path;
  FileKind kind = FileKind::kRegular;
  std::uint32_t mode = 0644;
  std::uint64_t bytes = 0;
  std::string target;
  std::vector<Digest> blobs;  ///< contents in order

  RN_FIELDS(ListedFile, path, kind, mode, bytes, target, blobs)
};

/// Named by the SHA-256 of its CBOR.
struct Listing {
  std::vector<ListedFile> files;  ///< sorted by path

  RN_FIELDS(Listing, files)
};

/// An allow-listed image.
struct Image {
  std::string name;
  std::string digest;  ///< "sha256:…" of the archive that `docker load` or `import` takes
  std::uint64_t bytes = 0;
  std::string
      base;  ///< digest of the listed image that it is built on; empty = listed by an operator
  std::int64_t added_wall_ms = 0;
  UserId added_by;
  std::vector<Digest> blobs;  ///< the archive's pieces in order
  /// Of a saved image: SHA-256 of each layer's uncompressed tar, bottom first. Empty: the archive
  /// is a root file system.
  std::vector<Digest> layers;

  RN_FIELDS(Image, name, digest, bytes, base, added_wall_ms, added_by, blobs, layers)
};

}  // namespace rn
