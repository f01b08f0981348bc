// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "coordinator/api_answers.h"
#include "model/wire.h"

namespace rn::coordinator {

void show_version(ApiContext& context, ApiRequest, io::Responder responder) {
  responder.send(io::json_response(
      200, to_json(api::VersionAnswer{context.version, wire::kProtocol, wire::kOldestProtocol})
  ));
}

void show_health(ApiContext&, ApiRequest, io::Responder responder) {
  responder.send(io::json_response(200, to_json(api::HealthAnswer{})));
}

void show_readiness(ApiContext& context, ApiRequest, io::Responder responder) {
  context.shell.check_writable([&context, responder](const Status& status) {
    api::HealthAnswer body;
    body.is_ok = status.has_value();
    body.is_adopting = context.shell.core().is_in_grace(context.shell.now());
    if (!status) body.reason = status.error().message;
    responder.send(io::json_response(body.is_ok ? 200 : 503, to_json(body)));
  });
}

void show_metrics(ApiContext& context, ApiRequest, io::Responder responder) {
  io::HttpResponse response;
  response.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}};
  response.body = context.metrics.render(context.shell, context.outbox);
  responder.send(std::move(response));
}

void show_openapi(ApiContext& context, ApiRequest, io::Responder responder) {
  responder.send(io::json_response(200, openapi_document(context.version).dump()));
}

void refuse_plain_agent(ApiContext&, ApiRequest, io::Responder responder) {
  responder.send_error(Error{
      ErrorCode::kInvalid,
      "this path takes WebSocket upgrades of agents only",
      "reclaim-agent connects here by itself"});
}

void refuse_plain_user(ApiContext&, ApiRequest, io::Responder responder) {
  responder.send_error(Error{
      ErrorCode::kInvalid,
      "this path takes WebSocket upgrades only",
      "`reclaim forward`, `reclaim exec` and `reclaim cp` connect here"});
}

}  // namespace rn::coordinator
