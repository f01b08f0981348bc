// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "model/checkpoint.h"
#include "sim/guest.h"
#include "sim/world.h"

namespace rn::sim {

/// Where the programs of a gang's members meet, as by collective calls: each says a word before its
/// step, and goes on when it has heard the word of the same turn from all. Words are not marked
/// with the step that they are of: who began from another one than the others computes on with
/// them, and wrongly. It stands for links (ADR 0027, section 6): a word goes from machine to
/// machine when the network lets it.
class GangFloor {
 public:
  struct Word {
    std::uint64_t chain = 0;
    bool wants_save = false;  ///< its guest was told to save
  };

  explicit GangFloor(World& world) : world_(world) {}

  /// The member's next word in this epoch, from `machine`.
  void say(const Training& member, LeaseEpoch epoch, const std::string& machine, const Word& word);
  /// What all have said in this turn (from 0), by rank; nothing while one word has not been said,
  /// or does not reach `machine` now.
  std::optional<std::vector<Word>> hear(
      const Training& member, LeaseEpoch epoch, const std::string& machine, std::size_t turn
  ) const;

 private:
  struct Seat {
    std::string machine;
    std::vector<Word> words;
  };

  World& world_;
  std::map<std::pair<std::string, LeaseEpoch>, std::map<std::uint32_t, Seat>> rooms_;
};

}  // namespace rn::sim
