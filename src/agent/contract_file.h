// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "base/time.h"
#include "model/node.h"

namespace rn::agent {

/// The contract in a YAML (or JSON) text: unknown fields, wrong types, contradictions, amounts that
/// the machine does not have and unknown time zones are kInvalid with every problem named.
Result<Contract> parse_contract(
    const std::string& text, const NodeFacts& facts, const std::string& zone_folder
);

/// kNotFound if there is no file (then the default contract holds). Blocking.
Result<Contract> load_contract(
    FileSystem& fs, const std::string& path, const NodeFacts& facts, const std::string& zone_folder
);
/// Durably, as YAML that parse_contract reads. Blocking.
Status store_contract(FileSystem& fs, const std::string& path, const Contract& contract);
std::string to_yaml(const Contract& contract);

inline constexpr const char* kZoneFolder = "/usr/share/zoneinfo";

/// Offset from UTC of a zone ("Europe/Berlin") at a time, from the system's zone files (TZif, RFC
/// 8536). Beyond the last transition of a file its last offset holds. kNotFound for a zone that is
/// not there, kCorrupt for a file that is none. "UTC" needs no file. Blocking.
Result<std::int32_t> utc_offset_s(
    FileSystem& fs, const std::string& zone, WallTime at, const std::string& zone_folder
);

}  // namespace rn::agent
