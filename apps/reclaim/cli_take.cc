// SPDX-License-Identifier: Apache-2.0
#include "cli_take.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "cli_commands.h"
#include "cli_job_file.h"
#include "cli_print.h"

#include "base/printable.h"
#include "io/http.h"
#include "io/real_rng.h"
#include "model/codec_detail.h"

namespace rn::cli {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr auto kLookEvery = std::chrono::milliseconds(200);
constexpr int kOrderTries = 20;
constexpr int kMissesMax = 300;  ///< a minute without the coordinator
/// The order's own time, its answer's, and what clearing may take on a busy machine.
constexpr std::chrono::seconds kOrderTakes{25};
constexpr std::chrono::seconds kClearTakes{60};
constexpr std::int64_t kClocksApart_ms = 2'000;
constexpr const char* kByHand =
    "on the machine itself, which needs neither network nor coordinator: reclaim-agent reclaim "
    "--now";

std::string after_declared(const ReclaimRecord& reclaim, std::int64_t then_ns) {
  char text[48];
  const double ms = static_cast<double>(then_ns - reclaim.declared_ns) / 1e6;
  if (ms < 1000) {
    std::snprintf(text, sizeof text, "after %.1f ms", ms);
  } else {
    std::snprintf(text, sizeof text, "after %.1f s", ms / 1e3);
  }
  return text;
}

Result<api::ReclaimRequest> request_of(const TakeOptions& options) {
  api::ReclaimRequest request;
  io::RealRng rng;
  request.order = rng.hex(12);
  request.gpus = options.gpus;
  if (options.is_now) request.kind = ReclaimKind::kEmergency;
  if (options.in.empty()) return request;
  auto in_s = parse_duration_s(options.in);
  if (!in_s) return fail(in_s.error().with("--in"));
  request.kind = ReclaimKind::kAnnounced;
  request.in_s = *in_s;
  return request;
}

/// Repeats it while nobody answers, which its name makes harmless.
Result<ReclaimOrder> give_order(
    const Client& client, const NodeId& node, const api::ReclaimRequest& request
) {
  const std::string path = "/v1/nodes/" + io::percent_encode(node.str()) + "/reclaim";
  for (int tries = 1;; ++tries) {
    auto given = client.send_as<ReclaimOrder>("POST", path, to_json(request));
    if (given || !is_retryable(given.error().code) || tries == kOrderTries) return given;
    if (tries == 1)
      std::fprintf(stderr, "the coordinator does not answer; repeating the order ...\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

/// What is known of it now.
Status look_at_taking(const Client& client, Taking& taking) {
  const std::string path = "/v1/nodes/" + io::percent_encode(taking.order.node.str());
  RN_TRY(const auto node, client.get_as<api::NodeInfo>(path));
  for (const ReclaimOrder& order : node.orders)
    if (order.id == taking.order.id) taking.order = order;
  if (taking.order.state != OrderState::kTaken) return {};
  RN_TRY(const auto list, client.get_as<api::ReclaimList>("/v1/reclaims?limit=200"));
  auto reclaim = reclaim_of(taking.order, list.reclaims, node.clock_offset_ms);
  if (reclaim) taking.reclaim = std::move(reclaim);
  taking.is_cleared = taking.reclaim && taking.reclaim->cleared_ns != 0;
  return {};
}

/// Tells each thing once.
class TakeNews {
 public:
  void tell(const Taking& taking) {
    if (std::exchange(said_, taking.order.message) != taking.order.message) line(said_);
    if (!taking.reclaim) return;
    const auto steps = steps_of(*taking.reclaim);
    for (; told_ < steps.size(); ++told_) line(steps[told_]);
  }

 private:
  static void line(const std::string& text) {
    std::fprintf(stderr, "%s\n", printable(text).c_str());
  }

  std::string said_;
  std::size_t told_ = 0;
};

std::chrono::seconds patience_of(const api::NodeInfo& node, const api::ReclaimRequest& request) {
  const std::uint32_t notice_s =
      request.kind == ReclaimKind::kNotice ? node.contract.notice_s : request.in_s;
  return kOrderTakes + std::chrono::seconds(notice_s) + kClearTakes;
}

Status follow_taking(
    const Client& client, Taking& taking, bool is_enough, std::chrono::seconds patience
) {
  const auto until = SteadyClock::now() + patience;
  TakeNews news;
  for (int misses = 0;;) {
    news.tell(taking);
    if (const auto end = end_of_taking(taking, is_enough)) return *end;
    if (SteadyClock::now() >= until)
      return fail(
          ErrorCode::kTimeout,
          "it has begun, and that it is cleared has not been heard yet",
          "what is heard of it: reclaim events --node " + taking.order.node.str() +
              "; on the machine: reclaim-agent status"
      );
    std::this_thread::sleep_for(kLookEvery);
    const Status looked = look_at_taking(client, taking);
    if (looked) {
      misses = 0;
    } else if (!is_retryable(looked.error().code) || ++misses > kMissesMax) {
      return looked;
    } else if (misses == 1) {
      std::fprintf(stderr, "the coordinator does not answer; waiting for it ...\n");
    }
  }
}

bool is_of_order(
    const ReclaimRecord& reclaim, const ReclaimOrder& order, std::int64_t clock_offset_ms
) {
  if (reclaim.node != order.node || reclaim.kind != order.kind) return false;
  if (!reclaim.gpus.empty() && reclaim.gpus != order.gpus) return false;
  return reclaim.phase != ReclaimPhase::kReturned ||
         reclaim.declared_wall_ms + clock_offset_ms + kClocksApart_ms >= order.ordered_wall_ms;
}

}  // namespace

std::optional<ReclaimRecord> reclaim_of(
    const ReclaimOrder& order,
    const std::vector<ReclaimRecord>& reclaims,
    std::int64_t clock_offset_ms
) {
  const ReclaimRecord* found = nullptr;
  for (const ReclaimRecord& reclaim : reclaims) {
    if (!order.reclaim.empty() && reclaim.node == order.node && reclaim.id == order.reclaim)
      return reclaim;
    if (!order.reclaim.empty() || !is_of_order(reclaim, order, clock_offset_ms)) continue;
    if (found == nullptr || reclaim.declared_wall_ms > found->declared_wall_ms) found = &reclaim;
  }
  return found == nullptr ? std::nullopt : std::optional(*found);
}

std::optional<Status> end_of_taking(const Taking& taking, bool is_enough) {
  const ReclaimOrder& order = taking.order;
  switch (order.state) {
    case OrderState::kWaiting:
    case OrderState::kSent:
      return std::nullopt;
    case OrderState::kExpired:
      return Status(fail(ErrorCode::kUnavailable, order.message, kByHand));
    case OrderState::kRefused:
      return Status(fail(ErrorCode::kConflict, order.message, kByHand));
    case OrderState::kUnanswered:
      return Status(fail(ErrorCode::kTimeout, order.message, kByHand));
    case OrderState::kTaken:
      break;
  }
  if (is_enough) return Status();
  if (!taking.reclaim) return std::nullopt;
  const ReclaimRecord& reclaim = *taking.reclaim;
  if (reclaim.cleared_ns != 0) return Status();
  if (reclaim.phase == ReclaimPhase::kReturned)
    return Status(fail(
        ErrorCode::kConflict,
        "it was given back before it was cleared",
        "somebody released it on the machine: ask there, or take it again"
    ));
  if (reclaim.phase != ReclaimPhase::kWedged) return std::nullopt;
  std::string remains;
  for (const std::string& one : reclaim.remains) remains += (remains.empty() ? "" : "; ") + one;
  return Status(fail(
      ErrorCode::kInternal,
      "it could not be verified free; still there: " + (remains.empty() ? "unknown" : remains),
      "on the machine: reclaim-agent status --why"
  ));
}

std::vector<std::string> steps_of(const ReclaimRecord& reclaim) {
  const std::pair<const char*, std::int64_t> steps[] = {
      {"network cut", reclaim.cut_ns},
      {"guests ended", reclaim.killed_ns},
      {"cleared", reclaim.cleared_ns},
      {"lent again", reclaim.returned_ns}};
  std::vector<std::string> lines;
  for (const auto& [what, then_ns] : steps)
    if (then_ns != 0) lines.push_back(std::string(what) + " " + after_declared(reclaim, then_ns));
  return lines;
}

int take(const Client& client, const TakeOptions& options) {
  const auto request = request_of(options);
  if (!request) return complain(request.error());
  const auto list = client.get_as<api::NodeList>("/v1/nodes");
  if (!list) return complain(list.error());
  const auto node = find_node(*list, options.node);
  if (!node) return complain(node.error());
  auto given = give_order(client, node->id, *request);
  if (!given) return complain(given.error());
  Taking taking{*std::move(given), std::nullopt};
  const Status ended =
      follow_taking(client, taking, options.is_detached, patience_of(*node, *request));
  if (options.is_json) print_json(to_json(taking));
  if (!ended) return complain(ended.error());
  if (!options.is_json) {
    const std::string host = printable(node->lab.str() + "/" + node->facts.hostname);
    std::printf("%s %s\n", host.c_str(), taking.is_cleared ? "is cleared" : "has begun");
    std::fprintf(stderr, "  to lend it again, on the machine: reclaim-agent release\n");
  }
  return 0;
}

}  // namespace rn::cli
