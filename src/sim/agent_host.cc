// SPDX-License-Identifier: Apache-2.0
#include "sim/agent_host.h"

#include <algorithm>

#include "agent/local_work.h"
#include "arbiter/contract_order.h"
#include "checkpoint/manifest.h"
#include "model/wire.h"
#include "sim/agent_work.h"
#include "sim/checkers.h"
#include "sim/crash_points.h"
#include "sim/peer_port.h"
#include "sim/process_fs.h"

namespace rn::sim {

namespace {
constexpr auto kJournalTime = std::chrono::microseconds(600);
constexpr auto kRoomPause = milliseconds(200);
constexpr auto kConnectTimeout = seconds(5);
constexpr auto kSampleEvery = seconds(5);

const char* point_of(const agent::WorkBody& body) {
  static_assert(std::variant_size_v<agent::WorkBody> == kWorkPoints.size());
  return kWorkPoints[body.index()];
}

std::string point_of(const agent::Effect& effect) {
  // Orders come in stories alone, so that no run of faults would pass points of their own.
  const auto* const said = std::get_if<agent::SendToCoordinator>(&effect);
  if (said != nullptr && (std::holds_alternative<wire::TakenBack>(said->message) ||
                          std::holds_alternative<wire::ContractEdited>(said->message)))
    return "agent.send.reclaim_report";
  if (std::holds_alternative<agent::KillNow>(effect) ||
      std::holds_alternative<agent::UseContract>(effect))
    return "agent.ask_warden";
  if (const auto* send = std::get_if<agent::SendToCoordinator>(&effect))
    return "agent.send." + std::string(wire::name_of(send->message));
  if (const auto* begin = std::get_if<agent::StartWork>(&effect)) return point_of(begin->work.body);
  if (std::holds_alternative<agent::CloseCoordinator>(effect)) return "agent.close";
  if (std::holds_alternative<agent::AskWarden>(effect)) return "agent.ask_warden";
  if (std::holds_alternative<agent::CancelWork>(effect)) return "agent.cancel";
  if (std::holds_alternative<agent::ReleaseCopy>(effect)) return "agent.release";
  if (std::holds_alternative<agent::SetRate>(effect)) return "agent.set_rate";
  if (std::holds_alternative<agent::LeftForGood>(effect)) return "agent.left";
  return "agent.watch";
}

}  // namespace

struct AgentHost::Life {
  explicit Life(AgentHost& host)
      : fs(host.world_, host.machine_.disk(), "agent.disk", host.process_.name()),
        work(host, *host.rng_),
        peers(host) {}

  ProcessFs fs;
  AgentWork work;
  PeerPort peers;
};

namespace {

/// Its sessions need what they were told for as long as they live.
class ServedPeer final : public checkpoint::PeerEnd {
 public:
  ServedPeer(checkpoint::PeerServerDeps deps, NodeId client, bool is_hollow)
      : deps_(std::move(deps)), is_hollow_(is_hollow) {
    server_.emplace(deps_, std::move(client));
  }

  ~ServedPeer() override {
    const auto receipt = server_->receipt();
    server_.reset();
    if (receipt && is_hollow_) (void)deps_.store.forget(receipt->job);
  }

  ServedPeer(const ServedPeer&) = delete;
  ServedPeer& operator=(const ServedPeer&) = delete;

  std::optional<checkpoint::PeerFrame> next() override { return server_->next(); }

  void on_frame(checkpoint::PeerFrameType type, BlobView body) override {
    server_->on_frame(type, body);
  }

  bool is_finished() const override { return server_->is_finished(); }

  std::optional<std::uint64_t> bytes_left() const override { return server_->bytes_left(); }

