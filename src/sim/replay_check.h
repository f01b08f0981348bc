// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/bytes.h"
#include "coordinator/states.h"
#include "sim/memory_store.h"
#include "sim/world.h"

namespace rn::sim {

/// I12: the events, replayed, give the states that the tables have. After each transaction what it
/// touched is compared, from time to time everything, from the first event on, with the chain of
/// their hashes.
class ReplayCheck {
 public:
  explicit ReplayCheck(World& world) : world_(world) {}

  void on_write(const coordinator::Write& write);
  void on_committed();
  /// The database is an older one now.
  void on_restore(const MemoryStore& store);
  void check_all(const MemoryStore& store);

  std::uint64_t checks() const { return checks_; }

 private:
  void compare(const std::string& name);

  World& world_;
  coordinator::States tables_;
  coordinator::States events_;
  Digest head_{};  ///< of the chain
  std::set<std::string> touched_;
  std::uint64_t checks_ = 0;
};

}  // namespace rn::sim
