// SPDX-License-Identifier: Apache-2.0
#include "sim/peer_port.h"

#include "sim/agent_host.h"

namespace rn::sim {

namespace {
constexpr auto kFrameTimeout = seconds(60);  // DriveOptions::frame_timeout
constexpr auto kFrameTime = milliseconds(12);
constexpr auto kPushEvery = milliseconds(50);
constexpr double kRateOfNone = 1.25e9;  // bytes/s where nothing is said
}  // namespace

void PeerPort::leave_lines() {
  for (auto& [id, transfer] : transfers_) let_go(transfer);
}

Network::Endpoint PeerPort::endpoint(Network::ConnectionId id) {
  Network::Endpoint endpoint;
  endpoint.on_message = [&host = host_, life = host_.process().life(), id](Blob bytes) {
    if (life != host.process().life()) return;
    host.process().run([&host, id, bytes = std::move(bytes)] { host.peers().on_frame(id, bytes); });
  };
  endpoint.on_close = [&host = host_, life = host_.process().life(), id] {
    if (life != host.process().life()) return;
    host.process().run([&host, id] { host.peers().on_close(id); });
  };
  return endpoint;
}

Network::ConnectionId PeerPort::run(
    AgentHost& peer, std::shared_ptr<checkpoint::PeerEnd> end, Done done
) {
  // The endpoint names its connection, whose number connect() answers: it is the next one.
  Network& network = host_.world().network();
  const Network::ConnectionId id = network.next_id();
  transfers_[id] = {std::move(end), std::move(done), false, host_.world().now()};
  transfers_[id].peer = peer.process().name();
  network.connect(
      host_.process().name(),
      peer.process().name(),
      endpoint(id),
      [&peer, &host = host_](Network::ConnectionId accepted) {
        if (peer.process().is_up()) return peer.peers().accept(accepted, host);
        host.world().queue().after(nanoseconds(1), [&peer, accepted] {  // nobody listens
          peer.world().network().close(accepted, peer.process().name());
        });
        return Network::Endpoint{};
      },
      [&host = host_, life = host_.process().life(), id] {
        if (life == host.process().life())
          host.process().run([&host, id] { host.peers().pump_later(id, nanoseconds(0)); });
      }
  );
  network.make_exact(id);
  watch(id);
  return id;
}

Network::Endpoint PeerPort::accept(Network::ConnectionId id, AgentHost& client) {
  host_.process().run([&host = host_, &client, id] {
    const auto on_fetch = [&host, id](const Ticket& ticket) {
      host.peers().transfers_.at(id).fetched_by = ticket;
      host.process().later(nanoseconds(0), [&host] { host.measure(); });
    };
    Transfer& transfer = host.peers().transfers_[id];
    transfer = {host.serve(client, on_fetch), {}, false, host.world().now()};
    transfer.peer = client.process().name();
    host.peers().watch(id);
  });
  return endpoint(id);
}

void PeerPort::stop(Network::ConnectionId id) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  let_go(found->second);
  transfers_.erase(found);
  host_.world().network().close(id, host_.process().name());
}

void PeerPort::watch(Network::ConnectionId id) {
  host_.process().later(kFrameTimeout / 2, [&host = host_, id] {
    PeerPort& port = host.peers();
    const auto found = port.transfers_.find(id);
    if (found == port.transfers_.end()) return;
    if (host.world().now() - found->second.heard < kFrameTimeout) return port.watch(id);
    port.finish(id, fail(ErrorCode::kTimeout, "the peer stalls"));
  });
}

void PeerPort::pump_later(Network::ConnectionId id, nanoseconds delay) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end() || found->second.is_pumping) return;
  found->second.is_pumping = true;
  host_.process().later(delay, [&host = host_, id] { host.peers().pump(id); });
}

void PeerPort::hold(Transfer& transfer, Blob bytes) {
  Lines& lines = host_.world().lines();
  transfer.held_left = static_cast<double>(bytes.size()) * lines.weight();
  transfer.held = std::move(bytes);
  transfer.held_at = host_.world().now();
  transfer.sender = lines.begin(host_.process().name(), transfer.peer);
  const double rate = static_cast<double>(transfer.rate_bps) / 8;
  lines.pace(transfer.sender, rate > 0 ? rate : kRateOfNone);
}

void PeerPort::let_go(Transfer& transfer) {
  if (transfer.held) host_.world().lines().end(transfer.sender);
  transfer.held.reset();
}

/// As much of the chunk as the line has carried since the last look.
void PeerPort::push(Network::ConnectionId id, Transfer& transfer) {
  const TrueTime now = host_.world().now();
  const double span_s = std::chrono::duration<double>(now - transfer.held_at).count();
  const double carried =
      std::min(host_.world().lines().rate_of(transfer.sender) * span_s, transfer.held_left);
  transfer.held_at = now;
  transfer.held_left -= carried;
  transfer.sent += carried;
  if (transfer.fetched_by && carried > 0) hear_at_both_ends(id, transfer);
  if (transfer.held_left > 1) return pump_later(id, kPushEvery);
  Blob bytes = *std::move(transfer.held);
  let_go(transfer);
  host_.world().network().send(id, host_.process().name(), std::move(bytes));
  pump_later(id, kFrameTime);
}

