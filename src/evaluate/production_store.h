// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "evaluate/workload.h"
#include "model/checkpoint.h"

// What a node keeps of jobs' states: whole generations, and beginnings of some. Bytes are counted,
// not kept. Not for others.
namespace rn::evaluate {

class StateStore {
 public:
  void put(const GenerationRef& ref, double progress_s);
  bool has(const GenerationRef& ref) const;
  /// Bytes of this state that are not here: what differs from the nearest whole one, less what has
  /// come of it already.
  double missing(const GenerationRef& ref, double progress_s, const StateKind& kind) const;
  /// So many bytes of it have come, and no more for now.
  void keep_beginning(const GenerationRef& ref, double bytes);
  double beginning(const GenerationRef& ref) const;
  void drop_before(const JobId& job, std::uint32_t keep_from);
  void drop_one(const JobId& job, std::uint32_t generation);
  void drop_job(const JobId& job);
  std::vector<JobId> jobs() const;

 private:
  struct Held {
    Digest manifest{};
    double progress_s = 0;
  };

  struct Beginning {
    Digest manifest{};
    double bytes = 0;
  };

  struct OfJob {
    std::map<std::uint32_t, Held> generations;
    std::map<std::uint32_t, Beginning> beginnings;
  };

  std::map<JobId, OfJob> jobs_;
};

}  // namespace rn::evaluate
