// SPDX-License-Identifier: Apache-2.0
#include "reclaim/deadline_rates.h"

#include <algorithm>
#include <array>
#include <limits>

namespace rn::reclaim {

namespace {

constexpr milliseconds kLatencyCutPause{250};
constexpr milliseconds kEaseStep{100};
constexpr std::uint32_t kEasePermille = 10;  // per step: a tenth of the budget in a second
constexpr std::uint32_t kLeastPermille = 50;
constexpr std::size_t kSlackOneByOne =
    16;  // more incumbents that need their slack take it together
// A page more than is left: rates in whole bytes, and a last plan just before the due time, must
// not leave a byte over.
constexpr double kLastBytes = 4096;
constexpr double kUncapped = std::numeric_limits<double>::infinity();

/// What of an evacuation a flow stands for.
enum class Variant : std::uint8_t { kFull, kWithSlack, kDelta, kNearest };

constexpr std::size_t kVariants = 4;
constexpr std::uint32_t kNoFlow = ~std::uint32_t{0};

class RatePlanner {
 public:
  RatePlanner(
      const std::vector<LinkState>& links,
      const std::vector<DeadlineTransfer>& transfers,
      const RatePolicy& policy,
      const RateMemory& before,
      Instant now
  )
      : links_(links),
        transfers_(transfers),
        policy_(policy),
        before_(before),
        now_(now),
        sent_on_(links.size(), 0) {}

  RatePlan run() {
    plan_.grants.resize(transfers_.size());
    for (std::size_t i = 0; i < transfers_.size(); ++i) plan_.grants[i].id = transfers_[i].id;
    remember_links();
    ease_latency_guards();
    lay_budgets();
    make_flows();
    FluidPlay play(budgets_, flows_);
    choose(play);
    offer_less(play);
    grant_evacuations(play);
    grant_unpromised(play);
    grant_others(TransferClass::kCheckpoint);
    grant_others(TransferClass::kPrefetch);
    finish();
    return std::move(plan_);
  }

  RateMemory memory() { return std::move(memory_); }

 private:
  const RateMemory::Sent* sent_before(std::size_t transfer) const {
    const auto found = before_.transfers.find(transfers_[transfer].id);
    return found == before_.transfers.end() ? nullptr : &found->second;
  }

  bool was_admitted(std::size_t transfer) const {
    const RateMemory::Sent* sent = sent_before(transfer);
    return sent != nullptr && sent->is_admitted;
  }

  double last_due_s(const DeadlineTransfer& t) const {
    return seconds_between(now_, t.deadline) - t.restore_s;
  }

  double slack_s(const DeadlineTransfer& t) const {
    return std::max(
        policy_.slack_rtts * t.rtt_s, policy_.slack_share * seconds_between(t.begun, t.deadline)
    );
  }

  bool may_send(const DeadlineTransfer& t) const {
    return t.kind == TransferClass::kEvacuation && t.bytes_left > 0 && last_due_s(t) > 0;
  }

  void remember_links();
  void ease_latency_guards();
  void lay_budgets();
  void make_flows();
  void add_flow(std::size_t transfer, Variant variant, double due_s, double bytes, LinkPath path);
  FlowSet incumbents(FluidPlay& play) const;
  void choose(FluidPlay& play);
  void say_why_not(const FluidPlay& play, std::size_t transfer);
  void offer_less(FluidPlay& play);
  bool offers(FluidPlay& play, std::size_t transfer, Variant variant, const Alternative& other);
  void keep_locally(std::size_t transfer);
  void grant_evacuations(FluidPlay& play);
  void grant_unpromised(const FluidPlay& play);
  void grant_others(TransferClass kind);
  double left_on(const LinkPath& path) const;
  void grant(std::size_t transfer, double rate, double minimum);
  std::vector<std::size_t> in_turn(TransferClass kind) const;
  void finish();
  Instant next_time() const;

  const std::vector<LinkState>& links_;
  const std::vector<DeadlineTransfer>& transfers_;
  const RatePolicy& policy_;
  const RateMemory& before_;
  const Instant now_;
  RatePlan plan_;
  RateMemory memory_;

