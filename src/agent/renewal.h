// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/time.h"
#include "io/pki.h"

namespace rn::agent {

/// The coordinator's certificates begin so long before they are issued, for clocks that are behind.
inline constexpr milliseconds kBackdating = std::chrono::hours(24);

/// When a node's certificate is to be renewed: once after a seventh of its life (a day of a week),
/// so that a coordinator may be away for the other six. Within a process the boot clock alone
/// counts, because a node's wall clock may be hours off: one that is ahead would find each new
/// certificate old already, and renew in a loop. Loop thread; no I/O.
class Renewal {
 public:
  /// How long it lives from its issue: not_before lies kBackdating before that.
  static nanoseconds life_of(const io::CertificateInfo& certificate);

  /// The certificate was on the disk: only the wall clock says how old it is.
  void loaded(const io::CertificateInfo& certificate, Now now);
  void renewed(const io::CertificateInfo& certificate, Now now);
  /// A try begins. Should it fail, the next one is due after a 168th of the life (an hour of a
  /// week).
  void tried(Now now);

  bool is_due(Now now) const { return now.boot >= due_; }

  /// Until it is due; not negative.
  nanoseconds wait(Now now) const { return is_due(now) ? nanoseconds(0) : due_ - now.boot; }

 private:
  nanoseconds life_{0};
  Instant due_;
};

}  // namespace rn::agent
