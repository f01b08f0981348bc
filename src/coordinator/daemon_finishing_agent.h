// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: a live agent whose guests end at once.

#include <string>

#include "coordinator/daemon_live_agent.h"
#include "model/job.h"

namespace rn::coordinator {

/// One light agent of lab-a that runs what it gets and ends it with `outputs`.
class FinishingAgent : public LiveAgent {
 public:
  /// The site outlives it. Not joined: the test fails.
  FinishingAgent(const LiveSite& site, const std::string& image, const Listing& outputs)
      : LiveAgent(site, "lab-a", "machine-1", behaviour(site, image, outputs)) {}

 private:
  static LightAgent::Behaviour behaviour(
      const LiveSite& site, const std::string& image, const Listing& outputs
  ) {
    const Blob listing = to_cbor(outputs);
    site.put(std::string(as_text(listing)));
    LightAgent::Behaviour behaviour;
    behaviour.image_digest = image;
    behaviour.finishes = true;
    behaviour.outputs = crypto::sha256(listing);
    return behaviour;
  }
};

}  // namespace rn::coordinator
