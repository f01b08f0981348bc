// SPDX-License-Identifier: Apache-2.0
#include "reclaim/deadline_rates.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/assert.h"

namespace rn::reclaim {

namespace {

constexpr double kRateInfinity = std::numeric_limits<double>::infinity();
constexpr double kFullEnough = 1 - 1e-9;  ///< of a transfer's bytes: rounding
constexpr double kLeastLatencyShare = 1.0 / 64;
constexpr double kLatencyRecovery_s = 16;   ///< from nothing to the whole
constexpr double kLatencyHistory_min = 10;  ///< as in RFC 6817, BASE_HISTORY

double at_least_zero(double number) {
  return number > 0 ? number : 0;
}

double bytes_of(const Transfer& transfer) {
  return std::isfinite(transfer.bytes) ? at_least_zero(transfer.bytes) : 0;
}

double value_of(const Transfer& transfer) {
  return std::isfinite(transfer.value) ? at_least_zero(transfer.value) : 0;
}

/// When what is due then has to be there for restores to have anything.
double careful_due_s(double now_s, double due_s) {
  return now_s + at_least_zero((due_s - now_s) * kRestoreCareShare - kRestoreCare_s);
}

using Booking = RatePlanner::Booking;
using Stretch = RatePlanner::Stretch;

bool has_deadline(const Transfer& transfer) {
  return transfer.kind == TransferClass::kEvacuation && std::isfinite(transfer.deadline_s);
}

/// The room on every link, in pieces of time between the moments at which anything changes.
class LinkCalendar {
 public:
  /// `cuts_s`: those moments; whatever is due or booked begins and ends at one of them.
  LinkCalendar(
      double now_s, std::vector<double> cuts_s, std::span<const Link> links, const LinkGuard& guard
  );

  void clear();

  /// So much of each link (bytes/s) is others' until then, from the next clear() on.
  void set_aside(std::vector<double> rates, double until_s) {
    aside_ = std::move(rates);
    aside_until_s_ = until_s;
  }

  /// Takes what is booked. False if a link has less room than that.
  bool keep(const Transfer& transfer, const Booking& booking);
  /// Takes the earliest room for `bytes` before `due_s`, and adds it to `stretches`. False, and
  /// nothing is taken, if there is too little.
  bool book(const Transfer& transfer, double due_s, double bytes, std::vector<Stretch>* stretches);

 private:
  double start_of(std::size_t piece) const { return piece == 0 ? now_s_ : ends_s_[piece - 1]; }

  double room_for(const Transfer& transfer, std::size_t piece) const;
  void take(const Transfer& transfer, std::size_t piece, double bytes);

