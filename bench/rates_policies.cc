// SPDX-License-Identifier: Apache-2.0
#include "rates_policies.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/assert.h"

namespace rn::bench {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double free_on(const Job& job, const std::vector<double>& free) {
  double least = kInfinity;
  for (const reclaim::LinkIndex link : job.path) least = std::min(least, free[link]);
  return std::max(0.0, least);
}

/// As much as the path has, up to `wanted`.
void take(const Running& one, double wanted, std::vector<double>& free, double& rate) {
  const double more = std::min(wanted, free_on(*one.job, free));
  if (more <= 0) return;
  rate += more;
  for (const reclaim::LinkIndex link : one.job->path) free[link] -= more;
}

std::vector<double> of_kind(const std::vector<Running>& running, bool is_evacuation) {
  std::vector<double> wanted;
  for (const Running& one : running)
    wanted.push_back(one.job->is_evacuation() == is_evacuation ? kInfinity : 0);
  return wanted;
}

class FairShare final : public Policy {
 public:
  std::string name() const override { return "TCP fair share"; }

  std::vector<double> rates(
      double, const std::vector<Running>& running, const std::vector<double>& capacity
  ) override {
    std::vector<double> rates(running.size(), 0);
    std::vector<double> free = capacity;
    share_fairly(running, std::vector<double>(running.size(), kInfinity), free, rates);
    return rates;
  }
};

class StrictPriority final : public Policy {
 public:
  std::string name() const override { return "strict priority"; }

  std::vector<double> rates(
      double, const std::vector<Running>& running, const std::vector<double>& capacity
  ) override {
    std::vector<double> rates(running.size(), 0);
    std::vector<double> free = capacity;
    share_fairly(running, of_kind(running, true), free, rates);
    share_fairly(running, of_kind(running, false), free, rates);
    return rates;
  }
};

class FirstCome final : public Policy {
 public:
  std::string name() const override { return "D3-like FCFS"; }

  std::vector<double> rates(
      double now_s, const std::vector<Running>& running, const std::vector<double>& capacity
  ) override {
    std::vector<double> rates(running.size(), 0);
    std::vector<double> free = capacity;
    for (std::size_t i = 0; i < running.size(); ++i) {
      if (running[i].job->is_evacuation())
        take(running[i], running[i].left / (running[i].job->deadline_s - now_s), free, rates[i]);
    }
    share_fairly(running, std::vector<double>(running.size(), kInfinity), free, rates);
    return rates;
  }
};

class EarliestFirst final : public Policy {
 public:
  std::string name() const override { return "EDF, no admission"; }

  std::vector<double> rates(
      double, const std::vector<Running>& running, const std::vector<double>& capacity
  ) override {
    std::vector<std::size_t> order(running.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return running[a].job->deadline_s < running[b].job->deadline_s;
    });
    std::vector<double> rates(running.size(), 0);
    std::vector<double> free = capacity;
    for (const std::size_t i : order) take(running[i], kInfinity, free, rates[i]);
    return rates;
  }
};

class Ours final : public Policy {
 public:
  explicit Ours(const Scenario& scenario) : links_(scenario.forecast) {
    was_admitted.assign(scenario.jobs.size(), 0);
    was_revoked.assign(scenario.jobs.size(), 0);
  }

  std::string name() const override { return "deadline rates"; }

  std::vector<double>
  rates(double now_s, const std::vector<Running>& running, const std::vector<double>&) override {
    std::vector<reclaim::DeadlineTransfer> transfers;
    for (const Running& one : running) {
      reclaim::DeadlineTransfer transfer;
      transfer.id = TransferId("t-" + std::to_string(one.index));
      transfer.bytes_left = static_cast<std::uint64_t>(one.left + 0.999);
      transfer.path = one.job->path;
      transfer.value = one.job->value;
      transfer.rtt_s = 0.001;
      if (one.job->is_evacuation()) {
        transfer.begun = at_s(one.job->arrives_s);
        transfer.deadline = at_s(one.job->deadline_s);
      } else {
        transfer.kind = reclaim::TransferClass::kCheckpoint;
        transfer.index = 1 / one.left;
      }
      transfers.push_back(std::move(transfer));
    }
    const auto plan = reclaim::plan_rates(links_, transfers, policy_, memory_, at_s(now_s));
    RN_ASSERT(plan.has_value(), "a scenario's input is sound");
    std::vector<double> rates;
    for (std::size_t i = 0; i < running.size(); ++i) {
      const reclaim::TransferGrant& grant = plan->grants[i];
      rates.push_back(static_cast<double>(grant.rate_bytes_per_s));
      if (!running[i].job->is_evacuation()) continue;
      char& admitted = was_admitted[running[i].index];
      if (grant.outcome == reclaim::TransferOutcome::kSends)
        admitted = 1;
      else if (admitted != 0 && grant.reason == reclaim::DropReason::kRivals)
        was_revoked[running[i].index] = 1;
    }
    return rates;
  }

 private:
  std::vector<reclaim::LinkState> links_;
  reclaim::RatePolicy policy_;
  reclaim::RateMemory memory_;
};

}  // namespace

void share_fairly(
    const std::vector<Running>& running,
    const std::vector<double>& wanted,
    std::vector<double>& free,
    std::vector<double>& rates
) {
  std::vector<double> given(running.size(), 0);
  std::vector<char> is_open(running.size(), 0);
  for (std::size_t i = 0; i < running.size(); ++i) is_open[i] = wanted[i] > 0 ? 1 : 0;
  while (std::any_of(is_open.begin(), is_open.end(), [](char open) { return open != 0; })) {
    std::vector<double> users(free.size(), 0);
    double step = kInfinity;
    for (std::size_t i = 0; i < running.size(); ++i) {
      if (is_open[i] == 0) continue;
      step = std::min(step, wanted[i] - given[i]);
      for (const reclaim::LinkIndex link : running[i].job->path) ++users[link];
    }
    for (std::size_t l = 0; l < free.size(); ++l)
      if (users[l] > 0) step = std::min(step, std::max(0.0, free[l]) / users[l]);
    for (std::size_t i = 0; i < running.size(); ++i) {
      if (is_open[i] == 0) continue;
      given[i] += step;
      for (const reclaim::LinkIndex link : running[i].job->path) free[link] -= step;
    }
    for (std::size_t i = 0; i < running.size(); ++i) {
      if (is_open[i] != 0 &&
          (given[i] >= wanted[i] * (1 - 1e-12) || free_on(*running[i].job, free) <= 1e-3))
        is_open[i] = 0;
    }
  }
  for (std::size_t i = 0; i < running.size(); ++i) rates[i] += given[i];
}

std::unique_ptr<Policy> fair_share() {
  return std::make_unique<FairShare>();
}

std::unique_ptr<Policy> strict_priority() {
  return std::make_unique<StrictPriority>();
}

std::unique_ptr<Policy> first_come_first_served() {
  return std::make_unique<FirstCome>();
}

std::unique_ptr<Policy> edf_without_admission() {
  return std::make_unique<EarliestFirst>();
}

std::unique_ptr<Policy> deadline_rates(const Scenario& scenario) {
  return std::make_unique<Ours>(scenario);
}

}  // namespace rn::bench
