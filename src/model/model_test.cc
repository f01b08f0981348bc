// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/codec.h"
#include "model/data_sets.h"
#include "model/job.h"
#include "model/reclaim.h"
#include "model/warden.h"
#include "model/wire.h"

namespace rn {
namespace {

JobSpec a_spec() {
  JobSpec spec;
  spec.name = "cnn";
  spec.command = {"python", "train.py"};
  spec.env = {{"SEED", "7"}};
  spec.resources.gpus = 1;
  spec.checkpoint.signal = SaveSignal::kTerm;
  spec.workspace.fill(0xab);
  return spec;
}

TEST(Codec, json_and_cbor_read_back_what_they_wrote) {
  const JobSpec spec = a_spec();

  EXPECT_EQ(from_json<JobSpec>(to_json(spec)).value(), spec);
  EXPECT_EQ(from_cbor<JobSpec>(to_cbor(spec)).value(), spec);
  EXPECT_EQ(to_cbor(spec), to_cbor(from_cbor<JobSpec>(to_cbor(spec)).value()));
}

TEST(Codec, a_missing_field_keeps_its_default) {
  const auto spec = from_json<JobSpec>(R"({"command":["true"]})");

  ASSERT_TRUE(spec) << spec.error().describe();
  EXPECT_EQ(spec->image, "base");
  EXPECT_EQ(spec->priority, 4U);
}

TEST(Codec, an_unknown_field_is_named_with_the_nearest_known_one) {
  const auto spec = from_json<JobSpec>(R"({"resources":{"gpu":1}})");

  ASSERT_FALSE(spec);
  EXPECT_EQ(
      spec.error().describe(), "invalid: resources.gpu: no such field (did you mean 'gpus'?)"
  );
  EXPECT_TRUE(from_json<JobSpec>(R"({"resources":{"gpu":1}})", Unknown::kLenient));
}

TEST(Codec, wrong_types_and_ranges_name_the_field) {
  EXPECT_EQ(
      from_json<JobSpec>(R"({"resources":{"gpus":-1}})").error().message,
      "resources.gpus: expected a whole number from 0 to 4294967295"
  );
  EXPECT_EQ(
      from_json<JobSpec>(R"({"command":"x"})").error().message,
      "command: expected a list, found the string \"x\""
  );
  EXPECT_EQ(
      from_json<CheckpointSpec>(R"({"signal":"hup"})").error().message,
      "signal: expected one of auto, none, term, usr1, usr2"
  );
  EXPECT_EQ(
      from_json<JobSpec>(R"({"command":[1]})").error().message,
      "command[0]: expected a string, found the number 1"
  );
}

TEST(Codec, deep_nesting_is_refused_before_it_is_followed) {
  const std::string json_bomb(200'000, '[');
  const Blob cbor_bomb(1'000'000, 0x81);

  EXPECT_EQ(from_json<JobSpec>(json_bomb).error().code, ErrorCode::kExhausted);
  EXPECT_EQ(from_cbor<JobSpec>(cbor_bomb).error().code, ErrorCode::kExhausted);
}

TEST(Codec, an_announced_length_reserves_nothing) {
  const Blob huge_array = {0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  const Blob huge_bytes = {0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

  EXPECT_FALSE(parse_cbor(huge_array));
  EXPECT_FALSE(parse_cbor(huge_bytes));
}

TEST(Wire, every_kind_of_message_survives_the_wire) {
  const std::vector<wire::Message> messages = {
      wire::Hello{},
      wire::Heartbeat{.seq = 7},
      wire::NodeUpdate{},
      wire::ProbeReply{},
      wire::CommitReply{},
      wire::AttemptEvent{},
      wire::CommitGeneration{},
      wire::GrantRequest{},
      wire::LogAppend{.bytes = {1, 2, 0xff}},
      wire::PublishOutputs{},
      wire::ReclaimReport{},
      wire::Leave{},
      wire::Holdings{{JobId("j-1"), JobId("j-2")}},
      wire::Transfers{
          {{.id = 7, .job = JobId("j-1"), .bytes_left = 5, .deadline_ms = 30'000}},
          9,
          {{.id = 8, .job = JobId("j-2"), .image = "sha256:1", .bytes_left = 6}}},
      wire::TakenBack{"o-1", OrderOutcome::kLate, {}, "too late"},
      wire::ContractEdited{"e-1", EditState::kPending, "it waits"},
      wire::Welcome{},
      wire::Refused{},
      wire::HeartbeatAck{.hazard = {.step_s = 900, .per_day = {0.5, 4}, .low = 0.5, .high = 2}},
      wire::Probe{},
      wire::CancelHold{},
      wire::Commit{.spec = a_spec()},
      wire::StopAttempt{.mode = StopMode::kFenced},
      wire::GenerationCommitted{},
      wire::Grants{},
      wire::LogAck{},
      wire::AttemptAck{},
      wire::ReclaimAck{},
      wire::CollectGarbage{},
      wire::TransferRates{{{7, 50'000'000, true}}, 1000},
      wire::TakeBack{"o-1", ReclaimKind::kAnnounced, {0, 2}, 300, 17, 9000},
      wire::EditContract{"e-1", UserId("olga"), "v1", "e-0", {.notice_s = 30}, 17, 9000},
      wire::GangGo{
          JobId("j-1"),
          {1, 2},
          {{.rank = 1, .job = JobId("j-2"), .node = NodeId("n-2"), .address = "10.0.0.2:7445"}}},
      wire::GangSaved{JobId("j-1"), {1, 2}}};

  ASSERT_EQ(messages.size(), std::variant_size_v<wire::Message>);
  for (const auto& message : messages) {
    const auto back = wire::decode(wire::encode(message));
    ASSERT_TRUE(back) << wire::name_of(message) << ": " << back.error().describe();
    EXPECT_EQ(*back, message) << wire::name_of(message);
  }
}

TEST(Wire, an_acknowledgement_of_an_older_coordinator_says_nothing_of_the_hazard) {
  const Blob older = nlohmann::json::to_cbor({{"type", "heartbeat_ack"}, {"body", {{"seq", 3}}}});

  const auto ack = wire::decode(older);
  ASSERT_TRUE(ack) << ack.error().describe();
  EXPECT_EQ(*ack, wire::Message(wire::HeartbeatAck{.seq = 3}));
}

TEST(Wire, an_unknown_type_is_told_apart_from_rubbish) {
  const Blob newer =
      nlohmann::json::to_cbor({{"type", "teleport"}, {"body", nlohmann::json::object()}});

  EXPECT_EQ(wire::decode(newer).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(wire::decode(as_bytes("rubbish")).error().code, ErrorCode::kInvalid);
}

TEST(WardenWire, requests_and_replies_survive_the_socket) {
  const warden_wire::NumberedRequest start{
      9,
      warden_wire::StartGuest{
          .guest = {JobId("j-1"), {1, 2}},
          .command = {"python", "train.py"},
          .network = {{"10.0.0.0/8", 5, "udp"}}}};
  const warden_wire::Reply answer = warden_wire::Answer{.request = 9, .disk = "/d"};

  EXPECT_EQ(warden_wire::decode_request(warden_wire::encode(start)).value(), start);
  const warden_wire::NumberedRequest told{
      10, warden_wire::TellGuest{{JobId("j"), {1, 1}}, "ctl/SAVE", "a save is due", 17, 3, true}};
  EXPECT_EQ(warden_wire::decode_request(warden_wire::encode(told)).value(), told);
  const warden_wire::NumberedRequest gpu{11, warden_wire::AnnounceGpu{1, 17, "its owner computes"}};
  EXPECT_EQ(warden_wire::decode_request(warden_wire::encode(gpu)).value(), gpu);
  EXPECT_EQ(warden_wire::decode_reply(warden_wire::encode(answer)).value(), answer);
  EXPECT_FALSE(warden_wire::decode_request(as_bytes("rubbish")));
}

TEST(WardenWire, giving_back_is_for_the_owner_alone_and_taking_back_for_the_agent_too) {
  EXPECT_TRUE(warden_wire::is_owner_only(warden_wire::Release{}));
  EXPECT_TRUE(warden_wire::is_owner_only(warden_wire::Pause{}));
  EXPECT_TRUE(warden_wire::is_owner_only(warden_wire::Resume{}));
  EXPECT_FALSE(warden_wire::is_owner_only(warden_wire::DeclareReclaim{}));
  EXPECT_FALSE(warden_wire::is_owner_only(warden_wire::KillGuest{}));
}

TEST(DataSets, a_name_is_one_component_of_a_path) {
  for (const char* good : {"imagenet", "a", "MNIST_2.1-small", "..."})
    EXPECT_TRUE(is_data_set_name(good)) << good;
  for (const char* bad : {"", ".", "..", "a/b", "a b", "a:b", "a,b", "\xc3\xa4", "../etc", "a\n"})
    EXPECT_FALSE(is_data_set_name(bad)) << bad;
  EXPECT_TRUE(is_data_set_name(std::string(64, 'a')));
  EXPECT_FALSE(is_data_set_name(std::string(65, 'a')));
}

TEST(DataSets, a_list_has_no_name_twice_and_an_end) {
  EXPECT_TRUE(check_data_sets({"a", "b"}, 2, "data"));
  EXPECT_EQ(
      check_data_sets({"a", "b", "a"}, 16, "data").error().message, "data: 'a' is named twice"
  );
  EXPECT_EQ(
      check_data_sets({"a", "b", "c"}, 2, "data").error().message, "data: more than 2 data sets"
  );
  EXPECT_EQ(
      check_data_sets({"../etc"}, 2, "data").error().message,
      "data: '../etc' is no name of a data set"
  );
}

TEST(DataSets, what_an_older_agent_does_not_say_it_does_not_offer) {
  const auto facts = from_json<NodeFacts>(R"({"hostname":"old"})");

  ASSERT_TRUE(facts);
  EXPECT_EQ(missing_data_set({"imagenet"}, facts->data_sets), "imagenet");
  EXPECT_EQ(missing_data_set({"a", "b"}, {"b", "a"}), "");
}

TEST(NodeFacts, an_older_agent_grants_as_much_as_there_is_and_nobody_grants_less_than_nothing) {
  const auto older = from_json<NodeFacts>(R"({"hostname":"old"})");
  ASSERT_TRUE(older);
  EXPECT_EQ(older->transfers_bps, 0u);
  EXPECT_EQ(sent_bps_most(Contract{}, *older), 0u);

  EXPECT_FALSE(from_json<NodeFacts>(R"({"transfers_bps":-1})"));
  EXPECT_FALSE(from_json<NodeFacts>(R"({"transfers_bps":1e300})"));

  Contract contract;
  contract.uplink_bps_evacuation = 50;
  NodeFacts facts;
  facts.transfers_bps = 40;
  EXPECT_EQ(sent_bps_most(contract, facts), 40u);
  facts.transfers_bps = 60;
  EXPECT_EQ(sent_bps_most(contract, facts), 50u);
}

TEST(JobState, a_terminal_state_is_left_by_nothing) {
  for (int to = 0; to < 10; ++to) {
    if (static_cast<JobState>(to) == JobState::kSucceeded) continue;
    EXPECT_FALSE(may_follow(JobState::kSucceeded, static_cast<JobState>(to)));
  }
  EXPECT_TRUE(may_follow(JobState::kRunning, JobState::kQueued));
  EXPECT_FALSE(may_follow(JobState::kQueued, JobState::kRunning));
}

TEST(ReclaimPhase, cleared_never_comes_before_cut) {
  EXPECT_FALSE(may_follow(ReclaimPhase::kEvacuating, ReclaimPhase::kCleared));
  EXPECT_TRUE(may_follow(ReclaimPhase::kDeclared, ReclaimPhase::kCut));
}

}  // namespace
}  // namespace rn