  std::vector<RateMemory::Link*> remembered_;  ///< by link, into memory_.links
  std::vector<BudgetCurve> budgets_;           ///< of evacuations, by link
  std::vector<Flow> flows_;
  std::vector<std::array<std::uint32_t, kVariants>> flow_of_;  ///< by transfer; kNoFlow: none
  FlowSet members_;                                            ///< flows that send
  std::vector<double> sent_on_;                                ///< rates granted so far, by link
};

void RatePlanner::remember_links() {
  for (const LinkState& link : links_) {
    const auto known = before_.links.find(link.name);
    const auto made = memory_.links.emplace(
        link.name, known == before_.links.end() ? RateMemory::Link{} : known->second
    );
    remembered_.push_back(&made.first->second);
  }
}

void RatePlanner::ease_latency_guards() {
  for (std::size_t l = 0; l < links_.size(); ++l) {
    const LinkState& link = links_[l];
    RateMemory::Link& known = *remembered_[l];
    const bool is_queued = link.probe_rtt_s > 0 && link.least_rtt_s > 0 &&
                           link.probe_rtt_s - link.least_rtt_s > policy_.latency_target_s;
    if (is_queued) {
      if (!known.cut_at || now_ - *known.cut_at >= kLatencyCutPause) {
        known.lower_permille = std::max(kLeastPermille, known.lower_permille / 2);
        known.cut_at = now_;
      }
      known.eased_at = now_;
    } else if (known.lower_permille < 1000) {
      const auto steps = std::clamp<std::int64_t>((now_ - known.eased_at) / kEaseStep, 0, 1000);
      known.eased_at += steps * kEaseStep;
      known.lower_permille += static_cast<std::uint32_t>(steps) * kEasePermille;
    }
    if (known.lower_permille < 1000) continue;
    known.lower_permille = 1000;
    known.eased_at = Instant{};
    known.cut_at.reset();
  }
}

/// An evacuation's larger share of a link lasts for its limit and comes back after as long a rest.
void RatePlanner::lay_budgets() {
  std::vector<bool> is_asked(links_.size(), false);
  for (const DeadlineTransfer& t : transfers_) {
    if (!may_send(t)) continue;
    for (const LinkIndex link : t.path) is_asked[link] = true;
    for (const auto* other : {&t.delta, &t.nearest}) {
      if (!other->has_value()) continue;
      for (const LinkIndex link : (*other)->path) is_asked[link] = true;
    }
  }
  for (std::size_t l = 0; l < links_.size(); ++l) {
    RateMemory::Link& known = *remembered_[l];
    if (known.share_since && now_ - known.evacuated_at >= links_[l].evacuation_limit)
      known.share_since.reset();
    const Instant since = known.share_since.value_or(now_);
    budgets_.push_back(
        evacuation_curve(links_[l], now_, is_asked[l] ? since + links_[l].evacuation_limit : now_)
    );
  }
}

void RatePlanner::add_flow(
    std::size_t transfer, Variant variant, double due_s, double bytes, LinkPath path
) {
  const double cap = transfers_[transfer].cap_bytes_per_s;
  flows_.push_back(
      {.bytes = bytes > 0 ? bytes + kLastBytes : 0,
       .due_s = std::max(0.0, due_s),
       .cap_bytes_per_s = cap > 0 ? cap : kUncapped,
       .path = std::move(path),
       .transfer =
           static_cast<std::uint32_t>(transfer * kVariants) + static_cast<std::uint32_t>(variant)}
  );
}

void RatePlanner::make_flows() {
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    const DeadlineTransfer& t = transfers_[i];
    if (!may_send(t)) continue;
    const double last_s = last_due_s(t);
    const double due_s = last_s - slack_s(t);
    const auto bytes = static_cast<double>(t.bytes_left);
    if (!t.destination_is_leaving) {
      add_flow(i, Variant::kFull, due_s, bytes, t.path);
      add_flow(i, Variant::kWithSlack, last_s, bytes, t.path);
      if (t.delta)
        add_flow(i, Variant::kDelta, due_s, static_cast<double>(t.delta->bytes), t.delta->path);
    }
    if (t.nearest)
      add_flow(i, Variant::kNearest, due_s, static_cast<double>(t.nearest->bytes), t.nearest->path);
  }
  std::sort(flows_.begin(), flows_.end(), [&](const Flow& a, const Flow& b) {
    if (a.due_s != b.due_s) return a.due_s < b.due_s;
    const TransferId& a_id = transfers_[a.transfer / kVariants].id;
    const TransferId& b_id = transfers_[b.transfer / kVariants].id;
    return a_id != b_id ? a_id < b_id : a.transfer < b.transfer;
  });
  flow_of_.assign(transfers_.size(), {kNoFlow, kNoFlow, kNoFlow, kNoFlow});
  for (std::uint32_t f = 0; f < flows_.size(); ++f)
    flow_of_[flows_[f].transfer / kVariants][flows_[f].transfer % kVariants] = f;
}

/// What was admitted before: with its slack to spare if it still can, else into the slack.
FlowSet RatePlanner::incumbents(FluidPlay& play) const {
  FlowSet set;
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    if (flow_of_[i][0] != kNoFlow && was_admitted(i)) set.push_back(flow_of_[i][0]);
  }
  std::sort(set.begin(), set.end());
  const auto use_slack = [&](std::uint32_t& flow) {
    const auto& variants = flow_of_[flows_[flow].transfer / kVariants];
    flow = variants[static_cast<std::size_t>(Variant::kWithSlack)];
  };
  for (std::size_t tries = 0; tries <= kSlackOneByOne; ++tries) {
    const auto late = play.first_late(set);
    if (!late) return set;
    const auto found = std::lower_bound(set.begin(), set.end(), *late);
    if (flows_[*late].transfer % kVariants != 0) return set;
    if (tries < kSlackOneByOne) {
      use_slack(*found);
    } else {
      for (std::uint32_t& flow : set)
        if (flows_[flow].transfer % kVariants == 0) use_slack(flow);
    }
    std::sort(set.begin(), set.end());
  }
  return set;
}