  double now_s_;
  std::size_t links_;
  std::vector<double> ends_s_;  ///< of the pieces, ascending
  std::vector<double> room_;    ///< bytes, piece by piece, link by link
  std::vector<double> left_;
  std::vector<double> aside_;  ///< by link; empty: nothing
  double aside_until_s_ = 0;   ///< the end of a piece
  std::vector<double> taken_;  ///< by the transfer being booked, per piece
};

LinkCalendar::LinkCalendar(
    double now_s, std::vector<double> cuts_s, std::span<const Link> links, const LinkGuard& guard
)
    : now_s_(now_s), links_(links.size()) {
  std::sort(cuts_s.begin(), cuts_s.end());
  for (const double cut_s : cuts_s) {
    if (cut_s > (ends_s_.empty() ? now_s : ends_s_.back())) ends_s_.push_back(cut_s);
  }
  for (std::size_t piece = 0; piece < ends_s_.size(); ++piece) {
    for (const Link& link : links) {
      const bool is_burst = ends_s_[piece] <= now_s + link.burst_left_s;
      const double rate = is_burst ? burst_rate(link, guard) : guarded_rate(link, guard);
      room_.push_back(rate * (ends_s_[piece] - start_of(piece)));
    }
  }
  left_ = room_;
  taken_.resize(ends_s_.size());
}

void LinkCalendar::clear() {
  left_ = room_;
  if (aside_.empty()) return;
  for (std::size_t piece = 0; piece < ends_s_.size() && ends_s_[piece] <= aside_until_s_; ++piece) {
    for (std::size_t link = 0; link < links_; ++link) {
      double& left = left_[piece * links_ + link];
      left = at_least_zero(left - aside_[link] * (ends_s_[piece] - start_of(piece)));
    }
  }
}

double LinkCalendar::room_for(const Transfer& transfer, std::size_t piece) const {
  double room = at_least_zero(transfer.max_rate) * (ends_s_[piece] - start_of(piece));
  for (const std::uint32_t link : transfer.links)
    room = std::min(room, left_[piece * links_ + link]);
  return room;
}

void LinkCalendar::take(const Transfer& transfer, std::size_t piece, double bytes) {
  for (const std::uint32_t link : transfer.links) {
    double& left = left_[piece * links_ + link];
    left = at_least_zero(left - bytes);
  }
}

bool LinkCalendar::keep(const Transfer& transfer, const Booking& booking) {
  std::size_t piece = 0;
  for (const Stretch& stretch : booking.stretches) {
    for (; piece < ends_s_.size() && ends_s_[piece] <= stretch.to_s; ++piece) {
      if (start_of(piece) < stretch.from_s) continue;
      const double length_s = ends_s_[piece] - start_of(piece);
      const double bytes = stretch.rate * length_s;
      if (bytes * kFullEnough > room_for(transfer, piece) + length_s) return false;
      take(transfer, piece, bytes);
    }
  }
  return true;
}

bool LinkCalendar::book(
    const Transfer& transfer, double due_s, double bytes, std::vector<Stretch>* stretches
) {
  double missing = bytes;
  std::size_t pieces = 0;
  for (; pieces < ends_s_.size() && ends_s_[pieces] <= due_s && missing > 0; ++pieces) {
    taken_[pieces] = std::min(missing, room_for(transfer, pieces));
    missing -= taken_[pieces];
  }
  if (missing > bytes * (1 - kFullEnough)) return false;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    if (taken_[piece] <= 0) continue;
    take(transfer, piece, taken_[piece]);
    if (stretches == nullptr) continue;
    const double length_s = ends_s_[piece] - start_of(piece);
    stretches->push_back({start_of(piece), ends_s_[piece], taken_[piece] / length_s});
  }
  return true;
}

double booked_bytes(const Booking& booking) {
  double bytes = 0;
  for (const Stretch& one : booking.stretches) bytes += one.rate * (one.to_s - one.from_s);
  return bytes;
}

/// Without what is past, after its due time, or more than it still needs, the latest first.
void trim(Booking& booking, double now_s, double bytes) {
  auto& stretches = booking.stretches;
  for (Stretch& one : stretches) one.from_s = std::max(one.from_s, now_s);
  std::erase_if(stretches, [&](const Stretch& one) {
    return one.to_s <= one.from_s || one.to_s > booking.due_s;
  });
  double spare = booked_bytes(booking) - bytes;
  while (spare > 0 && !stretches.empty()) {
    Stretch& last = stretches.back();
    const double held = last.rate * (last.to_s - last.from_s);
    if (held > spare) last.rate -= spare / (last.to_s - last.from_s);
    if (held <= spare) stretches.pop_back();
    spare -= held;
  }
}

/// Looks for the most valuable set of evacuations that fits.
class AdmissionSearch {
 public:
  using Booked = std::map<std::uint64_t, Booking>;

  AdmissionSearch(
      std::span<const Transfer> transfers,
      double now_s,
      const Booked& booked,
      LinkCalendar& calendar,
      const std::vector<bool>& is_worth_it
  );

