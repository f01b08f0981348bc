// SPDX-License-Identifier: Apache-2.0
//
// Overwrites what the tenant before left in a GPU's memory (ADR 0018): takes all that is free, in
// pieces from 1 GiB down to 2 MiB, and gives none back before the process ends, for what is given
// back could be given out again, and the rest never seen. Each piece is filled with a word of its
// own, drawn for this run, and looked at after all are filled, then with zeros, and looked at
// again: a card that answers zeros to everything does not pass, nor one where two pieces are one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda_driver.h"

namespace rn {

struct Scrubbed {
  std::size_t overwritten_bytes = 0;
  std::size_t left_bytes = 0;  ///< that the driver still says are free: too little for a piece
  std::size_t all_bytes = 0;   ///< of the card, with what others and the driver hold
  std::size_t pieces = 0;
};

/// `seed`: drawn by the caller, not zero. False: why is in `problem`, and nothing may be lent that
/// must be clean. Blocks as the driver does.
bool scrub(CudaDriver& driver, std::uint32_t seed, Scrubbed& done, std::string& problem);

}  // namespace rn
