// SPDX-License-Identifier: Apache-2.0
#include "sim/gang_floor.h"

namespace rn::sim {

void GangFloor::say(
    const Training& member, LeaseEpoch epoch, const std::string& machine, const Word& word
) {
  const std::pair room(member.gang, epoch);
  // Who is still in an older room is alone there, and gives up.
  std::erase_if(rooms_, [&](const auto& one) {
    return one.first.first == room.first && one.first.second < epoch;
  });
  Seat& seat = rooms_[room][member.rank];
  seat.machine = machine;
  seat.words.push_back(word);
}

std::optional<std::vector<GangFloor::Word>> GangFloor::hear(
    const Training& member, LeaseEpoch epoch, const std::string& machine, std::size_t turn
) const {
  const auto room = rooms_.find({member.gang, epoch});
  if (room == rooms_.end() || room->second.size() < member.size) return std::nullopt;
  std::vector<Word> out;
  for (const auto& [rank, seat] : room->second) {
    const bool is_heard =
        seat.machine == machine || (!world_.network().is_cut(seat.machine, machine) &&
                                    !world_.network().is_cut(machine, seat.machine));
    if (seat.words.size() <= turn || !is_heard) return std::nullopt;
    out.push_back(seat.words[turn]);
  }
  return out;
}

}  // namespace rn::sim