void RatePlanner::choose(FluidPlay& play) {
  const FlowSet known = incumbents(play);
  FlowSet candidates = known;
  std::vector<double> value(flows_.size(), 0);
  for (const std::uint32_t f : known)
    value[f] = transfers_[flows_[f].transfer / kVariants].value * policy_.keep_admitted;
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    const std::uint32_t full = flow_of_[i][0];
    if (full == kNoFlow || was_admitted(i)) continue;
    candidates.push_back(full);
    value[full] = transfers_[i].value;
  }
  std::sort(candidates.begin(), candidates.end());
  const Admission admission = admit(play, candidates, known, value, policy_.admission);
  members_ = admission.admitted;
  plan_.was_cut_short = admission.was_cut_short;

  for (const std::uint32_t f : members_) {
    TransferGrant& grant = plan_.grants[flows_[f].transfer / kVariants];
    grant.outcome = TransferOutcome::kSends;
    grant.window_s = flows_[f].due_s;
    grant.possible_bytes = play.most_bytes(f);
  }
}

void RatePlanner::say_why_not(const FluidPlay& play, std::size_t transfer) {
  const DeadlineTransfer& t = transfers_[transfer];
  TransferGrant& grant = plan_.grants[transfer];
  const auto& variants = flow_of_[transfer];
  const std::uint32_t flow = variants[static_cast<std::size_t>(
      was_admitted(transfer) ? Variant::kWithSlack : Variant::kFull
  )];
  grant.window_s = std::max(0.0, last_due_s(t) - slack_s(t));
  if (last_due_s(t) <= 0) {
    grant.reason = DropReason::kDeadlinePassed;
  } else if (flow == kNoFlow) {
    grant.reason = DropReason::kDestinationLeaving;
  } else {
    grant.window_s = flows_[flow].due_s;
    grant.possible_bytes = play.most_bytes(flow);
    grant.reason = grant.possible_bytes < 1 ? DropReason::kNoCapacity
                   : play.is_hopeless(flow) ? DropReason::kTooLarge
                                            : DropReason::kRivals;
  }
}

/// True if the alternative fits beside what sends already; it then sends too.
bool RatePlanner::offers(
    FluidPlay& play, std::size_t transfer, Variant variant, const Alternative& other
) {
  const std::uint32_t flow = flow_of_[transfer][static_cast<std::size_t>(variant)];
  if (flow == kNoFlow || play.is_hopeless(flow)) return false;
  FlowSet more = members_;
  more.insert(std::lower_bound(more.begin(), more.end(), flow), flow);
  if (play.first_late(more)) return false;
  members_ = std::move(more);
  TransferGrant& grant = plan_.grants[transfer];
  grant.outcome = variant == Variant::kDelta ? TransferOutcome::kDelta : TransferOutcome::kNearest;
  grant.bytes = other.bytes;
  grant.kept_value = other.value;
  return true;
}

