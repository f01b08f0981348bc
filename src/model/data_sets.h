// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

// Folders of files that lie on nodes and that jobs name. Only the node's warden knows their paths.
namespace rn {

inline constexpr std::size_t kMaxDataSetsOfJob = 16;
inline constexpr std::size_t kMaxDataSetsOfNode = 256;
/// Where a guest sees the data set NAME: /data/NAME, read-only.
inline constexpr const char* kDataFolder = "/data";

/// 1 to 64 letters, digits, '.', '_' and '-', and neither "." nor "..": one component of a path,
/// everywhere. Pure.
bool is_data_set_name(std::string_view name);

/// kInvalid, the message beginning with `field`, for a list with a name that is none, with one name
/// twice, or with more than `max`. Pure.
Status check_data_sets(
    const std::vector<std::string>& names, std::size_t max, const std::string& field
);

/// The first of `wanted` that `offered` lacks; empty if there is none. Pure.
std::string missing_data_set(
    const std::vector<std::string>& wanted, const std::vector<std::string>& offered
);

/// True for the data folder and for what lies below it: a work folder there would be hidden by data
/// sets, or hide them. Pure.
bool is_in_data_folder(std::string_view path);

}  // namespace rn
