// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace rn::coordinator {

/// One JSON object of somebody else's; nullopt if it is none, nests deeper than 16, or says
/// something twice, which two readers might read differently.
std::optional<nlohmann::json> strict_object(std::string_view text);

/// A string member; empty if it is missing or something else.
std::string text_member(const nlohmann::json& object, const char* name);

}  // namespace rn::coordinator
