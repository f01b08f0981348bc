// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "links.h"
#include "visits.h"
#include <poll.h>

#include "model/tunnel.h"

namespace rn::init {

/// The guest's end of its tunnels (model/tunnel.h): a packet socket /reclaim/tunnel.sock, on which
/// the node's agent asks for a port, and passes the packets of one tunnel on by each connection.
/// One that asks for a visit is handed over (visits.h), and so is one of a link (links.h). PID 1
/// connects to 127.0.0.1 inside the guest's own network, as any of its processes could, so nothing
/// of this reaches further than the guest itself. All that it keeps is bounded and belongs to the
/// guest; it dies with the guest.
class Tunnels {
 public:
  static constexpr int kOpenAtOnce = 32;
  /// One more, in which it is heard what the next one asks for before it is told that there is no
  /// room.
  static constexpr int kPlaces = kOpenAtOnce + 1;
  static constexpr int kPolled = 1 + 2 * kPlaces;

  /// Both outlive it. False with errno where there can be no socket.
  bool begin(Visits& visits, Links& links);

  /// What to wait for: kPolled of them, some of them -1.
  void fill(pollfd* out) const;
  void step(const pollfd* ready, std::int64_t now);
  /// When step() has something to do by itself; -1 = no such time.
  std::int64_t wakes_at() const;

 private:
  enum class Phase : std::uint8_t { kFree, kAsked, kConnecting, kOpen };
  using End = tunnel::End<tunnel::kWindowToGuest>;

  /// Zeros at first, so that it takes no room in the program's file.
  struct Place {
    Phase phase;
    bool is_agent_gone;
    bool has_read_end;   ///< of the guest's server
    int packets;         ///< to the agent; meaningful unless free or gone
    int stream;          ///< to the guest's server; from kConnecting on
    std::int64_t until;  ///< of the phase; 0 = for ever
    std::size_t held;    ///< bytes of `packet` that wait for room
    std::uint8_t packet[tunnel::kPacketMax];
    End end;
  };

  void accept_some(std::int64_t now);
  void serve(Place& one, bool is_heard, bool is_streaming, std::int64_t now);
  bool hear(Place& one, std::int64_t now);
  bool hear_one(Place& one, const std::uint8_t* packet, std::size_t size, std::int64_t now);
  bool hand_over(Place& one, const std::uint8_t* packet, std::size_t size, std::int64_t now);
  static bool has_room();
  static void connect_to(Place& one, std::uint16_t port, std::int64_t now);
  static void look_if_connected(Place& one);
  static bool pump(Place& one);
  static bool write_stream(Place& one);
  static bool read_stream(Place& one);
  static bool say(Place& one, const std::uint8_t* packet, std::size_t size, bool& is_full);
  static void refuse(Place& one, const char* words);
  static void end(Place& one, bool is_broken);

  static Place places_[kPlaces];

  Visits* visits_ = nullptr;
  Links* links_ = nullptr;
  int listener_ = -1;
};

}  // namespace rn::init
