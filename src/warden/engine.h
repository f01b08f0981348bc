// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/time.h"
#include "warden/leave_report.h"
#include "warden/saved_image.h"

namespace rn::io {
struct HttpCall;
struct HttpReply;
}  // namespace rn::io

namespace rn::warden {

struct EngineFacts {
  std::string name;                   ///< "docker 20.10.24+dfsg1"
  std::string runtime;                ///< "runc 1.1.5+ds1"
  std::vector<std::string> warnings;  ///< versions below the floors, in words
};

struct EngineContainer {
  std::string id;
  std::map<std::string, std::string> labels;
  bool is_running = false;
  std::int32_t pid = 0;
  std::int32_t exit_code = 0;
  bool is_oom_killed = false;
};

/// Its init, its shim or the engine was killed, and not its command: nobody knows how that would
/// have ended. `has_own_code`: the init wrote an exit code, as it does whenever the command ends,
/// however it ends. An engine that was away makes one up: 137, 255 or 0, by its version.
bool has_vanished(bool has_own_code, const EngineContainer& container);

struct EngineImage {
  std::string digest;  ///< of the verified archive
  std::string id;
};

/// True if `version` ("1.1.5+ds1") is lower than `floor` ("1.2.8"): numbers compared one by one,
/// whatever follows them ignored. Pure.
bool is_below(const std::string& version, const std::string& floor);

/// What an answer with an error status means: the engine's own words behind "engine: ";
/// kUnavailable when it, or the containerd that it needs, may answer later. Pure.
Error engine_error(int status, const std::string& body);

/// The Docker Engine API over its Unix socket (docker 20.10 and later, podman's compatible socket).
/// All calls block, each with a deadline, and never throw: for workers. Thread-safe.
/// Errors: kUnavailable and kTimeout when the engine does not answer, kNotFound, kConflict (a name
/// is taken, or the thing is in another state), kInvalid with the engine's own words.
class Engine {
 public:
  /// `lab` is in every name that an image is given: several wardens may share the owner's engine.
  Engine(std::string socket, std::string lab) : socket_(std::move(socket)), lab_(std::move(lab)) {}

  Status ping(milliseconds limit) const;
  Result<EngineFacts> facts() const;

  /// Gives a root file system archive to the engine while hashing it; only an archive whose
  /// SHA-256 is `digest` ("sha256:HEX") becomes findable, under the engine's own id that is
  /// answered. kCorrupt: another digest.
  Result<std::string> import_image(const std::string& digest, const ReadAt& read) const;
  /// The same of a saved image, whose layers by the engine's own account must be `layers` (SHA-256
  /// of each one's tar, bottom first); kCorrupt if they are not. The engine gets its configuration
  /// and layers alone (RepackedImage): no name that the archive holds becomes one of the engine's.
  /// kInvalid: it declares a volume, or is no archive that find_saved_image() takes.
  Result<std::string> load_image(
      const std::string& digest, const std::vector<Digest>& layers, const ReadAt& read
  ) const;
  /// What carries a name of this lab's. Anybody on the engine can give such a name: only an id that
  /// import_image or load_image answered is verified.
  Result<std::vector<EngineImage>> images() const;
  /// The name by which this lab finds the verified archive `digest` ("sha256:HEX"). Pure.
  std::string name_of(const std::string& digest) const;
  /// Names of the form without a lab, which wardens gave before: nobody's now, and their images go
  /// with them unless they run. Answers those that were removed, and those that stay with why.
  Result<LeaveReport> remove_old_names() const;
  /// Takes this lab's name from it; the image goes with its last name. None there is fine.
  Status remove_image(const std::string& digest) const;

  /// Running or not, those with label `key`=`value`.
  Result<std::vector<EngineContainer>> list(const std::string& key, const std::string& value) const;
  Result<EngineContainer> inspect(const std::string& id) const;
  /// Answers the container's id. kConflict: the name is taken.
  Result<std::string> create(const std::string& name, const std::string& request) const;
  Status start(const std::string& id) const;
  Status kill(const std::string& id) const;  ///< kConflict when it does not run
  /// Running or not. A container that is not there is fine.
  Status remove(const std::string& id) const;
  /// Waits for its end and answers its exit code. kTimeout: still running.
  Result<std::int32_t> wait(const std::string& id, milliseconds limit) const;

 private:
  using NextPiece = std::function<Result<Blob>(std::size_t max)>;

  Result<std::string> upload(const std::string& path, NextPiece next) const;
  Result<std::set<std::string>> known_ids() const;
  Status discard(const std::string& id, const std::set<std::string>& known) const;
  Status name(const std::string& id, const std::string& name) const;
  Status remove_name(const std::string& name) const;
  Result<io::HttpReply> send(io::HttpCall call) const;
  Result<io::HttpReply> request(
      const char* method, const std::string& path, milliseconds limit, std::string body = {}
  ) const;

  std::string socket_;
  std::string lab_;
};

}  // namespace rn::warden