void RatePlanner::keep_locally(std::size_t transfer) {
  const DeadlineTransfer& t = transfers_[transfer];
  TransferGrant& grant = plan_.grants[transfer];
  grant.outcome = TransferOutcome::kAccept;
  const double time_s = seconds_between(now_, t.deadline);
  if (!t.spill || time_s <= 0) return;
  if (static_cast<double>(t.spill->bytes) > t.spill->disk_bytes_per_s * time_s) return;
  grant.outcome = TransferOutcome::kSpill;
  grant.bytes = t.spill->bytes;
  grant.kept_value = t.spill->value;
}

void RatePlanner::offer_less(FluidPlay& play) {
  std::vector<std::size_t> dropped;
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    const DeadlineTransfer& t = transfers_[i];
    TransferGrant& grant = plan_.grants[i];
    if (t.kind != TransferClass::kEvacuation) continue;
    if (t.bytes_left == 0) {
      grant.outcome = TransferOutcome::kDone;
      grant.kept_value = t.value;
    } else if (grant.outcome == TransferOutcome::kSends) {
      grant.bytes = t.bytes_left;
      grant.kept_value = t.value;
    } else {
      dropped.push_back(i);
    }
  }
  std::sort(dropped.begin(), dropped.end(), [&](std::size_t a, std::size_t b) {
    if (transfers_[a].value != transfers_[b].value)
      return transfers_[a].value > transfers_[b].value;
    return transfers_[a].id < transfers_[b].id;
  });
  const std::uint64_t work_end = play.work() + policy_.admission.work / 2;
  for (const std::size_t i : dropped) {
    const DeadlineTransfer& t = transfers_[i];
    say_why_not(play, i);
    const bool has_time = play.work() < work_end;
    plan_.was_cut_short = plan_.was_cut_short || !has_time;
    const bool is_offered =
        has_time && ((t.delta && offers(play, i, Variant::kDelta, *t.delta)) ||
                     (t.nearest && offers(play, i, Variant::kNearest, *t.nearest)));
    if (!is_offered) keep_locally(i);
    plan_.grants[i].sentence = sentence_of(plan_.grants[i], t.bytes_left);
  }
}

/// Whole bytes per second, at most `rate`. A rate that rose by little stays where it was, as long
/// as the due time does not need more.
void RatePlanner::grant(std::size_t transfer, double rate, double minimum) {
  TransferGrant& grant = plan_.grants[transfer];
  grant.rate_bytes_per_s = static_cast<std::uint64_t>(rate);
  grant.minimum_bytes_per_s = static_cast<std::uint64_t>(minimum);
  const RateMemory::Sent* sent = sent_before(transfer);
  if (sent == nullptr || sent->rate_bytes_per_s == 0) return;
  const std::uint64_t last = sent->rate_bytes_per_s;
  if (last <= grant.rate_bytes_per_s && last >= grant.minimum_bytes_per_s &&
      static_cast<double>(last) >= rate * (1 - policy_.keep_rate))
    grant.rate_bytes_per_s = last;
}

void RatePlanner::grant_evacuations(FluidPlay& play) {
  const FluidPlay::Rates rates = play.rates_now(members_);
  for (const std::uint32_t f : members_) {
    grant(flows_[f].transfer / kVariants, rates.granted[f], rates.minimum[f]);
    for (const LinkIndex link : flows_[f].path) {
      sent_on_[link] += rates.granted[f];
      RateMemory::Link& known = *remembered_[link];
      if (!known.share_since) known.share_since = now_;
      known.evacuated_at = now_;
    }
  }
}

std::vector<std::size_t> RatePlanner::in_turn(TransferClass kind) const {
  std::vector<std::pair<double, std::size_t>> turns;
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    const DeadlineTransfer& t = transfers_[i];
    if (t.kind != kind || t.bytes_left == 0) continue;
    double urgency = t.value / static_cast<double>(t.bytes_left);
    if (kind == TransferClass::kCheckpoint) {
      const RateMemory::Sent* sent = sent_before(i);
      const bool has_link = sent != nullptr && sent->rate_bytes_per_s > 0;
      urgency = t.index * (has_link ? policy_.keep_index : 1);
    }
    turns.emplace_back(urgency, i);
  }
  std::sort(turns.begin(), turns.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first > b.first;
    return transfers_[a.second].id < transfers_[b.second].id;
  });
  std::vector<std::size_t> order;
  for (const auto& turn : turns) order.push_back(turn.second);
  return order;
}

