// SPDX-License-Identifier: Apache-2.0
#include "reclaim/evacuation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "reclaim/evacuation_ledger.h"
#include "reclaim/evacuation_search.h"

namespace rn::reclaim {

namespace {

constexpr double kLongestTold_s = 1e9;  // three decades: sums stay finite

/// What a search has found, with its numbers, and what is left for those that it found nothing for.
class Chooser {
 public:
  Chooser(
      const EvacuationSite& site,
      const std::vector<EvacuatingJob>& jobs,
      const EvacuationPolicy& policy
  )
      : site_(site),
        jobs_(jobs),
        ledger_(site, jobs, policy),
        at_(search_destinations(site, jobs, policy, ledger_)) {}

  std::vector<EvacuationChoice> choose() {
    std::vector<EvacuationChoice> choices(jobs_.size());
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (at_[j]) choices[j] = describe_direct(j);
    }
    for (const std::size_t j : left_over()) choices[j] = degrade(j);
    return choices;
  }

 private:
  /// Those that nothing was found for, the most valuable first.
  std::vector<std::size_t> left_over() const {
    std::vector<std::size_t> result;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (!at_[j]) result.push_back(j);
    }
    std::stable_sort(result.begin(), result.end(), [&](std::size_t a, std::size_t b) {
      return jobs_[a].weight > jobs_[b].weight;
    });
    return result;
  }

  EvacuationChoice describe_direct(std::size_t j);
  void describe_fetch(std::size_t j, EvacuationChoice& choice) const;
  EvacuationChoice degrade(std::size_t j);
  Where nearest(std::size_t j, EvacuationWay way) const;
  double fetched_after_s(std::size_t j, std::size_t n, Where holder) const;
  void choose_place(std::size_t j, double from_s, double lost_s, EvacuationChoice& choice);
  void put_in_words(std::size_t j, EvacuationChoice& c) const;
  std::string sentence_of(std::size_t j, const EvacuationChoice& c) const;
  std::string fetch_words(std::size_t j, const EvacuationChoice& c) const;
  std::string copy_words(std::size_t j, const EvacuationChoice& c) const;

  const EvacuationSite& site_;
  const std::vector<EvacuatingJob>& jobs_;
  Ledger ledger_;
  std::vector<Where> at_;
};

std::string printed(const char* pattern, double a, double b) {
  char text[96];
  std::snprintf(text, sizeof text, pattern, a, b);
  return text;
}

std::string transfer_words(const EvacuationChoice& c, double notice_s) {
  if (!std::isfinite(c.rate))
    return printed("%.0f MB arrive in %.1f s", c.bytes / 1e6, c.arrives_s) +
           printed(" of %.0f s of notice (chance %.2f)", notice_s, c.chance);
  return printed("%.0f MB at %.1f MB/s", c.bytes / 1e6, c.rate / 1e6) +
         printed(" arrive in %.1f s of %.0f s of notice", c.arrives_s, notice_s) +
         printed(" (chance %.2f)", c.chance, 0);
}

/// The numbers belong to the place that the job has: it is put back for a moment.
EvacuationChoice Chooser::describe_direct(std::size_t j) {
  const std::size_t n = *at_[j];
  ledger_.unsend(j, n);
  ledger_.unplace(j, n);
  EvacuationChoice c;
  const CopyOffer copy = ledger_.assess_copy(j, n);
  const double start_s = copy.arrives_s + std::max(0.0, site_.nodes[n].restore_s);
  const RunOffer run = ledger_.assess_run(j, n, start_s);
  const Preference others = preference_of(ledger_, j, site_.nodes.size(), n);
  ledger_.send(j, n);
  ledger_.place(j, n);
  c.way = EvacuationWay::kDestination;
  c.destination = c.holder = n;
  c.bytes = jobs_[j].options[n].bytes;
  c.rate = copy.rate;
  c.arrives_s = copy.arrives_s;
  c.chance = copy.chance;
  c.downtime_s = start_s;
  c.stay_s = run.stay_s;
  c.speed = run.speed;
  c.group_risk = run.group_risk;
  c.utility = run.utility;
  c.regret = run.utility - (others.best ? others.utility : ledger_.worth_of_nothing(j));
  c.runner_up = others.best;
  if (jobs_[j].is_stranded) describe_fetch(j, c);
  put_in_words(j, c);
  return c;
}

void Chooser::describe_fetch(std::size_t j, EvacuationChoice& c) const {
  const Fetch& fetch = ledger_.fetch_of(j, *c.destination);
  c.way = EvacuationWay::kLastDurable;
  c.holder = fetch.from;
  c.bytes = fetch.from == c.destination ? 0 : jobs_[j].options[*c.destination].bytes;
  c.rate = fetch.rate;
  c.arrives_s = fetch.takes_s;
  c.chance = 1;
}

