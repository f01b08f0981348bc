// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"
#include "model/job.h"

namespace rn {

/// What is wrong with what a submitter asks for, whatever the site has: kInvalid with the field's
/// path in the message. The command line asks it before it uploads anything, the coordinator before
/// it takes the job.
Status check_spec(const JobSpec& spec);

}  // namespace rn
