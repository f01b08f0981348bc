// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api_answers.h"
#include "coordinator/core.h"
#include "model/quota.h"

namespace rn::coordinator {

void list_quotas(ApiContext& context, ApiRequest request, io::Responder responder) {
  answer(context, responder, context.shell.core().quotas(request.caller, context.shell.now()));
}

void set_quota(ApiContext& context, ApiRequest request, io::Responder responder) {
  SetQuota command;
  command.subject = request.path.at("subject");
  if (!read_body(request, responder, command.request)) return;
  context.shell
      .command(request.caller, std::move(command), [&context, responder](Result<Answer> result) {
        if (!result) return responder.send_error(result.error());
        answer(context, responder, std::get<Quota>(*result));
      });
}

void remove_quota(ApiContext& context, ApiRequest request, io::Responder responder) {
  RemoveQuota command;
  command.subject = request.path.at("subject");
  const auto model = request.query.find("model");
  if (model != request.query.end()) command.gpu_model = model->second;
  context.shell.command(request.caller, std::move(command), [responder](Result<Answer> result) {
    if (!result) return responder.send_error(result.error());
    io::HttpResponse response;
    response.status = 204;
    responder.send(std::move(response));
  });
}

}  // namespace rn::coordinator
