// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli_client.h"
#include "cli_save_file.h"

#include "base/error.h"
#include "base/time.h"
#include "model/job.h"

namespace rn::cli {

/// Files of the submitter's folder that somebody wrote while the job ran stay as they are; the
/// job's go into `aside`, a folder relative to that one, and standard error names both.
struct OwnFiles {
  WallTime since = WallTime::max();  ///< when the folder was read for the upload
  std::string aside;
};

/// Writes the listed files below `folder` (which is made): each beside its place, then renamed into
/// it. A path that leaves the folder, or goes through a symbolic link, is kDenied. What
/// cannot be written is named in the error at the end, and the others are there. `prefix`: only
/// this file or what is in this folder, empty for all; kNotFound if nothing matches.
/// Nothing is written below .git (any folder's) and .reclaim, whoever put it into the listing: what
/// lies there git runs, or is ours. `own`: whose files here are newer than the job, and kept.
Status fetch_listing(
    const Client& client,
    const Listing& listing,
    const std::string& prefix,
    const std::string& folder,
    const OwnFiles& own = {}
);

/// One file into `folder`, which is there.
Status fetch_file(
    const Client& client, const ListedFile& file, const std::string& folder, Replace replace
);

/// The complete logs of all attempts into FOLDER/.reclaim/JOB/attempt-N.log.
Status fetch_logs(const Client& client, const Job& job, const std::string& folder);

/// fetch_logs, and the published outputs if there are any. What was written here after `since`
/// stays, and the job's goes below FOLDER/.reclaim/JOB/outputs.
Status bring_home(const Client& client, const Job& job, const std::string& folder, WallTime since);

}  // namespace rn::cli
