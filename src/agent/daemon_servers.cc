// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <optional>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "agent/contract_file.h"
#include "agent/daemon_state.h"
#include "agent/image_pieces.h"
#include "agent/kill_client.h"
#include "agent/owner_words.h"
#include "agent/peers.h"
#include "agent/served_places.h"
#include "arbiter/contract_rules.h"
#include "base/log.h"
#include "base/whole_number.h"
#include "checkpoint/transfer.h"
#include "io/http_error.h"
#include "io/metrics_page.h"
#include "io/own_address.h"
#include "model/codec.h"

namespace rn::agent {

namespace {

constexpr milliseconds kKnownStep{25};  // between two looks whether the core knows an emergency
constexpr int kKnownTries = 80;
/// At a time. Links of gangs have bounds of their own (gang_links.h).
constexpr std::size_t kTransfersServed = 64;
constexpr std::size_t kLinksServed = 512;
constexpr std::size_t kSilentPeers = 64;  ///< whose first frame has not come
constexpr milliseconds kFirstFrame = seconds(60);

}  // namespace

Status Daemon::State::start_peer_server() {
  if (config.listen_peer.empty()) return {};
  RN_TRY(const HostPort listen, parse_host_port(config.listen_peer));
  io::FramedServerConfig server;
  server.address = listen.host;
  server.port = listen.port;
  server.tls = tls_server(*identity->get());
  server.max_connections = kTransfersServed + kLinksServed;
  start_gang_links();
  auto started = io::FramedServer::start(server, [this](io::FramedConnection& connection) {
    serve_peer(connection);
  });
  if (!started)
    return fail(started.error()
                    .with("peer port " + config.listen_peer)
                    .hinting("choose another one with --listen-peer"));
  peer_server = *std::move(started);
  address.peer = dialled_address(
      config.advertise_peer, listen.host, peer_server->port(), *identity->get(), io::own_hostname()
  );
  return {};
}

/// On a thread of the server.
void Daemon::State::serve_peer(io::FramedConnection& connection) {
  const NodeId peer = node_of(connection.peer_identity().value_or(""));
  if (peer.empty()) return;
  std::optional<Result<io::Frame>> first;
  if (const HeldPlace silent(peers_silent, kSilentPeers); silent)
    first = connection.receive(kFirstFrame);
  if (!first || !*first) return;
  const io::Frame& said = **first;
  if (said.type == static_cast<std::uint8_t>(LinkFrame::kLink))
    return gang_links->serve(connection, peer, said.body);
  // Counted here, where it is known what it is: so no link takes a transfer's place.
  serve_within(transfers_served, kTransfersServed, connection, [&] {
    serve_transfer(connection, peer, said);
  });
}

void Daemon::State::serve_transfer(
    io::FramedConnection& connection, const NodeId& peer, const io::Frame& first
) {
  const auto self = identity->get();
  crypto::PublicKey ticket_key{};
  {
    const std::lock_guard lock(shared.mutex);
    ticket_key = shared.ticket_key;
  }
  ServedFetches::Session session(fetches, connection);
  const checkpoint::PeerServerDeps deps{
      .store = *store,
      .images = images.get(),
      .clock = site_clock,
      .self = self->node,
      .failure_domain = facts.failure_domain,
      .signer = self->signing,
      .ticket_key = ticket_key,
      .clock_tolerance = site_clock.is_told() ? kTicketTolerance : kTicketToleranceUntold,
      .newest_epoch =
          [this](const JobId& job) {
            LeaseEpoch newest;
            for (const GenerationRef& ref : store->list(job)) newest = std::max(newest, ref.epoch);
            return newest;
          },
      .verify_key = {},
      .is_image_blob =
          opens_pieces_of_its_image(ImagePieces(fs, join_path(config.folder(), "images"))),
      // NOTE(libstdc++): a new thread; on this one, later, if none can be had.
      .flush = std::launch::async | std::launch::deferred,
      .on_fetch = [&session](const Ticket& ticket) { session.begin(ticket); }};
  checkpoint::DriveOptions options;
  options.should_stop = [this] { return is_stopping.load(); };
  options.on_progress = [&session](std::optional<std::uint64_t> left) { session.set_left(left); };
  const checkpoint::TransferStats stats = checkpoint::serve_peer(connection, deps, options, &first);
  log::info(
      "peer.served", {{"peer", peer.str()}, {"bytes", stats.bytes}, {"chunks", stats.chunks}}
  );
}

Status Daemon::State::start_api() {
  io::HttpServerConfig local;
  local.unix_path = config.control_path();
  local.unix_mode = 0666;  // reading is for everybody; what changes something looks at the uid
  auto started = io::HttpServer::start(
      loop,
      local,
      [this](io::HttpRequest request, const io::Responder& responder) {
        on_request(std::move(request), responder, true);
      }
  );
  if (!started) return fail(started.error().with("control socket " + config.control_path()));
  control = *std::move(started);
  if (config.listen_api.empty()) return {};
  RN_TRY(const HostPort listen, parse_host_port(config.listen_api));
  io::HttpServerConfig remote;
  remote.address = listen.host;
  remote.port = listen.port;
  remote.tls = tls_server(*identity->get());
  remote.max_connections = 64;
  started = io::HttpServer::start(
      loop,
      remote,
      [this](io::HttpRequest request, const io::Responder& responder) {
        on_request(std::move(request), responder, false);
      }
  );
  if (!started)
    return fail(started.error()
                    .with("LAN address " + config.listen_api)
                    .hinting("choose another one with --listen-api"));
  api = *std::move(started);
  address.api = dialled_address(
      config.advertise_api, listen.host, api->port(), *identity->get(), io::own_hostname()
  );
  return {};
}

void Daemon::State::on_request(
    io::HttpRequest request, const io::Responder& responder, bool is_local
) {
  const bool is_get = request.method == "GET";
  const bool is_owner =
      is_local ? request.peer_uid && (*request.peer_uid == 0 || *request.peer_uid == getuid())
               : std::find(
                     config.owners.begin(), config.owners.end(), request.peer_identity.value_or("")
                 ) != config.owners.end();
  if (is_get && request.path == "/healthz") {
    responder.send(io::json_response(200, R"({"is_ok":true})"));
  } else if (is_get && request.path == "/v1/node") {
    responder.send(io::json_response(200, to_json_text(core->view(loop.now()))));
  } else if (is_get && request.path == "/v1/attempts") {
    NodeView view = core->view(loop.now());
    const nlohmann::json all = *parse_json(to_json_text(view));
    responder.send(io::json_response(200, nlohmann::json{{"attempts", all["attempts"]}}.dump()));
  } else if (is_get && request.path == "/metrics") {
    io::HttpResponse response;
    response.headers = {{"Content-Type", io::MetricsPage::kContentType}};
    response.body = metrics();
    responder.send(std::move(response));
  } else if (is_get && is_local && request.path == "/v1/contract") {
    io::HttpResponse response;
    response.headers = {{"Content-Type", "application/yaml"}};
    response.body = to_yaml(contract);
    responder.send(std::move(response));
  } else if (!is_owner) {
    responder.send_error(Error{
        ErrorCode::kDenied,
        "only the machine's owner may do this",
        is_local ? "run it as root" : "name the certificate's identity under owners: in agent.yaml"}
    );
  } else if (request.method == "POST" && request.path == "/v1/emergency") {
    emergency(request, responder, is_local);
  } else if (is_local && request.method == "PUT" && request.path == "/v1/contract") {
    put_contract(request, responder);
  } else if (is_local && request.method == "POST" && request.path == "/v1/contract/accept") {
    settle_proposal(request, responder, true);
  } else if (is_local && request.method == "POST" && request.path == "/v1/contract/reject") {
    settle_proposal(request, responder, false);
  } else if (is_local && request.method == "POST" && request.path == "/v1/leave") {
    const NodeView view = core->view(loop.now());
    if (view.journal_waits_s >= 0)
      return responder.send_error(Error{
          ErrorCode::kExhausted, "the disk is full: it cannot be written down", kRoomHelp});
    feed(OwnerLeaves{request.body.empty() ? "the owner leaves" : request.body});
    responder.send(io::json_response(202, "{}"));
  } else if (is_local && request.method == "POST" && request.path == "/v1/gpu-ok") {
    accept_gpu(request, responder);
  } else {
    responder.send_error(Error{
        ErrorCode::kNotFound,
        "no such path: " + request.method + " " + request.path,
        "GET /v1/node, /v1/attempts, /metrics, /healthz; POST /v1/emergency"});
  }
}

/// The body is the index. What is said is how it was and how it is now.
void Daemon::State::accept_gpu(const io::HttpRequest& request, const io::Responder& responder) {
  const auto gpu = whole_number<std::uint32_t>(request.body);
  const NodeView before = core->view(loop.now());
  const auto sickness_in = [&gpu](const NodeView& view) {
    for (const GpuTelemetry& seen : view.telemetry.gpus) {
      if (seen.index == *gpu) return seen.sickness;
    }
    return std::string();
  };
  if (!gpu)
    return responder.send_error(Error{
        ErrorCode::kInvalid, "'" + request.body + "' is no number of a GPU", "reclaim-agent status"}
    );
  const auto missing = gpus_not_there({*gpu}, before, [](std::uint32_t) { return false; });
  if (!missing.empty()) return responder.send_error(no_such_gpus(missing, before));
  if (before.journal_waits_s >= 0)
    return responder.send_error(Error{
        ErrorCode::kExhausted, "the disk is full: it cannot be written down", kRoomHelp});
  feed(GpuAccepted{*gpu});
  const nlohmann::json told = {
      {"was", sickness_in(before)}, {"sickness", sickness_in(core->view(loop.now()))}};
  responder.send(io::json_response(200, told.dump()));
}

void Daemon::State::put_contract(const io::HttpRequest& request, const io::Responder& responder) {
  const auto parsed = parse_contract(request.body, facts, config.zone_folder);
  if (!parsed) return responder.send_error(parsed.error());
  const Status used = use_contract(*parsed, "");
  if (!used) return responder.send_error(used.error());
  responder.send(io::json_response(200, to_json(contract)));
}

/// Durable, and then in force everywhere; nothing is changed on an error.
Status Daemon::State::use_contract(const Contract& wanted, const std::string& edit) {
  const Status stored = store_contract(fs, config.contract_path(), wanted);
  if (!stored)
    return fail(stored.error()
                    .with("the contract was not changed")
                    .hinting("free space on the disk of " + config.folder()));
  contract = wanted;
  fetches.set_first_rate(contract.uplink_bps_normal);
  for (checkpoint::ChunkStore* each : {store.get(), images.get()})
    each->set_limits(contract.store_mib << 20, contract.reserve_disk_mib << 20);
  {
    const std::lock_guard lock(sampler_mutex);
    sampled_zone = contract.time_zone;
  }
  const auto offset = utc_offset_s(fs, contract.time_zone, clock.now().wall, config.zone_folder);
  feed(ContractChanged{contract, offset.value_or(0), edit});
  return {};
}

/// The body names what was looked at: {"id": the proposal's, "version": the contract's in force}.
/// Another one, or another contract in force by now, is a conflict.
void Daemon::State::settle_proposal(
    const io::HttpRequest& request, const io::Responder& responder, bool is_accepted
) {
  const auto body = parse_json(request.body);
  const auto text_of = [&](const char* name) -> std::string {
    if (!body || !body->is_object() || !body->contains(name)) return "";
    const auto& value = (*body)[name];
    return value.is_string() ? value.get<std::string>() : "";
  };
  const NodeView view = core->view(loop.now());
  if (view.proposal.id.empty())
    return responder.send_error(Error{
        ErrorCode::kNotFound,
        "no change of the contract waits",
        "reclaim-agent contract show prints the one in force"});
  if (view.proposal.id != text_of("id") || view.contract_version != text_of("version"))
    return responder.send_error(Error{
        ErrorCode::kConflict,
        "another contract is in force, or another change waits, than was shown",
        "look at it again: reclaim-agent contract pending"});
  if (view.journal_waits_s >= 0)
    return responder.send_error(Error{
        ErrorCode::kExhausted, "the disk is full: it cannot be written down", kRoomHelp});
  if (!is_accepted) {
    feed(ProposalRejected{view.proposal.id});
    return responder.send(io::json_response(200, "{}"));
  }
  Status good = arbiter::check_contract(view.proposal.contract, facts);
  if (good) good = check_zone(view.proposal.contract, config.zone_folder);
  if (good) good = use_contract(view.proposal.contract, view.proposal.id);
  if (!good) return responder.send_error(good.error());
  responder.send(io::json_response(200, to_json(contract)));
}

/// The body may name GPUs: {"gpus": [0]}; none = the whole node.
void Daemon::State::emergency(
    const io::HttpRequest& request, const io::Responder& responder, bool is_local
) {
  std::uint64_t mask = 0;
  if (!request.body.empty()) {
    const auto body = parse_json(request.body);
    if (!body || !body->is_object() || (body->contains("gpus") && !(*body)["gpus"].is_array()))
      return responder.send_error(Error{
          ErrorCode::kInvalid, "expected {\"gpus\": [0, 1]} or nothing", "correct the body"});
    for (const auto& gpu : body->value("gpus", nlohmann::json::array())) {
      if (!gpu.is_number_unsigned() || gpu.get<std::uint64_t>() > 63)
        return responder.send_error(Error{
            ErrorCode::kInvalid, "gpus: expected numbers from 0 to 63", "correct the body"});
      mask |= 1ULL << gpu.get<std::uint64_t>();
    }
  }
  log::warning(
      "owner.emergency",
      {{"from", is_local ? std::string("local") : request.peer_identity.value_or("")}}
  );
  const Status submitted = kills->submit_for(
      [path = config.kill_path(), mask] { return send_kill(path, mask, kKillLimit); },
      [this, responder](const Result<warden_wire::KillFrame>& answer) {
        if (!answer) return responder.send_error(answer.error());
        tell_emergency(describe_kill(*answer), responder, kKnownTries);
      }
  );
  if (!submitted) responder.send_error(submitted.error());
}

/// The kill socket answers before the warden's own state has it. Who reads our status after our
/// answer shall find it there; a warden that hangs delays the answer a little, not for ever.
void Daemon::State::tell_emergency(
    const std::string& answer, const io::Responder& responder, int tries
) {
  feed(WardenActed{});
  loop.run_after(kKnownStep, [this, answer, responder, tries] {
    const NodeView view = core->view(loop.now());
    const bool is_known =
        std::any_of(view.reclaims.begin(), view.reclaims.end(), [](const ReclaimRecord& record) {
          return record.kind == ReclaimKind::kEmergency && record.phase != ReclaimPhase::kReturned;
        });
    if (is_known || tries <= 1) return responder.send(io::json_response(200, answer));
    tell_emergency(answer, responder, tries - 1);
  });
}

namespace {

constexpr double kMib = 1024.0 * 1024.0;

void render_gpus(io::MetricsPage& page, const std::vector<GpuTelemetry>& gpus) {
  const auto each = [&](std::string_view name, std::string_view help, auto value_of) {
    page.head(name, "gauge", help);
    for (const GpuTelemetry& gpu : gpus) {
      if (gpu.is_unseen) continue;
      page.value(name, io::metric_label("gpu", std::to_string(gpu.index)), value_of(gpu));
    }
  };
  if (gpus.empty()) return;
  each("reclaimnet_agent_gpu_utilisation_ratio", "GPU in use.", [](const GpuTelemetry& g) {
    return g.utilisation_percent / 100.0;
  });
  each("reclaimnet_agent_gpu_memory_used_bytes", "GPU memory in use.", [](const GpuTelemetry& g) {
    return static_cast<double>(g.memory_used_mib) * kMib;
  });
  each("reclaimnet_agent_gpu_temperature_celsius", "GPU temperature.", [](const GpuTelemetry& g) {
    return double(g.temperature_c);
  });
  each("reclaimnet_agent_gpu_power_watts", "GPU power.", [](const GpuTelemetry& g) {
    return static_cast<double>(g.power_mw) / 1000.0;
  });
  each(
      "reclaimnet_agent_gpu_foreign_processes",
      "Processes on the GPU that are no guest's.",
      [](const GpuTelemetry& g) { return double(g.foreign_processes); }
  );
  each(
      "reclaimnet_agent_gpu_wedged",
      "1 while the GPU could not be cleared.",
      [](const GpuTelemetry& g) { return g.is_wedged ? 1.0 : 0.0; }
  );
  each(
      "reclaimnet_agent_gpu_sick",
      "1 while the GPU is sick, and nothing runs on it.",
      [](const GpuTelemetry& g) { return g.sickness.empty() ? 0.0 : 1.0; }
  );
}

void render_journal(io::MetricsPage& page, std::uint64_t commits, bool is_waiting) {
  page.counter("reclaimnet_agent_journal_commits_total", "Transactions of the journal.", commits);
  page.gauge(
      "reclaimnet_agent_journal_waiting",
      "1 while the journal waits for room on a full disk.",
      is_waiting ? 1.0 : 0.0
  );
}

void render_links(io::MetricsPage& page, const GangLinks::Seen& seen) {
  page.gauge(
      "reclaimnet_agent_gang_links",
      "Connections between members of gangs, open here.",
      static_cast<double>(seen.open)
  );
  page.counter(
      "reclaimnet_agent_gang_link_sent_bytes_total",
      "Sent to other members' nodes by these.",
      seen.bytes_sent
  );
}

void render_images(io::MetricsPage& page, const ImageTraffic& traffic) {
  constexpr std::string_view kName = "reclaimnet_agent_image_fetched_bytes_total";
  page.head(kName, "counter", "Pieces of images that came here, by who brought them.");
  const auto from = [&](std::string_view source, std::uint64_t bytes) {
    page.value(kName, io::metric_label("source", source), static_cast<double>(bytes));
  };
  from("peer", traffic.from_peers);
  from("coordinator", traffic.from_coordinator);
}

/// By job: what an owner or a student asks about one guest. Gone with the attempt. The label is not
/// "job", which is Prometheus' own name for what it scrapes.
void render_guests(io::MetricsPage& page, const std::vector<AttemptView>& attempts) {
  if (attempts.empty()) return;
  const auto job = [](const AttemptView& a) {
    return io::metric_label("job_id", a.report.job.str());
  };
  page.head("reclaimnet_agent_guest_phase", "gauge", "1 for the phase that an attempt is in.");
  for (const AttemptView& a : attempts)
    page.value(
        "reclaimnet_agent_guest_phase", job(a) + "," + io::metric_label("phase", a.phase), 1
    );
  page.head("reclaimnet_agent_guest_safe_generation", "gauge", "Newest generation stored here.");
  for (const AttemptView& a : attempts)
    page.value("reclaimnet_agent_guest_safe_generation", job(a), a.report.safe_generation);
  page.head(
      "reclaimnet_agent_guest_durable_generation", "gauge", "Newest generation with its copies."
  );
  for (const AttemptView& a : attempts)
    page.value("reclaimnet_agent_guest_durable_generation", job(a), a.durable_generation);
  page.head("reclaimnet_agent_checkpoint_age_seconds", "gauge", "Since the newest save.");
  for (const AttemptView& a : attempts) {
    if (a.report.since_save_ms >= 0)
      page.value(
          "reclaimnet_agent_checkpoint_age_seconds",
          job(a),
          static_cast<double>(a.report.since_save_ms) / 1000.0
      );
  }
}

}  // namespace

std::string Daemon::State::metrics() const {
  const NodeView view = core->view(loop.now());
  const auto flag = [](bool is_so) { return is_so ? 1.0 : 0.0; };
  io::MetricsPage page;
  page.gauge(
      "reclaimnet_agent_coordinator_connected",
      "1 while the coordinator is connected.",
      flag(view.is_coordinator_connected)
  );
  page.gauge(
      "reclaimnet_agent_warden_connected",
      "1 while the warden is connected.",
      flag(view.is_warden_connected)
  );
  page.gauge(
      "reclaimnet_agent_lending",
      "1 while the node takes guests.",
      flag(view.lending == LendingState::kOpen)
  );
  page.gauge(
      "reclaimnet_agent_attempts", "Attempts kept here.", static_cast<double>(view.attempts.size())
  );
  page.gauge("reclaimnet_agent_holds", "Offers that may become leases.", view.holds);
  page.gauge(
      "reclaimnet_agent_works_running",
      "Works under way (images, snapshots, copies, uploads).",
      static_cast<double>(view.works_running)
  );
  page.gauge(
      "reclaimnet_agent_works_queued", "Works that wait.", static_cast<double>(view.works_queued)
  );
  render_links(page, gang_links ? gang_links->look() : GangLinks::Seen{});
  render_journal(page, commits, view.journal_waits_s >= 0);
  render_images(page, hands->image_traffic());
  page.gauge(
      "reclaimnet_agent_chunk_bytes",
      "Chunks stored here, own and others'.",
      static_cast<double>(view.telemetry.chunk_bytes)
  );
  page.gauge("reclaimnet_agent_logins", "People logged in on the machine.", view.telemetry.logins);
  page.gauge(
      "reclaimnet_agent_disk_free_bytes",
      "Free on the disk of the state folder.",
      static_cast<double>(view.telemetry.disk_free_mib) * kMib
  );
  page.gauge(
      "reclaimnet_agent_memory_used_bytes",
      "Memory in use on the machine.",
      static_cast<double>(view.telemetry.memory_used_mib) * kMib
  );
  page.gauge("reclaimnet_agent_cpu_ratio", "CPU in use.", view.telemetry.cpu_percent / 100.0);
  page.gauge(
      "reclaimnet_agent_clock_offset_seconds",
      "Coordinator's clock minus this machine's.",
      static_cast<double>(view.clock_offset_ms) / 1000.0
  );
  page.gauge(
      "reclaimnet_agent_reclaims",
      "Reclaims that the owner has not given back yet.",
      static_cast<double>(std::count_if(
          view.reclaims.begin(),
          view.reclaims.end(),
          [](const ReclaimRecord& r) { return r.phase != ReclaimPhase::kReturned; }
      ))
  );
  render_gpus(page, view.telemetry.gpus);
  render_guests(page, view.attempts);
  return page.take();
}

}  // namespace rn::agent
