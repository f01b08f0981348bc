// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace rn {

/// People's files (job, contract, configuration) in YAML 1.2's JSON-like subset, as a document for
/// from_document(). Plain scalars become null, true/false, whole numbers, numbers or strings;
/// quoted ones are strings. An empty text is an empty object. kInvalid with line and column for bad
/// syntax, a key used twice, or a key that is no scalar; kExhausted above kMaxNesting levels or
/// 100,000 values (aliases count each time they are used).
Result<nlohmann::json> parse_yaml(std::string_view text);

}  // namespace rn