  /// Per transfer.
  std::vector<bool> best();
  /// The room of a set that fits.
  Booked book(const std::vector<bool>& is_in);
  /// The same beside what the calendar has set aside by now; nullopt where the set would not be
  /// there a while before it is due.
  std::optional<Booked> book_with_care(const std::vector<bool>& is_in);

 private:
  bool fits(const std::vector<bool>& is_in);
  bool fits_anew(const std::vector<bool>& is_in, Booked* booked);
  bool fits_beside(const std::vector<bool>& is_in, Booked* booked);

  bool is_promised(std::size_t i) const { return booked_.contains(transfers_[i].id); }

  double due_of(std::size_t i) const;
  double worth(std::size_t i) const;
  double worth_of(const std::vector<bool>& is_in) const;
  void consider(const std::vector<bool>& is_in);
  std::vector<bool> by_deadline();
  template <class Before>
  std::vector<bool> one_by_one(Before before);
  void fill(std::vector<bool>& is_in, const std::vector<std::size_t>& order);
  bool improve();
  bool improve_by(std::size_t wanted);

  std::span<const Transfer> transfers_;
  double now_s_;
  const Booked& booked_;
  LinkCalendar& calendar_;
  /// Evacuations with deadlines that are worth their room, the earliest first.
  std::vector<std::size_t> order_;
  double promise_worth_ = 1;  ///< added for a promise: more than all values
  bool is_careful_ = false;   ///< book_with_care()
  int trials_ = 0;
  std::vector<bool> best_;
  double best_worth_ = -1;
};

AdmissionSearch::AdmissionSearch(
    std::span<const Transfer> transfers,
    double now_s,
    const Booked& booked,
    LinkCalendar& calendar,
    const std::vector<bool>& is_worth_it
)
    : transfers_(transfers), now_s_(now_s), booked_(booked), calendar_(calendar) {
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (!has_deadline(transfers[i]) || !is_worth_it[i]) continue;
    order_.push_back(i);
    promise_worth_ += 2 * value_of(transfers[i]);
  }
  std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
    return due_of(a) < due_of(b);
  });
}

double AdmissionSearch::due_of(std::size_t i) const {
  const auto known = booked_.find(transfers_[i].id);
  return known == booked_.end() ? now_s_ + due_s(transfers_[i]) : known->second.due_s;
}

double AdmissionSearch::worth(std::size_t i) const {
  return value_of(transfers_[i]) + (is_promised(i) ? promise_worth_ : 0);
}

double AdmissionSearch::worth_of(const std::vector<bool>& is_in) const {
  double sum = 0;
  for (const std::size_t i : order_) sum += is_in[i] ? worth(i) : 0;
  return sum;
}

bool AdmissionSearch::fits_anew(const std::vector<bool>& is_in, Booked* booked) {
  calendar_.clear();
  return std::all_of(order_.begin(), order_.end(), [&](std::size_t i) {
    if (!is_in[i]) return true;
    Booking* const booking = booked == nullptr ? nullptr : &(*booked)[transfers_[i].id];
    if (booking != nullptr) booking->due_s = due_of(i);
    return calendar_.book(
        transfers_[i],
        is_careful_ ? careful_due_s(now_s_, due_of(i)) : due_of(i),
        bytes_of(transfers_[i]),
        booking == nullptr ? nullptr : &booking->stretches
    );
  });
}

bool AdmissionSearch::fits_beside(const std::vector<bool>& is_in, Booked* booked) {
  calendar_.clear();
  for (const std::size_t i : order_) {
    if (!is_promised(i) || !is_in[i]) continue;
    const Booking& kept = booked_.at(transfers_[i].id);
    if (!calendar_.keep(transfers_[i], kept)) return false;
    if (booked != nullptr) (*booked)[transfers_[i].id] = kept;
  }
  return std::all_of(order_.begin(), order_.end(), [&](std::size_t i) {
    if (!is_in[i]) return true;
    const double known = is_promised(i) ? booked_bytes(booked_.at(transfers_[i].id)) : 0;
    const double more = bytes_of(transfers_[i]) - known;
    Booking* const booking = booked == nullptr ? nullptr : &(*booked)[transfers_[i].id];
    if (booking != nullptr) booking->due_s = due_of(i);
    if (more <= bytes_of(transfers_[i]) * (1 - kFullEnough)) return true;
    return calendar_.book(
        transfers_[i], due_of(i), more, booking == nullptr ? nullptr : &booking->stretches
    );
  });
}

