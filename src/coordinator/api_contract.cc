// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "coordinator/api_answers.h"
#include "coordinator/contract_preview.h"
#include "io/real_fs.h"
#include "io/zone_file.h"

namespace rn::coordinator {

namespace {

/// Blocking.
std::optional<std::int32_t> zone_offset_s(const Contract& contract, WallTime wall) {
  io::RealFileSystem fs;
  const auto offset = io::utc_offset_s(fs, contract.time_zone, wall, io::kZoneFolder);
  return offset ? std::optional(*offset) : std::nullopt;
}

}  // namespace

void edit_contract(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::ContractEditRequest body;
  if (!read_body(request, responder, body)) return;
  ProposeContract command;
  command.node = NodeId(request.path.at("id"));
  command.edit = body.edit;
  command.from = body.from;
  command.replaces = body.replaces;
  command.contract = std::move(body.contract);
  context.shell.command(request.caller, std::move(command), [responder](Result<Answer> result) {
    if (!result) return responder.send_error(result.error());
    responder.send(io::json_response(200, to_json(std::get<ContractProposed>(*result).edit)));
  });
}

void preview_contract(ApiContext& context, ApiRequest request, io::Responder responder) {
  api::ContractEditRequest body;
  if (!read_body(request, responder, body)) return;
  const NodeId id(request.path.at("id"));
  const Core& core = context.shell.core();
  const Status may = core.may_edit_contract(request.caller, id);
  if (!may) return responder.send_error(may.error());
  const auto view = core.node(id, context.shell.now());
  const auto contract = core.contract_of(id);
  if (!view || !contract) return responder.send_error(no_such_node(id));
  const api::NodeInfo info = node_for(core, request.caller, *view);
  PreviewInput input;
  input.from = contract->contract;
  input.to = std::move(body.contract);
  input.facts = info.facts;
  input.guests = info.guests;
  input.node_wall = context.shell.now().wall - milliseconds(info.clock_offset_ms);
  on_worker(
      context,
      responder,
      [input = std::move(input),
       version = contract->version]() mutable -> Result<api::ContractPreview> {
        input.from_offset_s = zone_offset_s(input.from, input.node_wall);
        input.to_offset_s = zone_offset_s(input.to, input.node_wall);
        api::ContractPreview preview = preview_of(input);
        preview.version = version;
        return preview;
      },
      [&context, responder](const api::ContractPreview& preview) {
        answer(context, responder, preview);
      }
  );
}

}  // namespace rn::coordinator
