// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_orders.h"

#include <algorithm>
#include <cctype>

#include "base/log.h"
#include "model/api.h"
#include "model/codec.h"

namespace rn::coordinator {

namespace {

constexpr const char* kOrdersMeta = "reclaim_orders";
/// So long the same name is the same order.
constexpr std::chrono::minutes kOrderKept{10};
/// After its time an order that was sent is answered: a node that is at work on it may take this
/// long to say so.
constexpr std::chrono::seconds kAnswerTakes{10};
constexpr std::size_t kOpenOfNode = 4;
constexpr std::size_t kOrdersOfAll = 4096;
constexpr std::size_t kOrderNameMin = 8;
constexpr std::size_t kOrderNameMax = 64;
constexpr std::size_t kNodesWordsMax = 400;
constexpr std::uint32_t kOrderAheadMax_s = 7 * 86'400;

std::string gpus_text(const std::vector<std::uint32_t>& gpus) {
  std::string text;
  for (const std::uint32_t gpu : gpus) text += (text.empty() ? "" : ", ") + std::to_string(gpu);
  return text;
}

/// The same by hand, where nothing of ours is in the way.
std::string on_the_machine(const ReclaimOrder& order) {
  std::string text = "; on the machine itself: reclaim-agent reclaim";
  if (order.kind == ReclaimKind::kEmergency) text += " --now";
  if (order.kind == ReclaimKind::kAnnounced) text += " --in " + std::to_string(order.in_s) + "s";
  for (const std::uint32_t gpu : order.gpus) text += " --gpu " + std::to_string(gpu);
  return text;
}

std::string valid_text(const State& state) {
  return std::to_string((state.config.order_valid_ms + 999) / 1000) + " s";
}

Status check_order(const NodeEntry& node, const std::string& name, const OrderReclaim& command) {
  if (!is_callers_name(command.order))
    return fail(
        ErrorCode::kInvalid,
        "order: expected 8 to 64 letters, digits, - or _",
        "name each order anew, and a repetition of it the same"
    );
  if (command.kind == ReclaimKind::kLost)
    return fail(ErrorCode::kInvalid, "kind: expected one of announced, notice, emergency", "");
  const bool is_announced = command.kind == ReclaimKind::kAnnounced;
  if (is_announced && (command.in_s == 0 || command.in_s > kOrderAheadMax_s))
    return fail(ErrorCode::kInvalid, "in_s: expected 1 to 604800 (a week)", "");
  if (!is_announced && command.in_s != 0)
    return fail(ErrorCode::kInvalid, "in_s: only of a reclaim of the kind announced", "");
  std::vector<std::uint32_t> there;
  for (const Gpu& gpu : node.row.facts.gpus) there.push_back(gpu.index);
  std::vector<std::uint32_t> missing;
  for (const std::uint32_t gpu : command.gpus)
    if (std::find(there.begin(), there.end(), gpu) == there.end()) missing.push_back(gpu);
  if (missing.empty()) return {};
  return fail(
      ErrorCode::kNotFound,
      name + " has no GPU " + gpus_text(missing),
      there.empty() ? "it has none: leave gpus out for the whole node"
                    : "it has GPU " + gpus_text(there) + "; leave gpus out for the whole node"
  );
}

OrderEntry* find_order(State& state, const NodeId& node, const std::string& id) {
  const auto found = std::find_if(state.orders.begin(), state.orders.end(), [&](const auto& one) {
    return one.row.node == node && one.row.id == id;
  });
  return found == state.orders.end() ? nullptr : &*found;
}

void save_orders(State& state) {
  api::ReclaimOrders all;
  for (const OrderEntry& order : state.orders) all.orders.push_back(order.row);
  state.write(SetMeta{kOrdersMeta, to_json(all)});
}

void note_order(State& state, const NodeEntry& node, const ReclaimOrder& order, std::string kind) {
  state.note(
      node,
      std::move(kind),
      order.message,
      {{"order", order.id},
       {"user", order.user.str()},
       {"kind", std::string(to_string(order.kind))},
       {"gpus", gpus_text(order.gpus)},
       {"reclaim", order.reclaim.str()}}
  );
}

/// Saved by who calls.
void end_order(State& state, OrderEntry& order, OrderState to, std::string message) {
  order.row.state = to;
  ++state.metrics.orders_ended.at(static_cast<std::size_t>(to));
  order.row.message = std::move(message);
  const NodeEntry* const node = state.find_node(order.row.node);
  if (node != nullptr)
    note_order(state, *node, order.row, "reclaim.order_" + std::string(to_string(to)));
}

void add_order(
    State& state,
    const NodeEntry& node,
    const UserId& user,
    const OrderReclaim& command,
    std::vector<std::uint32_t> gpus
) {
  ReclaimOrder row;
  row.id = command.order;
  row.node = command.node;
  row.user = user;
  row.kind = command.kind;
  row.gpus = std::move(gpus);
  row.in_s = command.in_s;
  row.ordered_wall_ms = state.wall_ms();
  row.until_wall_ms = state.wall_ms() + state.config.order_valid_ms;
  row.message = user.str() + " takes " + (row.gpus.empty() ? "it" : "GPU " + gpus_text(row.gpus)) +
                " back (" + std::string(to_string(row.kind)) + "), by the coordinator";
  note_order(state, node, row, "reclaim.ordered");
  ++state.metrics.orders_given;
  row.message = state.name_of(command.node) +
                " does not answer now: it is told if it is back within " + valid_text(state) +
                ", and nothing is done otherwise" + on_the_machine(row);
  const Instant until = state.now.boot + milliseconds(state.config.order_valid_ms);
  state.orders.push_back({std::move(row), state.now.boot, until});
}

bool has_room(const State& state, const NodeId& node) {
  const auto open = std::count_if(state.orders.begin(), state.orders.end(), [&](const auto& one) {
    return one.row.node == node && is_open(one.row.state);
  });
  return static_cast<std::size_t>(open) < kOpenOfNode && state.orders.size() < kOrdersOfAll;
}

}  // namespace

bool is_callers_name(const std::string& text) {
  return text.size() >= kOrderNameMin && text.size() <= kOrderNameMax &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_';
         });
}

