// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "init_log.h"

namespace rn::init {

inline constexpr int kQueueAgain = 99;  ///< "start me again, anywhere" (docs/guests.md)
inline constexpr int kCancelled = 143;  ///< as after a SIGTERM

/// The guest's own word that it wants to be over, by one of Slurm's commands in it (slurm.h): the
/// file /reclaim/leave, with the code that its attempt is to end with, one of those two. False with
/// errno.
bool ask_to_leave(int code);
/// 0 = nobody has asked.
int asked_to_leave();

/// Ends a guest that has asked to, as Slurm ends a job: SIGCONT and SIGTERM to all its processes, a
/// moment later, so that who asked hears the answer first; SIGKILL after Slurm's KillWait. It is
/// over sooner when no process is left. Nothing here waits or allocates.
class Leaving {
 public:
  /// From now on it can ask. What lies there from before is no word.
  void begin();

  bool is_on() const { return is_on_; }

  bool is_asked() const { return code_ != 0; }

  int code() const { return code_; }

  bool is_time_up(std::int64_t now) const { return is_asked() && now >= kill_at_; }

  void look(std::int64_t now, Log& log);
  void step(std::int64_t now, bool is_time_to_look, Log& log);
  /// When step() has something to do by itself; -1 = no such time.
  std::int64_t wakes_at() const;

 private:
  bool is_on_ = false;
  bool is_told_ = false;
  int code_ = 0;
  std::int64_t tell_at_ = 0;
  std::int64_t kill_at_ = 0;
};

}  // namespace rn::init
