// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli_client.h"

#include "base/ids.h"
#include "model/api.h"
#include "model/fields.h"

namespace rn::cli {

/// What one node lends at the moment.
struct Offer {
  NodeId node;
  std::string host;
  LabId lab;
  std::uint32_t gpus = 0;            ///< lent
  std::uint32_t gpus_free = 0;       ///< of these, nobody's: neither a guest's nor the owner's
  std::uint64_t gpu_memory_mib = 0;  ///< of the biggest one
  std::uint32_t cpu_milli = 0;
  std::uint32_t cpu_milli_free = 0;
  std::uint64_t memory_mib = 0;
  std::uint64_t memory_mib_free = 0;
  std::uint32_t notice_s = 0;
  std::int64_t until_wall_ms = 0;  ///< announced, or the end of a window; 0: neither is known
  double stays_1h = 0;             ///< chance that its owner leaves it lent for so long
  double stays_8h = 0;
  std::vector<std::string> labs;   ///< that its contract admits; empty: all
  std::vector<std::string> users;  ///< the same
  std::vector<std::string> data;   ///< data sets

  RN_FIELDS(
      Offer,
      node,
      host,
      lab,
      gpus,
      gpus_free,
      gpu_memory_mib,
      cpu_milli,
      cpu_milli_free,
      memory_mib,
      memory_mib_free,
      notice_s,
      until_wall_ms,
      stays_1h,
      stays_8h,
      labs,
      users,
      data
  )
};

struct OfferList {
  std::vector<Offer> offers;

  RN_FIELDS(OfferList, offers)
};

/// Nodes that take guests now and lend so many GPUs of so much memory, free or not; who has most
/// free GPUs first, then who stays longest. Pure. Whether a job fits there `plan` says.
OfferList offers_of(
    const api::NodeList& nodes,
    std::uint32_t gpus,
    std::uint64_t gpu_memory_mib,
    std::int64_t now_wall_ms
);

std::string table_of_offers(const OfferList& list, std::int64_t now_wall_ms);

/// Why there is none: "nothing is lent now: 2 outside_window, 1 away".
std::string words_of_no_offer(const api::NodeList& nodes, bool is_any_wanted);

struct OffersOptions {
  std::string gpu;  ///< as of `run`; empty: whatever there is
  bool is_json = false;
};

int offers(const Client& client, const OffersOptions& options);

}  // namespace rn::cli
