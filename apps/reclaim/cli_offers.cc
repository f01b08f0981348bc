// SPDX-License-Identifier: Apache-2.0
#include "cli_offers.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "cli_job_file.h"
#include "cli_print.h"

#include "base/printable.h"
#include "model/codec_detail.h"

namespace rn::cli {

namespace {

template <class T>
T left_of(T all, T used) {
  return used < all ? all - used : 0;
}

bool is_offering(const api::NodeInfo& node) {
  return node.is_connected && node.state == NodeState::kUp && !node.is_revoked &&
         node.contract.lends && node.lending == LendingState::kOpen;
}

/// The owner computes there, its own windows do not lend it now, it is sick, or it could not be
/// verified free.
bool is_barred(const api::NodeInfo& node, std::uint32_t gpu) {
  const auto& live = node.telemetry.gpus;
  return std::any_of(live.begin(), live.end(), [&](const GpuTelemetry& one) {
    return one.index == gpu && (one.is_wedged || one.is_outside_window || !one.sickness.empty() ||
                                is_owners_own(node.contract, one));
  });
}

std::uint32_t gpus_of_size(const api::NodeInfo& node, std::uint64_t memory_mib) {
  const auto& gpus = node.facts.gpus;
  return static_cast<std::uint32_t>(std::count_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
    return is_gpu_lent(node.contract, gpu.index) && gpu.memory_mib >= memory_mib;
  }));
}

Offer offer_of(const api::NodeInfo& node, std::int64_t now_wall_ms) {
  Offer offer;
  offer.node = node.id;
  offer.host = node.facts.hostname;
  offer.lab = node.lab;
  std::uint32_t barred = 0;
  for (const Gpu& gpu : node.facts.gpus) {
    if (!is_gpu_lent(node.contract, gpu.index)) continue;
    ++offer.gpus;
    offer.gpu_memory_mib = std::max(offer.gpu_memory_mib, gpu.memory_mib);
    if (is_barred(node, gpu.index)) ++barred;
  }
  offer.gpus_free = left_of(offer.gpus, node.used_gpus + barred);
  offer.cpu_milli = lent_cpu_milli(node.contract, node.facts);
  offer.cpu_milli_free = left_of(offer.cpu_milli, node.used_cpu_milli);
  offer.memory_mib = lent_memory_mib(node.contract, node.facts);
  offer.memory_mib_free = left_of(offer.memory_mib, node.used_memory_mib);
  offer.notice_s = node.contract.notice_s;
  if (node.leaves_in_s >= 0)
    offer.until_wall_ms = now_wall_ms + static_cast<std::int64_t>(node.leaves_in_s * 1000);
  offer.stays_1h = node.stays_1h;
  offer.stays_8h = node.stays_8h;
  offer.labs = node.contract.allow_labs;
  offer.users = node.contract.allow_users;
  offer.data = node.facts.data_sets;
  return offer;
}

std::string gpu_words(const Offer& offer) {
  if (offer.gpus == 0) return "-";
  return std::to_string(offer.gpus_free) + " of " + std::to_string(offer.gpus) + " x " +
         human_bytes(offer.gpu_memory_mib << 20);
}

std::string core_words(const Offer& offer) {
  char text[48];
  std::snprintf(
      text, sizeof text, "%.1f of %.1f", offer.cpu_milli_free / 1e3, offer.cpu_milli / 1e3
  );
  return text;
}

std::string admitted_words(const Offer& offer) {
  std::string text;
  if (!offer.labs.empty()) text = "labs " + listed(offer.labs);
  if (!offer.users.empty()) text += (text.empty() ? "users " : "; users ") + listed(offer.users);
  return text.empty() ? "all" : text;
}

}  // namespace

OfferList offers_of(
    const api::NodeList& nodes,
    std::uint32_t gpus,
    std::uint64_t gpu_memory_mib,
    std::int64_t now_wall_ms
) {
  OfferList list;
  for (const api::NodeInfo& node : nodes.nodes) {
    if (is_offering(node) && gpus_of_size(node, gpu_memory_mib) >= gpus)
      list.offers.push_back(offer_of(node, now_wall_ms));
  }
  std::sort(list.offers.begin(), list.offers.end(), [](const Offer& a, const Offer& b) {
    return std::tie(b.gpus_free, b.stays_8h, a.lab, a.host, a.node) <
           std::tie(a.gpus_free, a.stays_8h, b.lab, b.host, b.node);
  });
  return list;
}

std::string table_of_offers(const OfferList& list, std::int64_t now_wall_ms) {
  std::vector<std::vector<std::string>> rows;
  for (const Offer& offer : list.offers) {
    rows.push_back(
        {offer.node.str(),
         dash(offer.host),
         offer.lab.str(),
         gpu_words(offer),
         core_words(offer),
         human_bytes(offer.memory_mib_free << 20) + " of " + human_bytes(offer.memory_mib << 20),
         std::to_string(offer.notice_s) + " s",
         relative_time(offer.until_wall_ms, now_wall_ms),
         percent_words(offer.stays_1h),
         percent_words(offer.stays_8h),
         admitted_words(offer),
         dash(listed(offer.data))}
    );
  }
  return table(
      {"NODE",
       "HOST",
       "LAB",
       "FREE GPUS",
       "FREE CORES",
       "FREE MEMORY",
       "NOTICE",
       "UNTIL",
       "STAYS 1 H",
       "STAYS 8 H",
       "FOR",
       "DATA"},
      rows
  );
}

std::string words_of_no_offer(const api::NodeList& nodes, bool is_any_wanted) {
  if (nodes.nodes.empty()) return "nothing is lent: no node has joined yet";
  std::map<std::string, std::size_t> reasons;
  for (const api::NodeInfo& node : nodes.nodes) {
    if (node.is_revoked || node.state == NodeState::kLeft) continue;
    if (is_offering(node)) {
      ++reasons["with other GPUs"];
    } else if (!node.is_connected) {
      ++reasons["away"];
    } else if (!node.contract.lends) {
      ++reasons["only stores copies"];
    } else {
      ++reasons[std::string(to_string(node.lending))];
    }
  }
  std::string text = is_any_wanted ? "nothing is lent now" : "no such GPUs are lent now";
  std::string more;
  for (const auto& [reason, count] : reasons)
    more += (more.empty() ? ": " : ", ") + std::to_string(count) + " " + reason;
  return text + more;
}

int offers(const Client& client, const OffersOptions& options) {
  Resources wanted;
  if (!options.gpu.empty()) {
    const Status read = parse_gpu(options.gpu, wanted);
    if (!read) return complain(read.error());
  }
  const auto nodes = client.get_as<api::NodeList>("/v1/nodes");
  if (!nodes) return complain(nodes.error());
  const std::int64_t now = wall_now_ms();
  const OfferList list = offers_of(*nodes, wanted.gpus, wanted.gpu_memory_mib, now);
  if (options.is_json) {
    print_json(to_json(list));
    return 0;
  }
  std::fputs(table_of_offers(list, now).c_str(), stdout);
  if (list.offers.empty())
    std::fprintf(
        stderr,
        "%s\n  next: 'reclaim nodes' lists all\n",
        printable(words_of_no_offer(*nodes, options.gpu.empty())).c_str()
    );
  return 0;
}

}  // namespace rn::cli
