// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <utility>
#include <variant>

#include "agent/core_harness.h"
#include "agent/told_reports.h"
#include "arbiter/contract_order.h"

namespace rn::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A node whose owner is somewhere else, and edits its contract there.
class CoreContract : public CoreTest {
 protected:
  void SetUp() override {
    contract.notice_s = 60;
    contract.max_guests = 4;
    start();
  }

  std::string version() { return core->view(clock.now()).contract_version; }

  ContractProposal waiting() { return core->view(clock.now()).proposal; }

  wire::EditContract an_edit(const Contract& wanted, const std::string& id = "edit-0001") {
    wire::EditContract edit;
    edit.edit = id;
    edit.user = UserId("olga");
    edit.from = version();
    edit.replaces = waiting().id;
    edit.contract = wanted;
    edit.beat = sent<wire::Heartbeat>().back().seq;
    edit.valid_ms = 15'000;
    return edit;
  }

  Contract fewer() {
    Contract less = contract;
    less.max_guests = 2;
    return less;
  }

  Contract more() {
    Contract wider = contract;
    wider.max_guests = 8;
    return wider;
  }

  /// What was said last of this edit.
  wire::ContractEdited told_of(const std::string& id) const {
    wire::ContractEdited last;
    bool is_any = false;
    for (const wire::ContractEdited& each : sent<wire::ContractEdited>()) {
      if (each.edit != id) continue;
      last = each;
      is_any = true;
    }
    EXPECT_TRUE(is_any) << "nothing was said of " << id;
    return last;
  }

  /// The shell does what it was told last.
  void put_in_force() {
    ASSERT_FALSE(uses.empty());
    contract = uses.back().contract;
    feed(ContractChanged{contract, 0, uses.back().edit});
  }

  void owner_writes(const Contract& wanted) {
    contract = wanted;
    feed(ContractChanged{contract, 0});
  }

  void is_nothing_changed() {
    EXPECT_THAT(uses, IsEmpty());
    EXPECT_EQ(core->view(clock.now()).contract, contract);
  }
};

TEST_F(CoreContract, what_only_narrows_is_in_force_at_once) {
  const std::string before = version();
  tell(an_edit(fewer()));
  ASSERT_THAT(uses, SizeIs(1));
  EXPECT_EQ(uses[0].contract, fewer());
  EXPECT_EQ(uses[0].from, before);
  EXPECT_THAT(sent<wire::ContractEdited>(), IsEmpty()) << "it is not durable yet";
  put_in_force();

  EXPECT_EQ(told_of("edit-0001").state, EditState::kInForce);
  EXPECT_EQ(sent<wire::NodeUpdate>().back().contract.max_guests, 2u);
  EXPECT_EQ(sent<wire::NodeUpdate>().back().contract_version, version());
  EXPECT_NE(version(), before);
}

TEST_F(CoreContract, who_reads_that_it_is_in_force_knows_the_contract_that_is) {
  tell(an_edit(fewer()));
  put_in_force();

  bool is_contract_told = false;
  for (const wire::Message& each : messages) {
    const auto* const update = std::get_if<wire::NodeUpdate>(&each);
    if (update != nullptr && update->contract == fewer()) is_contract_told = true;
    const bool is_answer = std::holds_alternative<wire::ContractEdited>(each);
    EXPECT_TRUE(!is_answer || is_contract_told);
  }
  EXPECT_TRUE(is_contract_told);
}

TEST_F(CoreContract, what_lends_more_waits_for_somebody_at_the_machine) {
  tell(an_edit(more()));

  is_nothing_changed();
  EXPECT_EQ(told_of("edit-0001").state, EditState::kPending);
  EXPECT_THAT(told_of("edit-0001").message, HasSubstr("max_guests: 8 is more than 4"));
  EXPECT_THAT(told_of("edit-0001").message, HasSubstr("reclaim-agent contract accept"));
  EXPECT_EQ(waiting().id, "edit-0001");
  EXPECT_EQ(waiting().user, UserId("olga"));
  EXPECT_EQ(waiting().contract, more());
  EXPECT_EQ(sent<wire::NodeUpdate>().back().proposal.id, "edit-0001");
  EXPECT_TRUE(journal.contains("proposal"));
}

