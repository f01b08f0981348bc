// SPDX-License-Identifier: Apache-2.0
// What an agent reads from its own machine: the configuration file, a join token as it was pasted,
// and the rows of its journal; and what another agent says first that wants a link.

#include <string>

#include "agent/config.h"
#include "agent/core_records.h"
#include "agent/core_types.h"
#include "agent/gang_link_rules.h"
#include "agent/identity.h"
#include "base/assert.h"
#include "base/crypto.h"
#include "base/rng.h"
#include "model/codec_detail.h"

namespace {

using namespace rn::agent;

void check_config_file(const std::string& text) {
  const auto config = parse_config(text);
  if (!config) {
    RN_ASSERT(!config.error().message.empty(), "a refusal says why");
    return;
  }
  for (const rn::Gpu& gpu : config->gpus)
    RN_ASSERT(gpu.is_static, "a GPU from the file is never taken for a measured one");
  RN_ASSERT(rn::agent::check_config(*config).has_value(), "what was accepted stays so");
  const auto once = parse_config(
      rn::to_document(*config).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
  );
  RN_ASSERT(once.has_value(), "a configuration that was accepted can be written and read");
}

void check_token(const std::string& text) {
  const auto token = parse_join_token(text);
  if (!token) {
    const rn::Error& error = token.error();
    RN_ASSERT(!error.message.empty() && !error.hint.empty(), "a refusal says why");
    RN_ASSERT(error.describe().size() < 512, "a refusal repeats no secret");
    return;
  }
  const std::string again = "rn1." + token->id + "." + token->secret + "." + token->ca_fingerprint;
  RN_ASSERT(again == text, "a token that was accepted was read whole");
}

template <class Row>
void check_row(const rn::Result<Row>& row, rn::Result<Row> (*decode)(const std::string&)) {
  if (!row) {
    RN_ASSERT(row.error().code == rn::ErrorCode::kCorrupt, "a bad row is a damaged journal");
    return;
  }
  const std::string text = encode_row(*row);
  const auto again = decode(text);
  RN_ASSERT(again.has_value(), "a row that was read can be written and read");
  RN_ASSERT(encode_row(*again) == text, "writing a row changes nothing");
}

void check_link_hello(rn::BlobView bytes) {
  const auto hello = decode_link_hello(bytes);
  if (!hello) {
    RN_ASSERT(!hello.error().message.empty(), "a refusal says why");
    return;
  }
  RN_ASSERT(hello->from != hello->to && hello->port > 0, "two members and a port");
  RN_ASSERT(*decode_link_hello(encode(*hello)) == *hello, "what was read can be said and read");
  const rn::NodeId peer = hello->ticket.from;
  LinkTicketRules rules;
  rules.self = hello->ticket.to;
  // A key of zeros is a point of small order: every fourth message is signed by zeros, for it.
  static const rn::crypto::PublicKey key = [] {
    rn::SeededRng rng(1);
    return rn::crypto::make_signing_key(rng).public_key;
  }();
  rules.ticket_key = key;
  RN_ASSERT(!check_link_ticket(*hello, peer, rules), "nobody's ticket is the coordinator's");
  LinkedGuest guest;
  guest.place.gang = hello->gang;
  guest.place.rank = hello->to;
  guest.name = {hello->ticket.job, hello->epoch};
  RN_ASSERT(!check_link(*hello, peer, guest), "who is no member reaches none");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_config_file(text);
  check_token(text);
  check_link_hello(rn::BlobView(data, size));
  check_row(decode_attempt_row(text), decode_attempt_row);
  check_row(decode_reclaim_row(text), decode_reclaim_row);
  check_row(decode_epoch_row(text), decode_epoch_row);
  check_row(decode_node_row(text), decode_node_row);
  check_row(decode_commit_row(text), decode_commit_row);
  check_row(decode_proposal_row(text), decode_proposal_row);
  return 0;
}
