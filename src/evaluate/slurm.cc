// SPDX-License-Identifier: Apache-2.0
#include "evaluate/slurm.h"

#include <fmt/core.h>

namespace rn::evaluate {

std::string Slurm::name() const {
  if (!options_.interval_s) return options_.catches_sigterm ? "slurm-term" : "slurm-s0";
  return fmt::format(
      "slurm-{}-{:.0f}s", options_.catches_sigterm ? "s2" : "s1", *options_.interval_s
  );
}

}  // namespace rn::evaluate
