// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <poll.h>

#include "model/gang_link.h"

namespace rn::init {

/// The guest's end of its links to the other members of its gang (model/gang_link.h). What the
/// guest's programs connect to at another member's address comes to a listener here, by a rule of
/// the guest's own network; each goes on by a connection that the node's agent has waiting at
/// /reclaim/tunnel.sock. What comes from another member is connected to the guest's own address,
/// from that member's: never to 127.0.0.1, so that what listens there alone is reached by nobody.
/// All that it keeps is bounded and belongs to the guest; it dies with the guest.
class Links {
 public:
  static constexpr int kPlaces = gang_link::kOpenAtOnce + gang_link::kOffered;
  static constexpr int kPolled = 1 + 2 * kPlaces;

  /// Of the member with this rank. False with errno where there can be no listener.
  bool begin(std::uint32_t rank);

  bool is_on() const { return listener_ >= 0; }

  /// Takes the agent's connection, which waits for the next program that connects.
  void offer(int packets);
  /// Takes the agent's connection, on which a link to a port here was asked for.
  void open(int packets, gang_link::Asked asked, std::int64_t now);

  /// What to wait for: kPolled of them, some of them -1.
  void fill(pollfd* out) const;
  void step(const pollfd* ready, std::int64_t now);
  /// When step() has something to do by itself; -1 = no such time.
  std::int64_t wakes_at() const;
  /// No process of the guest's is left: what they have written goes to the other members, which the
  /// kernel sees to where programs have sockets of their own. Waits for a few seconds at most.
  void flush();

 private:
  enum class Phase : std::uint8_t {
    kFree,
    kOffered,     ///< waits for a program of the guest's
    kDialling,    ///< the other member has been asked for
    kConnecting,  ///< to the guest's own program
    kNobody,      ///< it does not listen yet: tried again
    kOpen
  };

  /// Zeros at first, so that it takes no room in the program's file.
  struct Place {
    Phase phase;
    bool has_heard_end;  ///< of the other member's program, and the own one was told
    bool has_read_end;   ///< of the own program
    bool has_said_end;   ///< and the other one was told
    int packets;         ///< to the agent; meaningful unless free
    int stream;          ///< to the own program, or -1
    std::int64_t until;  ///< of the phase; 0 = for ever
    std::int64_t again_at;
    gang_link::Asked asked;
    std::size_t in_from;  ///< what waits to be written to the program, in `in`
    std::size_t in_to;
    std::size_t held;  ///< bytes of `packet` that wait for the agent to take them
    std::uint8_t in[gang_link::kDataMax];
    std::uint8_t packet[gang_link::kDataMax + 1];
  };

  static bool has_something_to_say();
  Place* take(int packets, Phase phase);
  Place* offered();
  void accept_some(std::int64_t now);
  void serve(Place& one, bool is_heard, bool is_streaming, std::int64_t now);
  void connect_inside(Place& one, std::int64_t now);
  void look_if_connected(Place& one, std::int64_t now);
  static void on_answer(Place& one);
  static bool is_agent_there(const Place& one);
  static bool pump(Place& one);
  static bool write_stream(Place& one);
  static bool read_stream(Place& one);
  static bool hear(Place& one, bool& is_empty);
  static bool say(const Place& one, const std::uint8_t* packet, std::size_t size, bool& is_full);
  static void refuse(Place& one, const char* words);
  static void end(Place& one, bool is_broken);

  static Place places_[kPlaces];

  std::uint32_t rank_ = gang_link::kRanks;
  int listener_ = -1;
};

}  // namespace rn::init
