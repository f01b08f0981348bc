// SPDX-License-Identifier: Apache-2.0
#include "agent/tunnels.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/log.h"
#include "model/tunnel.h"

namespace rn::agent {

namespace {

using TunnelKind = tunnel::Kind;

constexpr seconds kTunnelsLook{1};
constexpr seconds kTunnelsLinger{60};  ///< the connection stays so long without a guest
constexpr seconds kTunnelEndsIn{60};   ///< when both directions have ended
constexpr milliseconds kTunnelsBackoffMin{500};
constexpr milliseconds kTunnelsBackoffMax{60'000};
constexpr milliseconds kTunnelsPause{10};  ///< while there is no room, or no budget
constexpr std::size_t kTunnelsAtOnce = 64;
/// Of what waits at the connection: a guest is not read while it is more.
constexpr std::size_t kTunnelsQueueBytes = 512 << 10;
/// Of what waits for one guest. Users who keep to their credit never come near.
constexpr std::size_t kGuestQueueBytes = 2 * tunnel::kWindowToGuest;
constexpr std::size_t kGuestQueuePackets = 512;
constexpr int kPacketsAtOnce = 16;
constexpr std::size_t kIdBytes = 4;
constexpr std::size_t kOpenBytes = 3;
constexpr std::size_t kEnterBytes = 1;
/// What a small packet costs of the budget: its way through TLS is not free either.
constexpr std::size_t kLeastCost = 256;

Blob message_of(std::uint32_t id, BlobView packet) {
  Blob message(kIdBytes);
  tunnel::write_u32(message.data(), id);
  message.insert(message.end(), packet.begin(), packet.end());
  return message;
}

}  // namespace

Tunnels::Tunnels(Deps deps) : deps_(std::move(deps)) {
  budget_at_ = deps_.loop.now().boot;
  timer_ = deps_.loop.run_every(kTunnelsLook, [this] { look(); });
  deps_.loop.post([this, alive = is_alive_] {
    if (*alive) look();
  });
}

Tunnels::~Tunnels() {
  *is_alive_ = false;
  deps_.loop.cancel(timer_);
  if (connecting_) connecting_->cancel();
  if (socket_) socket_->close("agent stops");
}

// ---- the connection

void Tunnels::look() {
  const Instant now = deps_.loop.now().boot;
  if (deps_.has_guests()) needed_at_ = now;
  const bool is_needed = needed_at_ != Instant{} && now - needed_at_ < kTunnelsLinger;
  if (is_needed && !socket_ && !connecting_ && now >= next_try_) connect();
  if (!is_needed && socket_ && tunnels_.empty()) socket_->close("no guest");
  std::vector<std::pair<Id, std::string>> over;
  for (auto& [id, tunnel] : tunnels_) {
    const auto disk = deps_.disk_of(tunnel.guest);
    if (!disk) over.emplace_back(id, disk.error().message);
    if (!tunnel.has_user_ended || !tunnel.has_guest_ended) continue;
    if (tunnel.ended_at == Instant{}) tunnel.ended_at = now;
    if (disk && now - tunnel.ended_at > kTunnelEndsIn) over.emplace_back(id, "it does not end");
  }
  for (const auto& [id, why] : over) break_off(id, why);
}

void Tunnels::connect() {
  io::WebSocketClientConfig config;
  config.url = deps_.url;
  config.tls = deps_.tls();
  config.connect_timeout = seconds(10);
  config.limits.max_message_bytes = kIdBytes + tunnel::kPacketMax + 256;
  // More than what is let wait: a bound of memory, not one that is reached.
  config.limits.max_queued_bytes = 4 * kTunnelsQueueBytes;
  config.limits.max_queued_messages = 1 << 20;
  connecting_ = io::WebSocketConnect::start(
      deps_.loop,
      std::move(config),
      [this, alive = is_alive_](Result<std::shared_ptr<io::WebSocket>> socket) {
        if (*alive) connected(std::move(socket));
      }
  );
}

void Tunnels::connected(Result<std::shared_ptr<io::WebSocket>> socket) {
  connecting_.reset();
  if (!socket) {
    // Not a warning: a coordinator that is away is told of by the first connection, and an older
    // one has no such way.
    log::debug("tunnels.unreachable", {{"why", socket.error().describe()}});
    const milliseconds full =
        std::min(kTunnelsBackoffMax, kTunnelsBackoffMin * (1 << std::min(failures_++, 7u)));
    const auto half = static_cast<std::uint64_t>(full.count() / 2);
    next_try_ = deps_.loop.now().boot + full / 2 + milliseconds(deps_.rng.below(half + 1));
    return;
  }
  failures_ = 0;
  socket_ = *std::move(socket);
  const std::weak_ptr<io::WebSocket> weak = socket_;
  socket_->on_message([this, alive = is_alive_, weak](const Blob& message) {
    if (*alive && weak.lock() == socket_) hear(message);
  });
  socket_->on_close([this, alive = is_alive_, weak](const Error& error) {
    if (*alive && weak.lock() == socket_) lost(error.message);
  });
}

void Tunnels::lost(const std::string& why) {
  log::info("tunnels.disconnected", {{"why", why}, {"open", tunnels_.size()}});
  socket_.reset();
  tunnels_.clear();  // their guests' ends see that it broke
}

// ---- from users

void Tunnels::hear(const Blob& message) {
  if (message.size() <= kIdBytes) return;
  const Id id = tunnel::read_u32(message.data());
  const BlobView packet = BlobView(message).subspan(kIdBytes);
  if (packet[0] == static_cast<std::uint8_t>(TunnelKind::kOpen))
    return open(id, packet, kOpenBytes);
  if (packet[0] == static_cast<std::uint8_t>(TunnelKind::kEnter))
    return open(id, packet, kEnterBytes);
  to_guest(id, packet);
}

std::set<std::string> Tunnels::guests() const {
  std::set<std::string> found;
  for (const auto& [id, tunnel] : tunnels_) found.insert(tunnel.guest);
  return found;
}

/// What its PID 1 is asked for, which is `asked` bytes, and behind it the guest's name in words.
void Tunnels::open(Id id, BlobView packet, std::size_t asked) {
  if (packet.size() <= asked || tunnels_.contains(id)) return;
  const std::string guest(as_text(packet.subspan(asked)));
  auto socket = enter(guest);
  if (!socket) {
    log::info("tunnel.refused", {{"guest", guest}, {"why", socket.error().describe()}});
    return say(id, static_cast<std::uint8_t>(TunnelKind::kRefused), socket.error().message);
  }
  Tunnel& tunnel = tunnels_[id];
  tunnel.guest = guest;
  tunnel.socket = *std::move(socket);
  const int port = asked == kOpenBytes ? packet[1] << 8 | packet[2] : 0;
  log::info("tunnel.opened", {{"guest", guest}, {"port", port}});  // 0: a visit
  to_guest(id, packet.first(asked));
  read_guest(id);
}

Result<std::unique_ptr<io::LocalSocket>> Tunnels::enter(const std::string& guest) {
  if (tunnels_.size() >= kTunnelsAtOnce)
    return fail(ErrorCode::kExhausted, "too many connections into the node's guests are open");
  RN_TRY(const std::string disk, deps_.disk_of(guest));
  auto socket =
      io::LocalSocket::connect_packets(deps_.loop, disk + "/reclaim", tunnel::kSocketName);
  if (socket) return socket;
  const Error& error = socket.error();
  log::info("tunnel.no_way_in", {{"guest", guest}, {"why", error.describe()}});
  if (error.code == ErrorCode::kExhausted)
    return fail(error.code, "the guest does not take connections now");
  return fail(error.code, "the guest has no way in: its PID 1 is older, or has lost its socket");
}

void Tunnels::to_guest(Id id, BlobView packet) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;
  Tunnel& tunnel = found->second;
  if (packet[0] == static_cast<std::uint8_t>(TunnelKind::kEnd)) tunnel.has_user_ended = true;
  tunnel.to_guest_bytes += packet.size();
  tunnel.to_guest.emplace_back(packet.begin(), packet.end());
  const bool is_too_much =
      tunnel.to_guest_bytes > kGuestQueueBytes || tunnel.to_guest.size() > kGuestQueuePackets;
  if (is_too_much) return break_off(id, "more came than the guest takes");
  if (tunnel.to_guest.size() == 1) write_guest(id);
}

void Tunnels::write_guest(Id id) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;
  Tunnel& tunnel = found->second;
  while (!tunnel.to_guest.empty()) {
    const Blob& front = tunnel.to_guest.front();
    const bool is_last = front[0] == static_cast<std::uint8_t>(TunnelKind::kReset);
    const auto put = tunnel.socket->write(front);
    if (is_last) return void(tunnels_.erase(found));
    if (!put) {
      // It may have said why before it closed: who reads comes to that, and then to the end.
      tunnel.to_guest.clear();
      tunnel.to_guest_bytes = 0;
      return;
    }
    if (*put == 0) return tunnel.socket->when_writable([this, id] { write_guest(id); });
    tunnel.to_guest_bytes -= front.size();
    tunnel.to_guest.pop_front();
  }
}

