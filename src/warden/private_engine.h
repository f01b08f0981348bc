// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/error.h"
#include "base/time.h"

namespace rn::warden {

struct PrivateEngineConfig {
  std::string folder;  ///< STATE/warden/engine: data root, etc, log
  std::string run;     ///< RUN/engine: socket, pid file, exec root (short: sockets are in it)
  std::string cgroup_parent;           ///< "/reclaim-LAB"
  std::uint32_t uid_base = 1'000'000;  ///< container uid 0 is this uid of the host
  std::string self;                    ///< the program that has the verb `engine-exec`
  std::string dockerd = "dockerd";
};

/// dockerd's arguments for the configuration. Pure.
std::vector<std::string> engine_arguments(const PrivateEngineConfig& config);

/// `text` of passwd or group with the line for the user `reclaimnet` that the remap names. Pure.
std::string with_remap_user(const std::string& text, bool is_group);

/// A dockerd with its containerd that is ours alone: own socket, data root, user-namespace remap,
/// no networking. The owner's engine is never touched. It outlives the warden: a new warden takes
/// the running one over by its pid file, and guests outlive the engine (live restore). All calls
/// block; one thread.
class PrivateEngine {
 public:
  explicit PrivateEngine(PrivateEngineConfig config) : config_(std::move(config)) {}

  std::string socket() const { return config_.run + "/docker.sock"; }

  /// Answers the pid of the engine that runs and answers: the one that is there, else a new one.
  /// kUnavailable when one is there and does not answer (it is given `patience`, then killed and
  /// started anew by the next call); kInternal when it does not come up, with the end of its log.
  Result<pid_t> ensure(Instant now, nanoseconds patience = seconds(120));
  /// Removes one that maps to other ids than `uid_base`, with its images and containers: what they
  /// hold is owned by the old ones. No guest of it may run. Fine when there is none.
  Status remove_of_other_ids();
  /// Its pid while it lives, answering or not.
  std::optional<pid_t> find() const;
  /// TERM, then KILL; containerd and shims with it. Removes its run folder. For leave().
  Status stop();
  /// stop(), and its folder with images and data root is deleted.
  Status remove();

 private:
  Status prepare() const;
  Result<pid_t> start();

  PrivateEngineConfig config_;
  std::optional<Instant> silent_since_;
};

}  // namespace rn::warden