Result<Answer> order_reclaim(State& state, const Caller& caller, const OrderReclaim& command) {
  NodeEntry* const node = state.find_node(command.node);
  if (node == nullptr)
    return fail(
        ErrorCode::kNotFound, "no node " + command.node.str(), "`reclaim nodes` lists the nodes"
    );
  const std::string name = state.name_of(command.node);
  // Not even an administrator of another lab: whose machine it is decides.
  const bool may =
      caller.role >= Role::kOwner && !caller.lab.empty() && caller.lab == node->row.lab;
  if (!may)
    return fail(
        ErrorCode::kDenied,
        name + " is taken back by the owners of lab " + node->row.lab.str() + " alone",
        "ask one of them"
    );
  RN_CHECK(check_order(*node, name, command));
  std::vector<std::uint32_t> gpus = command.gpus;
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  if (const OrderEntry* const known = find_order(state, command.node, command.order)) {
    const ReclaimOrder& row = known->row;
    if (row.kind == command.kind && row.gpus == gpus && row.in_s == command.in_s)
      return ReclaimOrdered{row};
    return fail(
        ErrorCode::kConflict,
        "order " + command.order + " was given with another content",
        "name a new order otherwise"
    );
  }
  if (node->row.is_revoked || node->row.state == NodeState::kLeft)
    return fail(
        ErrorCode::kConflict, name + " has left the site", "on the machine: reclaim-agent status"
    );
  if (!has_room(state, command.node))
    return fail(
        ErrorCode::kExhausted,
        "too many orders are under way",
        "wait " + valid_text(state) + "; on the machine itself: reclaim-agent reclaim --now"
    );
  add_order(state, *node, caller.user, command, std::move(gpus));
  send_orders(state, *node);
  const ReclaimOrder& row = state.orders.back().row;
  if (row.state == OrderState::kWaiting) save_orders(state);
  return ReclaimOrdered{row};
}