bool AdmissionSearch::fits(const std::vector<bool>& is_in) {
  ++trials_;
  return fits_anew(is_in, nullptr) || (!booked_.empty() && fits_beside(is_in, nullptr));
}

AdmissionSearch::Booked AdmissionSearch::book(const std::vector<bool>& is_in) {
  Booked booked;
  if (fits_anew(is_in, &booked)) return booked;
  booked.clear();
  const bool is_there = fits_beside(is_in, &booked);
  RN_ASSERT(is_there, "a set that fits has room");
  for (auto& [id, booking] : booked) {
    std::sort(booking.stretches.begin(), booking.stretches.end(), [](auto& a, auto& b) {
      return a.from_s < b.from_s;
    });
  }
  return booked;
}

std::optional<AdmissionSearch::Booked> AdmissionSearch::book_with_care(
    const std::vector<bool>& is_in
) {
  is_careful_ = true;
  const bool has_room = fits_anew(is_in, nullptr);
  is_careful_ = false;
  Booked booked;
  if (!has_room || !fits_anew(is_in, &booked)) return std::nullopt;
  return booked;
}

void AdmissionSearch::consider(const std::vector<bool>& is_in) {
  const double worth = worth_of(is_in);
  if (worth <= best_worth_) return;
  best_worth_ = worth;
  best_ = is_in;
}

/// Moore–Hodgson with values: in the order of deadlines; when one does not fit, the one of least
/// value per byte among those so far goes, until it does.
std::vector<bool> AdmissionSearch::by_deadline() {
  std::vector<bool> is_in(transfers_.size());
  std::vector<std::size_t> so_far;
  for (const std::size_t i : order_) {
    is_in[i] = true;
    so_far.push_back(i);
    while (!fits(is_in)) {
      const auto least = std::min_element(so_far.begin(), so_far.end(), [&](auto a, auto b) {
        return worth(a) * bytes_of(transfers_[b]) < worth(b) * bytes_of(transfers_[a]);
      });
      is_in[*least] = false;
      so_far.erase(least);
    }
  }
  return is_in;
}

void AdmissionSearch::fill(std::vector<bool>& is_in, const std::vector<std::size_t>& order) {
  for (const std::size_t i : order) {
    if (is_in[i]) continue;
    is_in[i] = true;
    if (!fits(is_in)) is_in[i] = false;
  }
}

template <class Before>
std::vector<bool> AdmissionSearch::one_by_one(Before before) {
  std::vector<std::size_t> order = order_;
  std::stable_sort(order.begin(), order.end(), before);
  std::vector<bool> is_in(transfers_.size());
  fill(is_in, order);
  return is_in;
}

/// Lets `wanted` in, and others out for it: each that is worth less, alone, and then, cheapest
/// first, as many as it takes.
bool AdmissionSearch::improve_by(std::size_t wanted) {
  std::vector<std::size_t> cheaper;
  for (const std::size_t i : order_) {
    if (best_[i] && worth(i) < worth(wanted)) cheaper.push_back(i);
  }
  std::stable_sort(cheaper.begin(), cheaper.end(), [&](auto a, auto b) {
    return worth(a) < worth(b);
  });
  std::vector<std::size_t> others;
  for (const std::size_t i : order_) {
    if (!best_[i] && i != wanted) others.push_back(i);
  }
  std::vector<bool> is_in = best_;
  is_in[wanted] = true;
  for (const std::size_t out : cheaper) {
    if (trials_ >= kAdmissionTrials) return false;
    is_in[out] = false;
    if (fits(is_in)) {
      fill(is_in, others);
      consider(is_in);
      return true;
    }
    is_in[out] = true;
  }
  double lost = 0;
  for (const std::size_t out : cheaper) {
    lost += worth(out);
    if (lost >= worth(wanted) || trials_ >= kAdmissionTrials) return false;
    is_in[out] = false;
    if (!fits(is_in)) continue;
    fill(is_in, others);
    consider(is_in);
    return true;
  }
  return false;
}

