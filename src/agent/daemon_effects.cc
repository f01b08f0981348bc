// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/contract_file.h"
#include "agent/core_records.h"
#include "agent/daemon_state.h"
#include "agent/gang_pace.h"
#include "agent/kill_client.h"
#include "agent/peers.h"
#include "arbiter/contract_order.h"
#include "base/log.h"
#include "io/own_address.h"
#include "io/url.h"

namespace rn::agent {

namespace {

constexpr seconds kGoodbyeLimit{10};
constexpr seconds kLinkConnect{5};

bool is_light(const WorkBody& body) {
  return std::holds_alternative<ReadLog>(body) || std::holds_alternative<ForgetAttempt>(body);
}

}  // namespace

void Daemon::State::act(const SendToCoordinator& e) {
  told.on_sent(e.message);
  if (coordinator) coordinator->send(e.message);
}

void Daemon::State::act(const CloseCoordinator& e) {
  if (!coordinator) return;
  if (e.is_final) {
    log::error("coordinator.refused_for_good", {{"reason", e.reason}});
    coordinator->give_up();
    return;
  }
  coordinator->close(
      e.reason, e.retry_ms == 0 ? std::nullopt : std::optional(milliseconds(e.retry_ms))
  );
}

void Daemon::State::act(const AskWarden& e) {
  if (warden) warden->send(e.request);
}

void Daemon::State::act(const KillNow& e) {
  const auto kill = [this, e]() -> KilledNow {
    if (clock.now().boot >= e.until) return {e.order, std::nullopt, true};
    const auto answer = send_kill(config.kill_path(), e.gpu_mask, kKillLimit);
    return {e.order, answer ? std::nullopt : std::optional(answer.error()), false};
  };
  const Status submitted = kills->submit_for(kill, [this](const KilledNow& killed) {
    feed(WardenActed{});
    feed(killed);
  });
  if (submitted) return;
  loop.post([this, killed = KilledNow{e.order, submitted.error(), false}] { feed(killed); });
}

/// The owner at the machine may have been faster, whose contract the core has not heard of then.
void Daemon::State::act(const UseContract& e) {
  loop.post([this, e] {
    Status used = fail(ErrorCode::kConflict, "its contract was changed meanwhile");
    if (arbiter::version_of(contract) == e.from) used = use_contract(e.contract, e.edit);
    if (!used) feed(EditUnusable{e.edit, used.error()});
  });
}

void Daemon::State::act(const StartWork& e) {
  const WorkId id = e.work.id;
  auto cancel = std::make_shared<std::atomic<bool>>(false);
  cancels[id] = cancel;
  std::shared_ptr<checkpoint::ChunkTap> tap;
  const auto* copy = std::get_if<CopyGeneration>(&e.work.body);
  if (copy != nullptr && copy->is_ahead) {
    tap = std::make_shared<checkpoint::ChunkTap>();
    taps[id] = tap;
  }
  std::shared_ptr<TransferGauge> gauge;
  if (copy != nullptr) gauge = gauges[id] = std::make_shared<TransferGauge>(copy->rate_bps);
  if (const auto* const upload = std::get_if<UploadOutputs>(&e.work.body))
    gauge = gauges[id] = std::make_shared<TransferGauge>(upload->rate_bps);
  io::Workers& pool = is_light(e.work.body) ? *light : *heavy;
  const Status submitted = pool.submit_for(
      [this, work = e.work, cancel, tap, gauge] { return hands->run(work, *cancel, tap, gauge); },
      [this, id, guest = e.work.guest](WorkResult result) {
        cancels.erase(id);
        taps.erase(id);
        if (const auto done = gauges.extract(id)) sent_before += done.mapped()->look().bytes_sent;
        const auto* const read = std::get_if<LogRead>(&result);
        if (read != nullptr && read->is_declared) watcher->declare(guest);
        feed(WorkDone{id, std::move(result)});
      }
  );
  if (submitted) return;
  cancels.erase(id);
  taps.erase(id);
  gauges.erase(id);
  loop.post([this, id, error = submitted.error()] {
    feed(WorkDone{id, Error{ErrorCode::kUnavailable, error.message, ""}});
  });
}

void Daemon::State::act(const CancelWork& e) {
  const auto found = cancels.find(e.id);
  if (found != cancels.end()) *found->second = true;
}

void Daemon::State::act(const ReleaseCopy& e) {
  const auto found = taps.find(e.id);
  if (found != taps.end()) found->second->release(e.generation);
}

void Daemon::State::act(const SetRate& e) {
  if (e.id >= kFirstFetch) return fetches.set_rate(e.id, e.rate_bps);
  const auto found = gauges.find(e.id);
  if (found == gauges.end()) return;
  found->second->set_rate(e.rate_bps);
  log::debug("transfer.paced", {{"at_ns", to_ns(clock.now().boot)}, {"bps", e.rate_bps}});
}

/// Nothing while nothing is sent to peers, nor outputs home.
void Daemon::State::measure_transfers() {
  if (uplink == nullptr) return;
  TransfersMeasured measured;
  measured.fetches = fetches.look();
  if (gauges.empty() && measured.fetches.empty() && !were_fetches_told) {
    uplink->reset();
    return;
  }
  were_fetches_told = !measured.fetches.empty();
  std::uint64_t own_bytes = sent_before + fetches.bytes_sent();
  // Else an evacuation would be planned beside what gives way to it.
  if (gang_links != nullptr) own_bytes += gang_links->look().bytes_sent;
  for (const auto& [id, gauge] : gauges) {
    const TransferGauge::Seen seen = gauge->look();
    own_bytes += seen.bytes_sent;
    measured.transfers.push_back(
        {id,
         seen.bytes_left,
         seen.bytes_sent,
         seen.socket.local,
         seen.socket.remote,
         seen.round_trip.now,
         seen.round_trip.least}
    );
    look_for_uplink(seen.socket.local);
  }
  for (const FetchProgress& fetch : measured.fetches) look_for_uplink(fetch.progress.local);
  measured.foreign_bps = uplink->measure(uplink_interface, own_bytes, loop.now().boot);
  feed(measured);
}

/// By which interface what has this end leaves.
void Daemon::State::look_for_uplink(const std::string& local) {
  if (local.empty() || local == uplink_address) return;
  uplink_address = local;
  uplink_interface = io::interface_of(uplink_address);
}

void Daemon::State::act(const StartWatch& e) {
  std::int64_t since_ms = e.since.created_wall_ms;
  const std::string marker = join_path(guests->folder(e.guest), "prepared");
  if (const auto bytes = read_all(fs, marker, 64)) {
    const std::string text(as_text(*bytes));
    since_ms = std::max<std::int64_t>(since_ms, std::strtoll(text.c_str(), nullptr, 10));
  }
  watcher->start(
      e.guest,
      join_path(guest_view(fs, e.disk), "work"),
      watch_rules(e.spec),
      wall_from_ms(since_ms)
  );
}

void Daemon::State::act(const StopWatch& e) {
  watcher->stop(e.guest);
}

/// The goodbye is on its way; the coordinator answers it by closing the connection.
void Daemon::State::act(const LeftForGood& e) {
  if (e.is_known) return end_goodbye(true);
  says_goodbye = true;
  loop.run_after(kGoodbyeLimit, [this] { end_goodbye(false); });
}

void Daemon::State::on_disconnected(const std::string& reason) {
  feed(CoordinatorDisconnected{reason});
  if (says_goodbye) end_goodbye(reason.ends_with(std::string(": ") + wire::kLeftReason));
}

/// Guests that are told to leave may still be reached; those that are told to end may not.
Result<std::string> Daemon::State::disk_of_guest(const std::string& guest) const {
  const NodeView view = core->view(loop.now());
  for (const AttemptView& attempt : view.attempts) {
    if (attempt.report.job.str() + " " + to_string(attempt.report.epoch) != guest) continue;
    const bool runs = attempt.phase == to_string(AttemptPhase::kRunning) ||
                      attempt.phase == to_string(AttemptPhase::kNoticed);
    if (runs) return attempt.disk;
    return fail(ErrorCode::kUnavailable, "the guest does not run now: " + attempt.phase);
  }
  return fail(ErrorCode::kNotFound, "the guest is not on its node any more");
}

void Daemon::State::start_tunnels() {
  Tunnels::Deps deps{
      loop,
      rng,
      identity->get()->agent_url + "/tunnels",
      [this] { return tls_to_coordinator(*identity->get()); },
      [this] { return !core->view(loop.now()).attempts.empty(); },
      [this](const std::string& guest) { return disk_of_guest(guest); },
      [this] { return contract.uplink_bps_normal; }};
  tunnels = std::make_unique<Tunnels>(std::move(deps));
}

/// Dialled and judged on threads of their own: nothing of the loop's is touched there.
void Daemon::State::start_gang_links() {
  GangLinks::Deps deps;
  deps.dial = [this](const wire::GangPeer& peer) -> Result<std::unique_ptr<io::FramedConnection>> {
    RN_TRY(const HostPort where, parse_host_port(peer.address));
    io::FramedClientConfig client;
    client.host = where.host;
    client.port = where.port;
    client.tls = tls_to_peer(*identity->get(), peer.node);
    client.tls.expected_peer = identity_of(peer.node);
    client.connect_timeout = kLinkConnect;
    return io::FramedConnection::connect(client);
  };
  deps.rules = [this] {
    LinkTicketRules rules;
    rules.self = identity->get()->node;
    rules.now = site_clock.now().wall;
    rules.tolerance = site_clock.is_told() ? kTicketTolerance : kTicketToleranceUntold;
    const std::lock_guard lock(shared.mutex);
    rules.ticket_key = shared.ticket_key;
    return rules;
  };
  deps.on_broken = [this](const GuestName& guest) {
    loop.post([this, guest] { feed(LinkBroken{guest}); });
  };
  if (const auto url = io::parse_url(identity->get()->agent_url))
    deps.control_ports.push_back(url->port);
  if (const auto rest = parse_host_port(config.listen_api); rest && rest->port != 0)
    deps.control_ports.push_back(rest->port);
  gang_links = std::make_unique<GangLinks>(std::move(deps));
}

/// What has a rate, copies and what peers fetch, the coordinator has planned.
void Daemon::State::look_at_gang_links() {
  if (gang_links == nullptr) return;
  gang_links->set(core->linked_guests());
  LinksBudget budget;
  budget.bound_bps = capped(contract.uplink_bps_normal, core->granted_bps());
  budget.line_bps = facts.uplink_bps;
  budget.planned_bps = fetches.planned_bps();
  for (const auto& [id, gauge] : gauges) budget.planned_bps += gauge->look().socket.rate_bps;
  gang_links->set_rate(budget.rate_bps());
}

/// Only what the coordinator has said is written down, since `leave --purge` removes by it what
/// nobody else may have. An agent that does not know it ends as one that failed: started again it
/// goes on leaving.
void Daemon::State::end_goodbye(bool is_known) {
  if (is_stopping) return;
  if (!is_known)
    return stop(fail(
        ErrorCode::kUnavailable,
        "the coordinator has not said that it knows that this node leaves",
        "start the agent again: it goes on leaving"
    ));
  const Status noted = note_left(fs, config.identity_folder());
  if (!noted) log::error("agent.left_not_noted", {{"error", noted.error().describe()}});
  log::info("agent.left");
  coordinator->give_up();
  stop({});
}

void Daemon::State::on_message(wire::Message message) {
  if (const auto* welcome = std::get_if<wire::Welcome>(&message)) {
    keep_ticket_key(welcome->ticket_key);
    site_clock.told(welcome->clock_offset_ms);
  }
  if (const auto* ack = std::get_if<wire::HeartbeatAck>(&message))
    site_clock.told(ack->clock_offset_ms);
  const auto* edit = std::get_if<wire::EditContract>(&message);
  if (edit != nullptr && !knows_zone_of(*edit)) return;
  feed(CoordinatorMessage{std::move(message)});
}

/// The core has no zone database, and the owner shall not be the first to find that out.
bool Daemon::State::knows_zone_of(const wire::EditContract& message) {
  const Status known = check_zone(message.contract, config.zone_folder);
  if (!known) feed(EditUnusable{message.edit, known.error()});
  return known.has_value();
}

/// Kept on the disk too: evacuations work while the coordinator is away, even after a restart.
void Daemon::State::keep_ticket_key(const Digest& key) {
  {
    const std::lock_guard lock(shared.mutex);
    if (shared.ticket_key == key) return;
    shared.ticket_key = key;
  }
  const std::string path = join_path(config.identity_folder(), "ticket.pub");
  const Status written = write_durably(fs, path, as_bytes(to_hex(key)), 0600);
  if (!written) log::warning("ticket_key.not_kept", {{"error", written.error().describe()}});
}

void Daemon::State::load_ticket_key() {
  const auto bytes = read_all(fs, join_path(config.identity_folder(), "ticket.pub"), 128);
  if (!bytes) return;
  const auto key = digest_from_hex(as_text(*bytes));
  const std::lock_guard lock(shared.mutex);
  if (key) shared.ticket_key = *key;
}

}  // namespace rn::agent