void send_orders(State& state, NodeEntry& node) {
  if (node.connection == 0 || node.beat_on != node.connection) return;
  bool is_any_sent = false;
  for (OrderEntry& order : state.orders) {
    const bool is_due = order.row.node == node.row.node &&
                        order.row.state == OrderState::kWaiting && state.now.boot < order.until;
    if (!is_due) continue;
    // Durable before the message leaves, so that it leaves once.
    order.row.state = OrderState::kSent;
    order.row.message = state.name_of(node.row.node) + " is told";
    wire::TakeBack message;
    message.order = order.row.id;
    message.kind = order.row.kind;
    message.gpus = order.row.gpus;
    message.in_s = order.row.in_s;
    message.beat = node.beat;
    message.valid_ms = static_cast<std::uint32_t>((order.until - node.beat_at) / milliseconds(1));
    state.send(node, std::move(message));
    is_any_sent = true;
  }
  if (is_any_sent) save_orders(state);
}

void on_taken_back(State& state, const NodeEntry& node, const wire::TakenBack& answer) {
  OrderEntry* const order = find_order(state, node.row.node, answer.order);
  if (order == nullptr) return;
  const bool is_awaited =
      order->row.state == OrderState::kSent || order->row.state == OrderState::kUnanswered;
  if (!is_awaited) return;
  const std::string name = state.name_of(node.row.node);
  const std::string words = answer.message.substr(0, kNodesWordsMax);
  switch (answer.outcome) {
    case OrderOutcome::kTaken:
      if (answer.reclaim.str().size() <= kOrderNameMax) order->row.reclaim = answer.reclaim;
      end_order(state, *order, OrderState::kTaken, name + " has begun");
      break;
    case OrderOutcome::kRefused:
      end_order(
          state,
          *order,
          OrderState::kRefused,
          name + " does not do it: " + words + on_the_machine(order->row)
      );
      break;
    case OrderOutcome::kLate:
      end_order(
          state,
          *order,
          OrderState::kExpired,
          name + " heard of it too late: nothing was done" + on_the_machine(order->row)
      );
      break;
    case OrderOutcome::kUnclear:
      if (order->row.state == OrderState::kUnanswered) return;
      end_order(
          state,
          *order,
          OrderState::kUnanswered,
          name + " was told, and what it did is not known: " + words + on_the_machine(order->row)
      );
      break;
  }
  save_orders(state);
}

void look_at_orders(State& state) {
  std::erase_if(state.orders, [&](const OrderEntry& order) {
    return !is_open(order.row.state) && state.now.boot - order.made > kOrderKept;
  });
  bool is_any_over = false;
  for (OrderEntry& order : state.orders) {
    if (!is_open(order.row.state) || state.now.boot < order.until) continue;
    const std::string name = state.name_of(order.row.node);
    if (order.row.state == OrderState::kWaiting) {
      end_order(
          state,
          order,
          OrderState::kExpired,
          name + " did not answer for " + valid_text(state) + ": nothing was done" +
              on_the_machine(order.row)
      );
    } else if (state.now.boot >= order.until + kAnswerTakes) {
      end_order(
          state,
          order,
          OrderState::kUnanswered,
          name +
              " was told and has not answered: what it has begun is shown when it is heard of, "
              "and its agent begins nothing that comes later" +
              on_the_machine(order.row)
      );
    } else {
      continue;
    }
    is_any_over = true;
  }
  if (is_any_over) save_orders(state);
}

void restore_orders(State& state, const Snapshot& snapshot) {
  const auto found = snapshot.meta.find(kOrdersMeta);
  if (found == snapshot.meta.end()) return;
  const auto all = from_json<api::ReclaimOrders>(found->second, Unknown::kLenient);
  if (!all) {
    log::warning("orders.unreadable", {{"what", all.error().describe()}});
    return;
  }
  bool is_any_over = false;
  for (const ReclaimOrder& row : all->orders) {
    state.orders.push_back({row, state.now.boot, state.now.boot});
    OrderEntry& order = state.orders.back();
    if (!is_open(row.state)) continue;
    is_any_over = true;
    const std::string name = state.name_of(row.node);
    if (row.state == OrderState::kWaiting) {
      end_order(
          state,
          order,
          OrderState::kExpired,
          "the coordinator was restarted before " + name + " was told: nothing was done" +
              on_the_machine(row)
      );
    } else {
      end_order(
          state,
          order,
          OrderState::kUnanswered,
          "the coordinator was restarted before " + name + " had answered" + on_the_machine(row)
      );
    }
  }
  if (is_any_over) save_orders(state);
}

}  // namespace rn::coordinator
