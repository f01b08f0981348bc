// SPDX-License-Identifier: Apache-2.0
#include "sim/network.h"

#include <algorithm>

namespace rn::sim {

namespace {
/// After so long an end of a broken connection notices (keep-alive).
constexpr auto kDetectBroken = seconds(4);
constexpr auto kHeldBack = seconds(2);
constexpr auto kReplayed = seconds(30);
}  // namespace

bool Network::is_cut(const std::string& from, const std::string& to) const {
  return cuts_.contains({from, to}) || cuts_.contains({from, "*"}) || cuts_.contains({"*", to});
}

nanoseconds Network::latency() {
  const auto span = static_cast<std::uint64_t>((faults_.latency_max - faults_.latency_min).count());
  return faults_.latency_min + nanoseconds(static_cast<std::int64_t>(rng_.below(span + 1)));
}

nanoseconds Network::up_to(nanoseconds bound) {
  return nanoseconds(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(bound.count()))
  ));
}

void Network::make_exact(ConnectionId id) {
  if (const auto found = connections_.find(id); found != connections_.end())
    found->second.is_exact = true;
}

Network::ConnectionId Network::connect(
    const std::string& from,
    const std::string& to,
    Endpoint client,
    std::function<Endpoint(ConnectionId)> accept,
    std::function<void()> on_open
) {
  const ConnectionId id = next_++;
  Connection connection;
  connection.client = {from, std::move(client), TrueTime(0), true};
  connection.server = {to, {}, TrueTime(0), false};
  connections_.emplace(id, std::move(connection));
  queue_.after(latency(), [this, id, accept = std::move(accept), on_open = std::move(on_open)] {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& open = found->second;
    if (is_cut(open.client.host, open.server.host) || is_cut(open.server.host, open.client.host))
      return break_connection(id);
    open.server.endpoint = accept(id);
    const auto still = connections_.find(id);
    if (still == connections_.end()) return;
    still->second.server.is_open = true;
    queue_.after(latency(), [this, id, on_open] {
      const auto there = connections_.find(id);
      if (there != connections_.end() && there->second.client.is_open) on_open();
    });
  });
  return id;
}

void Network::send(ConnectionId id, const std::string& from, Blob bytes) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.is_broken) return;
  Connection& connection = found->second;
  const bool to_server = connection.client.host == from;
  Side& target = to_server ? connection.server : connection.client;
  if (is_cut(from, target.host)) return break_connection(id);
  if (rng_.unit() < faults_.loss) {
    ++injected_["connection loss"];
    return break_connection(id);
  }
  TrueTime arrival = std::max(queue_.now() + latency(), target.last_arrival + nanoseconds(1));
  const bool is_late = !connection.is_exact && rng_.unit() < faults_.reorder;
  if (is_late || (!connection.is_exact && held_back_.erase(from) > 0)) {
    ++injected_["reorder"];
    arrival += up_to(kHeldBack);
  } else {
    target.last_arrival = arrival;
  }
  const bool is_repeated = !connection.is_exact && rng_.unit() < faults_.duplicate;
  if (is_repeated || (!connection.is_exact && repeated_.erase(from) > 0)) {
    ++injected_["duplicate"];
    queue_.at(arrival + up_to(kReplayed), [this, id, to_server, copy = bytes]() mutable {
      deliver(id, to_server, std::move(copy));
    });
  }
  queue_.at(arrival, [this, id, to_server, bytes = std::move(bytes)]() mutable {
    deliver(id, to_server, std::move(bytes));
  });
}

void Network::deliver(ConnectionId id, bool to_server, Blob bytes) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.is_broken) return;
  Connection& connection = found->second;
  const Side& source = to_server ? connection.client : connection.server;
  const Side& target = to_server ? connection.server : connection.client;
  if (is_cut(source.host, target.host)) return break_connection(id);
  if (!target.is_open || !target.endpoint.on_message) return;
  if (!connection.is_exact) ++delivered_;            // transfers are as long as what they move
  const auto callback = target.endpoint.on_message;  // the callback may close the connection
  callback(std::move(bytes));
}

void Network::break_connection(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.is_broken) return;
  found->second.is_broken = true;
  queue_.after(kDetectBroken, [this, id] {
    const auto there = connections_.find(id);
    if (there == connections_.end()) return;
    const Connection broken = std::move(there->second);
    connections_.erase(there);
    for (const Side* side : {&broken.client, &broken.server}) {
      if (side->is_open && side->endpoint.on_close) side->endpoint.on_close();
    }
  });
}

void Network::close(ConnectionId id, const std::string& from) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  Side& mine = connection.client.host == from ? connection.client : connection.server;
  Side& other = connection.client.host == from ? connection.server : connection.client;
  mine.is_open = false;
  const bool heard = !connection.is_broken && !is_cut(from, other.host);
  queue_.at(
      std::max(queue_.now() + latency(), other.last_arrival + nanoseconds(1)),
      [this, id, heard] {
        const auto there = connections_.find(id);
        if (there == connections_.end()) return;
        if (!heard) return break_connection(id);
        const Connection closed = std::move(there->second);
        connections_.erase(there);
        for (const Side* side : {&closed.client, &closed.server}) {
          if (side->is_open && side->endpoint.on_close) side->endpoint.on_close();
        }
      }
  );
}

void Network::break_host(const std::string& host) {
  std::vector<ConnectionId> affected;
  for (const auto& [id, connection] : connections_) {
    if (connection.client.host == host || connection.server.host == host) affected.push_back(id);
  }
  for (const ConnectionId id : affected) break_connection(id);
}

void Network::drop_host(const std::string& host) {
  std::vector<ConnectionId> affected;
  for (auto& [id, connection] : connections_) {
    if (connection.client.host == host) connection.client.is_open = false;
    if (connection.server.host == host) connection.server.is_open = false;
    if (connection.client.host == host || connection.server.host == host) affected.push_back(id);
  }
  for (const ConnectionId id : affected) break_connection(id);
}

}  // namespace rn::sim
