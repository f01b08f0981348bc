// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "arbiter/contract_text.h"
#include "base/error.h"
#include "base/fs.h"
#include "io/zone_file.h"
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

/// kInvalid if the contract's time zone is not one of the machine's. Blocking.
Status check_zone(const Contract& contract, const std::string& zone_folder);

using arbiter::to_yaml;
using io::kZoneFolder;
using io::utc_offset_s;

}  // namespace rn::agent