// ---- from guests

void Tunnels::read_guest(Id id) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;
  Tunnel& tunnel = found->second;
  std::array<std::uint8_t, tunnel::kPacketMax> packet;
  for (int i = 0; i < kPacketsAtOnce; ++i) {
    if (!may_send()) {
      deps_.loop.run_after(kTunnelsPause, [this, alive = is_alive_, id] {
        if (*alive) read_guest(id);
      });
      return;
    }
    const auto read = tunnel.socket->read(packet);
    if (!read || read->is_end) {
      const bool is_in_order = read && tunnel.has_user_ended && tunnel.has_guest_ended;
      if (is_in_order) return void(tunnels_.erase(found));
      return break_off(id, "the guest has closed it");
    }
    if (read->bytes == 0) break;
    if (!pass_on(id, tunnel, BlobView(packet).first(read->bytes))) return;
  }
  tunnel.socket->when_readable([this, id] { read_guest(id); });
}

/// False once the tunnel is over.
bool Tunnels::pass_on(Id id, Tunnel& tunnel, BlobView packet) {
  budget_ -= static_cast<double>(std::max(packet.size(), kLeastCost));
  const auto kind = static_cast<TunnelKind>(packet[0]);
  if (kind == TunnelKind::kEnd) tunnel.has_guest_ended = true;
  say(id, packet);
  if (kind != TunnelKind::kRefused) return true;
  tunnels_.erase(id);
  return false;
}

