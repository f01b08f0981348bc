// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

/// A sniffer outside the thing that is measured: an AF_PACKET socket in another network namespace,
/// with the kernel's receive time stamps (CLOCK_REALTIME).
namespace rn::wire {

enum class Kind : std::uint8_t { kUdp4, kUdp6, kTcp4, kKinds };

class Capture {
 public:
  /// Sees packets that arrive on eth0 of `netns` from these two addresses; of IPv4 only those to
  /// one of `ports`, if there are any. Aborts the program when it cannot.
  Capture(
      const std::string& netns,
      const std::string& source_v4,
      const std::string& source_v6,
      std::vector<std::uint16_t> ports = {}
  );
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::uint64_t packets(Kind kind) const { return packets_[static_cast<std::size_t>(kind)]; }

  /// Time stamp of the newest packet, whichever kind.
  std::int64_t last_ns() const { return last_ns_; }

  std::int64_t last_ns(Kind kind) const { return last_of_[static_cast<std::size_t>(kind)]; }

  /// Waits until everything received has been read.
  void drain() const;
  /// Packets that the socket lost: a nonzero count makes last_ns() worthless.
  std::uint64_t lost() const;

 private:
  void run();
  void note(const std::uint8_t* frame, std::size_t size, std::int64_t at_ns);
  bool is_meant(const std::uint8_t* frame, std::size_t size) const;

  int fd_ = -1;
  std::array<std::uint8_t, 4> source_v4_{};
  std::array<std::uint8_t, 16> source_v6_{};
  std::atomic<bool> is_stopping_{false};
  std::atomic<std::uint64_t> idle_turns_{0};  ///< times the socket was found empty
  std::atomic<std::int64_t> last_ns_{0};
  std::array<std::atomic<std::int64_t>, static_cast<std::size_t>(Kind::kKinds)> last_of_{};
  const std::vector<std::uint16_t> ports_;
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Kind::kKinds)> packets_{};
  mutable std::atomic<std::uint64_t> lost_{0};
  std::thread thread_;
};

/// Puts the calling thread into a namespace made by `ip netns add`. Aborts when it cannot.
void enter_netns(const std::string& name);
/// `ip ...` or another command; aborts with the command's text when it fails.
void must_run(const std::string& command);
std::int64_t realtime_ns();

}  // namespace rn::wire
