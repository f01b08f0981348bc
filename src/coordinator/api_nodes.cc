// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <map>

#include "coordinator/api_answers.h"

namespace rn::coordinator {

namespace {

api::NodeInfo node_info(const NodeView& view) {
  api::NodeInfo info;
  info.id = view.row.node;
  info.lab = view.row.lab;
  info.state = view.row.state;
  info.is_connected = view.is_connected;
  info.is_revoked = view.row.is_revoked;
  info.lending = view.lending;
  info.facts = view.row.facts;
  info.contract = view.row.contract;
  info.address = view.row.address;
  info.telemetry = view.telemetry;
  info.clock_offset_ms = view.clock_offset_ms;
  info.silent_ms = view.silent_ms;
  info.departures_per_day = view.departures_per_day;
  info.stays_1h = sched::survival(view.outlook, 3600);
  info.stays_8h = sched::survival(view.outlook, 8 * 3600);
  if (std::isfinite(view.outlook.leaves_in_s)) info.leaves_in_s = view.outlook.leaves_in_s;
  info.used_gpus = view.used_gpus;
  info.used_cpu_milli = view.used_cpu_milli;
  info.used_memory_mib = view.used_memory_mib;
  info.jobs = view.jobs;
  info.version = view.row.version;
  info.joined_wall_ms = view.row.joined_wall_ms;
  info.last_seen_wall_ms = view.row.last_seen_wall_ms;
  return info;
}

/// Foreign jobs' names on a node are not for everybody.
void hide_foreign_jobs(const Core& core, const Caller& caller, api::NodeInfo& info) {
  std::erase_if(info.jobs, [&](const JobId& id) {
    const Job* job = core.find_job(id);
    return job == nullptr || !Core::may_read(caller, *job);
  });
}

/// Whose machine it is may know who is on it, and who took it back: their own owner could see it
/// there, too.
void show_guests(
    const Core& core, const Caller& caller, const NodeView& view, api::NodeInfo& info
) {
  const bool is_theirs = caller.role == Role::kOwner && caller.lab == view.row.lab;
  if (!is_theirs && caller.role != Role::kAdmin) return;
  for (const JobId& id : view.jobs) {
    const Job* job = core.find_job(id);
    if (job == nullptr) continue;
    std::int64_t since = 0;
    for (const Attempt& attempt : core.attempts(id)) {
      const bool is_here = attempt.node == info.id && attempt.state != AttemptState::kEnded;
      if (is_here) since = attempt.leased_wall_ms;
    }
    info.guests.push_back(
        {job->number, job->owner, job->lab, job->state, job->spec.resources.gpus, since}
    );
  }
  info.orders = core.orders(info.id);
  const auto contract = core.contract_of(info.id);
  if (!contract) return;
  info.contract_version = contract->version;
  if (!contract->proposal.id.empty()) info.proposal = contract->proposal;
  info.edits = core.edits(info.id);
}

/// That and when machines are taken back is everybody's to see; what their owners say to guests,
/// and what of guests was still seen there, is for the owners of their lab.
void hide_foreign_words(const ApiContext& context, const Caller& caller, api::ReclaimList& list) {
  if (caller.role == Role::kAdmin) return;
  std::map<NodeId, bool> is_theirs;
  for (ReclaimRecord& record : list.reclaims) {
    const auto [known, is_new] = is_theirs.try_emplace(record.node, false);
    if (is_new && caller.role == Role::kOwner) {
      const auto view = context.shell.core().node(record.node, context.shell.now());
      known->second = view && view->row.lab == caller.lab;
    }
    if (known->second) continue;
    record.message.clear();
    record.remains.clear();
  }
}

void issue_certificate(
    ApiContext& context,
    const api::JoinRequest& body,
    const std::string& host,
    const NodeJoined& joined,
    const io::Responder& responder
) {
  const auto certificate =
      context.pki.issue_node(body.csr_pem, joined.node, context.shell.now().wall);
  if (!certificate) return responder.send_error(certificate.error());
  api::JoinAnswer reply;
  reply.node_id = joined.node.str();
  reply.lab = joined.lab.str();
  reply.certificate_pem = *certificate;
  reply.ca_pem = context.pki.ca_pem();
  reply.coordinator_url = !context.url.empty() ? context.url : "https://" + host;
  reply.agent_url = "wss" + reply.coordinator_url.substr(5) + "/v1/agent";
  answer(context, responder, reply);
}

}  // namespace

api::NodeInfo node_for(const Core& core, const Caller& caller, const NodeView& view) {
  api::NodeInfo info = node_info(view);
  hide_foreign_jobs(core, caller, info);
  show_guests(core, caller, view, info);
  return info;
}

void join_node(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::JoinRequest body;
  if (!read_body(request, responder, body)) return;
  const auto key = context.pki.key_of_request(body.csr_pem, context.shell.now().wall);
  if (!key) {
    return responder.send_error(
        key.error().with("csr_pem").hinting("send a signing request in PEM form")
    );
  }
  std::string host(request.http.header("Host"));
  if (host.empty()) host = context.place;
  TokenParts parts = parts_of_token(body.token);
  JoinNode command{
      std::move(parts.id), std::move(parts.secret), *key, body.machine_id, body.hostname};
  context.shell.command(
      Caller{},
      std::move(command),
      [&context, body, host, responder](Result<Answer> result) {
        if (!result) return responder.send_error(result.error());
        const auto& joined = std::get<NodeJoined>(*result);
        issue_certificate(context, body, host, joined, responder);
      }
  );
}

void renew_certificate(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::RenewRequest body;
  if (!read_body(request, responder, body)) return;
  const WallTime now = context.shell.now().wall;
  const auto key = context.pki.key_of_request(body.csr_pem, now);
  if (!key) return responder.send_error(key.error().with("csr_pem"));
  if (!context.shell.core().may_renew(*request.node, *key)) {
    return responder.send_error(Error{
        ErrorCode::kDenied,
        "the node is revoked, or the request is for another key than the one it joined with",
        "join again with a fresh token: reclaim-agent join URL --token T"});
  }
  const auto certificate = context.pki.issue_node(body.csr_pem, *request.node, now);
  if (!certificate) return responder.send_error(certificate.error());
  answer(context, responder, api::RenewAnswer{*certificate, context.pki.ca_pem()});
}

Error no_such_node(const NodeId& id) {
  return {ErrorCode::kNotFound, "no node " + id.str(), "'reclaim nodes' lists them"};
}

void list_nodes(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::NodeList list;
  const Core& core = context.shell.core();
  for (const NodeView& view : core.nodes(context.shell.now()))
    list.nodes.push_back(node_for(core, request.caller, view));
  answer(context, responder, list);
}

void show_node(ApiContext& context, ApiRequest request, io::Responder responder) {
  const NodeId id(request.path.at("id"));
  const auto view = context.shell.core().node(id, context.shell.now());
  if (!view) return responder.send_error(no_such_node(id));
  answer(context, responder, node_for(context.shell.core(), request.caller, *view));
}

void explain_hazard(ApiContext& context, ApiRequest request, io::Responder responder) {
  const NodeId id(request.path.at("id"));
  const auto why = context.shell.core().hazard(id, context.shell.now());
  if (!why) return responder.send_error(no_such_node(id));
  answer(context, responder, *why);
}

void revoke_node(ApiContext& context, ApiRequest request, io::Responder responder) {
  context.shell.command(
      request.caller,
      RevokeNode{NodeId(request.path.at("id"))},
      [responder](Result<Answer> result) {
        if (!result) return responder.send_error(result.error());
        io::HttpResponse response;
        response.status = 204;
        responder.send(std::move(response));
      }
  );
}

void order_reclaim(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::ReclaimRequest body;
  if (!read_body(request, responder, body)) return;
  context.shell.command(
      request.caller,
      OrderReclaim{NodeId(request.path.at("id")), body.order, body.kind, body.gpus, body.in_s},
      [responder](Result<Answer> result) {
        if (!result) return responder.send_error(result.error());
        responder.send(io::json_response(200, to_json(std::get<ReclaimOrdered>(*result).order)));
      }
  );
}

void list_reclaims(ApiContext& context, ApiRequest request, io::Responder responder) {
  const auto limit = query_number(request, "limit", 100);
  if (!limit) return responder.send_error(limit.error());
  on_worker(
      context,
      responder,
      [&store = context.store,
       limit = static_cast<std::uint32_t>(std::min<std::uint64_t>(*limit, 10'000))] {
        return store.reclaims(limit);
      },
      [&context, caller = request.caller, responder](const std::vector<ReclaimRow>& rows) {
        api::ReclaimList list;
        for (const ReclaimRow& row : rows) list.reclaims.push_back(row.record);
        hide_foreign_words(context, caller, list);
        answer(context, responder, list);
      }
  );
}

void list_telemetry(ApiContext& context, ApiRequest request, io::Responder responder) {
  const auto from = query_number(request, "from", 0);
  const auto to = query_number(request, "to", INT64_MAX);
  if (!from) return responder.send_error(from.error());
  if (!to) return responder.send_error(to.error());
  RollupFilter filter;
  if (request.query.contains("node")) filter.node = NodeId(request.query.at("node"));
  filter.from_wall_ms = static_cast<std::int64_t>(std::min<std::uint64_t>(*from, INT64_MAX));
  filter.to_wall_ms = static_cast<std::int64_t>(std::min<std::uint64_t>(*to, INT64_MAX));
  on_worker(
      context,
      responder,
      [&store = context.store, filter] { return store.rollups(filter); },
      [&context, responder](const std::vector<RollupRow>& rows) {
        api::TelemetryList list;
        for (const RollupRow& row : rows) {
          api::NodeHistoryPoint point{
              row.node,
              row.bucket_wall_ms,
              row.bucket_s,
              row.samples,
              row.cpu_percent,
              row.memory_used_mib,
              row.guests,
              row.lending_share,
              {}};
          for (const GpuRollup& gpu : row.gpus) {
            point.gpus.push_back(
                {gpu.index,
                 gpu.samples,
                 gpu.utilisation_percent,
                 gpu.memory_used_mib,
                 gpu.power_mw,
                 gpu.temperature_c_max}
            );
          }
          list.points.push_back(std::move(point));
        }
        answer(context, responder, list);
      }
  );
}

}  // namespace rn::coordinator
