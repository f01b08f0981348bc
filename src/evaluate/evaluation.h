// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/production.h"
#include "evaluate/world.h"

// One evaluation: a setting by its name and seed, a policy by its name, and what came of it.
namespace rn::evaluate {

struct SettingOptions {
  CampusOptions campus;  ///< its days are those below; at most as many labs as nodes
  double days = 56;
  std::uint32_t users = 60;
  double jobs_a_day = 2.0;
  /// A mix of notices (find_notices), or "gpunion" for that paper's own setting, in which owners'
  /// calendars play no part.
  std::string notices = "mixed";
  std::vector<std::string> owners;  ///< LAB.csv.gz files; none: synthetic people
  bool ends_gaps = false;           ///< of the owners' files, else they are refused
  std::string jobs;                 ///< a file of recorded jobs; empty: synthetic users
  std::string spot;                 ///< a file of spot machines in place of owners
  double line_factor = 1;           ///< of what all lines carry
  double state_factor = 1;          ///< of the sizes of states
};

/// The same for the same options and seed. kInvalid and kNotFound as the readers of files say. May
/// read files.
Result<Setting> make_setting(const SettingOptions& options, std::uint64_t seed);

struct Outcome {
  std::string policy;
  std::uint64_t seed = 0;
  std::string notices;
  std::size_t nodes = 0;
  std::uint32_t gpus = 0;
  Figures figures;
  std::optional<Production::Counts> counts;  ///< of the product
  double wall_s = 0;
  std::uint64_t events = 0;
  double interval_s = 0;  ///< between saves, of policies that are called by it; else 0

  double simulated_h_per_wall_s() const;
};

/// Plays the setting by the policy of this name (policies.h). `rows` takes the raw log
/// (docs/formats/evaluation-log.md); none: it is not made.
Result<Outcome> evaluate(
    const SettingOptions& options,
    std::string_view policy,
    std::uint64_t seed,
    std::function<void(const std::string&)> rows = nullptr
);

/// Names of the columns of csv_row(), with their units.
std::string csv_header();
std::string csv_row(const Outcome& outcome);
/// One object, all on one line.
std::string to_json_line(const Outcome& outcome);
/// For people, some lines.
std::string words(const Outcome& outcome);

}  // namespace rn::evaluate
