// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon.h"

#include <csignal>

#include <unistd.h>

#include "agent/contract_file.h"
#include "agent/daemon_state.h"
#include "agent/local_work.h"
#include "agent/peers.h"
#include "base/log.h"
#include "io/url.h"

namespace rn::agent {

namespace {

constexpr const char* kVersion = "0.1.0";
constexpr std::size_t kHeavyThreads = 6;
constexpr std::size_t kLightThreads = 2;
constexpr std::size_t kKillThreads = 4;
constexpr std::size_t kQueuedMax = 1024;
constexpr milliseconds kTick{100};

Result<std::string> boot_id(FileSystem& fs, const std::string& root) {
  RN_TRY(const Blob bytes, read_all(fs, root + "/proc/sys/kernel/random/boot_id", 128));
  std::string text(as_text(bytes));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

Daemon::Daemon(std::unique_ptr<State> state) : state_(std::move(state)) {}

Daemon::~Daemon() = default;

Result<std::unique_ptr<Daemon>> Daemon::start(AgentConfig config) {
  auto state = std::make_unique<State>(std::move(config));
  RN_CHECK(state->open());
  RN_CHECK(state->serve());
  return std::make_unique<Daemon>(std::move(state));
}

Status Daemon::run() {
  const Status handled =
      state_->loop.on_signal({SIGTERM, SIGINT}, [this](int) { state_->stop({}); });
  if (!handled) return handled;
  state_->loop.run();
  return state_->outcome;
}

void Daemon::stop() {
  state_->loop.post([this] { state_->stop({}); });
}

io::Loop& Daemon::loop() {
  return state_->loop;
}

std::uint16_t Daemon::peer_port() const {
  return state_->peer_server ? state_->peer_server->port() : 0;
}

std::uint16_t Daemon::api_port() const {
  return state_->api ? state_->api->port() : 0;
}

Daemon::State::~State() {
  is_stopping = true;
  {
    const std::lock_guard lock(sampler_mutex);
    is_sampler_stopping = true;
  }
  sampler_wake.notify_all();
  if (sampler.joinable()) sampler.join();
  for (const auto& [id, cancel] : cancels) *cancel = true;
  // Sources of events end before what they feed.
  control.reset();
  api.reset();
  if (gang_links) gang_links->stop();  // or what is served would not end
  peer_server.reset();
  gang_links.reset();
  watcher.reset();
  tunnels.reset();
  coordinator.reset();
  warden.reset();
  heavy.reset();
  light.reset();
  kills.reset();
  journal.reset();
}

void Daemon::State::stop(Status why) {
  if (is_stopping.exchange(true)) return;
  outcome = std::move(why);
  for (const auto& [id, cancel] : cancels) *cancel = true;  // work may hold a guest's disk
  loop.stop();
}

Status Daemon::State::open_stores() {
  checkpoint::StoreOptions options;
  options.root = config.store_folder();
  options.quota_bytes = contract.store_mib << 20;
  options.reserve_free_bytes = contract.reserve_disk_mib << 20;
  RN_TRY(store, checkpoint::ChunkStore::open(fs, clock, options));
  options.root = join_path(config.folder(), "image-pieces");
  options.unreferenced_min_age =
      std::chrono::hours(24 * 365);  // images are kept until they are asked away
  RN_TRY(images, checkpoint::ChunkStore::open(fs, clock, options));
  return {};
}

Status Daemon::State::open() {
  RN_CHECK(make_folders(fs, config.folder(), 0755));
  RN_CHECK(make_folders(fs, config.run, 0755));
  RN_TRY(const std::string machine, machine_id(fs, config.machine_id_file));
  RN_TRY(Identity loaded, load_identity(fs, config.identity_folder(), machine));
  identity = std::make_unique<CurrentIdentity>(std::move(loaded));
  load_ticket_key();
  const auto on_room = [this](const Status& short_of) {
    loop.post([this, short_of] { this->on_room(short_of); });
  };
  RN_TRY(journal, JournalDb::open(join_path(config.folder(), "journal.db"), on_room));
  facts = measure_facts();
  auto found = load_contract(fs, config.contract_path(), facts, config.zone_folder);
  if (found) {
    contract = *std::move(found);
  } else if (found.error().code == ErrorCode::kNotFound) {
    RN_CHECK(store_contract(fs, config.contract_path(), contract));
  } else {
    return fail(found.error());
  }
  fetches.set_first_rate(contract.uplink_bps_normal);
  RN_CHECK(open_stores());
  guests = std::make_unique<GuestBook>(fs, join_path(config.folder(), "guests"));
  hands = std::make_unique<Hands>(HandsDeps{
      fs,
      clock,
      rng,
      *identity,
      *store,
      *images,
      *guests,
      join_path(config.folder(), "images"),
      config.image_archives_mib << 20,
      [this](const GuestName& guest) { loop.post([this, guest] { watcher->look_again(guest); }); }}
  );
  heavy = std::make_unique<io::Workers>(loop, kHeavyThreads, kQueuedMax);
  light = std::make_unique<io::Workers>(loop, kLightThreads, kQueuedMax);
  kills = std::make_unique<io::Workers>(loop, kKillThreads, kQueuedMax);

  CoreConfig core_config;
  const auto self = identity->get();
  core_config.node = self->node;
  core_config.lab = self->lab;
  core_config.version = kVersion;
  core_config.machine_id = machine;
  RN_TRY(core_config.boot_id, boot_id(fs, config.root));
  core_config.box_key = self->box.public_key;
  core_config.verify_key = self->signing.public_key;
  if (const std::string expiry = expiry_of(*self, clock.now().wall); !expiry.empty()) {
    // Its guests, its owner's commands and what it keeps for others do not wait for that.
    log::error("certificate.expired", {{"what", expiry}, {"next", rejoin_help(*self)}});
    core_config.expiry = expiry + "; next: " + rejoin_help(*self);
  }
  RN_CHECK(start_peer_server());
  RN_CHECK(start_api());
  core_config.address = address;
  core_config.data_sets = config.data_sets;
  if (const auto url = io::parse_url(self->agent_url)) core_config.coordinator_port = url->port;
  core_config.rest_port = api ? api->port() : 0;
  core_config.telemetry_trusted =
      std::max(core_config.telemetry_trusted, 5 * milliseconds(config.telemetry_ms));
  core_config.no_save_after = seconds(config.no_save_after_s);
  core = std::make_unique<Core>(core_config, rng);
  RN_TRY(const std::vector<JournalRow> rows, journal->load());
  RN_CHECK(remove_strays(fs, join_path(config.folder(), "guests"), rows));
  return core->restore(rows);
}

Status Daemon::State::serve() {
  watcher = std::make_unique<Watcher>(
      fs,
      clock,
      [this](const GuestName& guest, const checkpoint::GenerationReady& ready) {
        const auto entry = guests->entry(guest);
        {
          const std::lock_guard lock(entry->mutex);
          entry->ready = ready;
        }
        loop.post([this, guest, began = ready.began_at] {
          feed(GenerationDetected{guest, began});
        });
      },
      [this](const GuestName& guest, const checkpoint::GivenUp& unit) {
        const std::string path = unit.unit.path.empty() ? "the work folder" : unit.unit.path;
        loop.post([this, trouble = SaveTrouble{guest, path, unit.reason}] { feed(trouble); });
      }
  );
  const auto offset = utc_offset_s(fs, contract.time_zone, clock.now().wall, config.zone_folder);
  {
    const std::lock_guard lock(sampler_mutex);
    sampled_zone = contract.time_zone;
  }
  loop.post([this, offset] {
    feed(Started{facts, contract, offset.value_or(0)});
    start_links();
  });
  uplink = std::make_unique<UplinkMeter>(config.root);
  loop.run_every(kTick, [this] {
    measure_transfers();
    feed(Tick{});
    look_at_gang_links();
  });
  if (const auto info = io::read_certificate(identity->get()->certificate_pem))
    renewal.loaded(*info, clock.now());
  sampler = std::thread([this] { sample_forever(); });
  log::info(
      "agent.started",
      {{"node", identity->get()->node.str()},
       {"lab", identity->get()->lab.str()},
       {"peer", address.peer},
       {"api", address.api}}
  );
  return {};
}

void Daemon::State::start_links() {
  warden = std::make_unique<WardenLink>(
      loop,
      config.warden_path(),
      config.warden_uid,
      WardenLink::Callbacks{
          [this] { feed(WardenConnected{}); },
          [this](warden_wire::Reply reply) { feed(WardenReply{std::move(reply)}); },
          [this] { feed(WardenDisconnected{}); }}
  );
  coordinator = std::make_unique<CoordinatorLink>(
      loop,
      rng,
      identity->get()->agent_url,
      tls_to_coordinator(*identity->get()),
      CoordinatorLink::Callbacks{
          [this] { feed(CoordinatorConnected{}); },
          [this](wire::Message message) { on_message(std::move(message)); },
          [this](const std::string& reason) { on_disconnected(reason); }}
  );
  warden->start();
  coordinator->start();
  start_tunnels();
  renew_when_due();
}

/// The core stops asking for writes, so that what gathers at the journal is bounded.
void Daemon::State::on_room(const Status& short_of) {
  if (short_of) return feed(JournalGoesOn{});
  feed(JournalWaits{short_of.error().message, told.reports()});
}

/// Effects leave in the order of their outputs: one without writes waits for the earlier writes
/// too, unless no row stands behind it.
void Daemon::State::feed(const Event& event) {
  if (is_stopping) return;
  Output out = core->handle(event, loop.now());
  if (out.writes.empty() && out.effects.empty()) return;
  if (out.overtakes || (out.writes.empty() && writes_pending == 0)) {
    act(std::move(out));
    return;
  }
  ++writes_pending;
  auto effects = std::make_shared<Output>();
  effects->effects = std::move(out.effects);
  journal->write(std::move(out.writes), [this, effects](const Status& written) {
    loop.post([this, effects, written] {
      --writes_pending;
      if (!written) {
        log::error("journal.failed", {{"error", written.error().describe()}});
        stop(written);
        return;
      }
      ++commits;
      act(std::move(*effects));
    });
  });
}

void Daemon::State::act(Output out) {
  for (const Effect& effect : out.effects) {
    if (is_stopping) return;
    std::visit([this](const auto& e) { act(e); }, effect);
  }
}

}  // namespace rn::agent