Where Chooser::nearest(std::size_t j, EvacuationWay way) const {
  Where best;
  bool best_is_storage = false;
  double best_s = 0;
  for (std::size_t n = 0; n < site_.nodes.size(); ++n) {
    if (way == EvacuationWay::kDelta && !jobs_[j].options[n].has_parent) continue;
    const CopyOffer offer = ledger_.assess_copy(j, n);
    if (!offer.is_in_time) continue;
    // A machine that nobody takes back keeps a copy better than a near one.
    const bool is_storage = way == EvacuationWay::kStore && site_.nodes[n].is_storage;
    if (best && (best_is_storage != is_storage ? best_is_storage : best_s <= offer.arrives_s))
      continue;
    best = n;
    best_is_storage = is_storage;
    best_s = offer.arrives_s;
  }
  return best;
}

/// From where the newest state that is left lies, to `n`.
double Chooser::fetched_after_s(std::size_t j, std::size_t n, Where holder) const {
  const std::vector<EvacuationOption>& options = jobs_[j].options;
  if (jobs_[j].is_stranded) return ledger_.fetch_of(j, n).takes_s;
  if (holder) return ledger_.fetch_s(*holder, n, options[n].bytes);
  if (options[n].has_parent) return 0;
  double shortest = std::numeric_limits<double>::infinity();
  bool is_anywhere = false;
  for (std::size_t from = 0; from < options.size(); ++from) {
    if (!options[from].has_parent) continue;
    is_anywhere = true;
    shortest = std::min(shortest, ledger_.fetch_s(from, n, options[n].bytes));
  }
  return is_anywhere ? shortest : 0;  // it begins anew: nothing is fetched
}

void Chooser::choose_place(std::size_t j, double from_s, double lost_s, EvacuationChoice& c) {
  double second = 0;
  for (std::size_t n = 0; n < site_.nodes.size(); ++n) {
    if (!jobs_[j].options[n].can_run) continue;
    const double start_s =
        from_s + fetched_after_s(j, n, c.holder) + std::max(0.0, site_.nodes[n].restore_s);
    const RunOffer run = ledger_.assess_run(j, n, start_s);
    if (!run.fits) continue;
    const double utility = run.utility - jobs_[j].weight * lost_s;
    if (c.destination && utility <= c.utility) {
      if (!c.runner_up || utility > second) {
        second = utility;
        c.runner_up = n;
      }
      continue;
    }
    if (c.destination) {
      second = c.utility;
      c.runner_up = c.destination;
    }
    c.destination = n;
    c.downtime_s = start_s;
    c.stay_s = run.stay_s;
    c.speed = run.speed;
    c.group_risk = run.group_risk;
    c.utility = utility;
  }
  if (!c.destination) return;
  c.regret = c.runner_up ? c.utility - second : 0;
  ledger_.place(j, *c.destination);
}

EvacuationChoice Chooser::degrade(std::size_t j) {
  EvacuationChoice c;
  if (jobs_[j].is_stranded) {
    choose_place(j, 0, 0, c);
    if (c.destination) describe_fetch(j, c);
    put_in_words(j, c);
    return c;
  }
  for (const EvacuationWay way : {EvacuationWay::kDelta, EvacuationWay::kStore}) {
    c.holder = nearest(j, way);
    if (!c.holder) continue;
    c.way = way;
    break;
  }
  double from_s = jobs_[j].notice_s;
  if (c.holder) {
    const CopyOffer copy = ledger_.assess_copy(j, *c.holder);
    c.bytes = jobs_[j].options[*c.holder].bytes;
    c.rate = copy.rate;
    c.arrives_s = from_s = copy.arrives_s;
    c.chance = copy.chance;
    ledger_.send(j, *c.holder);
  }
  choose_place(j, from_s, c.holder ? 0 : jobs_[j].lost_s, c);
  put_in_words(j, c);
  return c;
}

/// What is durable, and where it comes from.
std::string Chooser::fetch_words(std::size_t j, const EvacuationChoice& c) const {
  if (!c.destination) return "it waits with what is durable";
  std::string text = "goes on at " + site_.nodes[*c.destination].name;
  if (!c.holder)
    return text + (jobs_[j].stored_bytes > 0
                       ? " once somebody who has what is durable can be reached"
                       : " from its beginning: nothing is durable");
  if (c.holder == c.destination) return text + ", where what is durable lies";
  text +=
      printed(", which fetches %.0f MB", c.bytes / 1e6, 0) + " from " + site_.nodes[*c.holder].name;
  if (!std::isfinite(c.rate)) return text;
  return text + printed(" at %.1f MB/s in %.1f s", c.rate / 1e6, c.arrives_s);
}

