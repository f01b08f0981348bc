// SPDX-License-Identifier: Apache-2.0
#pragma once

// The daemon's inside; only daemon*.cc include it.

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "agent/config.h"
#include "agent/core.h"
#include "agent/daemon.h"
#include "agent/gang_links.h"
#include "agent/guest_book.h"
#include "agent/hands.h"
#include "agent/identity.h"
#include "agent/journal_db.h"
#include "agent/links.h"
#include "agent/renewal.h"
#include "agent/served_fetches.h"
#include "agent/site_clock.h"
#include "agent/telemetry_host.h"
#include "agent/telemetry_nvml.h"
#include "agent/told_reports.h"
#include "agent/transfer_gauge.h"
#include "agent/tunnels.h"
#include "agent/uplink_meter.h"
#include "agent/watcher.h"
#include "checkpoint/chunk_store.h"
#include "io/framed.h"
#include "io/http_server.h"
#include "io/loop.h"
#include "io/real_clock.h"
#include "io/real_fs.h"
#include "io/real_rng.h"
#include "io/workers.h"
#include "model/api.h"

namespace rn::agent {

constexpr seconds kKillLimit{15};  ///< of a word from the kill socket

constexpr seconds kTicketTolerance{300};
/// Before the coordinator has told its time (an agent that starts while the coordinator is away),
/// as far as certificates are backdated. A ticket binds both nodes, the job and its epoch; its end
/// only bounds how long.
constexpr seconds kTicketToleranceUntold = std::chrono::duration_cast<seconds>(kBackdating);

/// What other threads need; the loop thread writes it.
struct Shared {
  std::mutex mutex;
  crypto::PublicKey ticket_key{};
};

class Daemon::State {
 public:
  explicit State(AgentConfig c) : config(std::move(c)) {}

  ~State();

  // daemon.cc
  Status open();
  Status open_stores();
  Status serve();
  void start_links();
  void feed(const Event& event);
  void on_room(const Status& short_of);
  void act(Output out);
  void stop(Status why);

  // daemon_effects.cc
  void act(const SendToCoordinator& e);
  void act(const CloseCoordinator& e);
  void act(const AskWarden& e);
  void act(const KillNow& e);
  void act(const UseContract& e);
  void act(const StartWork& e);
  void act(const CancelWork& e);
  void act(const ReleaseCopy& e);
  void act(const SetRate& e);
  void act(const StartWatch& e);
  void act(const StopWatch& e);
  void act(const LeftForGood& e);
  void measure_transfers();
  void look_for_uplink(const std::string& local);
  void on_message(wire::Message message);
  void on_disconnected(const std::string& reason);
  void start_tunnels();
  void start_gang_links();
  void look_at_gang_links();
  Result<std::string> disk_of_guest(const std::string& guest) const;
  void end_goodbye(bool is_known);
  void keep_ticket_key(const Digest& key);
  void load_ticket_key();

  // daemon_servers.cc
  Status start_peer_server();
  Status start_api();
  void serve_peer(io::FramedConnection& connection);
  void serve_transfer(io::FramedConnection& connection, const NodeId& peer, const io::Frame& first);
  void on_request(io::HttpRequest request, const io::Responder& responder, bool is_local);
  void put_contract(const io::HttpRequest& request, const io::Responder& responder);
  void accept_gpu(const io::HttpRequest& request, const io::Responder& responder);
  Status use_contract(const Contract& wanted, const std::string& edit);
  void settle_proposal(
      const io::HttpRequest& request, const io::Responder& responder, bool is_accepted
  );
  bool knows_zone_of(const wire::EditContract& message);
  void emergency(const io::HttpRequest& request, const io::Responder& responder, bool is_local);
  void tell_emergency(const std::string& answer, const io::Responder& responder, int tries);
  std::string metrics() const;

  // daemon_telemetry.cc
  NodeFacts measure_facts();
  void sample_forever();
  TelemetrySampled sample(HostSampler& host, const NvmlSampler* nvml);
  void renew_when_due();
  void use_certificate(const api::RenewAnswer& answer);

  AgentConfig config;
  io::RealFileSystem fs;
  io::RealClock clock;
  SiteClock site_clock{clock};
  io::RealRng rng;
  io::Loop loop;

  std::unique_ptr<CurrentIdentity> identity;
  Shared shared;
  std::unique_ptr<JournalDb> journal;
  std::unique_ptr<checkpoint::ChunkStore> store;
  std::unique_ptr<checkpoint::ChunkStore> images;
  std::unique_ptr<GuestBook> guests;
  std::unique_ptr<Hands> hands;
  std::unique_ptr<NvmlSampler> nvml;
  Renewal renewal;
  std::unique_ptr<Core> core;
  NodeAddress address;
  NodeFacts facts;
  Contract contract;

  std::map<WorkId, std::shared_ptr<std::atomic<bool>>> cancels;
  std::map<WorkId, std::shared_ptr<checkpoint::ChunkTap>> taps;  ///< of copies that are ahead
  std::map<WorkId, std::shared_ptr<TransferGauge>> gauges;       ///< of copies and outputs
  ServedFetches fetches{[this] { loop.post([this] { measure_transfers(); }); }};
  bool were_fetches_told = false;  ///< the core knows of some
  std::unique_ptr<UplinkMeter> uplink;
  std::string uplink_address;  ///< own end of what was sent last
  std::string uplink_interface;
  std::uint64_t sent_before = 0;  ///< by those of the gauges that are over
  std::unique_ptr<Watcher> watcher;
  bool says_goodbye = false;  ///< the core has sent the last message
  std::unique_ptr<CoordinatorLink> coordinator;
  std::unique_ptr<Tunnels> tunnels;
  std::unique_ptr<GangLinks> gang_links;  ///< as long as there is a peer port
  std::atomic<std::size_t> transfers_served{0};
  std::atomic<std::size_t> peers_silent{0};
  std::unique_ptr<WardenLink> warden;
  std::unique_ptr<io::FramedServer> peer_server;
  std::unique_ptr<io::HttpServer> api;
  std::unique_ptr<io::HttpServer> control;
  std::unique_ptr<io::Workers> heavy;
  std::unique_ptr<io::Workers> light;
  std::unique_ptr<io::Workers> kills;  ///< of the owner's: wait for no other work

  std::thread sampler;
  std::mutex sampler_mutex;
  std::condition_variable sampler_wake;
  bool is_sampler_stopping = false;
  std::string sampled_zone;  ///< under sampler_mutex: the contract's time zone

  ToldReports told;
  std::uint64_t writes_pending = 0;
  std::uint64_t commits = 0;
  std::atomic<bool> is_stopping = false;
  Status outcome;
};

}  // namespace rn::agent
