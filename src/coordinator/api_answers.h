// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to the API's handlers.

#include <functional>
#include <string>
#include <utility>

#include "coordinator/api.h"
#include "coordinator/core.h"
#include "io/http_error.h"
#include "model/api.h"
#include "model/codec.h"

namespace rn::coordinator {

/// Sends `body` once everything that it may show is durable.
template <class T>
void answer(ApiContext& context, const io::Responder& responder, const T& body, int status = 200) {
  context.shell.when_durable([responder, response = io::json_response(status, to_json(body))] {
    responder.send(response);
  });
}

/// The body as T, or the error sent: then false.
template <class T>
bool read_body(const ApiRequest& request, const io::Responder& responder, T& out) {
  auto body = from_json<T>(request.http.body.empty() ? "{}" : request.http.body);
  if (!body) {
    // The body's size was within bounds: what exhausts the parser is how deep it is nested.
    Error error = body.error();
    if (error.code == ErrorCode::kExhausted) error.code = ErrorCode::kInvalid;
    responder.send_error(error.hinting("docs/openapi.yaml and /openapi.json list every field"));
    return false;
  }
  out = *std::move(body);
  return true;
}

/// A whole number from the query, `otherwise` if it is not there. kInvalid.
Result<std::uint64_t> query_number(
    const ApiRequest& request, const std::string& name, std::uint64_t otherwise
);
bool query_flag(const ApiRequest& request, const std::string& name);

template <class Done>
void give_value(Done& done, Status) {
  done();
}

template <class Done, class T>
void give_value(Done& done, Result<T> result) {
  done(*std::move(result));
}

/// Runs `work` on a worker, then `done` with its value on the loop; errors are answered.
template <class Work, class Done>
void on_worker(ApiContext& context, const io::Responder& responder, Work work, Done done) {
  const Status submitted = context.workers.submit_for(
      std::move(work),
      [responder, done = std::move(done)](auto result) mutable {
        if (!result) return responder.send_error(result.error());
        give_value(done, std::move(result));
      }
  );
  if (!submitted) {
    responder.send_error(Error{
        ErrorCode::kUnavailable, "the coordinator is busy", "repeat the request in a second"});
  }
}

/// Who may see an event: admins all; others those of jobs that they may read, of their own doing,
/// and (owners) of their lab's nodes.
bool may_see(const Core& core, const Caller& caller, const EventRow& event);
api::TokenInfo token_info(const TokenRow& row);
api::EventInfo event_info(const StoredEvent& event);

/// The job of {id} (an id or a number) with which the caller `may` do it; unknown and foreign ones
/// are both kNotFound. `is_live`: the core still has it.
void with_job(
    ApiContext& context,
    const ApiRequest& request,
    const io::Responder& responder,
    std::function<void(const Job& job, bool is_live)> then,
    bool (*may)(const Caller& caller, const Job& job) = Core::may_read
);

// ---- handlers, by file
void submit_job(ApiContext&, ApiRequest, io::Responder);
void list_jobs(ApiContext&, ApiRequest, io::Responder);
void show_job(ApiContext&, ApiRequest, io::Responder);
void explain_job(ApiContext&, ApiRequest, io::Responder);
void plan_job(ApiContext&, ApiRequest, io::Responder);
void stop_job(ApiContext&, ApiRequest, io::Responder);
void submit_array(ApiContext&, ApiRequest, io::Responder);
void stop_array(ApiContext&, ApiRequest, io::Responder);
void submit_gang(ApiContext&, ApiRequest, io::Responder);
void show_gang(ApiContext&, ApiRequest, io::Responder);
void stop_gang(ApiContext&, ApiRequest, io::Responder);
void list_attempts(ApiContext&, ApiRequest, io::Responder);
void list_generations(ApiContext&, ApiRequest, io::Responder);
void show_outputs(ApiContext&, ApiRequest, io::Responder);
void list_job_events(ApiContext&, ApiRequest, io::Responder);
void stream_log(ApiContext&, ApiRequest, io::Responder);
void find_in_log(ApiContext&, ApiRequest, io::Responder);
void open_notebook(ApiContext&, ApiRequest, io::Responder);

void put_blob(ApiContext&, ApiRequest, io::Responder);
void get_blob(ApiContext&, ApiRequest, io::Responder);
void head_blob(ApiContext&, ApiRequest, io::Responder);
void find_missing_blobs(ApiContext&, ApiRequest, io::Responder);
void list_images(ApiContext&, ApiRequest, io::Responder);
void add_image(ApiContext&, ApiRequest, io::Responder);
void remove_image(ApiContext&, ApiRequest, io::Responder);

/// As this caller may see it.
api::NodeInfo node_for(const Core& core, const Caller& caller, const NodeView& view);

/// 404, with where the nodes are listed.
Error no_such_node(const NodeId& id);

void join_node(ApiContext&, ApiRequest, io::Responder);
void renew_certificate(ApiContext&, ApiRequest, io::Responder);
void list_nodes(ApiContext&, ApiRequest, io::Responder);
void show_node(ApiContext&, ApiRequest, io::Responder);
void explain_hazard(ApiContext&, ApiRequest, io::Responder);
void revoke_node(ApiContext&, ApiRequest, io::Responder);
void order_reclaim(ApiContext&, ApiRequest, io::Responder);
void list_reclaims(ApiContext&, ApiRequest, io::Responder);
void edit_contract(ApiContext&, ApiRequest, io::Responder);
void preview_contract(ApiContext&, ApiRequest, io::Responder);
void list_telemetry(ApiContext&, ApiRequest, io::Responder);

void describe_sign_in(ApiContext&, ApiRequest, io::Responder);
void begin_sign_in(ApiContext&, ApiRequest, io::Responder);
void finish_sign_in(ApiContext&, ApiRequest, io::Responder);
void begin_device_sign_in(ApiContext&, ApiRequest, io::Responder);
void finish_device_sign_in(ApiContext&, ApiRequest, io::Responder);
void return_from_sign_in(ApiContext&, ApiRequest, io::Responder);
void list_tokens(ApiContext&, ApiRequest, io::Responder);
void make_token(ApiContext&, ApiRequest, io::Responder);
void revoke_token(ApiContext&, ApiRequest, io::Responder);
void whoami(ApiContext&, ApiRequest, io::Responder);
void list_events(ApiContext&, ApiRequest, io::Responder);
void stream_events(ApiContext&, ApiRequest, io::Responder);

void add_notification(ApiContext&, ApiRequest, io::Responder);
void list_notifications(ApiContext&, ApiRequest, io::Responder);
void confirm_notification(ApiContext&, ApiRequest, io::Responder);
void test_notification(ApiContext&, ApiRequest, io::Responder);
void remove_notification(ApiContext&, ApiRequest, io::Responder);

void list_quotas(ApiContext&, ApiRequest, io::Responder);
void set_quota(ApiContext&, ApiRequest, io::Responder);
void remove_quota(ApiContext&, ApiRequest, io::Responder);

void open_dashboard(ApiContext&, ApiRequest, io::Responder);
void serve_dashboard(ApiContext&, ApiRequest, io::Responder);

void show_version(ApiContext&, ApiRequest, io::Responder);
void show_health(ApiContext&, ApiRequest, io::Responder);
void show_readiness(ApiContext&, ApiRequest, io::Responder);
void show_metrics(ApiContext&, ApiRequest, io::Responder);
void show_openapi(ApiContext&, ApiRequest, io::Responder);
/// Plain GET on the agents' WebSocket path.
void refuse_plain_agent(ApiContext&, ApiRequest, io::Responder);
/// The same where users' connections into guests begin.
void refuse_plain_user(ApiContext&, ApiRequest, io::Responder);

}  // namespace rn::coordinator
