// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli_client.h"
#include "cli_save_file.h"

#include "base/error.h"
#include "model/job.h"

namespace rn::cli {

/// Writes the listed files below `folder` (which is made): each beside its place, then renamed into
/// it. A path that leaves the folder, or goes through a symbolic link, is kDenied. What
/// cannot be written is named in the error at the end, and the others are there. `prefix`: only
/// this file or what is in this folder, empty for all; kNotFound if nothing matches.
Status fetch_listing(
    const Client& client,
    const Listing& listing,
    const std::string& prefix,
    const std::string& folder
);

/// One file into `folder`, which is there.
Status fetch_file(
    const Client& client, const ListedFile& file, const std::string& folder, Replace replace
);

/// The complete logs of all attempts into FOLDER/.reclaim/JOB/attempt-N.log.
Status fetch_logs(const Client& client, const Job& job, const std::string& folder);

/// fetch_logs, and the published outputs if there are any.
Status bring_home(const Client& client, const Job& job, const std::string& folder);

}  // namespace rn::cli
