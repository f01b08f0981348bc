// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_contracts.h"

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

/// A node of lab-a whose owner is somewhere else, and edits its contract there.
class Contracts : public CoreSite {
 protected:
  void SetUp() override {
    start();
    FakeAgent& a = add_node("a", "lab-a");
    a.hello.contract_version = "v1";
    a.hello.contract.max_guests = 4;
    connect(a);
    add_node("b", "lab-b");
    pass(config.heartbeat_ms);
  }

  static Caller editor(const char* lab = "lab-a", Role role = Role::kOwner) {
    return {UserId("olga"), LabId(lab), role};
  }

  ProposeContract an_edit(const std::string& id = "edit-0001") {
    ProposeContract edit;
    edit.node = node("a").id;
    edit.edit = id;
    edit.from = "v1";
    edit.contract = node("a").hello.contract;
    edit.contract.max_guests = 2;
    return edit;
  }

  ContractEdit give(const ProposeContract& edit) {
    const auto answer = run(editor(), edit);
    EXPECT_TRUE(answer) << answer.error().describe();
    return answer ? std::get<ContractProposed>(*answer).edit : ContractEdit{};
  }

  Error refusal(const Caller& caller, const ProposeContract& edit) {
    const auto answer = run(caller, edit);
    return answer ? Error{ErrorCode::kInternal, "it was taken", ""} : answer.error();
  }

  ContractEdit newest() {
    const auto all = core->edits(node("a").id);
    return all.empty() ? ContractEdit{} : all.front();
  }

  std::vector<wire::EditContract> told(const char* name = "a") {
    return node(name).received<wire::EditContract>();
  }

  void says(EditState state, std::string message = "", const std::string& id = "edit-0001") {
    tell(node("a"), wire::ContractEdited{id, state, std::move(message)});
  }

  /// The node's contract is another one now, or something waits there.
  void updates(const std::string& version, const Contract& contract, ContractProposal waits = {}) {
    wire::NodeUpdate update;
    update.facts = node("a").hello.facts;
    update.address = node("a").hello.address;
    update.contract = contract;
    update.contract_version = version;
    update.proposal = std::move(waits);
    tell(node("a"), update);
  }

  ContractProposal a_proposal(const std::string& id = "edit-0001") {
    ContractProposal waits;
    waits.id = id;
    waits.user = UserId("otto");
    waits.from = "v1";
    waits.contract = node("a").hello.contract;
    waits.contract.max_guests = 8;
    return waits;
  }
};

TEST_F(Contracts, an_edit_goes_to_its_node_at_once_and_is_no_more_than_told) {
  clock.advance(milliseconds(1200));
  const ContractEdit given = give(an_edit());
  EXPECT_EQ(given.state, EditState::kSent);
  EXPECT_EQ(given.user, UserId("olga"));

  ASSERT_EQ(told().size(), 1U);
  EXPECT_EQ(told()[0].edit, "edit-0001");
  EXPECT_EQ(told()[0].from, "v1");
  EXPECT_EQ(told()[0].user, UserId("olga"));
  EXPECT_EQ(told()[0].contract.max_guests, 2U);
  EXPECT_EQ(told()[0].beat, node("a").beat);
  EXPECT_EQ(told()[0].valid_ms, config.order_valid_ms + 1200);
  EXPECT_TRUE(told("b").empty());
  EXPECT_EQ(core->contract_of(node("a").id)->contract.max_guests, 4U) << "the node decides";
  const EventRow event = last_event("contract.edit_sent");
  EXPECT_EQ(event.data.at("user"), "olga");
  EXPECT_NE(event.message.find("max_guests: 2, and it was 4"), std::string::npos) << event.message;
}

TEST_F(Contracts, what_the_node_says_is_what_became_of_it) {
  int number = 0;
  for (const EditState state :
       {EditState::kInForce,
        EditState::kPending,
        EditState::kConflict,
        EditState::kRefused,
        EditState::kLate}) {
    const std::string id = "edit-000" + std::to_string(++number);
    give(an_edit(id));
    says(state, "because", id);

    EXPECT_EQ(newest().state, state);
    EXPECT_EQ(count_events("contract.edit_" + std::string(to_string(state))), 1U);
    EXPECT_NE(newest().message.find("lab-a/a"), std::string::npos) << newest().message;
  }
}

