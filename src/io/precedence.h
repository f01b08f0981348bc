// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a thread that carries out its owner's order is not kept waiting by a busy machine.

#include <cerrno>

#include <pthread.h>
#include <sched.h>

#include "base/assert.h"

namespace rn::io {

/// The calling thread runs before everybody else's (SCHED_RR, the lowest of its priorities) as long
/// as this lives, and what it starts does not. For what sleeps in all its waits: it could starve
/// the machine otherwise. Where the kernel refuses, everything is merely slower.
class Precedence {
 public:
  Precedence() {
    policy_ = sched_getscheduler(0);
    if (policy_ < 0 || sched_getparam(0, &parameters_) != 0) return;
    const sched_param first{1};
    is_raised_ = sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first) == 0;
    if (!is_raised_) error_ = errno;
  }

  Precedence(const Precedence&) = delete;
  Precedence& operator=(const Precedence&) = delete;

  ~Precedence() {
    if (is_raised_) sched_setscheduler(0, policy_, &parameters_);
  }

  bool is_raised() const { return is_raised_; }

  int error() const { return error_; }  ///< errno of the refusal

 private:
  int policy_ = -1;
  sched_param parameters_{};
  bool is_raised_ = false;
  int error_ = 0;
};

/// A mutex whose holder has the precedence of who waits for it.
class InheritingMutex {
 public:
  InheritingMutex() {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    const int made = pthread_mutex_init(&mutex_, &kind);
    RN_ASSERT(made == 0, "the kernel has futexes that inherit precedence");
    pthread_mutexattr_destroy(&kind);
  }

  InheritingMutex(const InheritingMutex&) = delete;
  InheritingMutex& operator=(const InheritingMutex&) = delete;

  ~InheritingMutex() { pthread_mutex_destroy(&mutex_); }

  void lock() {
    const int locked = pthread_mutex_lock(&mutex_);
    RN_ASSERT(locked == 0, "only one who does not hold it takes it");
  }

  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

}  // namespace rn::io
