// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace rn::traffic {

/// What a kernel may have or lack.
enum class KernelPiece : std::uint8_t {
  kApart,            ///< a network namespace, in which the others are asked for
  kFq,               ///< queues (qdiscs)
  kHtb,              ///< …
  kTbf,              ///< …
  kClsact,           ///< where filters hang
  kGuestProgram,     ///< the guests' cut, loaded and attached
  kTransferProgram,  ///< the transfers' edge, the same
  kPacedSocket,      ///< SO_MAX_PACING_RATE of more than 32 bits
};

inline constexpr std::size_t kKernelPieces = 8;
inline constexpr int kNotAnswered = 1;

/// By KernelPiece: 0, or the negative errno with which the kernel refused; kNotAnswered when it was
/// not asked, or did not answer in time.
struct KernelAnswers {
  std::array<int, kKernelPieces> all{};

  KernelAnswers() { all.fill(kNotAnswered); }

  int& operator[](KernelPiece piece) { return all[static_cast<std::size_t>(piece)]; }

  int operator[](KernelPiece piece) const { return all[static_cast<std::size_t>(piece)]; }
};

/// Asks by doing, in a process with a network namespace of its own, which is gone with its
/// interface, queues and programs when this returns: nothing of the machine's own is touched. A
/// kernel that loads modules on demand may load those of the queues. Blocks for `limit` at most;
/// what was answered until then counts. Needs root, and a process with one thread.
KernelAnswers ask_kernel(milliseconds limit = seconds(10));

}  // namespace rn::traffic
