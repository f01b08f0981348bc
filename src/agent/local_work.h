// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core_types.h"
#include "base/crypto.h"
#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/chunk_store.h"

// The parts of the agent's works that touch nothing but the node's own disk, and what is decided
// in them. The daemon's Hands and the simulator both do exactly this. Blocking.

namespace rn::agent {

/// CollectGarbage in the own store, and what broken transfers left there. Errors: the store's.
Status collect_garbage(checkpoint::ChunkStore& store, const CollectGarbage& work);

/// A whole line of a guest's output, with nothing before or after it but the line's end.
inline constexpr std::string_view kSavedLine = "::reclaimnet checkpoint-complete::";

/// Copies what is new in `source`'s file reclaim/log to the spool (made if it is missing; its
/// folder must exist), then reads the spool. `source` is the attempt's disk, or empty; one that is
/// gone is no error. A guest that says kSavedLine in what is new has declared all of its work
/// folder complete; of a log beyond the spool's bound nothing is heard.
Result<LogRead> read_log(
    FileSystem& fs, const std::string& spool, const std::string& source, const ReadLog& work
);

/// Removes the folders JOB-EPOCH below `folder` that no attempt of the journal needs: they are left
/// of attempts whose rows were deleted just before an earlier process died. A folder that is not
/// there has none. Errors: the disk's.
Status remove_strays(
    FileSystem& fs, const std::string& folder, const std::vector<JournalRow>& journal
);

/// The key of a job's data, which its coordinator sealed for this node. kCorrupt, and whatever
/// opening it answers.
Result<crypto::Key256> open_job_key(
    const crypto::BoxKey& box, const JobId& job, const Blob& sealed
);

/// Of another member's generation, what is laid beside a member's own: files and links of its
/// checkpoint (`patterns` as CheckpointSpec::paths) for which there is nothing in `folder`. What
/// would lie behind a link of that folder's counts as there, whatever lies behind it.
std::set<std::string> missing_of(
    FileSystem& fs,
    const std::string& folder,
    const std::vector<std::string>& patterns,
    const Manifest& manifest
);
/// The manifest with nothing but these files: restored, it adds them and removes nothing.
void leave_but(Manifest& manifest, const std::set<std::string>& paths);

/// What one holder answered when it was asked for a generation.
enum class HolderAnswer : std::uint8_t {
  kServed,  ///< it is here now
  kLacks,   ///< it was reached and does not have it whole: asking again is no use
  kNoWord,  ///< not reached, broke off, or refused for now
};

/// kLacks for the codes by which a peer says that it has not got it, kNoWord for all others.
HolderAnswer answer_of(ErrorCode code);

/// May an older generation be taken instead of the acknowledged one? Only if every holder was
/// reached and none has it: one that merely does not answer now may have it tomorrow (I7).
bool may_fall_back(const std::vector<HolderAnswer>& answers);

/// So often one generation is fetched and restored, where chunks of the own store turn out to be
/// damaged only then. A fetch that finds the manifest here reads every chunk: the second has
/// whatever the holders have.
inline constexpr int kRestoresMax = 3;

}  // namespace rn::agent