/// There is room in the connection's queue, and budget. What is sent may pass the budget by a
/// packet, which is then owed.
bool Tunnels::may_send() {
  if (socket_ == nullptr || socket_->queued_bytes() > kTunnelsQueueBytes) return false;
  const std::uint64_t bps = deps_.rate_bps();
  const Instant now = deps_.loop.now().boot;
  if (bps == 0) {
    budget_ = 0;
    budget_at_ = now;
    return true;
  }
  const double per_s = static_cast<double>(bps) / 8;
  const double elapsed_s = std::chrono::duration<double>(now - budget_at_).count();
  budget_at_ = now;
  // At most a tenth of a second at once.
  budget_ = std::min(budget_ + elapsed_s * per_s, per_s / 10);
  return budget_ > 0;
}

void Tunnels::say(Id id, BlobView packet) {
  if (socket_) (void)socket_->send(message_of(id, packet));  // a failure closes it: on_close tells
}

void Tunnels::say(Id id, std::uint8_t kind, const std::string& words) {
  Blob packet{kind};
  const BlobView text = as_bytes(std::string_view(words).substr(0, tunnel::kWordsMax));
  packet.insert(packet.end(), text.begin(), text.end());
  say(id, packet);
}

void Tunnels::break_off(Id id, const std::string& why) {
  if (tunnels_.erase(id) > 0) say(id, static_cast<std::uint8_t>(TunnelKind::kReset), why);
}

}  // namespace rn::agent
