// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/fs.h"

/// The user ids of a lab's guests: 65,536 of them, which no other lab of the machine has. What a
/// lab has is written down in its own state, STATE/warden/guest-ids, and who has which of them in
/// one list of the machine, so that no two choose the same.
namespace rn::warden {

inline constexpr std::uint32_t kIdsPerLab = 65'536;
inline constexpr std::uint32_t kIdRanges = 4'096;

/// The first id of the range that a lab's name suggests: a multiple of 65,536 above a million. One
/// of 4096, so that two labs' may be the same. Pure.
std::uint32_t uid_base_of(const std::string& lab);

struct GuestIdPlaces {
  std::string list = "/var/lib/reclaimnet.guest-ids";
  std::string etc = "/etc";
  std::string proc = "/proc";
  std::string cgroups = "/sys/fs/cgroup";
};

/// Of whom the ids are: `state` is STATE/warden.
struct GuestIdsOwner {
  std::string lab;
  std::string state;
  bool has_guests = false;  ///< whose files and processes have the ids that it has now
};

struct GuestIds {
  std::uint32_t first = 0;
  bool is_new = false;  ///< chosen just now
  std::string
      shared_with;  ///< who else has ids of the range, in words; empty: nobody that is known
};

/// The first of the ids that were written down in `state`; none: nothing was, or it cannot be read.
std::optional<std::uint32_t> recorded_guest_ids(const std::string& state);

/// Answers the lab's ids, durably written down. It keeps those that it has (by its state; a lab
/// that served before there was a list has those of its name), unless another lab has them in the
/// list; with guests it keeps even these. Else it gets the first range from that of its name on
/// that no lab, no line of passwd, group, subuid or subgid, and no process uses. Labs that are gone
/// without a word lose theirs. kExhausted: no range is free; kUnavailable: somebody else is at the
/// list for ten seconds. Blocking.
Result<GuestIds> claim_guest_ids(
    FileSystem& fs, const GuestIdPlaces& places, const GuestIdsOwner& owner
);

/// Takes the line of `state` from the list, and the list away with the last one; false: it had
/// none. The file in `state` is the caller's to remove, before. Errors as above. Blocking.
Result<bool> release_guest_ids(
    FileSystem& fs, const GuestIdPlaces& places, const std::string& state
);

}  // namespace rn::warden
