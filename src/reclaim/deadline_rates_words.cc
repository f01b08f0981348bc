// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>

#include "reclaim/deadline_rates.h"

namespace rn::reclaim {

namespace {

std::string amount(double bytes) {
  std::array<char, 32> text{};
  if (bytes >= 1e9)
    std::snprintf(text.data(), text.size(), "%.2f GB", bytes / 1e9);
  else if (bytes >= 1e6)
    std::snprintf(text.data(), text.size(), "%.1f MB", bytes / 1e6);
  else
    std::snprintf(text.data(), text.size(), "%.0f bytes", bytes);
  return text.data();
}

std::string time_text(double value_s) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", value_s);
  return text.data();
}

std::string why_not(const TransferGrant& grant, double bytes) {
  switch (grant.reason) {
    case DropReason::kNone:
      return {};
    case DropReason::kDeadlinePassed:
      return "its time to send has passed with " + amount(bytes) + " left";
    case DropReason::kDestinationLeaving:
      return "its destination is being reclaimed itself";
    case DropReason::kNoCapacity:
      return "its path carries nothing before the deadline";
    case DropReason::kTooLarge:
      return amount(bytes) + " in " + time_text(grant.window_s) + " are more than the " +
             amount(grant.possible_bytes) + " that its path carries";
    case DropReason::kRivals:
      return amount(bytes) + " in " + time_text(grant.window_s) +
             " do not fit beside others that are worth more";
  }
  return {};
}

std::string what_instead(const TransferGrant& grant) {
  switch (grant.outcome) {
    case TransferOutcome::kDelta:
      return "; only the delta of " + amount(static_cast<double>(grant.bytes)) + " goes";
    case TransferOutcome::kNearest:
      return "; " + amount(static_cast<double>(grant.bytes)) + " go to the nearest destination";
    case TransferOutcome::kSpill:
      return "; it is kept on the node's own disk and uploaded later";
    case TransferOutcome::kAccept:
      return "; the job resumes from its last durable generation";
    case TransferOutcome::kDone:
    case TransferOutcome::kSends:
    case TransferOutcome::kWaits:
      return {};
  }
  return {};
}

}  // namespace

std::string sentence_of(const TransferGrant& grant, std::uint64_t bytes_left) {
  if (grant.reason == DropReason::kNone) return {};
  return why_not(grant, static_cast<double>(bytes_left)) + what_instead(grant);
}

}  // namespace rn::reclaim
