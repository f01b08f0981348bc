// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include "reclaim/deadline_rates.h"

namespace rn::reclaim {

namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 50;  // more is a wrong number, not a job
constexpr double kMaxSeconds = 7 * 24 * 3600.0;
constexpr double kMaxValue = 1e18;

bool is_within(double number, double most) {
  return std::isfinite(number) && number >= 0 && number <= most;
}

/// Why a path is no path; empty if it is one.
std::string trouble_of(const LinkPath& path, std::size_t links) {
  if (path.empty()) return "its path crosses no link";
  if (path.size() > kMaxPathLinks)
    return "its path crosses more than " + std::to_string(kMaxPathLinks) + " links";
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] >= links)
      return "its path crosses link " + std::to_string(path[i]) + ", which is not there";
    if (std::find(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(i), path[i]) !=
        path.begin() + static_cast<std::ptrdiff_t>(i))
      return "its path crosses link " + std::to_string(path[i]) + " twice";
  }
  return {};
}

std::string trouble_of(const Alternative& other, std::size_t links) {
  if (other.bytes > kMaxBytes) return "it would move more than 1 PiB";
  if (!is_within(other.value, kMaxValue)) return "its value is negative or not a number";
  return trouble_of(other.path, links);
}

std::string trouble_of_evacuation(const DeadlineTransfer& transfer, std::size_t links) {
  if (transfer.deadline < transfer.begun) return "its deadline is before its beginning";
  if (seconds_between(transfer.begun, transfer.deadline) > kMaxSeconds)
    return "its deadline is more than a week after its beginning";
  if (!is_within(transfer.restore_s, kMaxSeconds)) return "its restore time is no sensible time";
  if (!is_within(transfer.rtt_s, 60)) return "its round trip time is no sensible time";
  for (const auto* other : {&transfer.delta, &transfer.nearest}) {
    if (!other->has_value()) continue;
    const std::string trouble = trouble_of(**other, links);
    if (!trouble.empty()) return "an alternative: " + trouble;
  }
  if (!transfer.spill) return {};
  if (transfer.spill->bytes > kMaxBytes) return "it would spill more than 1 PiB";
  if (!is_within(transfer.spill->disk_bytes_per_s, kMaxBytesPerS) ||
      !is_within(transfer.spill->value, kMaxValue))
    return "its spill's rate or value is no sensible number";
  return {};
}

std::string trouble_of(const DeadlineTransfer& transfer, std::size_t links) {
  if (transfer.bytes_left > kMaxBytes) return "more than 1 PiB are left";
  if (!is_within(transfer.cap_bytes_per_s, kMaxBytesPerS))
    return "its cap must lie between 0 and 1e12 bytes per second";
  if (!is_within(transfer.value, kMaxValue)) return "its value is negative or not a number";
  if (!is_within(transfer.index, kMaxValue)) return "its index is negative or not a number";
  std::string trouble = trouble_of(transfer.path, links);
  if (trouble.empty() && transfer.kind == TransferClass::kEvacuation)
    trouble = trouble_of_evacuation(transfer, links);
  return trouble;
}

}  // namespace

Status check_rate_input(
    const std::vector<LinkState>& links, const std::vector<DeadlineTransfer>& transfers
) {
  if (links.size() > kMaxLinks)
    return fail(
        ErrorCode::kExhausted,
        std::to_string(links.size()) + " links, at most " + std::to_string(kMaxLinks)
    );
  if (transfers.size() > kMaxTransfers)
    return fail(
        ErrorCode::kExhausted,
        std::to_string(transfers.size()) + " transfers, at most " + std::to_string(kMaxTransfers)
    );
  std::set<std::string> names;
  for (const LinkState& link : links) {
    RN_CHECK(check_link(link));
    if (!names.insert(link.name).second)
      return fail(ErrorCode::kInvalid, "link " + link.name + " is named twice");
  }
  std::set<TransferId> ids;
  for (const DeadlineTransfer& transfer : transfers) {
    if (transfer.id.empty()) return fail(ErrorCode::kInvalid, "a transfer has no id");
    if (!ids.insert(transfer.id).second)
      return fail(ErrorCode::kInvalid, "transfer " + transfer.id.str() + " is named twice");
    const std::string trouble = trouble_of(transfer, links.size());
    if (!trouble.empty())
      return fail(ErrorCode::kInvalid, "transfer " + transfer.id.str() + ": " + trouble);
  }
  return {};
}

}  // namespace rn::reclaim
