// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "warden/core_types.h"

namespace rn::warden {

/// Which GPUs the guest of each slot has (bit per index); read by the kill socket's thread.
using SlotGpus = std::array<std::atomic<std::uint64_t>, kSlots>;

/// The same for whoever cuts by hand before the journal is read (apps/reclaim-kill): the masks are
/// a file, eight bytes a slot in the machine's order. A slot's mask is there before its gate is
/// opened; what is there of a guest that has gone cuts nobody.
class SlotGpusFile {
 public:
  /// Beginning with none. `path`: below the run folder, root's. Where no file can be had, the masks
  /// are this process's alone, which is logged: then an order by hand for one GPU waits for the
  /// journal.
  explicit SlotGpusFile(const std::string& path);
  ~SlotGpusFile();
  SlotGpusFile(const SlotGpusFile&) = delete;
  SlotGpusFile& operator=(const SlotGpusFile&) = delete;

  SlotGpus& masks() { return *masks_; }

 private:
  std::unique_ptr<SlotGpus> own_;  ///< without a file
  SlotGpus* masks_ = nullptr;
};

}  // namespace rn::warden
