// SPDX-License-Identifier: Apache-2.0
#include "agent/gang_link_rules.h"

#include <functional>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "checkpoint/manifest.h"

namespace rn::agent {
namespace {

constexpr LeaseEpoch kLinkEpoch{1, 3};
const NodeId kLinkHere{"n-1"};
const NodeId kLinkThere{"n-0"};

/// Rank 0 runs at kLinkThere, and asks for rank 1, which runs here.
class LinkRules : public testing::Test {
 protected:
  LinkRules() {
    guest_.name = {JobId("j-1"), kLinkEpoch};
    guest_.place = {GangId("g-1"), 1, 3, 7, {}, {}};
    guest_.members = {
        {0, JobId("j-0"), kLinkThere, "there:7445", {}},
        {1, JobId("j-1"), kLinkHere, "here:7445", {}},
        {2, JobId("j-2"), NodeId("n-2"), "elsewhere:7445", {}}};
    rules_.self = kLinkHere;
    rules_.ticket_key = coordinator_.public_key;
    rules_.now = wall_from_ms(1'000'000);
    hello_ = {kLinkProtocol, GangId("g-1"), kLinkEpoch, 0, 1, 29'500, {}};
    ticket_.job = JobId("j-1");
    ticket_.epoch = kLinkEpoch;
    ticket_.from = kLinkThere;
    ticket_.to = kLinkHere;
    ticket_.action = TicketAction::kLink;
    ticket_.expiry_wall_ms = 1'500'000;
  }

  LinkHello signed_hello() {
    hello_.ticket = checkpoint::sign_ticket(ticket_, coordinator_);
    return hello_;
  }

  /// As serve() judges it.
  Status judged(const NodeId& peer = kLinkThere) {
    const LinkHello hello = signed_hello();
    RN_CHECK(check_link_ticket(hello, peer, rules_));
    return check_link(hello, peer, guest_);
  }

  ErrorCode why(const NodeId& peer = kLinkThere) {
    const Status status = judged(peer);
    EXPECT_FALSE(status);
    return status ? ErrorCode::kInternal : status.error().code;
  }

  SeededRng rng_{5};
  crypto::SigningKey coordinator_ = crypto::make_signing_key(rng_);
  LinkTicketRules rules_;
  LinkedGuest guest_;
  LinkHello hello_;
  Ticket ticket_;
};

TEST_F(LinkRules, a_member_of_the_same_gang_and_epoch_is_let_in) {
  EXPECT_TRUE(judged());
}

TEST_F(LinkRules, a_ticket_opens_one_way_to_one_member_of_one_epoch) {
  const Ticket good = ticket_;
  const std::function<void(Ticket&)> changes[] = {
      [](Ticket& t) { t.action = TicketAction::kFetch; },
      [](Ticket& t) { t.to = NodeId("n-2"); },
      [](Ticket& t) { t.from = NodeId("n-2"); },
      [](Ticket& t) {
        t.epoch = {1, 2};
      },
      [](Ticket& t) { t.job = JobId("j-2"); },
      [](Ticket& t) { t.expiry_wall_ms = 600'000; }};
  for (const auto& change : changes) {
    ticket_ = good;
    change(ticket_);
    EXPECT_EQ(why(), ErrorCode::kDenied);
  }
}

TEST_F(LinkRules, a_ticket_that_somebody_else_has_signed_opens_nothing) {
  SeededRng other(6);
  rules_.ticket_key = crypto::make_signing_key(other).public_key;

  EXPECT_EQ(why(), ErrorCode::kDenied);
}

TEST_F(LinkRules, only_the_node_at_which_that_rank_runs_is_its_agent) {
  ticket_.from = NodeId("n-2");
  EXPECT_EQ(why(NodeId("n-2")), ErrorCode::kDenied)
      << "it has a ticket, and says that it is rank 0";

  hello_.from = 2;
  EXPECT_TRUE(judged(NodeId("n-2")));
  EXPECT_EQ(why(kLinkThere), ErrorCode::kDenied) << "another one's ticket";
}

TEST_F(LinkRules, another_epoch_gang_or_rank_is_not_reached) {
  hello_.epoch = ticket_.epoch = {1, 2};
  EXPECT_EQ(why(), ErrorCode::kConflict);

  hello_.epoch = ticket_.epoch = kLinkEpoch;
  hello_.gang = GangId("g-2");
  EXPECT_EQ(why(), ErrorCode::kDenied);

  hello_.gang = GangId("g-1");
  hello_.to = 2;
  EXPECT_EQ(why(), ErrorCode::kDenied);
}

TEST_F(LinkRules, clocks_may_differ_by_a_little) {
  ticket_.expiry_wall_ms = 1'000'000 - 299'000;

  EXPECT_TRUE(judged());
}

TEST_F(LinkRules, what_travels_is_read_as_it_was_said_and_nothing_else_is_taken) {
  const LinkHello hello = signed_hello();
  EXPECT_EQ(*decode_link_hello(encode(hello)), hello);

  const std::function<void(LinkHello&)> changes[] = {
      [](LinkHello& h) { h.gang = {}; },
      [](LinkHello& h) { h.epoch = {}; },
      [](LinkHello& h) { h.from = h.to; },
      [](LinkHello& h) { h.from = 32; },
      [](LinkHello& h) { h.to = 32; },
      [](LinkHello& h) { h.port = 0; },
      [](LinkHello& h) { h.port = 65'536; }};
  for (const auto& change : changes) {
    LinkHello bad = hello;
    change(bad);
    EXPECT_EQ(decode_link_hello(encode(bad)).error().code, ErrorCode::kInvalid);
  }
  LinkHello newer = hello;
  newer.protocol = kLinkProtocol + 1;
  EXPECT_EQ(decode_link_hello(encode(newer)).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(decode_link_hello(as_bytes("no link")).error().code, ErrorCode::kInvalid);
}

TEST(LinkEnd, a_port_that_a_cut_lets_through_is_none_of_a_links) {
  EXPECT_EQ(check_link_end("192.0.2.1:7443", {7443, 7444}).error().code, ErrorCode::kDenied);
  EXPECT_EQ(check_link_end("[2001:db8::1]:7444", {7443, 7444}).error().code, ErrorCode::kDenied);
  EXPECT_TRUE(check_link_end("192.0.2.1:7445", {7443, 7444}));
  EXPECT_TRUE(check_link_end("192.0.2.1:7443", {}));
  EXPECT_TRUE(check_link_end("no end", {0}));
}

}  // namespace
}  // namespace rn::agent
