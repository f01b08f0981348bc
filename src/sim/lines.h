// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace rn::sim {

/// Lines that copies share on their way out of a building. Who sends over one gets what it asks
/// for, or its part of what the others leave, as TCP shares a bottleneck. Bytes per second.
class Lines {
 public:
  using Sender = std::uint64_t;

  /// Hosts hang at the root, by lines that are never full, until they are put behind one.
  void set_rate(const std::string& line, double rate) { rates_[line] = rate; }

  void put(const std::string& host, const std::string& line) { line_of_[host] = line; }

  /// Each byte that copies move counts as so many: simulated states are tiny. 0: they take no time.
  void set_weight(double weight) { weight_ = weight; }

  double weight() const { return weight_; }

  /// A number for one who begins to send.
  Sender begin(const std::string& from, const std::string& to);

  void end(Sender sender) { senders_.erase(sender); }

  /// It asks for no more than this; infinite at first.
  void pace(Sender sender, double rate);
  /// What it gets now.
  double rate_of(Sender sender) const;

 private:
  struct Sending {
    std::string line;  ///< empty: none that could be full
    double asked = std::numeric_limits<double>::infinity();
  };

  double weight_ = 0;
  Sender next_ = 1;
  std::map<std::string, double> rates_;
  std::map<std::string, std::string> line_of_;
  std::map<Sender, Sending> senders_;
};

}  // namespace rn::sim