bool AdmissionSearch::improve() {
  std::vector<std::size_t> out;
  for (const std::size_t i : order_) {
    if (!best_[i]) out.push_back(i);
  }
  std::stable_sort(out.begin(), out.end(), [&](auto a, auto b) { return worth(a) > worth(b); });
  const double before = best_worth_;
  for (const std::size_t wanted : out) {
    if (improve_by(wanted) && best_worth_ > before) return true;
  }
  return false;
}

std::vector<bool> AdmissionSearch::best() {
  std::vector<bool> all(transfers_.size());
  for (const std::size_t i : order_) all[i] = true;
  if (fits(all)) return all;
  consider(by_deadline());
  consider(one_by_one([&](auto a, auto b) {
    return worth(a) * bytes_of(transfers_[b]) > worth(b) * bytes_of(transfers_[a]);
  }));
  consider(one_by_one([&](auto a, auto b) { return worth(a) > worth(b); }));
  while (trials_ < kAdmissionTrials && improve()) {
  }
  return best_;
}

/// What is left of the links while rates are given out.
class RateRoom {
 public:
  RateRoom(std::span<const Link> links, const LinkGuard& guard) : links_(links), guard_(guard) {
    used_.resize(links.size());
  }

  double burst_left(const Transfer& transfer) const {
    return left(transfer, [&](const Link& link) {
      return link.burst_left_s > 0 ? burst_rate(link, guard_) : guarded_rate(link, guard_);
    });
  }

  double guarded_left(const Transfer& transfer) const {
    return left(transfer, [&](const Link& link) { return guarded_rate(link, guard_); });
  }

  void use(const Transfer& transfer, double rate) {
    for (const std::uint32_t link : transfer.links) used_[link] += rate;
  }

 private:
  template <class RateOf>
  double left(const Transfer& transfer, RateOf rate_of) const {
    double rate = kRateInfinity;
    for (const std::uint32_t link : transfer.links)
      rate = std::min(rate, rate_of(links_[link]) - used_[link]);
    return at_least_zero(rate);
  }

  std::span<const Link> links_;
  LinkGuard guard_;
  std::vector<double> used_;
};

/// As fast as it is done by the tick's end, and as its ends can.
double most_useful_rate(const Transfer& transfer, double tick_s) {
  return std::min(at_least_zero(transfer.max_rate), bytes_of(transfer) / tick_s);
}

int rank_of(const Transfer& transfer) {
  switch (transfer.kind) {
    case TransferClass::kRestore:
      return 0;
    case TransferClass::kCheckpoint:
      return 1;
    case TransferClass::kPrefetch:
      return 2;
    case TransferClass::kEvacuation:
      return 3;
  }
  return 3;
}

bool is_worth_more_per_byte(const Transfer& a, const Transfer& b) {
  return value_of(a) * bytes_of(b) > value_of(b) * bytes_of(a);
}

