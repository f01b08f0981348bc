// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace rn {

/// A value where another kind belongs, for an error: "a list", "nothing", "the number 7", "true".
/// Of a string at most 40 bytes are shown.
std::string what_is(const nlohmann::json& value);

}  // namespace rn
