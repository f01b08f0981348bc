// SPDX-License-Identifier: Apache-2.0
#include "agent/transfer_gauge.h"

#include <algorithm>
#include <utility>

#include "agent/pacing.h"
#include "base/log.h"

namespace rn::agent {

template <class Socket>
class TransferGauge::SenderBy final : public TransferGauge::Sender {
 public:
  explicit SenderBy(Socket& socket) : socket_(socket) {}

  Status set_pacing_rate(std::uint64_t rate) override { return socket_.set_pacing_rate(rate); }

  std::uint64_t bytes_sent() const override { return socket_.bytes_sent(); }

  std::uint64_t unacknowledged_bytes() const override { return socket_.unacknowledged_bytes(); }

  std::string local() const override { return socket_.local(); }

  std::string remote() const override { return socket_.remote(); }

  io::RoundTrip round_trip() const override { return socket_.round_trip(); }

 private:
  Socket& socket_;
};

void TransferGauge::attach(io::FramedConnection& connection) {
  attach(std::make_unique<SenderBy<io::FramedConnection>>(connection));
}

void TransferGauge::attach(io::SessionSockets& sockets) {
  attach(std::make_unique<SenderBy<io::SessionSockets>>(sockets));
}

void TransferGauge::attach(std::unique_ptr<Sender> sender) {
  const std::lock_guard lock(mutex_);
  sender_ = std::move(sender);
  left_.reset();
  if (rate_bps_ != 0) pace();
}

void TransferGauge::pace() {
  const Status paced = sender_->set_pacing_rate(pacing_bytes_per_s(rate_bps_));
  if (!paced) log::warning("transfer.not_paced", {{"error", paced.error().describe()}});
}

void TransferGauge::detach() {
  const std::lock_guard lock(mutex_);
  if (sender_ == nullptr) return;
  sent_before_ += acknowledged();
  sender_.reset();
  left_.reset();
}

void TransferGauge::set_left(std::optional<std::uint64_t> bytes) {
  const std::lock_guard lock(mutex_);
  left_ = bytes;
  sent_when_told_ = sender_ != nullptr ? sender_->bytes_sent() : 0;
}

void TransferGauge::set_rate(std::uint64_t rate_bps) {
  const std::lock_guard lock(mutex_);
  if (rate_bps == rate_bps_) return;
  rate_bps_ = rate_bps;
  if (sender_ != nullptr) pace();
}

std::uint64_t TransferGauge::acknowledged() const {
  const std::uint64_t sent = sender_->bytes_sent();
  return sent - std::min(sent, sender_->unacknowledged_bytes());
}

TransferGauge::Seen TransferGauge::look() const {
  const std::lock_guard lock(mutex_);
  Seen seen;
  seen.bytes_sent = sent_before_;
  seen.socket.rate_bps = rate_bps_;
  if (sender_ == nullptr) return seen;
  seen.bytes_sent += acknowledged();
  seen.socket.local = sender_->local();
  seen.socket.remote = sender_->remote();
  seen.round_trip = sender_->round_trip();
  if (!left_) return seen;
  const std::uint64_t sent = sender_->bytes_sent();
  const std::uint64_t since = sent - std::min(sent, sent_when_told_);
  seen.bytes_left = *left_ - std::min(*left_, since) + sender_->unacknowledged_bytes();
  return seen;
}

}  // namespace rn::agent