TEST_F(Contracts, what_waits_may_end_later_and_what_is_over_does_not_change) {
  give(an_edit());
  says(EditState::kPending, "it lends more");
  updates("v1", node("a").hello.contract, a_proposal());
  pass(20 * 60'000);
  EXPECT_EQ(newest().state, EditState::kPending) << "as long as it waits it is shown";
  says(EditState::kRejected, "rejected at the machine");
  EXPECT_EQ(newest().state, EditState::kRejected);
  says(EditState::kInForce);
  EXPECT_EQ(newest().state, EditState::kRejected);
  updates("v1", node("a").hello.contract);
  pass(11 * 60'000);

  EXPECT_TRUE(core->edits(node("a").id).empty()) << "nobody asks any more";
}

TEST_F(Contracts, the_same_edit_again_is_the_same_edit) {
  give(an_edit());
  says(EditState::kInForce);
  EXPECT_EQ(give(an_edit()).state, EditState::kInForce);
  EXPECT_EQ(told().size(), 1U);
  EXPECT_EQ(count_events("contract.edit_sent"), 1U);

  ProposeContract other = an_edit();
  other.contract.notice_s = 1;
  EXPECT_EQ(refusal(editor(), other).code, ErrorCode::kConflict);
}

TEST_F(Contracts, two_owners_who_edit_one_contract_are_told_of_each_other) {
  const ProposeContract second = an_edit("edit-0002");
  give(an_edit());
  says(EditState::kInForce);
  Contract now = node("a").hello.contract;
  now.max_guests = 2;
  updates("v2", now);

  const Error refused = refusal(editor(), second);
  EXPECT_EQ(refused.code, ErrorCode::kConflict);
  EXPECT_NE(refused.message.find("not the one any more"), std::string::npos) << refused.message;
  EXPECT_EQ(told().size(), 1U);
  ProposeContract again = second;
  again.edit = "edit-0003";
  again.from = "v2";
  give(again);
  EXPECT_EQ(told().size(), 2U);
}

TEST_F(Contracts, a_change_that_waits_is_replaced_by_who_has_seen_it_alone) {
  updates("v1", node("a").hello.contract, a_proposal("edit-0009"));
  EXPECT_EQ(last_event("contract.waits").data.at("user"), "otto");
  const Error refused = refusal(editor(), an_edit());
  EXPECT_EQ(refused.code, ErrorCode::kConflict);
  EXPECT_NE(refused.message.find("a change by otto waits"), std::string::npos) << refused.message;
  EXPECT_NE(refused.message.find("max_guests: 8"), std::string::npos) << refused.message;

  ProposeContract knowing = an_edit("edit-0002");
  knowing.replaces = "edit-0009";
  give(knowing);
  ASSERT_EQ(told().size(), 1U);
  EXPECT_EQ(told()[0].replaces, "edit-0009");
  says(EditState::kInForce, "", "edit-0002");
  updates("v2", knowing.contract);
  EXPECT_EQ(count_events("contract.waits_no_more"), 1U);
  ProposeContract late = an_edit("edit-0003");
  late.from = "v2";
  late.replaces = "edit-0009";
  EXPECT_EQ(refusal(editor(), late).code, ErrorCode::kConflict) << "it waits no more";
}

TEST_F(Contracts, a_node_that_is_away_or_older_is_told_nothing_and_nothing_is_kept_for_it) {
  disconnect(node("a"));
  const Error away = refusal(editor(), an_edit());
  EXPECT_EQ(away.code, ErrorCode::kUnavailable);
  EXPECT_NE(away.hint.find("reclaim-agent contract set"), std::string::npos) << away.hint;
  connect(node("a"));
  EXPECT_EQ(refusal(editor(), an_edit()).code, ErrorCode::kUnavailable)
      << "before a heartbeat it could not know how old it is";
  beat(node("a"));
  EXPECT_TRUE(told().empty()) << "what was refused is not sent later";

  ProposeContract older = an_edit("edit-0002");
  older.node = node("b").id;
  older.from = "";
  EXPECT_EQ(refusal(editor("lab-b"), older).code, ErrorCode::kUnsupported);
  EXPECT_EQ(count_events("contract.edit_sent"), 0U);
}

TEST_F(Contracts, a_node_that_says_nothing_is_no_success) {
  give(an_edit());
  EXPECT_EQ(refusal(editor(), an_edit("edit-0002")).code, ErrorCode::kExhausted) << "one at a time";
  pass(config.order_valid_ms + 11'000);
  EXPECT_EQ(newest().state, EditState::kUnanswered);
  says(EditState::kInForce);
  EXPECT_EQ(newest().state, EditState::kInForce) << "the node knows better";
}

TEST_F(Contracts, a_node_answers_for_itself_alone_and_of_what_it_was_told) {
  give(an_edit());
  tell(node("b"), wire::ContractEdited{"edit-0001", EditState::kInForce, ""});
  EXPECT_EQ(newest().state, EditState::kSent);
  says(EditState::kInForce, "", "edit-0007");

  EXPECT_EQ(core->edits(node("a").id).size(), 1U);
}

TEST_F(Contracts, what_waits_is_heard_of_again_after_a_restart_and_no_contract_lies_in_the_tables) {
  give(an_edit());
  const ContractProposal waits = a_proposal();
  updates("v1", node("a").hello.contract, waits);
  restart();
  EXPECT_TRUE(core->edits(node("a").id).empty());
  EXPECT_TRUE(core->contract_of(node("a").id)->proposal.id.empty());
  node("a").hello.proposal = waits;
  connect(node("a"));

  EXPECT_EQ(core->contract_of(node("a").id)->proposal, waits);
  for (const auto& [key, value] : tables.meta)
    EXPECT_EQ(value.find("max_guests"), std::string::npos) << key;
}

TEST_F(Contracts, what_a_node_says_without_sense_waits_nowhere) {
  ContractProposal odd = a_proposal("no name");
  updates("v1", node("a").hello.contract, odd);
  EXPECT_TRUE(core->contract_of(node("a").id)->proposal.id.empty());
  odd = a_proposal();
  odd.contract.windows.resize(100'000);
  updates("v1", node("a").hello.contract, odd);
  EXPECT_TRUE(core->contract_of(node("a").id)->proposal.id.empty());
  updates(std::string(1000, 'v'), node("a").hello.contract);
  EXPECT_TRUE(core->contract_of(node("a").id)->version.empty());
}

/// Every role, of the node's lab, of another and of none: whose machine it is decides.
TEST_F(Contracts, are_edited_by_the_owners_of_the_nodes_lab_and_by_nobody_else) {
  for (const Role role : {Role::kViewer, Role::kUser, Role::kOwner, Role::kAdmin}) {
    for (const char* lab : {"lab-a", "lab-b", "it", ""}) {
      const bool may = role >= Role::kOwner && lab == std::string("lab-a");
      const std::string id = std::string("edit-0") + std::to_string(static_cast<int>(role)) + lab;
      const auto answered = run(editor(lab, role), an_edit(id + "-xyz"));
      const std::string what = std::string(to_string(role)) + " of '" + lab + "'";
      ASSERT_EQ(answered.has_value(), may) << what;
      EXPECT_EQ(core->may_edit_contract(editor(lab, role), node("a").id).has_value(), may) << what;
      if (!may) {
        EXPECT_EQ(answered.error().code, ErrorCode::kDenied) << what;
      } else {
        says(EditState::kLate, "", id + "-xyz");
      }
    }
  }
  EXPECT_EQ(refusal(Core::system_caller(), an_edit("edit-sys")).code, ErrorCode::kDenied);
  EXPECT_EQ(told().size(), 2U) << "the owner's and the lab's own administrator's";
}

TEST_F(Contracts, what_is_no_contract_is_refused_before_anybody_is_told) {
  ProposeContract edit = an_edit();
  edit.node = NodeId("n-nobody");
  EXPECT_EQ(refusal(editor(), edit).code, ErrorCode::kNotFound);
  edit = an_edit("short");
  EXPECT_EQ(refusal(editor(), edit).code, ErrorCode::kInvalid);
  edit = an_edit();
  edit.contract.notice_s = 901;
  EXPECT_NE(refusal(editor(), edit).message.find("notice_s: "), std::string::npos);
  edit = an_edit();
  edit.contract.gpus = {5};
  EXPECT_NE(refusal(editor(), edit).message.find("gpus: 5"), std::string::npos);
  edit = an_edit();
  edit.contract.windows.resize(300);
  EXPECT_NE(refusal(editor(), edit).message.find("windows: 300"), std::string::npos);

  EXPECT_TRUE(told().empty());
  EXPECT_EQ(count_events("contract.edit_sent"), 0U);
}

TEST_F(Contracts, another_contract_is_an_event_and_the_first_one_is_not) {
  EXPECT_EQ(count_events("contract.changed"), 1U) << "of a's second hello: the first ones are none";
  Contract now = node("a").hello.contract;
  now.notice_s = 30;
  updates("v2", now);
  EXPECT_EQ(last_event("contract.changed").message, "its contract: notice_s: 30, and it was 60");
  updates("v2", now);
  EXPECT_EQ(count_events("contract.changed"), 2U);

  now.notice_s = 20;
  node("a").hello.contract = now;
  connect(node("a"));
  EXPECT_EQ(count_events("contract.changed"), 3U) << "while it was away";
}

}  // namespace
}  // namespace rn::coordinator