 private:
  checkpoint::PeerServerDeps deps_;
  bool is_hollow_;
  std::optional<checkpoint::PeerServer> server_;
};

}  // namespace

AgentHost::AgentHost(
    World& world,
    Site& site,
    Machine& machine,
    WardenHost& warden,
    Identity identity,
    NodeFacts facts,
    Contract contract
)
    : world_(world),
      site_(site),
      machine_(machine),
      warden_(warden),
      identity_(std::move(identity)),
      facts_(std::move(facts)),
      contract_(std::move(contract)),
      process_(world, machine.name()) {
  site_.agents[identity_.node] = this;
}

AgentHost::~AgentHost() = default;

AgentWork& AgentHost::work() {
  return life_->work;
}

PeerPort& AgentHost::peers() {
  return life_->peers;
}

ProcessFs& AgentHost::fs() {
  return life_->fs;
}

nanoseconds AgentHost::some_time(std::int64_t low_ms, std::uint64_t span_ms) {
  return milliseconds(low_ms + static_cast<std::int64_t>(world_.rng().below(span_ms)));
}

bool AgentHost::dies_at(std::string_view point) {
  if (!world_.crashes_at(point, process_.name())) return false;
  crash(some_time(200, 10'000));
  return true;
}

bool AgentHost::dies_if_disk_did() {
  if (!process_.is_up()) return true;
  if (!life_->fs.is_dead()) return false;
  crash(some_time(200, 10'000));
  return true;
}

void AgentHost::start() {
  if (process_.is_up() || !is_wanted_ || !machine_.is_on()) return;
  process_.begin_life();
  world_.trace(process_.name(), "agent starts");
  rng_ = std::make_unique<SeededRng>(world_.rng().next());
  life_ = std::make_shared<Life>(*this);
  const bool has_store = life_->work.open_store();
  if (dies_if_disk_did()) return;
  if (!has_store) return crash(some_time(2000, 8000));  // the daemon says so and ends
  agent::CoreConfig config;
  config.node = identity_.node;
  config.lab = identity_.lab;
  config.version = "simulated";
  config.machine_id = identity_.machine_id;
  config.boot_id = machine_.boot_id();
  config.address = {process_.name() + ":7445", ""};
  config.data_sets = {kDataSet};  // every owner would lend it; the warden says where it is
  config.box_key = identity_.box_key.public_key;
  config.verify_key = identity_.verify_key.public_key;
  core_ = std::make_unique<agent::Core>(config, *rng_);
  std::vector<agent::JournalRow> rows;
  for (const auto& [key, value] : journal_) rows.push_back({key, value});
  const Status cleaned = agent::remove_strays(life_->fs, "/spool", rows);
  if (dies_if_disk_did()) return;
  if (!cleaned) return crash(some_time(2000, 8000));
  if (const Status restored = core_->restore(rows); !restored) {
    world_.violate("journal", process_.name() + ": " + restored.error().describe());
    return;
  }
  machine_.on_file = [this](const GuestName& guest, const std::string& path, bool is_rename) {
    process_.run([this, guest, path, is_rename] { watch_file(guest, path, is_rename); });
  };
  feed(agent::Started{facts_, contract_, 0});
  attach_to_warden();
  connect_later(milliseconds(50));
  process_.later(milliseconds(250), [this] { tick(); });
  process_.later(milliseconds(100), [this] { sample(); });
}

void AgentHost::crash(nanoseconds restart_after) {
  if (!process_.is_up()) return;
  world_.trace(process_.name(), "agent dies");
  process_.end_life();
  world_.network().drop_host(process_.name());
  warden_.close_session(warden_session_);
  // Whoever called may still be inside: the life goes when the stack is unwound.
  life_->fs.die();
  life_->peers.leave_lines();
  life_->work.leave_lines();
  world_.queue().after(
      nanoseconds(0), [dead = std::move(life_), core = std::shared_ptr(std::move(core_))] {}
  );
  life_.reset();
  core_.reset();
  waiting_.clear();
  is_committing_ = false;
  is_short_ = false;
  told_ = {};
  connection_ = 0;
  is_open_ = false;
  is_final_ = false;
  cancelled_.clear();
  watched_.clear();
  were_fetches_told_ = false;
  world_.queue().after(restart_after, [this] { start(); });
}

std::shared_ptr<checkpoint::PeerEnd> AgentHost::serve(
    const AgentHost& client, std::function<void(const Ticket&)> on_fetch
) {
  checkpoint::PeerServerDeps deps{
      .store = *work().store(),
      .images = nullptr,
      .clock = machine_.clock(),
      .self = identity_.node,
      .failure_domain = facts_.failure_domain,
      .signer = identity_.verify_key,
      .ticket_key = site_.coordinator->ticket_key(),
      .newest_epoch = {},
      .verify_key = {},
      .is_image_blob = {},
      .on_fetch = std::move(on_fetch)};
  return std::make_shared<ServedPeer>(
      std::move(deps), client.identity_.node, site_.is_hollow(identity_.node)
  );
}

void AgentHost::spoil(checkpoint::PeerFrame& frame, bool is_served) {
  using checkpoint::PeerFrameType;
  if (is_served ? !site_.is_liar(identity_.node) : !site_.is_garbler(identity_.node)) return;
  const bool is_manifest = is_served && frame.type == PeerFrameType::kManifest;
  if (frame.type != PeerFrameType::kChunk && !is_manifest) return;
  frame.body[frame.body.size() - 1 - world_.rng().below(frame.body.size() / 2)] ^= 1;
}

bool AgentHost::has_whole(const JobId& job, const Digest& manifest) {
  if (!process_.is_up() || life_->fs.is_dead() || work().store() == nullptr) return false;
  checkpoint::ChunkStore& store = *work().store();
  const auto sealed = store.load_manifest(job, manifest);
  const auto parsed =
      sealed ? checkpoint::parse_manifest(sealed->body) : Result<Manifest>(fail(sealed.error()));
  if (!parsed) return false;
  return std::all_of(parsed->chunks.begin(), parsed->chunks.end(), [&](const ChunkRef& chunk) {
    const auto bytes = store.get_unverified(chunk.cipher);
    return bytes && crypto::sha256(*bytes) == chunk.cipher;
  });
}

bool AgentHost::rot(const JobId& job, const Digest& manifest, Rng& rng) {
  if (!process_.is_up() || work().store() == nullptr) return false;
  const auto sealed = work().store()->load_manifest(job, manifest);
  if (!sealed) return false;
  const auto parsed = checkpoint::parse_manifest(sealed->body);
  if (!parsed) return false;
  CrashFs& disk = machine_.disk();
  std::vector<std::string> paths;
  for (const ChunkRef& chunk : parsed->chunks) {
    const std::string name = to_hex(chunk.cipher);
    paths.push_back("/chunks/chunks/" + name.substr(0, 2) + "/" + name);
  }
  const std::string folder = "/chunks/manifests/" + job.str();
  if (const auto names = disk.list(folder)) {
    for (const std::string& name : *names) {
      if (name.find(to_hex(manifest)) != std::string::npos) paths.push_back(folder + "/" + name);
    }
  }
  const std::string& path = paths[rng.below(paths.size())];
  const auto stat = disk.stat(path);
  if (!stat || stat->size == 0) return false;
  const auto mask = static_cast<std::uint8_t>(1U << rng.below(8));
  if (!disk.flip(path, rng.below(stat->size), mask)) return false;
  world_.trace(process_.name(), "a bit rots in " + path);
  return true;
}

bool AgentHost::forge(const wire::Message& message) {
  if (!is_open_) return false;
  world_.trace(process_.name(), "-> coordinator, forged: " + std::string(wire::name_of(message)));
  world_.network().send(connection_, process_.name(), wire::encode(message));
  return true;
}

void AgentHost::owner_leaves() {
  process_.run([this] { feed(agent::OwnerLeaves{"the owner leaves"}); });
}

void AgentHost::owner_writes(Contract contract) {
  contract_ = std::move(contract);
  process_.run([this] { feed(agent::ContractChanged{contract_, 0}); });
}

void AgentHost::owner_computes(std::uint32_t gpu, bool is_computing) {
  if (is_computing)
    owners_gpus_.insert(gpu);
  else
    owners_gpus_.erase(gpu);
}

void AgentHost::measure() {
  auto copies = work().progress();
  auto fetches = peers().fetches();
  if (copies.empty() && fetches.empty() && !were_fetches_told_) return;
  were_fetches_told_ = !fetches.empty();
  feed(agent::TransfersMeasured{std::move(copies), 0, std::move(fetches)});
}

void AgentHost::tick() {
  measure();
  feed(agent::Tick{});
  process_.later(milliseconds(250), [this] { tick(); });
}

void AgentHost::sample() {
  agent::TelemetrySampled sampled;
  sampled.telemetry.memory_used_mib = 1000;
  sampled.telemetry.disk_free_mib = 100'000;
  for (const std::uint32_t gpu : owners_gpus_)
    sampled.telemetry.gpus.push_back({.index = gpu, .foreign_processes = 1});
  feed(sampled);
  process_.later(kSampleEvery, [this] { sample(); });
}

void AgentHost::attach_to_warden() {
  warden_session_ = warden_.open_session(
      [this, life = process_.life()](warden_wire::Reply reply) {
        if (life != process_.life()) return;
        process_.later(std::chrono::microseconds(100), [this, reply = std::move(reply)] {
          feed(agent::WardenReply{reply});
        });
      },
      [this, life = process_.life()] {
        if (life != process_.life()) return;
        process_.run([this] {
          warden_session_ = 0;
          feed(agent::WardenDisconnected{});
          process_.later(milliseconds(500), [this] { attach_to_warden(); });
        });
      }
  );
  if (warden_session_ == 0)
    return process_.later(milliseconds(500), [this] { attach_to_warden(); });
  feed(agent::WardenConnected{});
}

void AgentHost::connect_later(nanoseconds delay) {
  if (is_final_) return;
  process_.later(delay, [this] { connect(); });
}

void AgentHost::connect() {
  if (connection_ != 0) return;
  Network::Endpoint endpoint;
  const auto life = process_.life();
  endpoint.on_message = [this, life](Blob bytes) {
    if (life != process_.life()) return;
    process_.run([this, bytes = std::move(bytes)] {
      const auto message = wire::decode(bytes);
      if (message)
        feed(agent::CoordinatorMessage{*message});
      else
        world_.violate("wire", "an agent cannot decode: " + message.error().describe());
    });
  };
  auto closed = std::make_shared<Network::ConnectionId>(0);
  endpoint.on_close = [this, life, closed] {
    if (life != process_.life() || connection_ != *closed) return;
    process_.run([this, closed] {
      if (connection_ != *closed) return;
      connection_ = 0;
      if (is_open_) feed(agent::CoordinatorDisconnected{"closed"});
      is_open_ = false;
      connect_later(milliseconds(500 + static_cast<std::int64_t>(rng_->below(2000))));
    });
  };
  connection_ = world_.network().connect(
      process_.name(),
      CoordinatorHost::kName,
      endpoint,
      [this](Network::ConnectionId id) {
        return site_.coordinator->accept(
            id, identity_.node, identity_.certificate, process_.name()
        );
      },
      [this, life] {
        if (life != process_.life()) return;
        process_.run([this] {
          is_open_ = true;
          feed(agent::CoordinatorConnected{});
        });
      }
  );
  *closed = connection_;
  process_.later(kConnectTimeout, [this, attempt = connection_] {
    if (connection_ != attempt || is_open_) return;
    world_.network().close(attempt, process_.name());
    connection_ = 0;
    connect_later(milliseconds(500));
  });
}

void AgentHost::feed(const agent::Event& event) {
  if (core_ == nullptr) return;
  obey(core_->handle(event, machine_.clock().now()));
}

void AgentHost::obey(agent::Output output) {
  if (output.writes.empty() && output.effects.empty()) return;
  if (output.overtakes) {
    finish(std::move(output));
    return;
  }
  const nanoseconds takes = output.writes.empty() ? nanoseconds(1000) : nanoseconds(kJournalTime);
  waiting_.push_back(std::move(output));
  if (is_committing_) return;
  is_committing_ = true;
  process_.later(takes, [this] { commit(); });
}

void AgentHost::commit() {
  auto batch = std::move(waiting_);
  waiting_.clear();
  const auto life = process_.life();
  for (std::size_t at = 0; at < batch.size(); ++at) {
    if (!has_room(batch[at])) {
      if (life != process_.life()) return;
      const auto rest = std::next(batch.begin(), static_cast<std::ptrdiff_t>(at));
      waiting_.insert(waiting_.begin(), std::move_iterator(rest), std::move_iterator(batch.end()));
      return process_.later(kRoomPause, [this] { commit(); });
    }
    finish(std::move(batch[at]));
    if (life != process_.life()) return;
  }
  is_committing_ = false;
  auto next = std::move(waiting_);
  waiting_.clear();
  for (auto& one : next) obey(std::move(one));
  if (!is_short_ || is_committing_) return;
  is_short_ = false;
  feed(agent::JournalGoesOn{});
}

/// Tells the core when there is none.
bool AgentHost::has_room(const agent::Output& output) {
  if (output.writes.empty() || !machine_.is_disk_full()) return true;
  if (is_short_) return false;
  is_short_ = true;
  world_.trace(process_.name(), "its journal waits for room");
  feed(agent::JournalWaits{"the disk is full", told_.reports()});
  return false;
}

void AgentHost::finish(agent::Output output) {
  if (!output.writes.empty()) {
    if (dies_at("agent.before_journal")) return;
    for (const auto& write : output.writes) {
      if (write.value)
        journal_[write.key] = *write.value;
      else
        journal_.erase(write.key);
    }
    if (dies_at("agent.after_journal")) return;
  }
  for (const auto& effect : output.effects) {
    if (dies_at(point_of(effect))) return;
    const auto life = process_.life();
    carry_out(effect);
    if (life != process_.life()) return;
  }
}

void AgentHost::carry_out(const agent::Effect& effect) {
  if (const auto* send = std::get_if<agent::SendToCoordinator>(&effect)) {
    told_.on_sent(send->message);
    if (!is_open_) return;
    world_.trace(process_.name(), "-> coordinator " + std::string(wire::name_of(send->message)));
    world_.network().send(connection_, process_.name(), wire::encode(send->message));
  } else if (const auto* close = std::get_if<agent::CloseCoordinator>(&effect)) {
    world_.trace(process_.name(), "closes its connection: " + close->reason);
    if (connection_ != 0) world_.network().close(connection_, process_.name());
    const bool was_open = is_open_;
    connection_ = 0;
    is_open_ = false;
    is_final_ = close->is_final;
    if (was_open) feed(agent::CoordinatorDisconnected{close->reason});
    connect_later(close->retry_ms > 0 ? milliseconds(close->retry_ms) : milliseconds(1000));
  } else if (const auto* ask = std::get_if<agent::AskWarden>(&effect)) {
    if (warden_session_ != 0) warden_.ask(warden_session_, ask->request);
  } else if (const auto* kill = std::get_if<agent::KillNow>(&effect)) {
    kill_now(*kill);
  } else if (const auto* use = std::get_if<agent::UseContract>(&effect)) {
    use_contract(*use);
  } else if (const auto* begin = std::get_if<agent::StartWork>(&effect)) {
    start_work(begin->work);
  } else if (const auto* cancel = std::get_if<agent::CancelWork>(&effect)) {
    cancelled_.insert(cancel->id);
    work().stop(cancel->id);
  } else if (const auto* release = std::get_if<agent::ReleaseCopy>(&effect)) {
    work().release(release->id, release->generation);
  } else if (const auto* rate = std::get_if<agent::SetRate>(&effect)) {
    if (rate->id >= agent::kFirstFetch)
      peers().pace(rate->id - agent::kFirstFetch, rate->rate_bps);
    else
      work().set_rate(rate->id, rate->rate_bps);
  } else if (const auto* watch = std::get_if<agent::StartWatch>(&effect)) {
    watched_.insert(watch->guest);
    if (work().has_news(watch->disk, watch->since)) {
      process_.later(milliseconds(50), [this, guest = watch->guest] {
        feed(agent::GenerationDetected{guest});
      });
    }
  } else if (const auto* unwatch = std::get_if<agent::StopWatch>(&effect)) {
    watched_.erase(unwatch->guest);
  } else if (std::holds_alternative<agent::LeftForGood>(effect)) {
    world_.trace(process_.name(), "has left the site");
    site_.checkers->on_left(machine_);
    is_wanted_ = false;
    process_.later(seconds(1), [this] { crash(seconds(1)); });  // the goodbye is on its way
  }
}

/// The kill socket, which answers also where the warden's process does not.
void AgentHost::kill_now(const agent::KillNow& kill) {
  warden_.emergency();
  if (on_kill) on_kill();
  process_.later(milliseconds(5), [this, order = kill.order] {
    feed(agent::WardenActed{});
    feed(agent::KilledNow{order, std::nullopt});
  });
}

/// Its file: it outlives the process.
void AgentHost::use_contract(const agent::UseContract& use) {
  process_.later(milliseconds(2), [this, use] {
    if (arbiter::version_of(contract_) != use.from)
      return feed(agent::EditUnusable{
          use.edit, Error{ErrorCode::kConflict, "its contract was changed meanwhile", ""}});
    if (!arbiter::narrows(contract_, use.contract, facts_))
      world_.violate("I9", process_.name() + " lends more, and nobody at it has said so");
    contract_ = use.contract;
    world_.trace(process_.name(), "its contract is another one, by " + use.edit);
    feed(agent::ContractChanged{contract_, 0, use.edit});
  });
}

bool AgentHost::owner_settles(bool is_accepted) {
  if (!process_.is_up() || core_ == nullptr) return false;
  const ContractProposal waits = core_->view(machine_.clock().now()).proposal;
  if (waits.id.empty()) return false;
  world_.trace(process_.name(), (is_accepted ? "accepts " : "rejects ") + waits.id);
  if (is_accepted) contract_ = waits.contract;
  process_.run([this, is_accepted, id = waits.id] {
    if (is_accepted) return feed(agent::ContractChanged{contract_, 0, id});
    feed(agent::ProposalRejected{id});
  });
  return true;
}

void AgentHost::watch_file(const GuestName& guest, const std::string& path, bool is_rename) {
  if (!path.ends_with(".safetensors")) return;
  process_.later(is_rename ? milliseconds(5) : milliseconds(200), [this, guest] {
    if (watched_.contains(guest)) feed(agent::GenerationDetected{guest});
  });
}

void AgentHost::start_work(const agent::Work& next) {
  const nanoseconds length = work().length(next);
  process_.later(length, [this, next] {
    if (cancelled_.erase(next.id) > 0) return;
    if (dies_at("agent.work_half_done")) return;
    work().begin(next, [this, id = next.id](agent::WorkResult result) {
      finish_work(id, std::move(result));
    });
  });
}

void AgentHost::finish_work(agent::WorkId id, agent::WorkResult result) {
  if (dies_if_disk_did()) return;
  if (cancelled_.erase(id) > 0) return;
  if (dies_at("agent.work_done")) return;
  feed(agent::WorkDone{id, std::move(result)});
}

}  // namespace rn::sim
