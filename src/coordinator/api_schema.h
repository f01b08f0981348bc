// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace rn::coordinator {

/// components.schemas of the OpenAPI document: one per structure that a body can hold, made from
/// its field table.
nlohmann::json api_schemas();

}  // namespace rn::coordinator
