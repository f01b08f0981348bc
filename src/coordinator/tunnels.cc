// SPDX-License-Identifier: Apache-2.0
#include "coordinator/tunnels.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "coordinator/api_answers.h"
#include "io/close_when_sent.h"

namespace rn::coordinator {

namespace {

using TunnelKind = tunnel::Kind;

constexpr auto kTunnelOpens = seconds(15);
constexpr auto kTunnelIdles = std::chrono::hours(1);
constexpr auto kTunnelEnds = seconds(60);
/// Between two looks at tokens, jobs and times.
constexpr auto kTunnelBeat = seconds(5);
/// For a queue of a node's connection to become empty.
constexpr auto kCreditLook = milliseconds(2);
constexpr std::size_t kTunnelIdBytes = 4;

Blob tunnel_packet(TunnelKind kind, const std::string& words) {
  Blob packet{static_cast<std::uint8_t>(kind)};
  const BlobView text = as_bytes(std::string_view(words).substr(0, tunnel::kWordsMax));
  packet.insert(packet.end(), text.begin(), text.end());
  return packet;
}

const Job* job_named(const Core& core, const std::string& name) {
  const bool is_number = !name.empty() && name.size() < 20 &&
                         name.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? core.find_job(std::stoull(name)) : core.find_job(JobId(name));
}

}  // namespace

Tunnels::Tunnels(io::Loop& loop, Shell& shell, Api& api) : loop_(loop), shell_(shell), api_(api) {
  beat_ = loop_.run_every(kTunnelBeat, [this] { look(); });
}

Tunnels::~Tunnels() {
  *is_alive_ = false;
  loop_.cancel(beat_);
  loop_.cancel(credit_timer_);
  for (const auto& [id, tunnel] : tunnels_) shell_.unwatch_job(tunnel.place.job, tunnel.watch);
}

// ---- who may, and where to

Result<Tunnels::Wish> Tunnels::wish_of(const io::HttpRequest& http) {
  ApiRequest request;
  request.http = http;
  RN_CHECK(api_.admit(request));
  const std::string name = request.query["job"];
  std::uint64_t port = 0;
  if (http.path != kVisitPath) {
    RN_TRY(port, query_number(request, "port", 0));
    if (port == 0 || port > 65'535)
      return fail(ErrorCode::kInvalid, "port: expected 1 to 65535", "for example port=8888");
  }
  const Job* job = job_named(shell_.core(), name);
  if (job == nullptr || !Core::may_read(request.caller, *job))
    return fail(ErrorCode::kNotFound, "no job " + name, "'reclaim ps -a' lists yours");
  return Wish{
      job->id,
      static_cast<std::uint16_t>(port),
      request.caller.user,
      parts_of_token(bearer_of(http)).id};
}

Result<Tunnels::Place> Tunnels::place_of(const Wish& wish) const {
  const Core& core = shell_.core();
  const Job* job = core.find_job(wish.job);
  if (job == nullptr)
    return fail(ErrorCode::kNotFound, "no job " + wish.job.str(), "'reclaim ps -a' lists yours");
  const std::string number = std::to_string(job->number);
  if (is_terminal(job->state))
    return fail(
        ErrorCode::kConflict,
        "job " + number + " is over: " + std::string(to_string(job->state)),
        "only a job that runs can be reached; `reclaim ps` lists them"
    );
  Place place;
  place.job = job->id;
  place.number = job->number;
  place.epoch = job->epoch;
  place.node = job->node;
  place.user = wish.user;
  place.port = wish.port;
  place.token = wish.token;
  if (!is_still_there(place)) {
    const auto why = core.why(job->id, shell_.now());
    return fail(
        ErrorCode::kUnavailable,
        "job " + number + " does not run now" + (why ? ": " + *why : ""),
        "connect again when it runs: `reclaim why " + number + "`"
    );
  }
  if (!links_.contains(place.node))
    return fail(
        ErrorCode::kUnavailable,
        "the node of job " + number + " offers no way into its guests now",
        "connect again in some seconds; if it stays so, its agent is an older one"
    );
  RN_CHECK(check_room(place));
  return place;
}

Status Tunnels::check_room(const Place& place) const {
  std::size_t of_job = 0;
  std::size_t of_node = 0;
  std::size_t of_user = 0;
  for (const auto& [id, tunnel] : tunnels_) {
    of_job += tunnel.place.job == place.job ? 1 : 0;
    of_node += tunnel.place.node == place.node ? 1 : 0;
    of_user += tunnel.place.user == place.user ? 1 : 0;
  }
  std::string whose;
  if (of_job >= kOfJob) whose = "into job " + std::to_string(place.number);
  if (of_node >= kOfNode) whose = "into its node's guests";
  if (of_user >= kOfUser) whose = "of " + place.user.str();
  if (tunnels_.size() >= kOfAll) whose = "of all users";
  if (whose.empty()) return {};
  return fail(
      ErrorCode::kExhausted,
      "too many connections " + whose + " are open",
      "close some, and connect again"
  );
}

/// Its guest runs there, as far as is known.
bool Tunnels::is_still_there(const Place& place) const {
  const Job* job = shell_.core().find_job(place.job);
  return job != nullptr && job->epoch == place.epoch && !job->epoch.is_none() &&
         job->node == place.node && !job->node.empty() &&
         (job->state == JobState::kRunning || job->state == JobState::kNoticed);
}

Status Tunnels::admit(const io::HttpRequest& request) {
  RN_TRY(const Wish wish, wish_of(request));
  return admit(wish);
}

Status Tunnels::admit(const Wish& wish) const {
  RN_CHECK(place_of(wish));
  return {};
}

// ---- connections

void Tunnels::refuse(std::shared_ptr<io::WebSocket> socket, const Error& error) {
  (void)socket->send(tunnel_packet(TunnelKind::kRefused, error.message));
  io::close_when_sent(loop_, std::move(socket), "refused");
}

void Tunnels::adopt_user(const io::HttpRequest& request, std::shared_ptr<io::WebSocket> socket) {
  const auto wish = wish_of(request);
  if (!wish) return refuse(std::move(socket), wish.error());
  adopt_user(*wish, std::move(socket));
}

void Tunnels::adopt_user(const Wish& wish, std::shared_ptr<io::WebSocket> socket) {
  auto place = place_of(wish);  // what was true when it was admitted
  if (!place) return refuse(std::move(socket), place.error());
  while (tunnels_.contains(next_id_)) ++next_id_;
  const Id id = next_id_++;
  socket->on_message([this, alive = is_alive_, id](const Blob& packet) {
    if (*alive) from_user(id, packet);
  });
  socket->on_close([this, alive = is_alive_, id](const Error&) {
    if (*alive) user_closed(id);
  });
  Tunnel& tunnel = tunnels_[id];
  tunnel.place = *std::move(place);
  tunnel.user = std::move(socket);
  tunnel.until = loop_.now().boot + kTunnelOpens;
  tunnel.waits_for = "its node has not answered in time";
  tunnel.watch = shell_.watch_job(tunnel.place.job, [this, alive = is_alive_, id] {
    if (!*alive) return;
    const auto found = tunnels_.find(id);
    if (found != tunnels_.end() && !is_still_there(found->second.place))
      break_off(id, "job " + std::to_string(found->second.place.number) + " runs there no more");
  });
  log::info(
      "tunnel.asked",
      {{"job", tunnel.place.job.str()},
       {"user", tunnel.place.user.str()},
       {"node", tunnel.place.node.str()},
       {"port", std::to_string(tunnel.place.port)}}
  );
  shell_.when_durable([this, alive = is_alive_, id] {
    if (*alive) ask(id);
  });
}

/// The node is asked only for what is durable: the attempt is the job's.
void Tunnels::ask(Id id) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;
  const Place& place = found->second.place;
  const bool is_visit = place.port == 0;
  Blob packet = tunnel_packet(is_visit ? TunnelKind::kEnter : TunnelKind::kOpen, "");
  if (!is_visit) {
    packet.push_back(static_cast<std::uint8_t>(place.port >> 8));
    packet.push_back(static_cast<std::uint8_t>(place.port & 255));
  }
  const std::string guest = place.job.str() + " " + to_string(place.epoch);
  packet.insert(packet.end(), guest.begin(), guest.end());
  send_to_guest(id, place.node, packet);
}

void Tunnels::adopt_node(const NodeId& node, std::shared_ptr<io::WebSocket> socket) {
  break_off_all_of(node, "the node has connected anew");
  if (const auto before = std::exchange(links_[node].socket, nullptr))
    before->close("there is a newer connection");
  const std::uint64_t number = next_link_++;
  socket->on_message([this, alive = is_alive_, node, number](const Blob& message) {
    if (*alive) from_node(node, number, message);
  });
  socket->on_close([this, alive = is_alive_, node, number](const Error&) {
    if (*alive) node_closed(node, number);
  });
  links_[node] = Link{std::move(socket), number};
}

void Tunnels::user_closed(Id id) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;
  const Tunnel& tunnel = found->second;
  const bool is_in_order = tunnel.has_user_ended && tunnel.has_guest_ended;
  if (!is_in_order)
    send_to_guest(id, tunnel.place.node, tunnel_packet(TunnelKind::kReset, "the user is gone"));
  forget(id);
}

