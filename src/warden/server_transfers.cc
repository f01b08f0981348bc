// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/log.h"
#include "warden/server.h"

// The server and the agent's transfers. Nothing of it is the core's: what is granted lies in the
// kernel's maps, and what the owner has cut in a file of its own.
namespace rn::warden {

Status WardenServer::open_transfers() {
  if (!machine_->transfers_refusal().empty())
    tell(Noticed{
        "transfers are paced only, nothing bounds them at the uplink: " +
        machine_->transfers_refusal()});
  if (machine_->transfers() == nullptr) return {};
  const MachinePaths& paths = machine_->paths();
  RN_TRY(TransfersCut mine, TransfersCut::open(paths.gates, paths.transfers_cut));
  transfers_cut_.emplace(std::move(mine));
  RN_TRY(TransfersCut theirs, TransfersCut::open(paths.gates, paths.transfers_cut));
  kill_->share_transfers(std::move(theirs), config_.machine.agent_uid, [this] {
    loop_.post([this] { record_transfers_cut(); });
  });
  record_transfers_cut();  // of an order by hand, whose disk did not answer
  look_at_transfers();
  return {};
}

void WardenServer::look_at_transfers() {
  if (is_edge_looked_at_ || machine_->transfers() == nullptr) return;
  is_edge_looked_at_ = true;
  const Status begun = edge_->submit_for(
      [this] { return machine_->transfers()->look(); },
      [this](const std::vector<std::string>& found) {
        is_edge_looked_at_ = false;
        for (const std::string& what : found) tell(Noticed{what});
      }
  );
  if (!begun) is_edge_looked_at_ = false;
}

void WardenServer::record_transfers_cut() {
  const auto is_cut = transfers_cut_->is_cut();
  if (is_cut && *is_cut)
    tell(Noticed{
        "you have cut the agent's transfers: copies wait; next: reclaim-kill --allow-transfers, or "
        "reclaim-agent release"});
  push_state();  // that they go on, too
  // Its destructor waits for the workers before what they use is gone.
  const Status begun = edge_->submit_for(
      [this] { return transfers_cut_->record(); },
      [](const Status& done) {
        if (!done) log::error("transfers.cut_not_recorded", {{"why", done.error().describe()}});
      }
  );
  if (!begun) log::error("transfers.cut_not_recorded", {{"why", begun.error().describe()}});
}

void WardenServer::allow_transfers() {
  if (!transfers_cut_) return;
  if (const Status set = transfers_cut_->set_gate(true); !set)
    log::error("transfers.stay_cut", {{"why", set.error().describe()}});
  record_transfers_cut();
}

warden_wire::TransfersEdge WardenServer::transfers_edge() const {
  warden_wire::TransfersEdge edge;
  edge.refusal = machine_->transfers_refusal();
  if (machine_->transfers() == nullptr) return edge;
  edge.is_there = true;
  edge.interface = machine_->transfers()->grant().interface;
  edge.bytes_per_s = machine_->transfers()->grant().bytes_per_s;
  // A gate that cannot be read lets nothing pass for sure: the program would have dropped, too.
  edge.is_cut = transfers_cut_ && transfers_cut_->is_cut().value_or(true);
  return edge;
}

void WardenServer::set_transfers(
    std::uint64_t client, std::uint64_t number, warden_wire::SetTransfers wanted
) {
  const auto reply = [this, client, number](const Result<warden_wire::TransferCounts>& counts) {
    warden_wire::Answer answer;
    answer.request = number;
    if (counts) {
      answer.transfers = *counts;
    } else {
      answer.code = to_string(counts.error().code);
      answer.message = counts.error().message;
      answer.hint = counts.error().hint;
    }
    send(client, answer);
  };
  const Status begun = edge_->submit_for(
      [this, wanted = std::move(wanted)] { return machine_->transfers()->set(wanted); }, reply
  );
  if (!begun) reply(fail(begun.error()));
}

}  // namespace rn::warden
