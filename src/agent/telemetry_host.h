// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/time.h"
#include "model/node.h"

namespace rn::agent {

/// Processor, memory and presence of people, read below a root folder ("" = the machine; a fixture
/// in tests). Not thread-safe: one sampler. Blocking, but only on procfs.
class HostSampler {
 public:
  explicit HostSampler(std::string root) : root_(std::move(root)) {}

  /// cpu_percent is of the time since the last call (0 at the first). disk and guests are left
  /// alone.
  Status sample(NodeTelemetry& out);
  /// Seconds since the last input or login: the youngest of the terminals' access times and of
  /// input devices' interrupts. Large if nobody was ever seen.
  std::uint64_t idle_s(WallTime now);

  /// What guests hold of memory now, in MiB and without what the kernel keeps of files, by their
  /// containers: of the groups in those of the machine's whose names begin with `guest_group`.
  /// Where the kernel does not count memory by groups: none.
  std::map<std::string, std::uint64_t> guest_memory_mib(const std::string& guest_group) const;
  /// Processor time that guests have used since their groups were made, in ms, in the same way.
  std::map<std::string, std::uint64_t> guest_cpu_ms(const std::string& guest_group) const;

  Result<std::uint32_t> cpu_milli() const;
  Result<std::uint64_t> memory_mib() const;
  std::string kernel() const;
  std::string cgroup_version() const;  ///< "v1", "v2", "hybrid"
  bool has_user_namespaces() const;
  /// The kernel has AppArmor on, and the tool by which an engine loads its profile is missing: then
  /// no container starts. (Debian's docker.io only recommends it.)
  bool lacks_apparmor_parser() const;

 private:
  Result<std::string> read(const std::string& path) const;

  std::string root_;
  std::uint64_t busy_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t interrupts_ = 0;
  std::optional<WallTime> input_at_;
};

}  // namespace rn::agent