void Tunnels::node_closed(const NodeId& node, std::uint64_t number) {
  const auto found = links_.find(node);
  if (found == links_.end() || found->second.number != number) return;
  links_.erase(found);
  break_off_all_of(node, "the connection to the node is lost");
}

// ---- packets

void Tunnels::from_user(Id id, const Blob& packet) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;
  const Next next = take_from_user(found->second, packet);
  if (next == Next::kBroken) return break_off(id, "the client does not keep to the protocol");
  note_life(found->second);
  send_to_guest(id, found->second.place.node, packet);
  if (next != Next::kPassAsLast) return;
  io::close_when_sent(loop_, found->second.user, "over");
  forget(id);
}

void Tunnels::from_node(const NodeId& node, std::uint64_t number, const Blob& message) {
  const auto link = links_.find(node);
  if (link == links_.end() || link->second.number != number) return;
  if (message.size() <= kTunnelIdBytes) return link->second.socket->close("malformed message");
  const auto found = tunnels_.find(tunnel::read_u32(message.data()));
  // One that is over here may still be said something of.
  if (found == tunnels_.end() || found->second.place.node != node) return;
  const Id id = found->first;
  Tunnel& tunnel = found->second;
  const Blob packet(message.begin() + kTunnelIdBytes, message.end());
  const Next next = take_from_guest(tunnel, packet);
  if (next == Next::kBroken) return break_off(id, "the guest does not keep to the protocol");
  note_life(tunnel);
  if (next == Next::kKeep) return pass_credit_on();
  // A user who does not read is bounded by the socket, which ends then.
  (void)tunnel.user->send(packet);
  if (next != Next::kPassAsLast) return;
  io::close_when_sent(loop_, tunnel.user, "over");
  forget(id);
}

