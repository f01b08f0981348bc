// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "model/node.h"

namespace rn::arbiter {

/// Every way in which the contract is malformed, contradicts itself or asks for what the machine
/// does not have, one sentence each with the field's name in front; empty = a good contract. With
/// empty facts (hostname, cpu and memory zero) only the contract itself is judged. Pure. The zone's
/// name is checked for existence by the shell, which has the zone database.
std::vector<std::string> problems_of(const Contract& contract, const NodeFacts& facts);

/// kInvalid with all problems, or nothing.
Status check_contract(const Contract& contract, const NodeFacts& facts);

/// "10.0.0.0/8" or "fd00::/8": an address with a prefix length, or a lone address.
bool is_network_prefix(const std::string& text);

/// True if one of the contract's entries contains everything that `wanted` asks for: prefix, port
/// and protocol. Unreadable prefixes contain nothing.
bool is_opened(const NetworkAllow& wanted, const std::vector<NetworkAllow>& contract);

}  // namespace rn::arbiter
