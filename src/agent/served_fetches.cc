// SPDX-License-Identifier: Apache-2.0
#include "agent/served_fetches.h"

namespace rn::agent {

void ServedFetches::Session::begin(const Ticket& ticket) {
  {
    const std::lock_guard lock(all_.mutex_);
    id_ = all_.next_++;
    gauge_ = std::make_shared<TransferGauge>(all_.first_rate_bps_);
    gauge_->attach(connection_);
    all_.all_[id_] = {ticket, gauge_};
  }
  if (all_.on_begun_) all_.on_begun_();
}

void ServedFetches::Session::set_left(std::optional<std::uint64_t> bytes) {
  if (gauge_ != nullptr) gauge_->set_left(bytes);
}

ServedFetches::Session::~Session() {
  if (gauge_ == nullptr) return;
  const std::lock_guard lock(all_.mutex_);
  gauge_->detach();
  all_.sent_before_ += gauge_->look().bytes_sent;
  all_.all_.erase(id_);
}

void ServedFetches::set_first_rate(std::uint64_t rate_bps) {
  const std::lock_guard lock(mutex_);
  first_rate_bps_ = rate_bps;
}

void ServedFetches::set_rate(WorkId id, std::uint64_t rate_bps) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(id);
  if (found != all_.end()) found->second.gauge->set_rate(rate_bps);
}

std::vector<FetchProgress> ServedFetches::look() const {
  const std::lock_guard lock(mutex_);
  std::vector<FetchProgress> seen;
  for (const auto& [id, one] : all_) {
    const TransferGauge::Seen now = one.gauge->look();
    FetchProgress fetch;
    fetch.progress = {
        id,
        now.bytes_left,
        now.bytes_sent,
        now.socket.local,
        now.socket.remote,
        now.round_trip.now,
        now.round_trip.least};
    fetch.job = one.ticket.job;
    fetch.epoch = one.ticket.epoch;
    fetch.peer = one.ticket.from;
    fetch.image = one.ticket.action == TicketAction::kFetchImage ? one.ticket.image : "";
    seen.push_back(std::move(fetch));
  }
  return seen;
}

std::uint64_t ServedFetches::bytes_sent() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = sent_before_;
  for (const auto& [id, one] : all_) bytes += one.gauge->look().bytes_sent;
  return bytes;
}

std::uint64_t ServedFetches::planned_bps() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bps = 0;
  for (const auto& [id, one] : all_) bps += one.gauge->look().socket.rate_bps;
  return bps;
}

}  // namespace rn::agent