/// Real chunks are small: whoever fetches hears of a thin line, too.
void PeerPort::hear_at_both_ends(Network::ConnectionId id, Transfer& transfer) {
  transfer.heard = host_.world().now();
  const auto peer = host_.site().agents.find(transfer.fetched_by->from);
  if (peer == host_.site().agents.end() || !peer->second->process().is_up()) return;
  if (host_.world().network().is_cut(host_.process().name(), transfer.peer)) return;
  auto& theirs = peer->second->peers().transfers_;
  if (const auto found = theirs.find(id); found != theirs.end())
    found->second.heard = transfer.heard;
}

void PeerPort::pace(Network::ConnectionId id, std::uint64_t rate_bps) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  found->second.rate_bps = rate_bps;
  const double rate = static_cast<double>(rate_bps) / 8;
  if (found->second.held)
    host_.world().lines().pace(found->second.sender, rate > 0 ? rate : kRateOfNone);
}

PeerPort::Progress PeerPort::progress(Network::ConnectionId id) const {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return {};
  return progress(found->second);
}

PeerPort::Progress PeerPort::progress(const Transfer& transfer) const {
  const double weight = std::max(host_.world().lines().weight(), 1.0);
  Progress out;
  out.bytes_sent = static_cast<std::uint64_t>(transfer.sent);
  if (const auto left = transfer.end->bytes_left())
    out.bytes_left =
        static_cast<std::uint64_t>(static_cast<double>(*left) * weight + transfer.held_left);
  else if (transfer.held)  // ahead of its manifest: what is known of it is on its way
    out.bytes_left = static_cast<std::uint64_t>(transfer.held_left);
  return out;
}

std::vector<agent::FetchProgress> PeerPort::fetches() const {
  std::vector<agent::FetchProgress> out;
  for (const auto& [id, transfer] : transfers_) {
    if (!transfer.fetched_by) continue;
    const Progress seen = progress(transfer);
    agent::FetchProgress fetch;
    fetch.progress.id = agent::kFirstFetch + id;
    fetch.progress.bytes_left = seen.bytes_left;
    fetch.progress.bytes_sent = seen.bytes_sent;
    fetch.progress.local = "10.0.0.1:7445";
    fetch.progress.remote = "10.0.0.2:" + std::to_string(1024 + id % 60'000);
    fetch.job = transfer.fetched_by->job;
    fetch.epoch = transfer.fetched_by->epoch;
    fetch.peer = transfer.fetched_by->from;
    out.push_back(std::move(fetch));
  }
  return out;
}

/// True if the process died in the disk's hands meanwhile: nothing of it may be touched any more.
bool PeerPort::is_dead_after_work() {
  return host_.dies_if_disk_did();
}

void PeerPort::pump(Network::ConnectionId id) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  found->second.is_pumping = false;
  if (found->second.held) return push(id, found->second);
  if (host_.dies_at("agent.peer_before_frame")) return;
  const auto end = found->second.end;
  auto frame = end->next();
  if (is_dead_after_work()) return;
  if (!frame) {
    if (end->is_finished()) finish(id, {});
    return;
  }
  host_.spoil(*frame, !found->second.done);
  Blob bytes = {static_cast<std::uint8_t>(frame->type)};
  bytes.insert(bytes.end(), frame->body.begin(), frame->body.end());
  if (frame->type == checkpoint::PeerFrameType::kChunk && host_.world().lines().weight() > 0) {
    hold(found->second, std::move(bytes));
    return pump_later(id, nanoseconds(0));
  }
  host_.world().network().send(id, host_.process().name(), std::move(bytes));
  pump_later(id, kFrameTime);
}

void PeerPort::on_frame(Network::ConnectionId id, const Blob& bytes) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end() || bytes.empty()) return;
  if (host_.dies_at("agent.peer_after_frame")) return;
  found->second.heard = host_.world().now();
  const auto end = found->second.end;
  end->on_frame(static_cast<checkpoint::PeerFrameType>(bytes[0]), BlobView(bytes).subspan(1));
  if (is_dead_after_work()) return;
  pump_later(id, nanoseconds(0));
}

void PeerPort::on_close(Network::ConnectionId id) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  const bool has_ended = found->second.end->is_finished();
  finish(id, has_ended ? Status{} : fail(ErrorCode::kUnavailable, "the connection broke"));
}

void PeerPort::finish(Network::ConnectionId id, Status connection) {
  const auto found = transfers_.find(id);
  let_go(found->second);
  Transfer ended = std::move(found->second);
  transfers_.erase(found);
  host_.world().network().close(id, host_.process().name());
  if (ended.done) ended.done(std::move(connection));
  ended.end.reset();  // a server keeps what has arrived whole: that writes
  (void)is_dead_after_work();
}

}  // namespace rn::sim
