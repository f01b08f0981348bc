// SPDX-License-Identifier: Apache-2.0
#include "coordinator/contract_preview.h"

#include <algorithm>
#include <string>

#include "arbiter/contract_order.h"
#include "arbiter/contract_rules.h"

namespace rn::coordinator {

namespace {

constexpr std::int64_t kNotInSight = -1;

std::string span_words(std::int64_t in_s) {
  if (in_s < 120) return std::to_string(in_s) + " s";
  if (in_s < 2 * 3600) return std::to_string(in_s / 60) + " min";
  const std::int64_t hours = in_s / 3600;
  const std::int64_t minutes = in_s % 3600 / 60;
  return std::to_string(hours) + " h" +
         (minutes == 0 ? "" : " " + std::to_string(minutes) + " min");
}

std::int64_t leaves_in(
    const Contract& contract, WallTime wall, const std::optional<std::int32_t>& offset_s
) {
  if (!offset_s) return kNotInSight;
  const auto left = arbiter::guests_leave_in(contract, wall, *offset_s);
  return left ? std::int64_t{left->count()} : kNotInSight;
}

std::string guest_words(const api::ContractGuest& guest) {
  const std::string who =
      "job " + std::to_string(guest.job_number) + " of " + guest.user.str() + " ";
  const bool leaves = guest.leaves_in_s_after != kNotInSight;
  if (!leaves && guest.leaves_in_s_before == kNotInSight) return who + "stays as it does now";
  if (!leaves) return who + "may stay, and had to leave in " + span_words(guest.leaves_in_s_before);
  std::string text = who + "has to leave in " + span_words(guest.leaves_in_s_after);
  if (guest.leaves_in_s_before == guest.leaves_in_s_after) text += ", as it does now";
  if (guest.leaves_in_s_before > guest.leaves_in_s_after)
    text += " instead of " + span_words(guest.leaves_in_s_before);
  if (guest.leaves_in_s_before == kNotInSight) text += ", and may stay now";
  return text + "; it is told " + span_words(guest.notice_s) + " before";
}

template <class Names, class Name>
bool lets_come(const Names& names, const Name& name) {
  return names.empty() || std::find(names.begin(), names.end(), name.str()) != names.end();
}

/// Of a guest that has this GPU: the first of both windows makes it go.
std::int64_t leaves_gpu_in(
    const Contract& contract,
    WallTime wall,
    const std::optional<std::int32_t>& offset_s,
    std::uint32_t gpu
) {
  if (!offset_s) return kNotInSight;
  const auto left = arbiter::guests_leave_in(contract, wall, *offset_s, {gpu});
  return left ? std::int64_t{left->count()} : kNotInSight;
}

/// Which guest has which GPU is the node's to know.
void add_gpu_notes(const PreviewInput& input, api::ContractPreview& out) {
  if (input.from.gpu_windows == input.to.gpu_windows) return;
  for (const Gpu& gpu : input.facts.gpus) {
    const std::int64_t before =
        leaves_gpu_in(input.from, input.node_wall, input.from_offset_s, gpu.index);
    const std::int64_t after =
        leaves_gpu_in(input.to, input.node_wall, input.to_offset_s, gpu.index);
    const bool is_sooner = after != kNotInSight && (before == kNotInSight || after < before);
    if (is_sooner)
      out.notes.push_back(
          "a guest that has GPU " + std::to_string(gpu.index) + " has to leave in " +
          span_words(after)
      );
  }
}

/// Who runs already goes on with what it was given: this is about who comes.
void add_notes(const PreviewInput& input, api::ContractPreview& out) {
  const Contract& from = input.from;
  const Contract& to = input.to;
  if (!input.to_offset_s && (!to.windows.empty() || !to.gpu_windows.empty()))
    out.notes.push_back(
        "the coordinator does not know the time zone " + to.time_zone +
        ": when guests leave is not shown, and the machine looks itself"
    );
  if (input.guests.empty()) return;
  add_gpu_notes(input, out);
  for (const Gpu& gpu : input.facts.gpus) {
    const bool is_lost = is_gpu_lent(from, gpu.index) && !is_gpu_lent(to, gpu.index);
    if (is_lost)
      out.notes.push_back(
          "a guest that has GPU " + std::to_string(gpu.index) +
          " keeps it until it ends: take that GPU back to have it before"
      );
  }
  for (const api::GuestInfo& guest : input.guests) {
    const bool may_come =
        lets_come(to.allow_users, guest.user) && lets_come(to.allow_labs, guest.lab);
    if (!may_come)
      out.notes.push_back(
          "job " + std::to_string(guest.job_number) + " of " + guest.user.str() +
          " runs on, and is the last of theirs here"
      );
  }
  const bool are_limits_same = from.guest_cpu_milli == to.guest_cpu_milli &&
                               from.guest_cpu_each_milli == to.guest_cpu_each_milli &&
                               from.guest_memory_mib == to.guest_memory_mib &&
                               from.guest_disk_mib == to.guest_disk_mib &&
                               from.max_pids == to.max_pids && from.max_guests == to.max_guests;
  if (!are_limits_same)
    out.notes.emplace_back("limits count for guests that come: who is there keeps what it has");
}

}  // namespace

api::ContractPreview preview_of(const PreviewInput& input) {
  api::ContractPreview out;
  out.lent_minutes_before = input.from.lends ? arbiter::lent_minutes(input.from) : 0;
  if (const Status bounded = arbiter::check_bounds(input.to); !bounded) {
    out.problems = {bounded.error().message};
    return out;
  }
  out.problems = arbiter::problems_of(input.to, input.facts);
  if (!out.problems.empty()) return out;
  out.widens = arbiter::widenings(input.from, input.to, input.facts);
  out.narrows = out.widens.empty();
  out.changes = arbiter::changes(input.from, input.to);
  out.lent_minutes_after = input.to.lends ? arbiter::lent_minutes(input.to) : 0;
  const std::int64_t before = leaves_in(input.from, input.node_wall, input.from_offset_s);
  const std::int64_t after = leaves_in(input.to, input.node_wall, input.to_offset_s);
  for (const api::GuestInfo& info : input.guests) {
    api::ContractGuest guest;
    guest.job_number = info.job_number;
    guest.user = info.user;
    guest.lab = info.lab;
    guest.leaves_in_s_before = before;
    guest.leaves_in_s_after = after;
    guest.notice_s = input.to.notice_s;
    if (after != kNotInSight)
      guest.notice_s = static_cast<std::uint32_t>(std::min<std::int64_t>(input.to.notice_s, after));
    guest.message = guest_words(guest);
    out.guests.push_back(std::move(guest));
  }
  add_notes(input, out);
  return out;
}

}  // namespace rn::coordinator
