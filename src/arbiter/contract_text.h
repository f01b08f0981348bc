// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/error.h"
#include "model/node.h"

// The contract as owners write it: YAML (or JSON) in which a field without a line has its default.
// Who reads a contract's file reads it here, on the machine and elsewhere.

namespace rn::arbiter {

/// Unknown fields, wrong types, contradictions and amounts that the machine does not have are
/// kInvalid with every problem named; facts as in problems_of. kExhausted above 256 KiB. Whether
/// the time zone exists is not looked at: that needs the zone database. Pure.
Result<Contract> read_contract(const std::string& text, const NodeFacts& facts);

/// YAML that read_contract reads.
std::string to_yaml(const Contract& contract);

}  // namespace rn::arbiter
