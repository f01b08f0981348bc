// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "io/send_bursts.h"
#include "traffic/transfer_edge.h"

/// Two machines for the tests and figures of the transfers' edge: this process's network namespace
/// with the uplink "up0", and a peer's, joined by a pair of interfaces or by a slow line.
/// Everything goes with the process. What cannot be made aborts it.
namespace rn::edge_site {

inline constexpr std::uint32_t kEdgeAgentUid = 4242;
inline constexpr std::uint16_t kDataPort = 7445;
inline constexpr std::uint16_t kControlPort = 7443;
inline constexpr std::uint16_t kOwnerPort = 22;
inline constexpr const char* kHere = "10.77.0.1";
inline constexpr const char* kFar = "10.77.0.2";
inline constexpr const char* kHere6 = "fd77::1";
inline constexpr const char* kFar6 = "fd77::2";

/// Moves the calling thread into a namespace of its own and makes the other one.
class Site {
 public:
  /// With a line: a switch between the two, in a third namespace, sends to the peer no faster than
  /// that (HTB), and drops what would wait for longer than 50 ms. 0: none.
  explicit Site(std::uint64_t line_bps = 0);
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  void enter_far() const;  ///< the calling thread

 private:
  int far_ = -1;
  int line_ = -1;
};

std::int64_t now_ns();  ///< CLOCK_MONOTONIC

/// Listens in the peer's namespace at the three ports, and throws away what comes. Bytes are kept
/// by the millisecond in which they were read.
class Sink {
 public:
  explicit Sink(const Site& site);
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  std::uint64_t bytes(std::uint16_t port) const;
  /// Of the data port, between two instants of now_ns().
  std::uint64_t bytes_between(std::int64_t from_ns, std::int64_t to_ns) const;
  void forget();  ///< the milliseconds

 private:
  void run(const Site& site);

  static constexpr std::size_t kBins = 120'000;
  std::vector<std::atomic<std::uint32_t>> bins_;
  std::atomic<std::int64_t> begin_ns_{0};
  std::array<std::atomic<std::uint64_t>, 3> total_{};
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_ready_{false};
  std::thread thread_;
};

/// What arrives at the peer's interface, seen beside its stack.
class Sniffer {
 public:
  /// Of data packets only those that come from this port, if it is one.
  explicit Sniffer(const Site& site, std::uint16_t from_port = 0);
  ~Sniffer();
  Sniffer(const Sniffer&) = delete;
  Sniffer& operator=(const Sniffer&) = delete;

  std::uint64_t data_packets() const { return data_packets_; }  ///< with payload, to the data port

  std::uint64_t control_packets() const { return control_packets_; }

  /// Of the newest packet to the data port with payload; CLOCK_REALTIME, by the kernel.
  std::int64_t last_data_realtime_ns() const { return last_data_ns_; }

  /// Payload to the data port that arrived between two instants of CLOCK_REALTIME, by the kernel's
  /// stamps; of the newest kKept packets.
  std::uint64_t bytes_between(std::int64_t from_ns, std::int64_t to_ns) const;

  std::uint64_t lost() const;  ///< a nonzero count makes the others worthless
  void drain() const;          ///< until all that has arrived is counted

 private:
  void run(const Site& site);
  void note(const std::uint8_t* packet, std::size_t size, std::int64_t at_ns);

  struct Arrival {
    std::int64_t at_ns;
    std::uint64_t bytes;
  };

  static constexpr std::size_t kKept = 50'000;
  const std::uint16_t from_port_;
  mutable std::mutex mutex_;  ///< guards arrivals_
  std::deque<Arrival> arrivals_;
  int fd_ = -1;
  std::atomic<bool> is_stopping_{false};
  std::atomic<std::uint64_t> idle_turns_{0};
  std::atomic<std::uint64_t> data_packets_{0}, control_packets_{0};
  std::atomic<std::int64_t> last_data_ns_{0};
  mutable std::atomic<std::uint64_t> lost_{0};
  std::thread thread_;
};

/// A connection from here; closed with the object.
class Sender {
 public:
  struct Kind {
    std::uint32_t uid = kEdgeAgentUid;
    bool is_v6 = false;
    bool is_udp = false;
    std::uint16_t port = kDataPort;
    std::string congestion;          ///< of TCP; empty: the system's
    std::uint64_t pace_bytes_s = 0;  ///< SO_MAX_PACING_RATE; 0 = none
    bool is_in_bursts = false;       ///< given to the kernel as copies are (io/send_bursts.h)
    /// Datagrams ask fq to hold them back until then (SO_TXTIME, now_ns()); 0: they do not.
    std::int64_t held_until_ns = 0;
  };

  explicit Sender(const Kind& kind);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  /// As the agent would claim it.
  traffic::TransferClaim claim(std::uint64_t id, std::uint64_t bytes_per_s) const;
  void pace(std::uint64_t bytes_s) const;
  /// Sends as fast as the socket takes it until then; for datagrams at most `udp_bytes_s`.
  void flood_until(std::int64_t end_ns, std::uint64_t udp_bytes_s = 0) const;
  /// One small message; false when the socket does not take it.
  bool say() const;
  std::uint64_t retransmits() const;
  /// Of these, what the peer had already, as it says (DSACK): late, not lost.
  std::uint64_t needless_retransmits() const;

  /// What TCP has measured; zeros where it has not.
  struct Path {
    double round_trip_s = 0;
    double least_s = 0;
    std::uint64_t acknowledged_bytes = 0;
  };

  Path path() const;

 private:
  void send_datagram(const char* bytes) const;

  Kind kind_;
  int fd_ = -1;
  mutable std::mutex mutex_;  ///< guards bursts_
  mutable io::SendBursts bursts_;
};

}  // namespace rn::edge_site
