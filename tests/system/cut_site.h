// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "traffic/guest_cut.h"

/// A machine that lends, its guests and a peer beyond it, for the tests of the cut: network
/// namespaces with real interfaces, floods, and what a guest may send. What cannot be made aborts
/// the program.
namespace rn::cut_site {

inline constexpr traffic::Slot kSlot = 7;
inline constexpr traffic::Slot kNeighbourSlot = 8;
inline constexpr std::uint16_t kUdpPort = 9000;
inline constexpr std::uint16_t kTcpPort = 9001;
inline constexpr const char* kGuest4 = "192.0.2.2";
inline constexpr const char* kGuest6 = "2001:db8:1::2";
inline constexpr const char* kNeighbour4 = "192.0.3.2";
inline constexpr const char* kNeighbour6 = "2001:db8:2::2";
inline constexpr const char* kPeer4 = "198.51.100.7";
inline constexpr const char* kPeer6 = "2001:db8:9::7";
/// A packet that passed the hook before the cut is at the peer long before that, on a busy machine,
/// too.
inline constexpr std::int64_t kTooLateNs = 50'000'000;

/// guest --eth0/g0-- host --p0/eth0-- peer, each in a namespace of its own, and where a neighbour
/// is wanted, neighbour --eth0/g1-- host. Gone with the object.
class Topology {
 public:
  enum Guests : std::uint8_t { kOneGuest, kTwoGuests };

  explicit Topology(Guests guests = kOneGuest);
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  ~Topology();

  /// Only after the filter is on it.
  void connect_guest() const;

  const std::string host = "rnw-h-" + std::to_string(getpid());
  const std::string guest = "rnw-g-" + std::to_string(getpid());
  const std::string neighbour = "rnw-n-" + std::to_string(getpid());  ///< there with kTwoGuests
  const std::string peer = "rnw-p-" + std::to_string(getpid());

 private:
  std::vector<std::string> names_;
};

/// Runs it in a namespace; aborts when it fails.
void must_run_in(const std::string& netns, const std::string& command);

/// Threads that send and receive until the object goes.
class Floods {
 public:
  enum Flow : std::uint8_t { kBothWays, kFromGuest, kTcpFromGuest };

  Floods(const Topology& net, Flow flow);
  Floods(const Floods&) = delete;
  Floods& operator=(const Floods&) = delete;
  ~Floods();

  /// The neighbour sends UDP to the peer, too, by both families.
  void add_neighbour(const Topology& net);

  std::uint64_t tcp_bytes() const { return tcp_bytes_; }

 private:
  template <class Work>
  void start(const std::string& netns, Work work);
  void flood_udp(const char* to) const;
  void sink_tcp();
  void flood_tcp() const;

  std::atomic<bool> is_stopping_{false};
  std::atomic<std::uint64_t> tcp_bytes_{0};
  std::vector<std::thread> threads_;
};

sockaddr_storage address_of(const char* text, std::uint16_t port, socklen_t& size);

/// Both directions with the peer at the floods' ports.
traffic::GuestPolicy a_policy();
traffic::GuestPolicy the_neighbours_policy();

/// RN_ROUNDS, if it is set.
int rounds(int unless_told = 20);
std::int64_t quantile(std::vector<std::int64_t> samples, double q);
void print(const char* what, const std::vector<std::int64_t>& ns);

}  // namespace rn::cut_site
