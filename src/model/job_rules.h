// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/job.h"

namespace rn {

/// What is wrong with what a submitter asks for, whatever the site has: kInvalid with the field's
/// path in the message. The command line asks it before it uploads anything, the coordinator before
/// it takes the job.
Status check_spec(const JobSpec& spec);

/// What is wrong with an array's indices; as check_spec.
Status check_indices(const std::vector<std::uint32_t>& indices);

/// For a sentence: some 200 bytes of them, or "none yet".
std::string few_of(const std::vector<std::string_view>& names);

/// kDenied: the image that a job wants is not on the allow list, which has `listed`.
Error image_not_listed(std::string_view wanted, const std::vector<std::string_view>& listed);

}  // namespace rn