/// What restores may count on in this tick: `part` of their share of each link, in bytes/s per
/// transfer. Empty if there is none.
std::vector<double> restore_shares(
    std::span<const Transfer> transfers,
    std::span<const Link> links,
    const LinkGuard& guard,
    double tick_s,
    double part
) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].kind == TransferClass::kRestore) order.push_back(i);
  }
  if (order.empty()) return {};
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return is_worth_more_per_byte(transfers[a], transfers[b]);
  });
  std::vector<double> left;
  for (const Link& link : links)
    left.push_back(guarded_rate(link, guard) * at_least_zero(guard.restore_share) * part);
  std::vector<double> rates(transfers.size());
  for (const std::size_t i : order) {
    double rate = most_useful_rate(transfers[i], tick_s);
    for (const std::uint32_t link : transfers[i].links) rate = std::min(rate, left[link]);
    rates[i] = rate;
    for (const std::uint32_t link : transfers[i].links) left[link] -= rate;
  }
  return rates;
}

/// Per link, of all transfers.
std::vector<double> sums_over_links(
    std::span<const Transfer> transfers, const std::vector<double>& rates, std::size_t links
) {
  std::vector<double> sums(links);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    for (const std::uint32_t link : transfers[i].links) sums[link] += rates[i];
  }
  return sums;
}

double booked_rate(const Booking& booking, double now_s, double tick_s) {
  double bytes = 0;
  for (const Stretch& one : booking.stretches) {
    const double end_s = std::min(one.to_s, now_s + tick_s);
    bytes += one.rate * at_least_zero(end_s - one.from_s);
  }
  return bytes / tick_s;
}

/// The next tick's rates, given what is booked, and what restores have beside that (none: empty).
std::vector<double> share_out(
    double now_s,
    double tick_s,
    std::span<const Transfer> transfers,
    const std::map<std::uint64_t, Booking>& booked,
    const std::vector<double>& shares,
    RateRoom room
) {
  std::vector<double> rates(transfers.size());
  std::vector<std::size_t> promised;
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const auto found = booked.find(transfers[i].id);
    (found == booked.end() ? others : promised).push_back(i);
    if (found == booked.end()) continue;
    rates[i] = booked_rate(found->second, now_s, tick_s);
    room.use(transfers[i], rates[i]);
  }
  const auto give = [&](std::size_t i, double most) {
    const double wanted = most_useful_rate(transfers[i], tick_s) - rates[i];
    const double more = at_least_zero(std::min(wanted, most));
    rates[i] += more;
    room.use(transfers[i], more);
  };
  std::stable_sort(promised.begin(), promised.end(), [&](auto a, auto b) {
    return booked.at(transfers[a].id).due_s < booked.at(transfers[b].id).due_s;
  });
  for (std::size_t i = 0; i < shares.size(); ++i) give(i, shares[i]);
  for (const std::size_t i : promised) give(i, room.burst_left(transfers[i]));
  std::stable_sort(others.begin(), others.end(), [&](auto a, auto b) {
    const Transfer& x = transfers[a];
    const Transfer& y = transfers[b];
    if (rank_of(x) != rank_of(y)) return rank_of(x) < rank_of(y);
    return is_worth_more_per_byte(x, y);
  });
  for (const std::size_t i : others) give(i, room.guarded_left(transfers[i]));
  return rates;
}

/// One plan's givens.
struct Givens {
  double now_s;
  double tick_s;
  std::span<const Transfer> transfers;
  std::span<const Link> links;
  LinkGuard guard;
};

/// Books what is admitted anew beside as much of the restores' share as it has time for. The share
/// per transfer; empty, and nothing is changed, if there is none.
std::vector<double> leave_to_restores(
    const Givens& givens,
    std::vector<double> cuts_s,
    const AdmissionSearch::Booked& known,
    const std::vector<bool>& is_admitted,
    AdmissionSearch::Booked& booked
) {
  const auto& [now_s, tick_s, transfers, links, guard] = givens;
  if (restore_shares(transfers, links, guard, tick_s, 1).empty()) return {};
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const auto found = booked.find(transfers[i].id);
    if (is_admitted[i] && found != booked.end())
      cuts_s.push_back(careful_due_s(now_s, found->second.due_s));
  }
  LinkCalendar calendar(now_s, std::move(cuts_s), links, guard);
  AdmissionSearch search(transfers, now_s, known, calendar, is_admitted);
  for (const double part : {1.0, 0.5, 0.25}) {
    std::vector<double> shares = restore_shares(transfers, links, guard, tick_s, part);
    calendar.set_aside(sums_over_links(transfers, shares, links.size()), now_s + tick_s);
    if (auto beside = search.book_with_care(is_admitted)) {
      booked = *std::move(beside);
      return shares;
    }
  }
  return {};
}

