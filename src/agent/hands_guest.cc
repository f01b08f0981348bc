// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/hands.h"
#include "agent/local_work.h"
#include "agent/stoppable_folder.h"
#include "base/log.h"
#include "checkpoint/glob.h"
#include "checkpoint/scan.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/step_name.h"
#include "checkpoint/unit_check.h"
#include "io/real_clock.h"

namespace rn::agent {

namespace {

constexpr seconds kNeighbourPatience{30};

struct Candidate {
  checkpoint::Unit unit;
  std::int64_t newest_ns = 0;
  std::string signature;
};

/// Also what it gave an old time: what has changed since the guest began was its doing. By the
/// node's wall clock.
bool is_changed_by_guest(const FileStat& stat, std::int64_t guest_since_ns) {
  return guest_since_ns != 0 && stat.changed_ns >= guest_since_ns;
}

std::int64_t changed_by_guest_ns(const FileStat& stat, std::int64_t guest_since_ns) {
  return is_changed_by_guest(stat, guest_since_ns) ? std::max(stat.mtime_ns, stat.changed_ns)
                                                   : stat.mtime_ns;
}

/// Checkpoint units below the work folder, newest first.
std::vector<Candidate> find_units(
    const checkpoint::Scan& scan, const checkpoint::WatchRules& rules, std::int64_t guest_since_ns
) {
  std::map<checkpoint::Unit, Candidate> units;
  for (const auto& [path, stat] : scan) {
    if (stat.kind != FileStat::Kind::kRegular) continue;
    const auto unit = checkpoint::unit_of(rules, path, false);
    if (!unit) continue;
    Candidate& candidate = units[*unit];
    candidate.unit = *unit;
    candidate.newest_ns = std::max(candidate.newest_ns, changed_by_guest_ns(stat, guest_since_ns));
    candidate.signature += path + ":" + std::to_string(stat.inode) + ":" +
                           std::to_string(stat.size) + ":" + std::to_string(stat.mtime_ns) + ":" +
                           std::to_string(stat.changed_ns) + ";";
  }
  std::vector<Candidate> out;
  for (auto& [unit, candidate] : units) out.push_back(std::move(candidate));
  std::sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) {
    return a.newest_ns != b.newest_ns ? a.newest_ns > b.newest_ns : a.unit < b.unit;
  });
  return out;
}

/// The guest has changed nothing, as far as is known. A folder also says that something went from
/// it. What lies beside a checkpoint counts: a script's real state may have a name of its own. And
/// so do the times that we gave the files: the clock may have been set back since.
bool is_as_laid_out(
    const checkpoint::Scan& scan,
    const checkpoint::SnapshotCache& known,
    const checkpoint::WatchRules& rules,
    std::int64_t guest_since_ns
) {
  if (guest_since_ns == 0) return false;
  return std::all_of(scan.begin(), scan.end(), [&](const auto& entry) {
    const FileStat& there = entry.second;
    if (checkpoint::matches_any(rules.temporary, entry.first)) return true;
    if (is_changed_by_guest(there, guest_since_ns)) return false;
    if (there.kind != FileStat::Kind::kRegular) return true;
    const auto* const file = known.find(entry.first);
    return file != nullptr && file->inode == there.inode && file->bytes == there.size &&
           file->mtime_ns == there.mtime_ns;
  });
}

std::string signature_of(const std::vector<Candidate>& units, const checkpoint::Unit& unit) {
  for (const Candidate& candidate : units) {
    if (candidate.unit == unit) return candidate.signature;
  }
  return {};
}

using checkpoint::Completeness;

/// The newest unit that is whole, once its writer has gone. None where another one, changed since
/// the newest generation, was cut off in the middle: a generation is the whole folder, and the one
/// before is worth more than one that does not belong together.
Result<std::optional<checkpoint::GenerationReady>> find_ready(
    Folder& folder,
    const std::vector<Candidate>& units,
    const checkpoint::WatchRules& rules,
    const TakeSnapshot& w
) {
  const bool is_own = w.parent.generation != 0 && w.parent.epoch == w.epoch;
  const std::int64_t known_ns = is_own ? w.parent.created_wall_ms * 1'000'000 : 0;
  std::optional<checkpoint::GenerationReady> ready;
  for (const Candidate& candidate : units) {
    const bool is_recent = w.torn_after_ns != 0 && candidate.newest_ns > w.torn_after_ns;
    const bool is_new = is_own ? candidate.newest_ns > known_ns : is_recent;
    if (ready && !is_new) break;  // and so are all after it
    RN_TRY(const auto verdict, checkpoint::check_unit(folder, candidate.unit, rules));
    const bool is_torn = verdict.completeness == Completeness::kIncomplete ||
                         (verdict.completeness == Completeness::kUnknownKind && is_recent);
    if (is_torn && w.is_final && is_new) {
      log::info("snapshot.torn", {{"unit", candidate.unit.path}, {"why", verdict.reason}});
      return std::optional<checkpoint::GenerationReady>();
    }
    if (!is_torn && !ready)
      ready = checkpoint::GenerationReady{candidate.unit, w.is_final, false, {}, {}, {}};
  }
  return ready;
}

