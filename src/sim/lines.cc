// SPDX-License-Identifier: Apache-2.0
#include "sim/lines.h"

#include <algorithm>
#include <vector>

namespace rn::sim {

Lines::Sender Lines::begin(const std::string& from, const std::string& to) {
  Sending sending;
  const auto out = line_of_.find(from);
  const auto in = line_of_.find(to);
  const bool stays_inside =
      out != line_of_.end() && in != line_of_.end() && out->second == in->second;
  if (out != line_of_.end() && !stays_inside) sending.line = out->second;
  senders_[next_] = std::move(sending);
  return next_++;
}

void Lines::pace(Sender sender, double rate) {
  const auto found = senders_.find(sender);
  if (found != senders_.end()) found->second.asked = rate;
}

double Lines::rate_of(Sender sender) const {
  const auto found = senders_.find(sender);
  if (found == senders_.end()) return 0;
  const Sending& own = found->second;
  if (own.line.empty()) return own.asked;
  std::vector<double> asked;
  for (const auto& [other, sending] : senders_) {
    if (sending.line == own.line) asked.push_back(sending.asked);
  }
  std::sort(asked.begin(), asked.end());
  double left = rates_.at(own.line);
  double part = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    part = std::min(asked[i], left / static_cast<double>(asked.size() - i));
    if (asked[i] >= own.asked) break;  // whoever asks for as much gets as much
    left -= part;
  }
  return part;
}

}  // namespace rn::sim
