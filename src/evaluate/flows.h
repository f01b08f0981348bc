// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "evaluate/agenda.h"
#include "reclaim/topology.h"

namespace rn::evaluate {

/// Transfers as fluid over the lines of a site: each has at any time a constant rate, the max-min
/// fair one below its own bound, as TCP shares its bottlenecks when all have about the same round
/// trip. No packets, no losses, no slow start.
class Flows {
 public:
  using Id = std::uint64_t;
  using Place = std::optional<reclaim::Topology::Place>;

  /// Borrows both.
  Flows(Agenda& agenda, const reclaim::Topology& topology);
  Flows(const Flows&) = delete;
  Flows& operator=(const Flows&) = delete;

  struct Transfer {
    Place from;
    Place to;
    double bytes = 0;
    double most = std::numeric_limits<double>::infinity();  ///< bytes/s that its ends can do
    std::function<void()> on_arrived;  ///< when its last byte is there; never after stop()
  };

  Id start(Transfer transfer);

  /// Whether it is under way.
  bool has(Id id) const { return flows_.contains(id); }

  /// Bytes that have left so far.
  double sent(Id id) const;
  double rate(Id id) const;  ///< bytes/s
  /// Of its way: links that carry all that they can, so that packets wait before them.
  std::size_t full_links(Id id) const;
  /// No more than so much from now on, bytes/s; infinite = as its ends can.
  void pace(Id id, double most);
  /// Answers what has left of it.
  double stop(Id id);

  /// Hears of each transfer that ends or is stopped what it has sent over lines, then, at close(),
  /// of those under way.
  void on_carried(std::function<void(double bytes)> told) { on_carried_ = std::move(told); }

  /// Counts up to now. Nothing is to be sent afterwards.
  void close();

  /// What this link of the topology carries from now on, bytes/s.
  void set_line(std::uint32_t link, double rate);

  /// That have crossed any line, and the same of each link.
  double bytes() const { return bytes_; }

  const std::vector<double>& bytes_by_link() const { return bytes_by_link_; }

 private:
  struct Flow {
    std::vector<std::uint32_t> links;
    double left = 0;
    double sent = 0;
    double most = 0;  ///< of its ends
    double asked = std::numeric_limits<double>::infinity();
    double rate = 0;
    Moment latency{0};
    std::function<void()> on_arrived;
  };

  double left_now(const Flow& flow) const;
  bool is_full(std::uint32_t link) const;
  void settle();
  void tell_of(const Flow& flow) const;
  void want_rates();
  void find_rates();
  void share_links();
  void arrange_end();
  void end_those_that_arrived();

  Agenda& agenda_;
  const reclaim::Topology& topology_;
  std::vector<double> lines_;
  std::map<Id, Flow> flows_;
  Id next_ = 1;
  Moment settled_at_{0};
  bool is_wanted_ = false;
  std::optional<Agenda::Handle> end_;
  double bytes_ = 0;
  std::vector<double> bytes_by_link_;
  std::function<void(double)> on_carried_;
};

}  // namespace rn::evaluate
