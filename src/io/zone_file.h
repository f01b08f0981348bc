// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "base/time.h"

namespace rn::io {

inline constexpr const char* kZoneFolder = "/usr/share/zoneinfo";

/// Offset from UTC of a zone ("Europe/Berlin") at a time, from the system's zone files (TZif, RFC
/// 8536). Beyond the last transition of a file its last offset holds. kNotFound for a zone that is
/// not there, kCorrupt for a file that is none. "UTC" needs no file. Blocking.
Result<std::int32_t> utc_offset_s(
    FileSystem& fs, const std::string& zone, WallTime at, const std::string& zone_folder
);

}  // namespace rn::io