/// Of the steady budgets, what is not given away yet; may be negative.
double RatePlanner::left_on(const LinkPath& path) const {
  double least = kUncapped;
  for (const LinkIndex link : path) {
    const double budget = steady_budget(links_[link], capacity_at(links_[link], now_));
    least = std::min(least, budget - sent_on_[link]);
  }
  return least;
}

/// What was dropped and nothing else goes for it, but could still arrive at the very last moment.
void RatePlanner::grant_unpromised(const FluidPlay& play) {
  std::vector<std::pair<double, std::size_t>> turns;
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    const TransferGrant& given = plan_.grants[i];
    const std::uint32_t last = flow_of_[i][static_cast<std::size_t>(Variant::kWithSlack)];
    const bool is_dropped =
        given.outcome == TransferOutcome::kSpill || given.outcome == TransferOutcome::kAccept;
    if (!is_dropped || last == kNoFlow || play.is_hopeless(last)) continue;
    turns.emplace_back(transfers_[i].value / static_cast<double>(transfers_[i].bytes_left), i);
  }
  std::sort(turns.begin(), turns.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first > b.first;
    return transfers_[a.second].id < transfers_[b.second].id;
  });
  for (const auto& turn : turns) {
    const DeadlineTransfer& t = transfers_[turn.second];
    const double cap = t.cap_bytes_per_s > 0 ? t.cap_bytes_per_s : kUncapped;
    const double rate = std::min(cap, left_on(t.path));
    if (rate < 1) continue;
    for (const LinkIndex link : t.path) sent_on_[link] += rate;
    grant(turn.second, rate, 0);
  }
}

void RatePlanner::grant_others(TransferClass kind) {
  for (const std::size_t i : in_turn(kind)) {
    const DeadlineTransfer& t = transfers_[i];
    double rate = t.cap_bytes_per_s > 0 ? t.cap_bytes_per_s : kUncapped;
    for (const LinkIndex link : t.path) {
      const double budget = steady_budget(links_[link], capacity_at(links_[link], now_)) *
                            remembered_[link]->lower_permille / 1000;
      rate = std::min(rate, budget - sent_on_[link]);
    }
    TransferGrant& given = plan_.grants[i];
    given.bytes = t.bytes_left;
    if (rate < 1) continue;  // kWaits
    for (const LinkIndex link : t.path) sent_on_[link] += rate;
    given.outcome = TransferOutcome::kSends;
    grant(i, rate, 0);
  }
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    if (transfers_[i].kind == kind && transfers_[i].bytes_left == 0)
      plan_.grants[i].outcome = TransferOutcome::kDone;
  }
}

Instant RatePlanner::next_time() const {
  double soon_s = std::chrono::duration<double>(policy_.period_most).count();
  for (const TransferGrant& grant : plan_.grants) {
    if (grant.rate_bytes_per_s > 0)
      soon_s = std::min(
          soon_s, static_cast<double>(grant.bytes) / static_cast<double>(grant.rate_bytes_per_s)
      );
  }
  for (const BudgetCurve& curve : budgets_) {
    if (curve.steps().size() > 1) soon_s = std::min(soon_s, curve.steps()[1].from_s);
  }
  const auto step = std::max<nanoseconds>(
      policy_.period_least, nanoseconds(static_cast<std::int64_t>(soon_s * 1e9))
  );
  return now_ + step;
}

void RatePlanner::finish() {
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    TransferGrant& grant = plan_.grants[i];
    const bool is_evacuation = transfers_[i].kind == TransferClass::kEvacuation;
    if (is_evacuation) {
      grant.lost_value = std::max(0.0, transfers_[i].value - grant.kept_value);
      plan_.kept_value += grant.kept_value;
      plan_.lost_value += grant.lost_value;
    }
    const bool is_admitted = is_evacuation && grant.outcome == TransferOutcome::kSends;
    if (is_admitted || grant.rate_bytes_per_s > 0)
      memory_.transfers[grant.id] = {grant.rate_bytes_per_s, is_admitted};
  }
  plan_.next_at = next_time();
}

}  // namespace

Result<RatePlan> plan_rates(
    const std::vector<LinkState>& links,
    const std::vector<DeadlineTransfer>& transfers,
    const RatePolicy& policy,
    RateMemory& memory,
    Instant now
) {
  RN_CHECK(check_rate_input(links, transfers));
  RatePlanner planner(links, transfers, policy, memory, now);
  RatePlan plan = planner.run();
  memory = planner.memory();
  return plan;
}

}  // namespace rn::reclaim
