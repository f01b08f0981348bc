// SPDX-License-Identifier: Apache-2.0
#include "agent/core_records.h"

#include "agent/core_types.h"
#include "model/codec_detail.h"

namespace rn::agent {

namespace {

template <class T>
Result<T> decode_row(const std::string& text) {
  auto row = from_json<T>(text, Unknown::kLenient);
  if (!row) return fail(ErrorCode::kCorrupt, row.error().message);
  return row;
}

}  // namespace

std::string to_json_text(const NodeView& view) {
  return to_json(view);
}

Result<NodeView> node_view_from_json(const std::string& text) {
  return from_json<NodeView>(text, Unknown::kLenient);
}

std::string encode_row(const AttemptRow& row) {
  return to_json(row);
}

std::string encode_row(const ReclaimRow& row) {
  return to_json(row);
}

std::string encode_row(const EpochRow& row) {
  return to_json(row);
}

std::string encode_row(const NodeRow& row) {
  return to_json(row);
}

std::string encode_row(const wire::Commit& row) {
  return to_json(row);
}

std::string encode_row(const ContractProposal& row) {
  return to_json(row);
}

Result<AttemptRow> decode_attempt_row(const std::string& text) {
  return decode_row<AttemptRow>(text);
}

Result<ReclaimRow> decode_reclaim_row(const std::string& text) {
  return decode_row<ReclaimRow>(text);
}

Result<EpochRow> decode_epoch_row(const std::string& text) {
  return decode_row<EpochRow>(text);
}

Result<NodeRow> decode_node_row(const std::string& text) {
  return decode_row<NodeRow>(text);
}

Result<wire::Commit> decode_commit_row(const std::string& text) {
  return decode_row<wire::Commit>(text);
}

Result<ContractProposal> decode_proposal_row(const std::string& text) {
  return decode_row<ContractProposal>(text);
}

}  // namespace rn::agent
