// SPDX-License-Identifier: Apache-2.0
#include "sim/peer_port.h"

#include "sim/agent_host.h"

namespace rn::sim {

namespace {
constexpr auto kFrameTimeout = seconds(60);  // DriveOptions::frame_timeout
constexpr auto kFrameTime = milliseconds(12);
}  // namespace

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
    host.peers().transfers_[id] = {host.serve(client), {}, false, host.world().now()};
    host.peers().watch(id);
  });
  return endpoint(id);
}

void PeerPort::stop(Network::ConnectionId id) {
  if (transfers_.erase(id) > 0) host_.world().network().close(id, host_.process().name());
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

/// True if the process died in the disk's hands meanwhile: nothing of it may be touched any more.
bool PeerPort::is_dead_after_work() {
  return host_.dies_if_disk_did();
}

void PeerPort::pump(Network::ConnectionId id) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  found->second.is_pumping = false;
  if (host_.dies_at("agent.peer_before_frame")) return;
  const auto end = found->second.end;
  auto frame = end->next();
  if (is_dead_after_work()) return;
  if (!frame) {
    if (end->is_finished()) finish(id, {});
    return;
  }
  const bool is_served = !found->second.done;
  if (is_served) host_.spoil(*frame);
  Blob bytes = {static_cast<std::uint8_t>(frame->type)};
  bytes.insert(bytes.end(), frame->body.begin(), frame->body.end());
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
  Transfer ended = std::move(found->second);
  transfers_.erase(found);
  host_.world().network().close(id, host_.process().name());
  if (ended.done) ended.done(std::move(connection));
  ended.end.reset();  // a server keeps what has arrived whole: that writes
  (void)is_dead_after_work();
}

}  // namespace rn::sim