Tunnels::Next Tunnels::take_from_user(Tunnel& tunnel, const Blob& packet) const {
  if (packet.empty() || packet.size() > tunnel::kPacketMax) return Next::kBroken;
  const auto kind = static_cast<TunnelKind>(packet[0]);
  if (kind == TunnelKind::kReset) return Next::kPassAsLast;
  if (!tunnel.is_open) return Next::kBroken;
  if (kind == TunnelKind::kCredit) return Next::kPass;
  if (tunnel.has_user_ended) return Next::kBroken;
  if (kind == TunnelKind::kEnd) {
    tunnel.has_user_ended = true;
    return Next::kPass;
  }
  const std::uint32_t cost = tunnel::cost_of(packet.size() - 1);
  if (kind != TunnelKind::kData || cost > tunnel.credit) return Next::kBroken;
  tunnel.credit -= cost;
  return Next::kPass;
}

Tunnels::Next Tunnels::take_from_guest(Tunnel& tunnel, const Blob& packet) const {
  if (packet.size() > tunnel::kPacketMax) return Next::kBroken;
  const auto kind = static_cast<TunnelKind>(packet[0]);
  if (kind == TunnelKind::kReset) return Next::kPassAsLast;
  if (!tunnel.is_open) {
    if (kind == TunnelKind::kRefused) return Next::kPassAsLast;
    if (kind != TunnelKind::kOpened) return Next::kBroken;
    tunnel.is_open = true;
    return Next::kPass;
  }
  if (kind == TunnelKind::kCredit) {
    if (packet.size() != 5) return Next::kBroken;
    const std::uint64_t credit = tunnel::read_u32(packet.data() + 1);
    if (credit + tunnel.held_credit + tunnel.credit > tunnel::kWindowToGuest) return Next::kBroken;
    tunnel.held_credit += static_cast<std::uint32_t>(credit);
    return Next::kKeep;
  }
  if (tunnel.has_guest_ended) return Next::kBroken;
  if (kind == TunnelKind::kEnd) tunnel.has_guest_ended = true;
  return kind == TunnelKind::kEnd || kind == TunnelKind::kData ? Next::kPass : Next::kBroken;
}

