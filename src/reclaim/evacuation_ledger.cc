// SPDX-License-Identifier: Apache-2.0
#include "reclaim/evacuation_ledger.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/assert.h"

namespace rn::reclaim {

namespace {

constexpr double kNormal90 = 1.2815515655446004;  // the normal distribution's 90 % quantile
constexpr double kLeastChance = 1e-12;            // a chance of 0 would have no rate
constexpr double kByRule = 1e6;                   // by another rule anywhere is better than nowhere
constexpr double kWidest = 1e10;                  // bytes/s: what is wider counts as that

/// What cannot be counts as nothing.
double sane(double value) {
  return std::isnan(value) || value < 0 ? 0 : value;
}

double spread_of(const Bandwidth& b) {
  const double low = sane(b.q10);
  const double median = std::max(low, sane(b.median));
  return low > 0 ? std::log(median / low) / kNormal90 : 0;
}

/// Inverse of the normal distribution by bisection: used once per decision.
double normal_quantile(double p) {
  double low = -8;
  double high = 8;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// `quantile` of the normal distribution, for the chance that is wanted.
double rate_at(const Bandwidth& bandwidth, double quantile) {
  const double low = sane(bandwidth.q10);
  if (low == 0) return 0;
  const double median = std::max(low, bandwidth.median);
  const double spread = spread_of(bandwidth);
  return spread < 1e-9 ? median : median * std::exp(-quantile * spread);
}

/// Even between 0 and 1, the same for the same text (FNV-1a, mixed once more).
double drawn_from(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93ULL;
  return static_cast<double>((hash ^ (hash >> 32)) >> 11) * 0x1p-53;
}

/// Who is gone before is not lost with the group. Its hazard is taken as constant.
double chance_while_there(const EvacuationGroup& group, double stay_s) {
  const double chance = std::clamp(sane(group.reclaim_chance), 0.0, 1.0);
  if (!(stay_s < group.within_s)) return chance;
  return 1 - std::pow(1 - chance, stay_s / group.within_s);
}

bool fits(const Slots& needs, const Slots& free) {
  return free.guests >= std::max(needs.guests, 1U) && free.gpus >= needs.gpus &&
         free.cpu_milli >= needs.cpu_milli && free.memory_mib >= needs.memory_mib;
}

}  // namespace

double chance_of_rate(const Bandwidth& bandwidth, double wanted) {
  if (!(wanted > 0)) return 1;
  const double low = sane(bandwidth.q10);
  if (low == 0) return 0;
  const double spread = spread_of(bandwidth);
  const double median = std::max(low, bandwidth.median);
  if (spread < 1e-9) return median >= wanted ? 1 : 0;
  return 0.5 * std::erfc(-std::log(median / wanted) / spread / std::sqrt(2.0));
}

double rate_with_chance(const Bandwidth& bandwidth, double chance) {
  return rate_at(bandwidth, normal_quantile(chance));
}

double expected_stay_s(const StayCurve& curve, double from_s, double to_s) {
  return StayTable(curve).integral(from_s, to_s);
}

StayTable::StayTable(const StayCurve& curve) : leaves_in_s_(sane(curve.leaves_in_s)) {
  double begin = 0;
  double log_begin = 0;
  double until_here = 0;
  for (const StayCurve::Sample& sample : curve.samples) {
    if (!(sample.at_s > begin)) continue;
    const double log_end =
        std::min(log_begin, std::log(std::clamp(sane(sample.cautious), kLeastChance, 1.0)));
    const double length = sample.at_s - begin;
    const double rate = (log_begin - log_end) / length;
    pieces_.push_back({begin, log_begin, rate, until_here});
    until_here +=
        std::exp(log_begin) * (rate * length < 1e-9 ? length : -std::expm1(-rate * length) / rate);
    begin = sample.at_s;
    log_begin = log_end;
  }
  if (pieces_.empty()) pieces_.push_back({});
  // After the last sample the hazard goes on as it was before it.
}

const StayTable::Piece& StayTable::piece_at(double at_s) const {
  std::size_t i = pieces_.size() - 1;
  while (i > 0 && pieces_[i].begin_s > at_s) --i;
  return pieces_[i];
}

double StayTable::log_survival(double at_s) const {
  const Piece& piece = piece_at(at_s);
  return piece.log_begin - piece.rate * (at_s - piece.begin_s);
}

double StayTable::until(double at_s) const {
  const Piece& piece = piece_at(at_s);
  const double x = piece.rate * (at_s - piece.begin_s);
  const double part = x < 1e-9 ? at_s - piece.begin_s : -std::expm1(-x) / piece.rate;
  return piece.until_here + std::exp(piece.log_begin) * part;
}

double StayTable::integral(double from_s, double to_s) const {
  const double from = std::min(sane(from_s), leaves_in_s_);
  const double to = std::min(sane(to_s), leaves_in_s_);
  return to > from ? until(to) - until(from) : 0;
}

Ledger::Ledger(
    const EvacuationSite& site,
    const std::vector<EvacuatingJob>& jobs,
    const EvacuationPolicy& policy
)
    : site_(site), jobs_(jobs), policy_(policy) {
  std::map<std::size_t, std::vector<Links>> from_source;
  for (const EvacuatingJob& job : jobs) {
    RN_ASSERT(job.options.size() == site.nodes.size(), "one option per node");
    std::vector<Links>& paths = from_source[job.source];
    if (paths.empty()) {
      for (std::size_t n = 0; n < site.nodes.size(); ++n) paths.push_back(site.path(job.source, n));
    }
    paths_.push_back(paths);
  }
  for (const EvacuationNode& node : site.nodes) {
    stays_.emplace_back(node.stays);
    free_.push_back(node.free);
    room_.push_back(sane(node.room_bytes));
  }
  for (const EvacuationGroup& group : site.groups) group_jobs_.push_back(sane(group.jobs));
  const double quantile = normal_quantile(policy.chance_min);
  for (const Bandwidth& link : site.links)
    links_.push_back({.bandwidth = link, .sure_rate = rate_at(link, quantile), .booked = {}});
  granted_.resize(jobs.size());
  if (policy.trust < 1) blend_forecasts();
  find_holders();
}

/// A way is looked up once, however many jobs lie at its beginning.
void Ledger::find_holders() {
  std::map<std::size_t, std::vector<double>> rates;
  const auto rates_from = [&](std::size_t from) -> const std::vector<double>& {
    std::vector<double>& known = rates[from];
    for (std::size_t n = known.size(); n < site_.nodes.size(); ++n) {
      known.push_back(std::numeric_limits<double>::infinity());
      if (n == from) continue;
      for (const std::uint32_t l : site_.path(from, n))
        known[n] = std::min(known[n], sane(links_[l].bandwidth.q10));
    }
    return known;
  };
  fetches_.resize(jobs_.size());
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    if (!jobs_[j].is_stranded) continue;
    const std::vector<EvacuationOption>& options = jobs_[j].options;
    fetches_[j].resize(options.size());
    for (std::size_t from = 0; from < options.size(); ++from) {
      if (!options[from].has_parent) continue;
      const std::vector<double>& known = rates_from(from);
      for (std::size_t n = 0; n < options.size(); ++n) {
        const double bytes = n == from ? 0 : sane(options[n].bytes);
        const Fetch fetch{bytes > 0 ? bytes / known[n] : 0, known[n], from};
        Fetch& best = fetches_[j][n];
        // Whoever has it fetches from itself, also where nothing is missing elsewhere.
        if (!best.from || n == from || (best.from != n && fetch.takes_s < best.takes_s))
          best = fetch;
      }
    }
  }
}

/// Each curve is drawn towards the mean of all that take guests: geometric, so that hazards mix.
void Ledger::blend_forecasts() {
  const double trust = sane(policy_.trust);
  std::vector<double> times;
  for (const EvacuationNode& node : site_.nodes) {
    if (node.free.guests == 0 || node.stays.samples.empty()) continue;
    for (const auto& sample : node.stays.samples) times.push_back(sample.at_s);
    break;
  }
  std::vector<double> pool(times.size());
  std::size_t count = 0;
  for (std::size_t n = 0; n < site_.nodes.size(); ++n) {
    if (site_.nodes[n].free.guests == 0) continue;
    ++count;
    for (std::size_t i = 0; i < times.size(); ++i) pool[i] += stays_[n].log_survival(times[i]);
  }
  if (count == 0 || times.empty()) return;
  for (std::size_t n = 0; n < site_.nodes.size(); ++n) {
    StayCurve mixed{.samples = {}, .leaves_in_s = site_.nodes[n].stays.leaves_in_s};
    for (std::size_t i = 0; i < times.size(); ++i) {
      const double mean = pool[i] / static_cast<double>(count);
      const double log_s = trust * stays_[n].log_survival(times[i]) + (1 - trust) * mean;
      mixed.samples.push_back({times[i], std::exp(log_s)});
    }
    stays_[n] = StayTable(mixed);
  }
}

double Ledger::budget_s(const EvacuatingJob& job) const {
  const double notice = sane(job.notice_s);
  const double slack = std::max(3 * sane(job.rtt_s), policy_.slack_share * notice);
  return notice - slack - sane(job.save_s);
}

/// What is booked with a later deadline still arrives by it, with the chance that is asked for.
bool Ledger::delays_nobody(const LinkState& link, double due_s, double bytes) const {
  for (const Booking& late : link.booked) {
    if (late.due_s <= due_s) continue;
    double ahead = bytes;
    for (const Booking& other : link.booked) ahead += other.due_s <= late.due_s ? other.bytes : 0;
    if (ahead > link.sure_rate * late.due_s) return false;
  }
  return true;
}

double Ledger::ahead_on(const LinkState& link, double due_s, double bytes) {
  for (const Booking& booking : link.booked) bytes += booking.due_s <= due_s ? booking.bytes : 0;
  return bytes;
}

/// When the last byte is there; nullopt if that is too late for it, or makes another one late.
std::optional<double> Ledger::arrival_s(std::size_t j, std::size_t n) const {
  const EvacuatingJob& job = jobs_[j];
  const EvacuationOption& option = job.options[n];
  if (job.is_stranded) {
    const double takes_s = fetches_[j][n].takes_s;
    return takes_s < site_.nodes[n].stays.leaves_in_s ? std::optional(takes_s) : std::nullopt;
  }
  if (!option.can_store || room_[n] < sane(job.stored_bytes)) return std::nullopt;
  const double bytes = sane(option.bytes);
  const double budget = budget_s(job);
  if (!(budget > 0)) return std::nullopt;
  double longest_s = 0;
  for (const std::uint32_t l : paths_[j][n]) {
    const LinkState& link = links_[l];
    const double ahead = ahead_on(link, budget, bytes);
    // The same as chance_of_rate(ahead / budget) ≥ chance_min, and cheaper.
    if (ahead > link.sure_rate * budget || !delays_nobody(link, budget, bytes)) return std::nullopt;
    if (ahead > 0) longest_s = std::max(longest_s, ahead / sane(link.bandwidth.q10));
  }
  const double at_s = sane(job.save_s) + longest_s;
  return at_s < site_.nodes[n].stays.leaves_in_s ? std::optional(at_s) : std::nullopt;
}

CopyOffer Ledger::assess_copy(std::size_t j, std::size_t n) const {
  CopyOffer offer;
  const auto arrives_s = arrival_s(j, n);
  if (!arrives_s) return offer;
  offer = {
      .is_in_time = true,
      .arrives_s = *arrives_s,
      .chance = 1,
      .rate = std::numeric_limits<double>::infinity()};
  if (jobs_[j].is_stranded) {
    offer.rate = fetches_[j][n].rate;
    return offer;
  }
  const double budget = budget_s(jobs_[j]);
  for (const std::uint32_t l : paths_[j][n]) {
    const Bandwidth& bandwidth = links_[l].bandwidth;
    const double ahead = ahead_on(links_[l], budget, sane(jobs_[j].options[n].bytes));
    offer.rate = std::min(offer.rate, sane(bandwidth.q10));
    offer.chance = std::min(offer.chance, chance_of_rate(bandwidth, ahead / budget));
  }
  return offer;
}

RunOffer Ledger::assess_run(std::size_t j, std::size_t n, double start_s) const {
  RunOffer offer;
  const EvacuatingJob& job = jobs_[j];
  const EvacuationOption& option = job.options[n];
  if (!option.can_run || !fits(job.needs, free_[n]) || !std::isfinite(start_s)) return offer;
  offer.fits = true;
  offer.speed = sane(option.speed);
  if (job.cpu_wanted_milli > 0)
    offer.speed = std::min(
        offer.speed,
        static_cast<double>(granted_at(j, n)) / static_cast<double>(job.cpu_wanted_milli)
    );
  const double weight = sane(job.weight);
  offer.stay_s = stays_[n].integral(start_s, start_s + sane(job.remaining_s));
  for (const std::size_t g : site_.nodes[n].groups)
    offer.group_risk += group_jobs_[g] * chance_while_there(site_.groups[g], offer.stay_s);
  offer.utility =
      weight * (offer.speed * offer.stay_s - start_s) - policy_.group_risk_s * offer.group_risk;
  if (option.is_prepared) offer.utility += weight * sane(policy_.prepared_s);
  if (policy_.rule != DestinationRule::kUseful) offer.utility = kByRule + score_by_rule(j, n);
  return offer;
}

double Ledger::score_by_rule(std::size_t j, std::size_t n) const {
  switch (policy_.rule) {
    case DestinationRule::kUseful:
      return 0;
    case DestinationRule::kRandom:
      return drawn_from(
          jobs_[j].job.str() + "/" + site_.nodes[jobs_[j].source].node.str() + "/" +
          site_.nodes[n].node.str()
      );
    case DestinationRule::kMostFree:
      return free_[n].gpus + 1e-3 * free_[n].guests;
    case DestinationRule::kNearest:
      break;
  }
  double narrowest = kWidest;
  for (const std::uint32_t l : paths_[j][n])
    narrowest = std::min(narrowest, sane(links_[l].bandwidth.q10));
  return narrowest / kWidest - static_cast<double>(paths_[j][n].size());
}

std::optional<double> Ledger::assess(std::size_t j, std::size_t n) const {
  const EvacuatingJob& job = jobs_[j];
  if (!job.options[n].can_run || !fits(job.needs, free_[n])) return std::nullopt;
  const auto arrives_s = arrival_s(j, n);
  if (!arrives_s) return std::nullopt;
  const RunOffer run = assess_run(j, n, *arrives_s + sane(site_.nodes[n].restore_s));
  return run.fits ? std::optional(run.utility) : std::nullopt;
}

double Ledger::worth_of_nothing(std::size_t j) const {
  if (jobs_[j].is_stranded) return 0;
  return -sane(jobs_[j].weight) * (sane(jobs_[j].lost_s) + sane(jobs_[j].notice_s));
}

void Ledger::send(std::size_t j, std::size_t n) {
  if (jobs_[j].is_stranded) return;
  const double bytes = sane(jobs_[j].options[n].bytes);
  room_[n] -= sane(jobs_[j].stored_bytes);
  for (const std::uint32_t l : paths_[j][n])
    links_[l].booked.push_back({.job = j, .due_s = budget_s(jobs_[j]), .bytes = bytes});
}

void Ledger::unsend(std::size_t j, std::size_t n) {
  if (jobs_[j].is_stranded) return;
  room_[n] += sane(jobs_[j].stored_bytes);
  for (const std::uint32_t l : paths_[j][n])
    std::erase_if(links_[l].booked, [&](const Booking& booking) { return booking.job == j; });
}

std::uint32_t Ledger::granted_at(std::size_t j, std::size_t n) const {
  const EvacuatingJob& job = jobs_[j];
  if (job.cpu_wanted_milli == 0) return job.needs.cpu_milli;
  return std::max(job.needs.cpu_milli, std::min(job.cpu_wanted_milli, free_[n].cpu_milli));
}

void Ledger::place(std::size_t j, std::size_t n) {
  granted_[j] = granted_at(j, n);
  const Slots& needs = jobs_[j].needs;
  Slots& free = free_[n];
  free.guests -= std::max(needs.guests, 1U);
  free.gpus -= needs.gpus;
  free.cpu_milli -= granted_[j];
  free.memory_mib -= needs.memory_mib;
  for (const std::size_t g : site_.nodes[n].groups) group_jobs_[g] += 1;
}

void Ledger::unplace(std::size_t j, std::size_t n) {
  const Slots& needs = jobs_[j].needs;
  Slots& free = free_[n];
  free.guests += std::max(needs.guests, 1U);
  free.gpus += needs.gpus;
  free.cpu_milli += granted_[j];
  free.memory_mib += needs.memory_mib;
  for (const std::size_t g : site_.nodes[n].groups) group_jobs_[g] -= 1;
}

std::optional<double> value_of(
    Ledger ledger,
    const std::vector<EvacuatingJob>& jobs,
    const std::vector<std::optional<std::size_t>>& destinations
) {
  // The earliest deadline first: then nobody who is booked later makes another one wait.
  std::vector<std::size_t> order(jobs.size());
  for (std::size_t j = 0; j < order.size(); ++j) order[j] = j;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return jobs[a].notice_s < jobs[b].notice_s;
  });
  double total = 0;
  for (const std::size_t j : order) {
    if (!destinations[j]) {
      total += ledger.worth_of_nothing(j);
      continue;
    }
    const auto worth = ledger.assess(j, *destinations[j]);
    if (!worth) return std::nullopt;
    total += *worth;
    ledger.send(j, *destinations[j]);
    ledger.place(j, *destinations[j]);
  }
  return total;
}

double Ledger::fetch_s(std::size_t from, std::size_t to, double bytes) const {
  if (from == to || !(sane(bytes) > 0)) return 0;
  double rate = std::numeric_limits<double>::infinity();
  for (const std::uint32_t l : site_.path(from, to))
    rate = std::min(rate, sane(links_[l].bandwidth.q10));
  return rate > 0 ? bytes / rate : std::numeric_limits<double>::infinity();
}

}  // namespace rn::reclaim
