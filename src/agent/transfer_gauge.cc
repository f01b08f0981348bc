// SPDX-License-Identifier: Apache-2.0
#include "agent/transfer_gauge.h"

#include <algorithm>

#include "agent/pacing.h"
#include "base/log.h"

namespace rn::agent {

namespace {

void pace(io::FramedConnection& connection, std::uint64_t rate_bps) {
  const Status paced = connection.set_pacing_rate(pacing_bytes_per_s(rate_bps));
  if (!paced) log::warning("transfer.not_paced", {{"error", paced.error().describe()}});
}

}  // namespace

void TransferGauge::attach(io::FramedConnection& connection) {
  const std::lock_guard lock(mutex_);
  connection_ = &connection;
  left_.reset();
  if (rate_bps_ != 0) pace(connection, rate_bps_);
}

void TransferGauge::detach() {
  const std::lock_guard lock(mutex_);
  if (connection_ == nullptr) return;
  sent_before_ += acknowledged();
  connection_ = nullptr;
  left_.reset();
}

void TransferGauge::set_left(std::optional<std::uint64_t> bytes) {
  const std::lock_guard lock(mutex_);
  left_ = bytes;
  sent_when_told_ = connection_ != nullptr ? connection_->bytes_sent() : 0;
}

void TransferGauge::set_rate(std::uint64_t rate_bps) {
  const std::lock_guard lock(mutex_);
  if (rate_bps == rate_bps_) return;
  rate_bps_ = rate_bps;
  if (connection_ != nullptr) pace(*connection_, rate_bps);
}

std::uint64_t TransferGauge::acknowledged() const {
  const std::uint64_t sent = connection_->bytes_sent();
  return sent - std::min(sent, connection_->unacknowledged_bytes());
}

TransferGauge::Seen TransferGauge::look() const {
  const std::lock_guard lock(mutex_);
  Seen seen;
  seen.bytes_sent = sent_before_;
  seen.socket.rate_bps = rate_bps_;
  if (connection_ == nullptr) return seen;
  seen.bytes_sent += acknowledged();
  seen.socket.local = connection_->local();
  seen.socket.remote = connection_->remote();
  seen.round_trip = connection_->round_trip();
  if (!left_) return seen;
  const std::uint64_t since = connection_->bytes_sent() - sent_when_told_;
  seen.bytes_left = *left_ - std::min(*left_, since) + connection_->unacknowledged_bytes();
  return seen;
}

}  // namespace rn::agent
