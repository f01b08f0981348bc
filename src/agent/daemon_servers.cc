// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "agent/contract_file.h"
#include "agent/daemon_state.h"
#include "agent/kill_client.h"
#include "agent/peers.h"
#include "base/log.h"
#include "checkpoint/transfer.h"
#include "io/http_error.h"
#include "model/codec.h"

namespace rn::agent {

Status Daemon::State::start_peer_server() {
  if (config.listen_peer.empty()) return {};
  RN_TRY(const HostPort listen, parse_host_port(config.listen_peer));
  io::FramedServerConfig server;
  server.address = listen.host;
  server.port = listen.port;
  server.tls = tls_server(identity);
  auto started = io::FramedServer::start(server, [this](io::FramedConnection& connection) {
    serve_peer(connection);
  });
  if (!started)
    return fail(started.error()
                    .with("peer port " + config.listen_peer)
                    .hinting("choose another one with --listen-peer"));
  peer_server = *std::move(started);
  address.peer = config.advertise_peer.empty()
                     ? listen.host + ":" + std::to_string(peer_server->port())
                     : config.advertise_peer;
  return {};
}

/// On a thread of the server.
void Daemon::State::serve_peer(io::FramedConnection& connection) {
  const NodeId peer = node_of(connection.peer_identity().value_or(""));
  if (peer.empty()) return;
  crypto::PublicKey ticket_key{};
  {
    const std::lock_guard lock(shared.mutex);
    ticket_key = shared.ticket_key;
  }
  const checkpoint::PeerServerDeps deps{
      .store = *store,
      .images = images.get(),
      .clock = clock,
      .self = identity.node,
      .failure_domain = facts.failure_domain,
      .signer = identity.signing,
      .ticket_key = ticket_key,
      .newest_epoch =
          [this](const JobId& job) {
            LeaseEpoch newest;
            for (const GenerationRef& ref : store->list(job)) newest = std::max(newest, ref.epoch);
            return newest;
          },
      .verify_key = {},
      .is_image_blob = {}};
  checkpoint::DriveOptions options;
  options.should_stop = [this] { return is_stopping.load(); };
  const checkpoint::TransferStats stats = checkpoint::serve_peer(connection, deps, options);
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
  remote.tls = tls_server(identity);
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
  address.api = config.advertise_api.empty() ? listen.host + ":" + std::to_string(api->port())
                                             : config.advertise_api;
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
    response.headers = {{"Content-Type", "text/plain; version=0.0.4"}};
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
  } else if (is_local && request.method == "POST" && request.path == "/v1/leave") {
    feed(OwnerLeaves{request.body.empty() ? "the owner leaves" : request.body});
    responder.send(io::json_response(202, "{}"));
  } else {
    responder.send_error(Error{
        ErrorCode::kNotFound,
        "no such path: " + request.method + " " + request.path,
        "GET /v1/node, /v1/attempts, /metrics, /healthz; POST /v1/emergency"});
  }
}

void Daemon::State::put_contract(const io::HttpRequest& request, const io::Responder& responder) {
  auto parsed = parse_contract(request.body, facts, config.zone_folder);
  if (!parsed) return responder.send_error(parsed.error());
  const Status stored = store_contract(fs, config.contract_path(), *parsed);
  if (!stored)
    return responder.send_error(stored.error()
                                    .with("the contract was not changed")
                                    .hinting("free space on the disk of " + config.folder()));
  contract = *std::move(parsed);
  {
    const std::lock_guard lock(sampler_mutex);
    sampled_zone = contract.time_zone;
  }
  const auto offset = utc_offset_s(fs, contract.time_zone, clock.now().wall, config.zone_folder);
  feed(ContractChanged{contract, offset.value_or(0)});
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
  const Status submitted = light->submit_for(
      [path = config.kill_path(), mask] { return send_kill(path, mask, seconds(15)); },
      [responder](const Result<warden_wire::KillFrame>& answer) {
        if (!answer) return responder.send_error(answer.error());
        responder.send(io::json_response(200, describe_kill(*answer)));
      }
  );
  if (!submitted) responder.send_error(submitted.error());
}

std::string Daemon::State::metrics() const {
  const NodeView view = core->view(loop.now());
  std::string out;
  const auto gauge = [&](const std::string& name, const std::string& labels, std::int64_t value) {
    out += "reclaimnet_agent_" + name + labels + " " + std::to_string(value) + "\n";
  };
  gauge("coordinator_connected", "", view.is_coordinator_connected ? 1 : 0);
  gauge("warden_connected", "", view.is_warden_connected ? 1 : 0);
  gauge("lending", "", view.lending == LendingState::kOpen ? 1 : 0);
  gauge("attempts", "", static_cast<std::int64_t>(view.attempts.size()));
  gauge("holds", "", view.holds);
  gauge("works_running", "", static_cast<std::int64_t>(view.works_running));
  gauge("works_queued", "", static_cast<std::int64_t>(view.works_queued));
  gauge("journal_commits_total", "", static_cast<std::int64_t>(commits));
  gauge("chunk_bytes", "", static_cast<std::int64_t>(view.telemetry.chunk_bytes));
  gauge("disk_free_bytes", "", static_cast<std::int64_t>(view.telemetry.disk_free_mib << 20));
  gauge("memory_used_bytes", "", static_cast<std::int64_t>(view.telemetry.memory_used_mib << 20));
  gauge("cpu_percent", "", view.telemetry.cpu_percent);
  for (const GpuTelemetry& gpu : view.telemetry.gpus) {
    const std::string labels = "{gpu=\"" + std::to_string(gpu.index) + "\"}";
    gauge("gpu_utilisation_percent", labels, gpu.utilisation_percent);
    gauge("gpu_memory_used_bytes", labels, static_cast<std::int64_t>(gpu.memory_used_mib << 20));
    gauge("gpu_temperature_celsius", labels, gpu.temperature_c);
    gauge("gpu_power_milliwatts", labels, static_cast<std::int64_t>(gpu.power_mw));
    gauge("gpu_foreign_processes", labels, gpu.foreign_processes);
    gauge("gpu_wedged", labels, gpu.is_wedged ? 1 : 0);
  }
  for (const AttemptView& attempt : view.attempts) {
    if (attempt.report.since_save_ms >= 0)
      gauge(
          "checkpoint_age_milliseconds",
          "{job=\"" + attempt.report.job.str() + "\"}",
          attempt.report.since_save_ms
      );
  }
  return out;
}

}  // namespace rn::agent
