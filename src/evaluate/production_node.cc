// SPDX-License-Identifier: Apache-2.0
#include "evaluate/production_node.h"

#include <algorithm>

#include "base/assert.h"

namespace rn::evaluate {

namespace {

constexpr Moment kConnects = milliseconds(50);
constexpr Moment kReconnects = seconds(1);
constexpr std::uint64_t kRoom_mib = 16u << 20;  ///< disks are not what runs out in a setting

NodeFacts facts_of(const CampusNode& node) {
  NodeFacts facts;
  facts.hostname = node.name;
  facts.cpu_milli = node.guest_cpu_milli > 0 ? node.guest_cpu_milli : 8000 * node.gpus;
  facts.memory_mib = std::uint64_t{65'536} * node.gpus;
  facts.disk_mib = kRoom_mib;
  facts.cgroup_version = "v2";
  facts.has_user_namespaces = true;
  facts.uplink_bps = static_cast<std::uint64_t>(node.line * 8);
  for (std::uint32_t i = 0; i < node.gpus && node.guest_cpu_milli == 0; ++i) {
    Gpu gpu;
    gpu.index = i;
    gpu.uuid = node.name + "-" + std::to_string(i);
    gpu.model = node.gpu_model;
    gpu.memory_mib = node.gpu_memory_mib;
    gpu.compute_capability = node.compute_capability;
    facts.gpus.push_back(std::move(gpu));
  }
  return facts;
}

Contract contract_of(const CampusNode& node) {
  Contract contract;
  contract.max_guests = node.gpus;
  contract.guest_cpu_milli = node.guest_cpu_milli;
  contract.guest_disk_mib = kRoom_mib / 16;
  contract.store_mib = kRoom_mib;
  return contract;
}

/// What comes again and again, and leaves nothing behind that waits for a tick.
bool is_routine(const agent::Event& event) {
  if (const auto* heard = std::get_if<agent::CoordinatorMessage>(&event))
    return std::holds_alternative<wire::HeartbeatAck>(heard->message) ||
           std::holds_alternative<wire::TransferRates>(heard->message) ||
           std::holds_alternative<wire::CollectGarbage>(heard->message);
  if (const auto* done = std::get_if<agent::WorkDone>(&event))
    return std::holds_alternative<agent::Done>(done->result);
  return std::holds_alternative<agent::Tick>(event) ||
         std::holds_alternative<agent::NothingHappened>(event) ||
         std::holds_alternative<agent::TelemetrySampled>(event) ||
         std::holds_alternative<agent::TransfersMeasured>(event);
}

}  // namespace

NodeSeat::NodeSeat(ProductionSite& site, NodeNumber node)
    : site_(site),
      node_(node),
      rng_(site.rng.next()),
      id_("n-" + rng_.hex(8)),
      verify_key_(crypto::make_signing_key(rng_)),
      box_key_(crypto::make_box_key(rng_)),
      facts_(facts_of(site.world->campus().nodes[node])),
      contract_(contract_of(site.world->campus().nodes[node])),
      warden_(site, node),
      pulse_(site.agenda(), site.cadence.is_ticking, site.cadence.tick, [this] { beat(); }),
      measure_(site.agenda(), true, site.cadence.measure, [this] { measure(); }) {
  certificate_ = crypto::sha256(as_bytes(facts_.hostname));
  warden_.on_reply = [this](const warden_wire::Reply& reply) { feed(agent::WardenReply{reply}); };
  warden_.on_saved = [this](const GuestName& guest, Moment began) {
    if (!watched_.contains(guest)) return;
    const Moment ago = site_.world->now() - began;
    feed(agent::GenerationDetected{guest, site_.now().boot - ago});
  };
}

coordinator::NodeRow NodeSeat::row() const {
  coordinator::NodeRow row;
  row.node = id_;
  row.lab = LabId(site_.world->campus().nodes[node_].lab);
  row.machine_id = "machine-" + facts_.hostname;
  row.public_key = certificate_;
  row.state = NodeState::kLost;
  row.facts = facts_;
  row.contract = contract_;
  row.box_key = box_key_.public_key;
  row.verify_key = verify_key_.public_key;
  row.joined_wall_ms = 1;
  return row;
}

void NodeSeat::later(Moment delay, std::function<void()> action) {
  site_.agenda().after(delay, [this, life = life_, action = std::move(action)] {
    if (life == life_ && is_on_) action();
  });
}

void NodeSeat::power_on() {
  ++life_;
  is_on_ = true;
  const std::string boot_id = facts_.hostname + "-boot-" + std::to_string(++boots_);
  agent::CoreConfig config;
  config.node = id_;
  config.lab = LabId(site_.world->campus().nodes[node_].lab);
  config.version = "simulated";
  config.machine_id = "machine-" + facts_.hostname;
  config.boot_id = boot_id;
  config.address = {facts_.hostname + ":7445", ""};
  config.box_key = box_key_.public_key;
  config.verify_key = verify_key_.public_key;
  config.rates = site_.rates;
  config.plans_saves_together = site_.plans_saves_together;
  config.log_interval = std::chrono::hours(24 * 366);  // logs are empty
  if (!site_.cadence.is_ticking) {
    config.telemetry_trusted = std::chrono::minutes(10);
    config.longest_look = std::chrono::minutes(10);
  }
  core_ = std::make_unique<agent::Core>(config, rng_);
  std::vector<agent::JournalRow> rows;
  for (const auto& [key, value] : journal_) rows.push_back({key, value});
  const Status restored = core_->restore(rows);
  RN_ASSERT(restored.has_value(), "a journal that the core wrote is one that it reads");
  sampled_at_.reset();
  feed(agent::Started{facts_, contract_, 0});
  warden_.power_on(boot_id);
  feed(agent::WardenConnected{});
  later(kConnects, [this] { connect(); });
  pulse_.quicken();
}

void NodeSeat::power_off() {
  is_on_ = false;
  ++life_;
  pulse_.stop();
  measure_.stop();
  untold_.reset();
  drop_flows();
  watched_.clear();
  made_.clear();
  connection_ = 0;
  core_.reset();
  warden_.power_off();
}

void NodeSeat::connect() {
  if (connection_ != 0) return;
  connection_ = site_.coordinator->connect(node_);
  feed(agent::CoordinatorConnected{});
}

void NodeSeat::hear(coordinator::ConnectionId connection, wire::Message message) {
  if (is_on_ && connection == connection_) feed(agent::CoordinatorMessage{std::move(message)});
}

void NodeSeat::hear_close(coordinator::ConnectionId connection) {
  if (!is_on_ || connection != connection_) return;
  connection_ = 0;
  feed(agent::CoordinatorDisconnected{"closed"});
  later(kReconnects, [this] { connect(); });
}

// ---- the core

void NodeSeat::feed(const agent::Event& event) {
  if (!is_on_) return;
  if (const auto happened = std::exchange(untold_, std::nullopt)) feed(*happened);
  ++site_.counts.agent_events;
  obey(core_->handle(event, site_.now()));
  if (!is_routine(event)) pulse_.quicken();
}

void NodeSeat::beat() {
  if (may_rest()) {
    rest();
  } else {
    if (is_sample_due()) sample();
    feed(agent::Tick{});
  }
  pulse_.rest(longest_rest());
}

bool NodeSeat::may_rest() const {
  return site_.cadence.lets_rest && connection_ != 0 && sampled_at_ && works_.empty() &&
         site_.world->now() >= expected_until_ && core_->rests(site_.now());
}

/// What a tick would have led to, without the core, which hears of it with the next event.
void NodeSeat::rest() {
  const Moment now = site_.world->now();
  const Instant boot = site_.now().boot;
  if (!untold_) untold_.emplace();
  if (is_sample_due()) {
    sampled_at_ = now;
    untold_->measured_at = boot;
  }
  if (now - beat_at_ < milliseconds(site_.cadence.heartbeat_ms)) return;
  beat_at_ = now;
  ++untold_->beats;
  untold_->beat_at = boot;
  untold_->heard_at = boot + 2 * site_.message_takes();
  site_.agenda().after(site_.message_takes(), [this, connection = connection_] {
    site_.coordinator->feed(coordinator::StillThere{{connection}});
  });
}

bool NodeSeat::is_sample_due() const {
  return !sampled_at_ || site_.world->now() - *sampled_at_ >= site_.cadence.sample;
}

void NodeSeat::sample() {
  sampled_at_ = site_.world->now();
  agent::TelemetrySampled sampled;
  sampled.telemetry.memory_used_mib = 1000;
  sampled.telemetry.disk_free_mib = kRoom_mib;
  for (const Gpu& gpu : facts_.gpus) {
    GpuTelemetry seen;
    seen.index = gpu.index;
    sampled.telemetry.gpus.push_back(seen);
  }
  feed(sampled);
}

Moment NodeSeat::longest_rest() const {
  const Cadence& cadence = site_.cadence;
  if (site_.world->now() < expected_until_) return cadence.evacuation_tick;
  return watched_.empty() ? cadence.idle_tick : cadence.guests_tick;
}

void NodeSeat::obey(agent::Output output) {
  for (auto& write : output.writes) {
    if (write.value) {
      journal_[write.key] = std::move(*write.value);
    } else {
      journal_.erase(write.key);
    }
  }
  for (auto& effect : output.effects) carry_out(effect);
}

void NodeSeat::carry_out(agent::Effect& effect) {
  if (auto* send = std::get_if<agent::SendToCoordinator>(&effect)) {
    if (connection_ == 0) return;
    if (std::holds_alternative<wire::Heartbeat>(send->message)) beat_at_ = site_.world->now();
    // What has left arrives, also if the machine goes down behind it.
    site_.agenda().after(
        site_.message_takes(),
        [this, sent = coordinator::AgentMessage{connection_, std::move(send->message)}] {
          site_.coordinator->feed(sent);
        }
    );
  } else if (const auto* close = std::get_if<agent::CloseCoordinator>(&effect)) {
    if (connection_ == 0) return;
    site_.agenda().after(site_.message_takes(), [this, connection = connection_] {
      site_.coordinator->disconnect(connection);
    });
    connection_ = 0;
    later(Moment(0), [this, reason = close->reason] {
      feed(agent::CoordinatorDisconnected{reason});
    });
    if (close->is_final) return;
    const Moment pause = close->retry_ms > 0 ? Moment(milliseconds(close->retry_ms)) : kReconnects;
    later(pause, [this] { connect(); });
  } else if (const auto* ask = std::get_if<agent::AskWarden>(&effect)) {
    warden_.ask(ask->request);
  } else if (const auto* begin = std::get_if<agent::StartWork>(&effect)) {
    start_work(begin->work);
  } else if (const auto* stop = std::get_if<agent::CancelWork>(&effect)) {
    cancel(stop->id);
  } else if (const auto* whole = std::get_if<agent::ReleaseCopy>(&effect)) {
    release(whole->id, whole->generation);
  } else if (const auto* rate = std::get_if<agent::SetRate>(&effect)) {
    pace(rate->id, rate->rate_bps);
  } else if (const auto* watch = std::get_if<agent::StartWatch>(&effect)) {
    watched_.insert(watch->guest);
  } else if (const auto* unwatch = std::get_if<agent::StopWatch>(&effect)) {
    watched_.erase(unwatch->guest);
  }
}

}  // namespace rn::evaluate
