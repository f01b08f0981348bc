// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace rn {

/// A name that cannot be mixed up with another kind of name. Empty means "none".
template <class Tag>
struct StrongId {
  std::string value;

  StrongId() = default;

  explicit StrongId(std::string text) : value(std::move(text)) {}

  bool empty() const { return value.empty(); }

  const std::string& str() const { return value; }

  friend auto operator<=>(const StrongId&, const StrongId&) = default;
  friend bool operator==(const StrongId&, const StrongId&) = default;
};

using JobId = StrongId<struct JobIdTag>;      ///< "j-" and 16 hex digits
using NodeId = StrongId<struct NodeIdTag>;    ///< "n-" and 16 hex digits, bound to the node's key
using LabId = StrongId<struct LabIdTag>;      ///< the lab's own short name
using UserId = StrongId<struct UserIdTag>;    ///< the user's login
using HoldId = StrongId<struct HoldIdTag>;    ///< made by the node that holds
using ProbeId = StrongId<struct ProbeIdTag>;  ///< made by the coordinator
using ReclaimId = StrongId<struct ReclaimIdTag>;  ///< made by the warden: "r-" and 16 hex digits
using TransferId = StrongId<struct TransferIdTag>;
using GangId = StrongId<struct GangIdTag>;  ///< "g-" and 16 hex digits

/// Fencing number of a lease: (generation of the coordinator's database, number of the attempt). It
/// only grows per job; every effect carries it, and a receiver refuses an effect whose epoch is not
/// the job's current one.
struct LeaseEpoch {
  std::uint32_t generation = 0;
  std::uint32_t attempt = 0;

  bool is_none() const { return generation == 0 && attempt == 0; }

  friend auto operator<=>(const LeaseEpoch&, const LeaseEpoch&) = default;
  friend bool operator==(const LeaseEpoch&, const LeaseEpoch&) = default;
};

/// "3.7"; parse_epoch reads it back, and answers a none epoch for anything else.
std::string to_string(LeaseEpoch epoch);
LeaseEpoch parse_epoch(const std::string& text);

}  // namespace rn

template <class Tag>
struct std::hash<rn::StrongId<Tag>> {
  std::size_t operator()(const rn::StrongId<Tag>& id) const noexcept {
    return std::hash<std::string>()(id.value);
  }
};
