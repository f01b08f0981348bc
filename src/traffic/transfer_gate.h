// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/error.h"

namespace rn::traffic {

/// The one gate of all transfers, by its pinned map: no program is loaded, so the emergency tool
/// has it with the warden dead. The calls are thread-safe.
class TransferGate {
 public:
  /// kNotFound when nothing is pinned in `folder` (the warden was not told to bound transfers),
  /// kDenied without the privilege, else kInternal.
  static Result<TransferGate> open_pinned(const std::string& folder);

  TransferGate(TransferGate&& other) noexcept;
  TransferGate& operator=(TransferGate&& other) noexcept;
  TransferGate(const TransferGate&) = delete;
  TransferGate& operator=(const TransferGate&) = delete;
  ~TransferGate();

  /// One system call: from its return on no packet of a transfer passes the hooks, in either
  /// direction. Idempotent, without allocating unless it fails. kInternal if the kernel refuses.
  Status cut();
  /// The opposite; a transfer's own gate still applies.
  Status uncut();
  Result<bool> is_open() const;

 private:
  explicit TransferGate(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace rn::traffic
