// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/api.h"

// What a shell completes with what the site has at the moment.
namespace rn::cli {

/// A word that may be typed, and what it is.
struct Completion {
  std::string word;
  std::string what;

  friend bool operator==(const Completion&, const Completion&) = default;
};

/// Those that begin so. Numbers where the prefix is digits, ids else. Of this, and of all below:
/// words that a shell could read as anything but a word are left out.
std::vector<Completion> completed_jobs(
    const api::JobList& list, const std::string& prefix, bool only_unfinished
);
/// Ids, and where `with_hosts` hostnames, too.
std::vector<Completion> completed_nodes(
    const api::NodeList& list, const std::string& prefix, bool with_hosts
);
std::vector<Completion> completed_labs(const api::NodeList& list, const std::string& prefix);
std::vector<Completion> completed_data(const api::NodeList& list, const std::string& prefix);
std::vector<Completion> completed_images(const api::ImageList& list, const std::string& prefix);

/// How long a person who has pressed Tab waits.
inline constexpr int kCompletionDeadlineMs = 300;

/// Asks the coordinator and prints one "WORD<tab>WHAT" a line for what begins so; nothing at any
/// error, and after kCompletionDeadlineMs, whatever blocks: the process then ends there. Kinds:
/// job, unfinished-job, job-path, node, node-id, image, data, lab. Answers 0.
int complete_live(const std::string& kind, const std::string& prefix);

}  // namespace rn::cli
