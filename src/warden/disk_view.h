// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace rn::warden {

/// Whose files the agent sees as its own: `from` as the disk has them, `to` as they are seen.
struct OwnerMap {
  std::uint32_t from_uid = 0;
  std::uint32_t to_uid = 0;
  std::uint32_t from_gid = 0;
  std::uint32_t to_gid = 0;
};

/// Mounts what is mounted on `disk` a second time on `view` (an existing folder): read-only, and
/// with its files' owner mapped. So an unprivileged agent reads what a guest has written with mode
/// 0600, while the guest's own modes stay as they are and nobody else sees more than before. Every
/// other user's files appear as nobody's.
///
/// Blocking. kUnsupported: the kernel (before 5.12) or the file system has no mapped mounts.
/// Needs CAP_SYS_ADMIN.
Status mount_view(const std::string& disk, const std::string& view, const OwnerMap& owners);

}  // namespace rn::warden
