// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rates_scenario.h"

/// Policies that share links among transfers, as fluids, ours among them.
namespace rn::bench {

struct Running {
  const Job* job = nullptr;
  std::size_t index = 0;  ///< of the job in its scenario
  double left = 0;
};

/// Max-min fair rates (progressive filling) of at most `wanted` each, added to `rates`; what they
/// take is taken from `free`.
void share_fairly(
    const std::vector<Running>& running,
    const std::vector<double>& wanted,
    std::vector<double>& free,
    std::vector<double>& rates
);

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string name() const = 0;
  /// A rate for each of `running`, which are in order of arrival; `capacity` is what this policy
  /// believes of the links now.
  virtual std::vector<double> rates(
      double now_s, const std::vector<Running>& running, const std::vector<double>& capacity
  ) = 0;

  /// By job: was told that it arrives; was told later that it does not.
  std::vector<char> was_admitted;
  std::vector<char> was_revoked;
};

std::unique_ptr<Policy> fair_share();
std::unique_ptr<Policy> strict_priority();
/// After D³ (Wilson et al. 2011): in order of arrival each asks for left / time left, what remains
/// is shared fairly.
std::unique_ptr<Policy> first_come_first_served();
std::unique_ptr<Policy> edf_without_admission();
std::unique_ptr<Policy> deadline_rates(const Scenario& scenario);

}  // namespace rn::bench
