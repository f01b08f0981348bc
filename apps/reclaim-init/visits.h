// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "visit_child.h"
#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include "model/tunnel.h"
#include "model/visit.h"

namespace rn::init {

/// The guest's end of its user's visits (model/visit.h): commands that run beside the job's own,
/// with what any process of the guest has and may do, and copies of files, which a child of PID 1
/// makes (copies.h). None of it counts for the guest's end, and all of it ends with the guest. When
/// the user's end goes away, a command's session gets SIGHUP at once and SIGKILL five seconds
/// later. Nothing here waits or allocates.
class Visits {
 public:
  static constexpr int kPlaces = 8;
  static constexpr int kPolled = 4 * kPlaces;

  /// `mask`: of signals, for what is run.
  void begin(const sigset_t& mask) { mask_ = mask; }

  /// A connection of the agent's that has asked for a visit; it is this object's from now on.
  void take(int packets, std::int64_t now);

  /// What to wait for: kPolled of them, some of them -1.
  void fill(pollfd* out) const;
  void step(const pollfd* ready, std::int64_t now);
  /// What became of a process; another's is nobody's business here.
  void on_ended(pid_t pid, int status, std::int64_t now);
  /// When step() has something to do by itself; -1 = no such time.
  std::int64_t wakes_at() const;

 private:
  /// kAsked: nothing was asked for yet. kRunning: until it has ended and all output was read.
  /// kTelling: its end is being said. kDying: the user is gone, the process not yet.
  enum class Phase : std::uint8_t { kFree, kAsked, kRunning, kTelling, kDying };
  using End = tunnel::End<tunnel::kWindowToGuest>;

  /// Zeros at first, so that it takes no room in the program's file.
  struct Visit {
    Phase phase;
    bool has_terminal;
    bool is_copy;
    bool has_child;        ///< it is not reaped yet
    bool has_input_ended;  ///< as the user says
    bool has_said_over;
    int code;     ///< of the child, which was reaped
    int packets;  ///< to the agent; -1: it is gone
    int input;    ///< to the child; -1: closed, as the next two
    int output;   ///< from it; of a terminal, its other side
    int errors;
    pid_t child;
    std::int64_t until;       ///< of the phase; 0 = for ever
    std::int64_t drained_by;  ///< a terminal's last output; 0: its child runs
    std::size_t after_end;    ///< bytes that were read since the child's end
    std::uint32_t taken;      ///< input that went to it, and was not said
    std::size_t input_from;   ///< what waits, in input_bytes
    std::size_t input_to;
    std::size_t held;  ///< bytes of `packet` that wait for room
    End end;
    std::uint8_t packet[tunnel::kPacketMax];
    std::uint8_t input_bytes[visit::kInputWindow];
  };

  void serve(Visit& one, bool is_heard, std::int64_t now);
  /// False once the user is gone.
  bool hear(Visit& one, std::int64_t now);
  bool obey_frames(Visit& one);
  bool obey(Visit& one, const visit::Cut& frame);
  bool begin_child(Visit& one, const visit::Cut& frame);
  void run(Visit& one, const visit::Run& command);
  void copy(Visit& one, bool is_sent, const char* path);
  static void adopt(Visit& one, const VisitChild& child);
  static bool take_input(Visit& one, const visit::Cut& frame);
  static void end_input(Visit& one);
  static bool has_word(const Visit& one);
  static bool may_read(const Visit& one);
  /// Whatever can be done now in all directions. False: the agent is gone.
  static bool pump(Visit& one, std::int64_t now);
  static void write_input(Visit& one);
  static bool read_output(Visit& one, int& from, visit::Frame frame);
  static bool tell_over(Visit& one);
  static bool flush(Visit& one);
  static void hold(Visit& one, visit::Frame frame, const void* body, std::size_t size);
  static void cannot(Visit& one, const char* what, int error);
  static bool say(Visit& one, const std::uint8_t* packet, std::size_t size, bool& is_full);
  static void lose_user(Visit& one, std::int64_t now);
  static void close_child(Visit& one);
  static void end(Visit& one);

  static Visit places_[kPlaces];

  sigset_t mask_{};
};

}  // namespace rn::init