void Tunnels::note_life(Tunnel& tunnel) const {
  const Instant now = loop_.now().boot;
  const bool has_ended = tunnel.has_user_ended && tunnel.has_guest_ended;
  if (!tunnel.is_open || (has_ended && tunnel.until <= now + kTunnelEnds)) return;
  tunnel.until = now + (has_ended ? nanoseconds(kTunnelEnds) : nanoseconds(kTunnelIdles));
  tunnel.waits_for = has_ended ? "it has not ended in time" : "nothing came for an hour";
}

void Tunnels::send_to_guest(Id id, const NodeId& node, const Blob& packet) {
  const auto link = links_.find(node);
  if (link == links_.end() || link->second.socket == nullptr) return;
  Blob message(kTunnelIdBytes);
  tunnel::write_u32(message.data(), id);
  message.insert(message.end(), packet.begin(), packet.end());
  (void)link->second.socket->send(std::move(message));  // a failure closes it: on_close tells
}

/// A guest's credit counts when its node's queue here is empty. So no guest and user together can
/// fill the queue that all tunnels of the node share: between two such moments each sends a window.
void Tunnels::pass_credit_on() {
  bool is_waiting = false;
  for (auto& [id, tunnel] : tunnels_) {
    if (tunnel.held_credit == 0) continue;
    const auto link = links_.find(tunnel.place.node);
    if (link == links_.end() || link->second.socket == nullptr) continue;
    if (link->second.socket->queued_bytes() > 0) {
      is_waiting = true;
      continue;
    }
    Blob packet(5, static_cast<std::uint8_t>(TunnelKind::kCredit));
    tunnel::write_u32(packet.data() + 1, tunnel.held_credit);
    tunnel.credit += std::exchange(tunnel.held_credit, 0);
    (void)tunnel.user->send(std::move(packet));
  }
  if (!is_waiting || is_credit_waiting_) return;
  is_credit_waiting_ = true;
  credit_timer_ = loop_.run_after(kCreditLook, [this] {
    is_credit_waiting_ = false;
    pass_credit_on();
  });
}

// ---- ends

void Tunnels::look() {
  const Now now = shell_.now();
  std::vector<std::pair<Id, std::string>> over;
  for (const auto& [id, tunnel] : tunnels_) {
    const Place& place = tunnel.place;
    const auto caller = shell_.core().caller_of_token(place.token, now.wall);
    if (!caller) {
      over.emplace_back(id, caller.error().message);
    } else if (!is_still_there(place)) {
      over.emplace_back(id, "job " + std::to_string(place.number) + " runs there no more");
    } else if (tunnel.until <= now.boot) {
      over.emplace_back(id, tunnel.waits_for);
    }
  }
  for (const auto& [id, why] : over) break_off(id, why);
}

void Tunnels::break_off(Id id, const std::string& why) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;
  const Tunnel& tunnel = found->second;
  const auto kind = tunnel.is_open ? TunnelKind::kReset : TunnelKind::kRefused;
  (void)tunnel.user->send(tunnel_packet(kind, why));
  io::close_when_sent(loop_, tunnel.user, why);
  send_to_guest(id, tunnel.place.node, tunnel_packet(TunnelKind::kReset, why));
  log::info("tunnel.broken", {{"job", tunnel.place.job.str()}, {"why", why}});
  forget(id);
}

void Tunnels::break_off_all_of(const NodeId& node, const std::string& why) {
  std::vector<Id> ids;
  for (const auto& [id, tunnel] : tunnels_)
    if (tunnel.place.node == node) ids.push_back(id);
  for (const Id id : ids) break_off(id, why);
}

void Tunnels::forget(Id id) {
  const auto found = tunnels_.find(id);
  shell_.unwatch_job(found->second.place.job, found->second.watch);
  tunnels_.erase(found);
}

}  // namespace rn::coordinator
