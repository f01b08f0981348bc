// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

// Where copies of a job's checkpoints go. Pure.
namespace rn::reclaim {

inline constexpr double kCopyHorizon_s = 4 * 3600.0;  ///< for how long a copy should survive
inline constexpr double kDepartsWithin_s = 2 * 3600.0;
/// Below, where the job would go next makes no difference, and need not be asked.
inline constexpr double kDepartsSoon = 0.2;

/// The attempt whose generations are copied.
struct CopySource {
  NodeId node;
  LabId lab;
  std::string failure_domain;
  std::uint32_t wanted = 1;  ///< copies in domains that differ from the source's and each other's
  std::vector<std::string> destinations;  ///< nodes or labs where copies may live; empty = anywhere
  std::uint64_t bytes = 0;                ///< expected size of a generation; 0 = unknown
  double departs = 0;                     ///< chance that it is taken back within kDepartsWithin_s
};

struct CopyCandidate {
  NodeId node;
  LabId lab;
  std::string failure_domain;
  bool is_reachable = true;       ///< up, and takes connections from peers
  std::uint64_t room_bytes = 0;   ///< what its contract and its disk still admit
  double survival = 1;            ///< over kCopyHorizon_s, cautiously
  bool is_storage = false;        ///< lends no compute: its owner has no reason to cut it
  bool has_parent = false;        ///< holds the newest durable generation: only a delta moves
  bool has_data = false;          ///< the job could go on there: its data sets are there
  std::uint32_t copies_held = 0;  ///< attempts that already count on it
  bool is_next = false;           ///< the job would go on there if its node were taken back now
  double shares_switches = 0;  ///< 0 … 1: how much of the network it has in common with the source
};

struct ChosenCopy {
  std::size_t index = 0;  ///< into the candidates
  double score = 0;
};

/// How far a plan falls short, from best to worst. Every step is taken only if the one before
/// cannot give a single copy more.
enum class CopyQuality : std::uint8_t {
  kFull,         ///< `wanted` domains, none in the source's lab
  kSameLab,      ///< `wanted` domains, but some in the source's lab
  kFewerCopies,  ///< fewer domains than wanted
  kNone,         ///< no copy at all: generations stay safe, and never become durable
};

struct CopyChoice {
  std::vector<ChosenCopy> copies;  ///< the first `wanted` that answer are used; spares follow
  CopyQuality quality = CopyQuality::kNone;
  std::string shortfall;  ///< for the user; empty if kFull
};

/// Greedy: the best candidate first, each in a failure domain that is not taken yet; then up to
/// `spares` more. A candidate outside `destinations`, unreachable, full, or in the source's failure
/// domain is never taken.
///
///   score = survival + 0.5 [other lab] + 0.2 [storage] + 0.3 [has the parent] + 0.3 [has the
///   data] − 0.02 · copies held + 0.3 · departs [where it would go on] − 0.2 · shared switches
///
/// Other lab and storage are correlated-loss terms (θ·group_risk of the specification: a lab takes
/// its machines back together); the parent's term is the delta that need not move; the data's term
/// is the restore that need not move, and no more than that: a copy elsewhere is a copy still; the
/// next one spreads. A source that will soon be taken back has its copy where the job goes on, so
/// that little is left to move then; what hangs at the same switches is cut off together.
CopyChoice choose_copies(
    const CopySource& source, const std::vector<CopyCandidate>& candidates, std::size_t spares
);

}  // namespace rn::reclaim