std::vector<bool> promised(
    std::span<const Transfer> transfers, const std::map<std::uint64_t, Booking>& booked
) {
  std::vector<bool> is_promised(transfers.size());
  for (std::size_t i = 0; i < transfers.size(); ++i)
    is_promised[i] = booked.contains(transfers[i].id);
  return is_promised;
}

std::vector<double> guarded_rates(std::span<const Link> links, const LinkGuard& guard) {
  std::vector<double> rates;
  for (const Link& link : links) rates.push_back(guarded_rate(link, guard));
  return rates;
}

/// Nobody is bounded; by strict priority, but for those that would share a link with a deadline.
RatePlan unbounded(std::span<const Transfer> transfers, RateRule rule) {
  RatePlan plan;
  plan.rates.assign(transfers.size(), kRateInfinity);
  plan.is_admitted.assign(transfers.size(), false);
  std::set<std::uint32_t> urgent;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (!has_deadline(transfers[i])) continue;
    plan.is_admitted[i] = true;
    plan.admitted_value += value_of(transfers[i]);
    urgent.insert(transfers[i].links.begin(), transfers[i].links.end());
  }
  if (rule == RateRule::kFairShare) return plan;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const auto& links = transfers[i].links;
    const bool is_crossed = std::any_of(links.begin(), links.end(), [&](std::uint32_t link) {
      return urgent.contains(link);
    });
    if (!plan.is_admitted[i] && is_crossed) plan.rates[i] = 0;
  }
  return plan;
}

/// What all that has a deadline may use of a link together.
double room_of(const Link& link, const LinkGuard& guard, RateRule rule) {
  if (rule == RateRule::kByValue) return at_least_zero(link.capacity);
  return link.burst_left_s > 0 ? burst_rate(link, guard) : guarded_rate(link, guard);
}

/// Each as much as is of use until the next plan, of what those before it leave; nobody is refused.
RatePlan one_after_another(
    std::span<const Transfer> transfers,
    std::span<const Link> links,
    const LinkGuard& guard,
    double tick_s,
    RateRule rule
) {
  RatePlan plan;
  plan.rates.assign(transfers.size(), 0);
  plan.is_admitted.assign(transfers.size(), false);
  std::vector<double> left;
  for (const Link& link : links) left.push_back(room_of(link, guard, rule));
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (has_deadline(transfers[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (rule == RateRule::kByValue) return value_of(transfers[a]) > value_of(transfers[b]);
    return transfers[a].deadline_s < transfers[b].deadline_s;
  });
  for (const std::size_t i : order) {
    plan.is_admitted[i] = true;
    plan.admitted_value += value_of(transfers[i]);
    double rate = std::min(at_least_zero(transfers[i].max_rate), bytes_of(transfers[i]) / tick_s);
    for (const std::uint32_t link : transfers[i].links) rate = std::min(rate, left[link]);
    for (const std::uint32_t link : transfers[i].links) left[link] -= rate;
    plan.rates[i] = rate;
  }
  return plan;
}

}  // namespace

double guarded_rate(const Link& link, const LinkGuard& guard) {
  const double capacity = at_least_zero(link.capacity);
  return at_least_zero(capacity * (1 - guard.margin_share) - at_least_zero(link.background));
}

double burst_rate(const Link& link, const LinkGuard& guard) {
  return std::max(guarded_rate(link, guard), at_least_zero(link.capacity) * guard.burst_share);
}

