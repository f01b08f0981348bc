// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/fields.h"

// Which GPUs are sick, by what their driver tells. Pure.
namespace rn::agent {

/// What was seen of one GPU at a look.
struct GpuSigns {
  std::uint32_t index = 0;
  bool is_lost = false;           ///< fallen off the bus
  std::uint64_t uncorrected = 0;  ///< errors of its memory that ECC did not correct, since the
                                  ///< driver was loaded
  bool is_remap_failed = false;   ///< a broken row of its memory could not be replaced
  bool needs_reset = false;       ///< a broken page or row is replaced at its next reset
  bool is_slowed_by_heat = false;
  std::vector<std::uint32_t> xids;  ///< the driver's error numbers that are new since the last look
};

/// What is remembered of one GPU, also over a restart of the agent. Journalled.
struct GpuHealth {
  std::uint32_t index = 0;
  std::string uuid;                 ///< of whom it is remembered
  std::string boot_id;              ///< in which the numbers were seen
  std::vector<std::uint32_t> xids;  ///< that tell of the hardware; not accepted
  std::uint64_t accepted = 0;       ///< uncorrected errors that the owner has accepted
  bool is_remap_accepted = false;
  bool is_reset_accepted = false;

  RN_FIELDS(GpuHealth, index, uuid, boot_id, xids, accepted, is_remap_accepted, is_reset_accepted)
};

/// True for the driver's error numbers that tell of the GPU or of its link, and not of a program
/// that went wrong on it.
bool is_of_hardware(std::uint32_t xid);

/// Takes in what was seen. True if what is remembered has changed.
bool note_signs(GpuHealth& health, const GpuSigns& signs);
/// The owner has looked at it: what is seen now is no reason any more, until there is more of it.
/// What is lost stays lost.
void accept_signs(GpuHealth& health, const GpuSigns& signs);

/// Why nothing runs on the GPU, and what may help, in some words; empty: it is well. `is_hot`: it
/// has been slowed by heat for a while.
std::string sickness_of(const GpuHealth& health, const GpuSigns& signs, bool is_hot);

}  // namespace rn::agent
