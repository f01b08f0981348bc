// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "coordinator/api_answers.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kMaxJoinTokenS = 3600;
constexpr std::uint64_t kMaxEvents = 1000;

std::optional<Role> role_named(const std::string& name) {
  for (std::size_t i = 0; i < std::size(EnumWords<Role>::kWords); ++i) {
    if (EnumWords<Role>::kWords[i] == name) return static_cast<Role>(i);
  }
  return std::nullopt;
}

Result<Command> token_command(const api::TokenRequest& body) {
  if (body.kind == "join") {
    if (body.ttl_s == 0 || body.ttl_s > kMaxJoinTokenS) {
      return fail(
          ErrorCode::kInvalid,
          "ttl_s: a join token lives from 1 to 3600 s",
          "make it when it is needed"
      );
    }
    return CreateJoinToken{LabId(body.lab), body.ttl_s};
  }
  if (body.kind != "user") return fail(ErrorCode::kInvalid, "kind: expected one of join, user", "");
  const auto role = role_named(body.role);
  if (!role) {
    return fail(ErrorCode::kInvalid, "role: expected one of viewer, user, owner, admin", "");
  }
  return CreateUserToken{UserId(body.user), LabId(body.lab), *role, body.ttl_s};
}

void send_events(
    ApiContext& context,
    const Caller& caller,
    const EventFilter& filter,
    const io::Responder& responder
) {
  on_worker(
      context,
      responder,
      [&store = context.store, filter] { return store.events(filter); },
      [&context, caller, filter, responder](const std::vector<StoredEvent>& events) {
        const Core& core = context.shell.core();
        // A node that was forgotten still has its events.
        const bool has_seen_node = !events.empty() || filter.after != 0 || filter.node.empty() ||
                                   core.node(filter.node, context.shell.now()).has_value();
        if (!has_seen_node) return responder.send_error(no_such_node(filter.node));
        api::EventList list;
        list.next_after = filter.after;
        for (const StoredEvent& event : events) {
          list.next_after = std::max(list.next_after, event.seq);
          if (may_see(core, caller, event.row)) list.events.push_back(event_info(event));
        }
        answer(context, responder, list);
      }
  );
}

Result<EventFilter> event_filter(const ApiRequest& request) {
  EventFilter filter;
  RN_TRY(filter.after, query_number(request, "after", 0));
  RN_TRY(const std::uint64_t limit, query_number(request, "limit", 100));
  filter.limit = static_cast<std::uint32_t>(std::min(limit, kMaxEvents));
  if (request.query.contains("node")) filter.node = NodeId(request.query.at("node"));
  if (request.query.contains("kind")) {
    filter.kind_prefix = request.query.at("kind");
    if (filter.kind_prefix.find_first_not_of("abcdefghijklmnopqrstuvwxyz_.") != std::string::npos)
      return fail(
          ErrorCode::kInvalid,
          "no kind of event begins with \"" + filter.kind_prefix + "\"",
          "`reclaim events` shows them: job.state, reclaim.state"
      );
  }
  filter.is_newest_first = query_flag(request, "newest");
  return filter;
}

}  // namespace

api::TokenInfo token_info(const TokenRow& row) {
  api::TokenInfo info;
  info.id = row.id;
  info.kind = to_string(row.kind);
  info.user = row.user.str();
  info.lab = row.lab.str();
  info.role = row.kind == TokenKind::kJoin ? "node" : std::string(to_string(row.role));
  info.created_wall_ms = row.created_wall_ms;
  info.expires_wall_ms = row.expires_wall_ms;
  info.used_wall_ms = row.used_wall_ms;
  info.used_by = row.used_by.str();
  info.is_revoked = row.is_revoked;
  return info;
}

bool may_see(const Core& core, const Caller& caller, const EventRow& event) {
  if (caller.role == Role::kAdmin) return true;
  if (!event.job.empty()) {
    const Job* job = core.find_job(event.job);
    return job != nullptr ? Core::may_read(caller, *job) : event.user == caller.user;
  }
  if (!event.node.empty()) return caller.role >= Role::kOwner && event.lab == caller.lab;
  return !event.user.empty() && event.user == caller.user;
}

api::EventInfo event_info(const StoredEvent& event) {
  const EventRow& row = event.row;
  return {
      event.seq,
      event.hash,
      row.kind,
      row.message,
      row.job,
      row.epoch,
      row.node,
      row.lab,
      row.user,
      row.at_wall_ms,
      row.data};
}

void list_tokens(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::TokenList list;
  for (const TokenRow& row : context.shell.core().tokens()) {
    if (request.caller.role == Role::kAdmin || row.lab == request.caller.lab)
      list.tokens.push_back(token_info(row));
  }
  answer(context, responder, list);
}

void make_token(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::TokenRequest body;
  if (!read_body(request, responder, body)) return;
  auto command = token_command(body);
  if (!command) return responder.send_error(command.error());
  context.shell
      .command(request.caller, *std::move(command), [&context, responder](Result<Answer> result) {
        if (!result) return responder.send_error(result.error());
        const auto& made = std::get<TokenMade>(*result);
        const bool is_join = made.token.kind == TokenKind::kJoin;
        api::TokenAnswer body_out;
        body_out.token = std::string(is_join ? api::kJoinTokenPrefix : api::kUserTokenPrefix) +
                         "." + made.token.id + "." + made.secret + "." +
                         context.pki.ca_fingerprint();
        body_out.info = token_info(made.token);
        answer(context, responder, body_out, 201);
      });
}

void revoke_token(ApiContext& context, ApiRequest request, io::Responder responder) {
  context.shell.command(
      request.caller,
      RevokeToken{request.path.at("id")},
      [responder](Result<Answer> result) {
        if (!result) return responder.send_error(result.error());
        io::HttpResponse response;
        response.status = 204;
        responder.send(std::move(response));
      }
  );
}

void whoami(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::Whoami body;
  if (request.node) {
    body.node = request.node->str();
    body.role = "node";
  } else {
    body.user = request.caller.user.str();
    body.lab = request.caller.lab.str();
    body.role = to_string(request.caller.role);
  }
  answer(context, responder, body);
}

void list_events(ApiContext& context, ApiRequest request, io::Responder responder) {
  auto filter = event_filter(request);
  if (!filter) return responder.send_error(filter.error());
  if (!request.query.contains("job"))
    return send_events(context, request.caller, *filter, responder);
  request.path["id"] = request.query.at("job");
  with_job(
      context,
      request,
      responder,
      [&context, caller = request.caller, filter = *filter, responder](
          const Job& job, bool
      ) mutable {
        filter.job = job.id;
        send_events(context, caller, filter, responder);
      }
  );
}

void list_job_events(ApiContext& context, ApiRequest request, io::Responder responder) {
  request.query["job"] = request.path.at("id");
  list_events(context, std::move(request), std::move(responder));
}

}  // namespace rn::coordinator
