// SPDX-License-Identifier: Apache-2.0
#include "model/wire.h"

#include <array>

#include "model/codec_detail.h"

namespace rn {

RN_INSTANTIATE_CODEC(wire::Hello)
RN_INSTANTIATE_CODEC(wire::Commit)
RN_INSTANTIATE_CODEC(wire::CopyPlan)
RN_INSTANTIATE_CODEC(wire::AttemptReport)
RN_INSTANTIATE_CODEC(wire::AttemptEvent)
RN_INSTANTIATE_CODEC(wire::CommitGeneration)
RN_INSTANTIATE_CODEC(wire::PublishOutputs)

namespace wire {

namespace {

/// In the order of Message's alternatives.
// clang-format off
constexpr std::array<std::string_view, std::variant_size_v<Message>> kNames = {
    "hello",
    "heartbeat",
    "node_update",
    "probe_reply",
    "commit_reply",
    "attempt_event",
    "commit_generation",
    "grant_request",
    "log_append",
    "publish_outputs",
    "reclaim_report",
    "leave",
    "holdings",
    "transfers",
    "taken_back",
    "contract_edited",
    "welcome",
    "refused",
    "heartbeat_ack",
    "probe",
    "cancel_hold",
    "commit",
    "stop_attempt",
    "generation_committed",
    "grants",
    "log_ack",
    "attempt_ack",
    "reclaim_ack",
    "collect_garbage",
    "transfer_rates",
    "take_back",
    "edit_contract",
    "gang_go",
    "gang_saved"};
// clang-format on

}  // namespace

std::string_view name_of(const Message& message) {
  return kNames[message.index()];
}

Blob encode(const Message& message) {
  return detail::to_binary(detail::write_variant(message, kNames));
}

Result<Message> decode(BlobView bytes) {
  if (bytes.size() > kMaxMessageBytes)
    return fail(ErrorCode::kExhausted, "message is larger than 4 MiB");
  RN_TRY(const nlohmann::json envelope, parse_cbor(bytes));
  return detail::read_variant<Message>(envelope, kNames);
}

}  // namespace wire

}  // namespace rn