/// kConflict while another unit, which is not whole, was written to just now: the one that is ready
/// waits for it, up to kNeighbourPatience.
Status check_neighbours(
    Folder& folder,
    const std::vector<Candidate>& units,
    const checkpoint::WatchRules& rules,
    const checkpoint::GenerationReady& ready,
    WallTime now
) {
  const std::int64_t just_now_ns = to_ms(now - rules.quiet) * 1'000'000;
  for (const Candidate& candidate : units) {
    if (candidate.newest_ns < just_now_ns) break;
    if (candidate.unit == ready.unit) continue;
    RN_TRY(const auto verdict, checkpoint::check_unit(folder, candidate.unit, rules));
    if (verdict.completeness == Completeness::kIncomplete)
      return fail(ErrorCode::kConflict, candidate.unit.path + " is being written beside it");
  }
  return {};
}

}  // namespace

std::string Hands::spool(const GuestName& guest) const {
  return join_path(deps_.guests.folder(guest), "log");
}

Result<WorkResult> Hands::snapshot(
    const GuestName& guest, const TakeSnapshot& w, const Cancelled& is_cancelled
) {
  const nanoseconds cpu_before = io::thread_cpu_time();
  const auto entry = deps_.guests.entry(guest);
  const std::lock_guard lock(entry->work);
  RN_CHECK(load_base(*entry, guest, w.workspace, is_cancelled));
  RN_TRY(const std::string work, readable_work(deps_.fs, w.disk));
  RN_TRY(const auto disk, deps_.fs.open_folder(work));
  StoppableFolder folder(*disk, is_cancelled);
  const checkpoint::WatchRules rules = watch_rules(w.spec);
  RN_TRY(const checkpoint::Scan scan, checkpoint::scan_folder(folder));
  const std::vector<Candidate> units = find_units(scan, rules, w.guest_since_ns);

  std::optional<checkpoint::GenerationReady> ready;
  {
    const std::lock_guard small(entry->mutex);
    ready = entry->ready;
  }
  if (w.is_final || !ready) {
    RN_TRY(ready, find_ready(folder, units, rules, w));
    // What was restored is a generation already.
    if (!ready || is_as_laid_out(scan, entry->cache, rules, w.guest_since_ns))
      return WorkResult(NothingNew{});
  } else if (!ready->is_declared && deps_.clock.now().boot - ready->changed_at < kNeighbourPatience) {
    RN_CHECK(check_neighbours(folder, units, rules, *ready, deps_.clock.now().wall));
  }
  const std::string signature = signature_of(units, ready->unit);
  if (!signature.empty() && signature == entry->taken) return WorkResult(NothingNew{});

  checkpoint::SnapshotRequest request;
  request.job = guest.job;
  request.epoch = w.epoch;
  request.generation = w.generation;
  request.parent = w.parent.manifest;
  request.step = checkpoint::step_of_save(ready->unit, ready->seen);
  request.unit = ready->unit;
  request.is_renamed = ready->is_renamed;
  request.seen = ready->seen;
  request.base = entry->base;
  request.temporary = temporary_globs(w.spec);
  request.guest_since_ns = w.guest_since_ns;
  request.lanes = w.lanes;
  const auto self = deps_.identity.get();
  request.signer = self->node;
  request.should_stop = [&is_cancelled] { return is_cancelled.load(); };
  request.offer = [&feed = entry->feed](const checkpoint::FreshChunk& chunk) { feed.offer(chunk); };
  RN_TRY(const crypto::Key256 key, open_job_key(self->box, guest.job, w.sealed_job_key));
  const checkpoint::JobKeys keys = checkpoint::derive_job_keys(key);
  const checkpoint::SnapshotDeps deps{
      folder, deps_.store, deps_.clock, deps_.rng, keys, self->signing};
  const auto made = checkpoint::take_snapshot(deps, request, entry->cache);
  const bool is_unstable = !made && made.error().code == ErrorCode::kUnavailable;
  if (is_unstable && !w.is_final && deps_.on_unstable) deps_.on_unstable(guest);
  if (!made) return fail(made.error());
  const checkpoint::Snapshot& taken = *made;
  entry->taken = signature;
  const nanoseconds cpu = io::thread_cpu_time() - cpu_before + taken.stats.aside_cpu;
  log::info(
      "snapshot.taken",
      {{"job", guest.job.str()},
       {"generation", w.generation},
       {"unit", ready->unit.path},
       {"read_bytes", taken.stats.read_bytes},
       {"new_bytes", taken.stats.new_bytes},
       {"cpu_ms", cpu / milliseconds(1)},
       {"elapsed_ms", taken.stats.elapsed_ms}}
  );
  return WorkResult(SnapshotTaken{taken.ref, cpu});
}

// ---- log

Result<WorkResult> Hands::read_log(const GuestName& guest, const ReadLog& w) {
  const std::string path = spool(guest);
  RN_CHECK(make_folders(deps_.fs, parent_folder(path), 0700));
  RN_TRY(
      LogRead read,
      agent::read_log(deps_.fs, path, w.disk.empty() ? "" : guest_view(deps_.fs, w.disk), w)
  );
  return WorkResult(std::move(read));
}

Result<WorkResult> Hands::forget(const GuestName& guest) {
  deps_.guests.forget(guest);
  return WorkResult(Done{});
}

}  // namespace rn::agent
