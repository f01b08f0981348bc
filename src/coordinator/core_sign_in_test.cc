// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_sign_in.h"

#include <chrono>
#include <cstdint>
#include <string>

#include "base/crypto.h"
#include "coordinator/core_commands.h"
#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

class SignIns : public CoreSite {
 protected:
  void SetUp() override { start(); }

  static SignIn a_sign_in(const char* who) {
    return SignIn{.user = UserId(who), .ttl_s = 3600, .contact = "the helpdesk"};
  }

  Result<TokenMade> signed_in(const SignIn& command) {
    auto answer = run(Core::system_caller(), command);
    if (!answer) return fail(answer.error());
    return std::get<TokenMade>(*std::move(answer));
  }

  void add_user(const char* who, const char* lab, Role role = Role::kUser) {
    ASSERT_TRUE(run(admin(), CreateUserToken{UserId(who), LabId(lab), role, 60}));
  }
};

TEST_F(SignIns, who_is_not_in_the_table_leaves_no_trace_in_it) {
  const auto made = signed_in(a_sign_in("eve"));

  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kDenied);
  EXPECT_NE(made.error().hint.find("the helpdesk"), std::string::npos);
  EXPECT_FALSE(tables.users.contains(UserId("eve")));
  EXPECT_TRUE(tables.tokens.empty());
}

TEST_F(SignIns, the_table_says_lab_and_role_and_the_token_ends) {
  add_user("oli", "lab-a", Role::kOwner);
  SignIn command = a_sign_in("oli");
  command.lab_if_new = LabId("lab-b");
  const auto made = signed_in(command);

  ASSERT_TRUE(made) << made.error().describe();
  const auto caller = core->authenticate(made->token.id, made->secret, clock.now().wall);
  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->lab, LabId("lab-a"));
  EXPECT_EQ(caller->role, Role::kOwner);
  EXPECT_EQ(last_event("token.signed_in").user, UserId("oli"));
  clock.advance(std::chrono::minutes(61));
  EXPECT_FALSE(core->authenticate(made->token.id, made->secret, clock.now().wall));
}

TEST_F(SignIns, a_group_makes_a_user_once_and_never_more) {
  SignIn command = a_sign_in("eve");
  command.lab_if_new = LabId("lab-b");
  ASSERT_TRUE(signed_in(command));

  EXPECT_EQ(tables.users.at(UserId("eve")).lab, LabId("lab-b"));
  EXPECT_EQ(tables.users.at(UserId("eve")).role, Role::kUser);
  command.lab_if_new = LabId("lab-c");
  EXPECT_EQ(signed_in(command)->token.lab, LabId("lab-b"));
}

TEST_F(SignIns, an_administrator_must_be_named) {
  add_user("boss", "it", Role::kAdmin);
  SignIn command = a_sign_in("boss");
  EXPECT_FALSE(signed_in(command));
  command.may_be_admin = true;
  EXPECT_TRUE(signed_in(command));
}

TEST_F(SignIns, only_the_coordinator_itself_takes_a_providers_word) {
  add_user("ann", "lab-a");
  EXPECT_FALSE(run(user(), a_sign_in("ann")));
}

TEST_F(SignIns, nobody_is_called_as_the_coordinator_calls_itself) {
  SignIn command = a_sign_in("system");
  command.lab_if_new = LabId("lab-a");

  EXPECT_EQ(signed_in(command).error().code, ErrorCode::kDenied)
      << "what the coordinator did by itself would be shown as theirs";
  EXPECT_TRUE(tables.users.empty());
}

