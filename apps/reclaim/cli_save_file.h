// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "base/fs.h"

namespace rn::cli {

/// What may be at a path where a file is to be written.
enum class Replace {
  kNothing,  ///< kConflict if there is anything
  kFile,     ///< a regular file, or a symbolic link (the link itself)
};

/// What stands in the way of a file at `path`: a folder, a device, a socket or a pipe is never
/// replaced. Errors have a next step.
Status check_may_write(FileSystem& fs, const std::string& path, Replace replace);

/// Where what becomes `path` is written first: beside it, with a name that fits whatever its own
/// is.
std::string fresh_name(const std::string& path);

/// Writes `path` by way of fresh_name(): nobody sees half a file, and what was there stays
/// until the new one is whole and synced. On error nothing is left of the new one. `fill` appends
/// the content.
Status save_file(
    FileSystem& fs,
    const std::string& path,
    std::uint32_t mode,
    Replace replace,
    const std::function<Status(File& out)>& fill
);

}  // namespace rn::cli