TEST_F(CoreContract, what_is_accepted_at_the_machine_is_in_force_and_waits_no_more) {
  tell(an_edit(more()));
  contract = more();
  feed(ContractChanged{contract, 0, "edit-0001"});

  EXPECT_EQ(told_of("edit-0001").state, EditState::kInForce);
  EXPECT_THAT(waiting().id, IsEmpty());
  EXPECT_FALSE(journal.contains("proposal"));
  EXPECT_THAT(sent<wire::NodeUpdate>().back().proposal.id, IsEmpty());
  EXPECT_EQ(sent<wire::NodeUpdate>().back().contract.max_guests, 8u);
}

TEST_F(CoreContract, what_is_rejected_at_the_machine_is_gone_and_changes_nothing) {
  tell(an_edit(more()));
  feed(ProposalRejected{"edit-0002"});
  EXPECT_EQ(waiting().id, "edit-0001") << "that was another one";
  feed(ProposalRejected{"edit-0001"});

  is_nothing_changed();
  EXPECT_EQ(told_of("edit-0001").state, EditState::kRejected);
  EXPECT_FALSE(journal.contains("proposal"));
}

TEST_F(CoreContract, what_nobody_accepts_for_a_week_is_forgotten) {
  tell(an_edit(more()));
  clock.set_wall(clock.now().wall + seconds(7 * 86'400 - 1));
  feed(Tick{});
  EXPECT_EQ(waiting().id, "edit-0001");
  clock.set_wall(clock.now().wall + seconds(1));
  feed(Tick{});

  is_nothing_changed();
  EXPECT_THAT(waiting().id, IsEmpty());
  EXPECT_EQ(told_of("edit-0001").state, EditState::kExpired);
  EXPECT_FALSE(journal.contains("proposal"));
}

TEST_F(CoreContract, what_waits_outlives_a_crash_and_is_told_to_the_next_coordinator) {
  const wire::EditContract edit = an_edit(more());
  tell(edit);
  crash_and_restart();
  EXPECT_EQ(waiting().contract, more());
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  connect();
  ASSERT_THAT(sent<wire::Hello>(), SizeIs(1));
  EXPECT_EQ(sent<wire::Hello>()[0].proposal.id, "edit-0001");
  EXPECT_EQ(sent<wire::Hello>()[0].contract_version, version());

  tell(edit);
  EXPECT_EQ(told_of("edit-0001").state, EditState::kPending) << "said again it is the same";
  is_nothing_changed();
}

TEST_F(CoreContract, a_crash_between_the_file_and_the_row_leaves_nothing_that_waits) {
  tell(an_edit(more()));
  contract = more();  // the file was written, and the process died
  crash_and_restart();
  feed(Tick{});

  EXPECT_THAT(waiting().id, IsEmpty());
  EXPECT_FALSE(journal.contains("proposal"));
}

TEST_F(CoreContract, an_edit_of_another_contract_than_the_one_in_force_is_a_conflict) {
  const wire::EditContract first = an_edit(fewer());
  wire::EditContract second = an_edit(fewer(), "edit-0002");
  second.contract.notice_s = 30;
  tell(first);
  tell(second);
  EXPECT_THAT(uses, SizeIs(1)) << "the first one is being put in force";
  put_in_force();
  EXPECT_EQ(told_of("edit-0002").state, EditState::kConflict);
  wire::EditContract third = second;
  third.edit = "edit-0003";
  tell(third);

  EXPECT_EQ(told_of("edit-0003").state, EditState::kConflict);
  EXPECT_THAT(uses, SizeIs(1));
  EXPECT_EQ(core->view(clock.now()).contract.notice_s, 60u);
}

TEST_F(CoreContract, the_owner_at_the_machine_is_never_overruled_by_an_edit_from_before) {
  const wire::EditContract edit = an_edit(fewer());
  tell(edit);
  Contract own = contract;
  own.lends = false;
  owner_writes(own);  // before the shell came to the edit, and so it finds another contract
  feed(EditUnusable{"edit-0001", Error{ErrorCode::kConflict, "it was changed meanwhile", ""}});

  EXPECT_EQ(told_of("edit-0001").state, EditState::kConflict);
  EXPECT_FALSE(core->view(clock.now()).contract.lends);
  tell(an_edit(own, "edit-0002"));
  EXPECT_EQ(told_of("edit-0002").state, EditState::kInForce) << "no edit is under way any more";
}

TEST_F(CoreContract, a_change_that_waits_is_replaced_only_by_who_knows_of_it) {
  wire::EditContract blind = an_edit(fewer(), "edit-0002");
  tell(an_edit(more()));
  tell(blind);
  EXPECT_EQ(told_of("edit-0002").state, EditState::kConflict);
  EXPECT_THAT(told_of("edit-0002").message, HasSubstr("olga"));
  EXPECT_EQ(waiting().id, "edit-0001") << "nothing is lost";
  is_nothing_changed();

  Contract other = more();
  other.max_guests = 9;
  tell(an_edit(other, "edit-0003"));
  EXPECT_EQ(told_of("edit-0001").state, EditState::kReplaced);
  EXPECT_EQ(waiting().id, "edit-0003");
  tell(an_edit(fewer(), "edit-0004"));
  put_in_force();
  EXPECT_EQ(told_of("edit-0003").state, EditState::kReplaced);
  EXPECT_THAT(waiting().id, IsEmpty());
  wire::EditContract late = an_edit(fewer(), "edit-0005");
  late.replaces = "edit-0003";
  tell(late);
  EXPECT_EQ(told_of("edit-0005").state, EditState::kConflict) << "it waits no more";
}

TEST_F(CoreContract, the_contract_as_it_is_takes_back_what_waits) {
  tell(an_edit(more()));
  tell(an_edit(contract, "edit-0002"));

  is_nothing_changed();
  EXPECT_EQ(told_of("edit-0001").state, EditState::kReplaced);
  EXPECT_EQ(told_of("edit-0002").state, EditState::kInForce);
  EXPECT_FALSE(journal.contains("proposal"));
}

TEST_F(CoreContract, the_owners_own_contract_leaves_what_waits_to_be_judged_anew) {
  tell(an_edit(more()));
  owner_writes(fewer());
  EXPECT_EQ(waiting().id, "edit-0001");

  owner_writes(more());
  EXPECT_THAT(waiting().id, IsEmpty()) << "it is what the contract says";
}

TEST_F(CoreContract, what_is_no_contract_is_refused_with_the_fields_name) {
  Contract bad = contract;
  bad.notice_s = 901;
  tell(an_edit(bad));
  EXPECT_EQ(told_of("edit-0001").state, EditState::kRefused);
  EXPECT_THAT(told_of("edit-0001").message, HasSubstr("notice_s: is more than 900"));
  bad = contract;
  bad.windows.resize(5000);
  tell(an_edit(bad, "edit-0002"));
  EXPECT_THAT(told_of("edit-0002").message, HasSubstr("windows: 5000"));
  feed(EditUnusable{"edit-0003", Error{ErrorCode::kNotFound, "no time zone \"Mars\"", ""}});
  EXPECT_EQ(told_of("edit-0003").state, EditState::kRefused);
  EXPECT_THAT(told_of("edit-0003").message, HasSubstr("Mars"));

  is_nothing_changed();
  EXPECT_THAT(waiting().id, IsEmpty());
}

TEST_F(CoreContract, an_edit_that_is_too_old_or_of_another_connection_is_late) {
  const wire::EditContract edit = an_edit(fewer());
  advance(seconds(15));
  tell(edit);
  EXPECT_EQ(told_of("edit-0001").state, EditState::kLate);
  wire::EditContract other = an_edit(more(), "edit-0002");
  feed(CoordinatorDisconnected{"reset"});
  connect();
  tell(other);

  EXPECT_EQ(told_of("edit-0002").state, EditState::kLate);
  is_nothing_changed();
  EXPECT_THAT(waiting().id, IsEmpty());
}

TEST_F(CoreContract, the_same_edit_twice_is_done_once) {
  const wire::EditContract edit = an_edit(fewer());
  tell(edit);
  tell(edit);
  EXPECT_THAT(uses, SizeIs(1));
  put_in_force();
  tell(edit);

  EXPECT_THAT(uses, SizeIs(1));
  EXPECT_EQ(told_of("edit-0001").state, EditState::kInForce);
}

TEST_F(CoreContract, an_answer_that_a_broken_connection_may_have_lost_is_said_again) {
  tell(an_edit(fewer()));
  feed(CoordinatorDisconnected{"reset"});
  put_in_force();
  EXPECT_THAT(sent<wire::ContractEdited>(), IsEmpty());
  connect();

  EXPECT_EQ(told_of("edit-0001").state, EditState::kInForce);
}

TEST_F(CoreContract, a_full_disk_refuses_what_would_need_a_row) {
  ToldReports told;
  for (const wire::Message& message : messages) told.on_sent(message);
  feed(JournalWaits{"database or disk is full", told.reports()});
  tell(an_edit(more()));
  tell(an_edit(fewer(), "edit-0002"));

  EXPECT_EQ(told_of("edit-0001").state, EditState::kRefused);
  EXPECT_EQ(told_of("edit-0002").state, EditState::kRefused);
  is_nothing_changed();
}

/// A stolen token, a lie, a bug: whatever contract is said from afar, made from what it may be, the
/// one in force lends at most what it lent.
TEST_F(CoreContract, no_edit_from_afar_ever_lends_more) {
  const std::vector<std::function<void(Contract&)>> changes = {
      [](Contract& c) { c.max_guests = 16; },
      [](Contract& c) { c.max_guests = 1; },
      [](Contract& c) { c.lends = false; },
      [](Contract& c) { c.lends = true; },
      [](Contract& c) {
        c.windows = {{{"tue"}, "18:00", "23:00"}};
      },
      [](Contract& c) {
        c.windows = {{{"tue"}, "08:00", "23:00"}};
      },
      [](Contract& c) { c.windows.clear(); },
      [](Contract& c) { c.notice_s = 10; },
      [](Contract& c) { c.notice_s = 900; },
      [](Contract& c) {
        c.network = {{"0.0.0.0/0", 0, "any"}};
      },
      [](Contract& c) { c.time_zone = "Asia/Tokyo"; }};
  int in_force = 0;
  for (int i = 0; i < 120; ++i) {
    advance(seconds(6));
    Contract wanted = contract;
    changes[rng.below(changes.size())](wanted);
    const Contract before = contract;
    uses.clear();
    tell(an_edit(wanted, "edit-" + std::to_string(1000 + i)));
    if (uses.empty()) continue;
    ++in_force;
    put_in_force();
    ASSERT_TRUE(arbiter::narrows(before, core->view(clock.now()).contract, facts));
  }
  EXPECT_GT(in_force, 2);
}

/// What the coordinator tells an owner before they save is what this agent then does.
TEST_F(CoreContract, guests_are_told_to_leave_when_the_preview_says_so) {
  run();
  log_is_empty();
  for (const auto& [from, to] :
       {std::pair("20:00", "22:30"), std::pair("20:00", "22:15"), std::pair("23:00", "23:30")}) {
    Contract hours = contract;
    hours.windows = {{{"tue"}, from, to}};
    asks.clear();
    owner_writes(hours);
    const auto leave = arbiter::guests_leave_in(hours, clock.now().wall, 0);
    ASSERT_TRUE(leave);
    const auto left = nanoseconds(last_announcement().deadline_ns - to_ns(clock.now().boot));
    EXPECT_LE(abs(left - nanoseconds(*leave)), nanoseconds(seconds(1))) << from << " to " << to;
  }
}

}  // namespace
}  // namespace rn::agent