double due_s(const Transfer& transfer) {
  if (!std::isfinite(transfer.deadline_s)) return kRateInfinity;
  const double window_s = transfer.deadline_s - at_least_zero(transfer.restore_s);
  return at_least_zero(window_s - std::max(3 * at_least_zero(transfer.rtt_s), 0.05 * window_s));
}

RatePlan RatePlanner::plan(
    double now_s, std::span<const Transfer> transfers, std::span<const Link> links, double tick_s
) {
  RN_ASSERT(tick_s > 0, "rates are for some time");
  if (rule_ == RateRule::kFairShare || rule_ == RateRule::kStrictPriority)
    return unbounded(transfers, rule_);
  if (rule_ != RateRule::kDeadlines)
    return one_after_another(transfers, links, guard_, tick_s, rule_);
  std::vector<double> cuts_s = {now_s + tick_s};
  std::map<std::uint64_t, Booking> known;
  for (const Transfer& transfer : transfers) {
    for (const std::uint32_t link : transfer.links)
      RN_ASSERT(link < links.size(), "a transfer crosses a link that is not there");
    if (!has_deadline(transfer)) continue;
    const auto found = booked_.find(transfer.id);
    if (found == booked_.end()) {
      cuts_s.push_back(now_s + due_s(transfer));
      continue;
    }
    Booking& booking = known[transfer.id] = std::move(found->second);
    booking.due_s = std::min(booking.due_s, now_s + due_s(transfer));
    trim(booking, now_s, bytes_of(transfer));
    cuts_s.push_back(booking.due_s);
    for (const Stretch& one : booking.stretches)
      cuts_s.insert(cuts_s.end(), {one.from_s, one.to_s});
  }
  for (const Link& link : links) {
    if (std::isfinite(link.burst_left_s)) cuts_s.push_back(now_s + link.burst_left_s);
  }
  LinkCalendar calendar(now_s, cuts_s, links, guard_);
  const auto is_worth_it = prices_.are_worth_it(
      now_s, transfers, promised(transfers, known), guarded_rates(links, guard_)
  );
  AdmissionSearch search(transfers, now_s, known, calendar, is_worth_it);
  RatePlan plan;
  plan.is_outbid = is_worth_it;
  plan.is_outbid.flip();
  plan.is_admitted = search.best();
  booked_ = search.book(plan.is_admitted);
  for (std::size_t i = 0; i < transfers.size(); ++i)
    plan.admitted_value += plan.is_admitted[i] ? value_of(transfers[i]) : 0;
  const std::vector<double> shares = leave_to_restores(
      {now_s, tick_s, transfers, links, guard_}, std::move(cuts_s), known, plan.is_admitted, booked_
  );
  plan.rates = share_out(now_s, tick_s, transfers, booked_, shares, RateRoom(links, guard_));
  return plan;
}

void LatencyGuard::observe(double now_s, double rtt_s, double least_s) {
  if (!(rtt_s > 0)) return;
  const double passed_s = minutes_.empty() ? 0 : at_least_zero(now_s - seen_s_);
  seen_s_ = now_s;
  const double least = least_s > 0 ? std::min(least_s, rtt_s) : rtt_s;
  const double minute = std::floor(now_s / 60);
  while (!minutes_.empty() && minutes_.front().number <= minute - kLatencyHistory_min)
    minutes_.pop_front();
  if (minutes_.empty() || minutes_.back().number < minute) minutes_.push_back({minute, least});
  minutes_.back().least_s = std::min(minutes_.back().least_s, least);
  double base_s = least;
  for (const Minute& one : minutes_) base_s = std::min(base_s, one.least_s);
  waits_s_ = rtt_s - base_s;
  if (waits_s_ > target_s_)
    share_ = std::max(kLeastLatencyShare, share_ / 2);
  else
    share_ = std::min(1.0, share_ + passed_s / kLatencyRecovery_s);
}

}  // namespace rn::reclaim
