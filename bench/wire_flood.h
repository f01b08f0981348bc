// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

/// What flows while the bench cuts: a guest that floods a peer, and the owner's own paced stream.
namespace rn::bench {

inline constexpr std::uint16_t kFloodUdpPort = 9000;
inline constexpr std::uint16_t kFloodTcpPort = 9001;
inline constexpr std::uint16_t kNeighbourUdpPort = 9002;
inline constexpr std::uint16_t kNeighbourTcpPort = 9003;
inline constexpr std::uint16_t kOwnerPort = 9100;

struct FloodPorts {
  std::uint16_t udp = kFloodUdpPort;
  std::uint16_t tcp = kFloodTcpPort;
};

/// Floods `peer_v4` by UDP and TCP from the network namespace of process `guest`, until the object
/// goes. `peer` is a namespace made by `ip netns add`, in which TCP is received.
class GuestFlood {
 public:
  GuestFlood(int guest, const std::string& peer, const std::string& peer_v4, FloodPorts ports = {});
  GuestFlood(const GuestFlood&) = delete;
  GuestFlood& operator=(const GuestFlood&) = delete;
  ~GuestFlood();

  /// The way is open again: TCP begins anew at once, without waiting for its own repetitions.
  void begin_anew() { ++turn_; }

 private:
  void flood_udp(const std::string& peer_v4);
  void flood_tcp(const std::string& peer_v4);
  void one_connection(const std::string& peer_v4, std::uint64_t turn);
  void sink_tcp();

  const FloodPorts ports_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<std::uint64_t> turn_{0};
  std::vector<std::thread> threads_;
};

/// A datagram of the owner's each millisecond, from the calling thread's network namespace.
class OwnerStream {
 public:
  OwnerStream(const std::string& peer, const std::string& peer_v4);
  OwnerStream(const OwnerStream&) = delete;
  OwnerStream& operator=(const OwnerStream&) = delete;

  ~OwnerStream() { stop(); }

  /// Ends it; then the two counts are final.
  void stop();

  std::uint64_t sent() const { return sent_; }

  std::uint64_t lost() const { return sent_ - came_; }

 private:
  void sink();
  void send_paced(const std::string& peer_v4);

  std::atomic<bool> is_bound_{false}, is_stopping_{false}, is_over_{false};
  std::atomic<std::uint64_t> sent_{0}, came_{0};
  std::thread sink_, source_;
};

}  // namespace rn::bench