std::string Chooser::copy_words(std::size_t j, const EvacuationChoice& c) const {
  const EvacuatingJob& job = jobs_[j];
  if (c.way == EvacuationWay::kLastDurable)
    return printed("nobody is sure to get what it saves last within %.0f s", job.notice_s, 0) +
           "; if nobody does, the last durable generation counts, and " +
           printed("%.0f s of work are done again", job.lost_s, 0);
  const std::string& holder = site_.nodes[*c.holder].name;
  if (c.holder == job.source) return "it stays on " + holder + ", where what it saves last lies";
  const std::string transfer = holder + ": " + transfer_words(c, job.notice_s);
  if (!c.destination)
    return (c.way == EvacuationWay::kDelta ? "what is new then goes to "
                                           : "what it saves last is kept by ") +
           transfer;
  if (c.way == EvacuationWay::kDelta)
    return "no destination can be reached in time; what is new goes to " + transfer;
  if (c.way == EvacuationWay::kStore)
    return "no destination can be reached in time, nor a holder of its parent; it is kept by " +
           transfer;
  return "straight to " + transfer;
}

void Chooser::put_in_words(std::size_t j, EvacuationChoice& c) const {
  if (c.runner_up) c.next_best = site_.nodes[*c.runner_up].name;
  c.sentence = sentence_of(j, c);
}

std::string Chooser::sentence_of(std::size_t j, const EvacuationChoice& c) const {
  const EvacuatingJob& job = jobs_[j];
  std::string text = job.is_stranded ? fetch_words(j, c) : copy_words(j, c);
  if (!c.destination)
    return text + "; nobody can take it now" +
           (job.may_stay ? ": it may compute on there until its last save is due" : "");
  if (!job.is_stranded && c.holder != c.destination)
    text += "; goes on at " + site_.nodes[*c.destination].name;
  text += printed("; down %.0f s, stays %.1f h", c.downtime_s, c.stay_s / 3600) +
          printed(" of %.1f h at speed %.2f", job.remaining_s / 3600, c.speed) +
          printed(", group risk %.2f", c.group_risk, 0);
  if (c.next_best.empty()) return text + ", nothing else fits";
  return text + ", " + c.next_best + printed(" is worse by %.0f useful seconds", c.regret, 0);
}

double at_least_0(double value) {
  return std::isnan(value) || value < 0 ? 0 : value;
}

std::vector<EvacuatingJob> sane(std::vector<EvacuatingJob> jobs) {
  for (EvacuatingJob& job : jobs) {
    for (double* value :
         {&job.notice_s, &job.save_s, &job.rtt_s, &job.remaining_s, &job.weight, &job.lost_s})
      *value = std::min(at_least_0(*value), kLongestTold_s);
    job.stored_bytes = at_least_0(job.stored_bytes);
    for (EvacuationOption& option : job.options) {
      option.bytes = at_least_0(option.bytes);
      option.speed = at_least_0(option.speed);
    }
  }
  return jobs;
}

}  // namespace

std::vector<EvacuationChoice> choose_evacuation(
    const EvacuationSite& site,
    const std::vector<EvacuatingJob>& jobs,
    const EvacuationPolicy& policy
) {
  const std::vector<EvacuatingJob> clean = sane(jobs);
  return Chooser(site, clean, policy).choose();
}

std::optional<double> evacuation_value(
    const EvacuationSite& site,
    const std::vector<EvacuatingJob>& jobs,
    const std::vector<std::optional<std::size_t>>& destinations,
    const EvacuationPolicy& policy
) {
  return value_of(Ledger(site, jobs, policy), jobs, destinations);
}

std::string_view to_string(EvacuationWay way) {
  switch (way) {
    case EvacuationWay::kDestination:
      return "destination";
    case EvacuationWay::kDelta:
      return "delta";
    case EvacuationWay::kStore:
      return "store";
    case EvacuationWay::kLastDurable:
      return "last_durable";
  }
  return "";
}

void ForecastTrust::departed(std::span<const double> rates, std::size_t who) {
  if (rates.size() < 2 || who >= rates.size()) return;
  double sum = 0;
  for (const double rate : rates) {
    if (!(rate > 0) || !std::isfinite(rate)) return;
    sum += rate;
  }
  const double gain = std::log(static_cast<double>(rates.size()) * rates[who] / sum);
  score_ = std::clamp(score_ + gain, kLeast, kMost);
}

double ForecastTrust::trust() const {
  return std::clamp(score_ / kFirst, 0.0, 1.0);
}

}  // namespace rn::reclaim