TEST_F(SignIns, when_they_have_filled_the_table_administrators_still_make_tokens) {
  add_user("ann", "lab-a");
  for (std::uint64_t i = 0; tables.tokens.size() < kMaxTokens - 1001; ++i) {
    TokenRow row;
    row.id = "t-" + std::to_string(i);
    row.secret_hash = crypto::sha256(as_bytes(row.id));
    tables.tokens[row.id] = row;
  }
  restart();

  ASSERT_TRUE(signed_in(a_sign_in("ann")));
  EXPECT_EQ(signed_in(a_sign_in("ann")).error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(run(admin(), CreateJoinToken{.lab = LabId("lab-a")}));
}

TEST_F(SignIns, old_ones_make_room_so_that_the_table_does_not_grow_with_the_days) {
  add_user("ann", "lab-a");
  const auto first = signed_in(a_sign_in("ann"));
  ASSERT_TRUE(first);
  clock.advance(std::chrono::hours(2));
  const auto second = signed_in(a_sign_in("ann"));
  EXPECT_NE(second->token.id, first->token.id) << "what was begun by it may still be there";

  clock.advance(std::chrono::hours(24 * 9));
  const auto third = signed_in(a_sign_in("ann"));
  const auto fourth = signed_in(a_sign_in("ann"));
  EXPECT_EQ(tables.tokens.size(), 3U) << "with the one that an administrator made";
  const auto is_good = [this](const TokenMade& made) {
    return core->authenticate(made.token.id, made.secret, clock.now().wall).has_value();
  };
  EXPECT_TRUE(is_good(*third));
  EXPECT_TRUE(is_good(*fourth));
  EXPECT_FALSE(is_good(*first)) << "its secret opens nothing, though its id is another one's";
  restart();
  EXPECT_TRUE(is_good(*third));
  EXPECT_FALSE(is_good(*first));
}

TEST_F(SignIns, an_id_rests_from_the_end_so_that_no_session_comes_to_life_again) {
  add_user("ann", "lab-a");
  SignIn week = a_sign_in("ann");
  week.ttl_s = 7 * 86'400;
  const auto first = signed_in(week);
  ASSERT_TRUE(first);
  clock.advance(std::chrono::hours(24 * 6));
  ASSERT_TRUE(run(admin(), RevokeToken{first->token.id}));

  clock.advance(std::chrono::hours(24 * 6));
  EXPECT_NE(signed_in(week)->token.id, first->token.id)
      << "what it had begun on its last day would count again";
  clock.advance(std::chrono::hours(24 * 4));
  EXPECT_EQ(signed_in(week)->token.id, first->token.id);
}

TEST(ToldBy, who_signed_in_hears_of_jobs_that_outlive_the_sign_in) {
  const std::int64_t day_ms = 86'400'000;
  TokenRow local;
  local.id = "t-1";
  local.expires_wall_ms = day_ms;
  EXPECT_TRUE(is_told_by(local, day_ms - 1));
  EXPECT_FALSE(is_told_by(local, day_ms));
  TokenRow signed_in = local;
  signed_in.id = "s-1";
  EXPECT_TRUE(is_told_by(signed_in, 30 * day_ms));
  EXPECT_FALSE(is_told_by(signed_in, 31 * day_ms));
  signed_in.is_revoked = true;
  EXPECT_FALSE(is_told_by(signed_in, 1));
  TokenRow join = local;
  join.kind = TokenKind::kJoin;
  EXPECT_FALSE(is_told_by(join, 1));
}

TEST_F(SignIns, who_is_an_owner_no_more_is_not_taken_for_one_by_an_old_sign_in) {
  add_user("oli", "lab-a", Role::kOwner);
  const auto made = signed_in(a_sign_in("oli"));
  ASSERT_TRUE(made);
  EXPECT_TRUE(core->is_as_in_table(made->token));

  add_user("oli", "lab-a");
  EXPECT_FALSE(core->is_as_in_table(made->token));
  add_user("oli", "lab-b", Role::kOwner);
  EXPECT_FALSE(core->is_as_in_table(made->token));
  restart();
  EXPECT_FALSE(core->is_as_in_table(made->token));
  EXPECT_TRUE(core->is_as_in_table(signed_in(a_sign_in("oli"))->token));
}

TEST_F(SignIns, nobody_fills_the_table_in_a_day) {
  add_user("ann", "lab-a");
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(signed_in(a_sign_in("ann"))) << i;

  EXPECT_EQ(signed_in(a_sign_in("ann")).error().code, ErrorCode::kExhausted);
}

}  // namespace
}  // namespace rn::coordinator
