// SPDX-License-Identifier: Apache-2.0
#include "reclaim/link_topology.h"

#include <limits>

#include <gtest/gtest.h>

#include "reclaim/link_budget.h"

namespace rn::reclaim {
namespace {

constexpr double kGigabit = 125e6;

TopologyPoint a_point(const char* name, const char* parent, double rate = kGigabit) {
  return {.name = name, .parent = parent, .up_bytes_per_s = rate, .down_bytes_per_s = rate};
}

/// Two buildings below a core; links: east 0 1, west 2 3, n-1 4 5, n-2 6 7, n-3 8 9.
std::vector<TopologyPoint> a_campus() {
  return {
      a_point("core", ""),
      a_point("east", "core"),
      a_point("west", "core"),
      a_point("n-1", "east"),
      a_point("n-2", "east"),
      a_point("n-3", "west")};
}

Error error_of(const std::vector<TopologyPoint>& points) {
  const auto made = LinkTopology::from_tree(points);
  return made ? Error{ErrorCode::kInternal, "no error"} : made.error();
}

LinkState a_plain_link(double bytes_per_s = 100) {
  LinkState link;
  link.name = "n-1 up";
  link.capacity = {{instant_from_ns(0), bytes_per_s}};
  return link;
}

Instant at_s(int value_s) {
  return Instant(seconds(value_s));
}

TEST(LinkTopology, a_path_goes_up_to_the_common_point_and_down_again) {
  const auto topology = LinkTopology::from_tree(a_campus());

  EXPECT_EQ(topology->path("n-1", "n-2").value(), (LinkPath{4, 7}));
  EXPECT_EQ(topology->path("n-1", "n-3").value(), (LinkPath{4, 0, 3, 9}));
  EXPECT_EQ(topology->path("n-3", "core").value(), (LinkPath{8, 2}));
  EXPECT_EQ(topology->links()[9].name, "n-3 down");
  EXPECT_EQ(topology->path("n-1", "n-9").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(topology->path("n-1", "n-1").error().code, ErrorCode::kInvalid);
}

TEST(LinkTopology, a_loop_an_unknown_parent_and_a_second_root_are_named) {
  auto points = a_campus();
  points[1].parent = "n-1";
  EXPECT_NE(error_of(points).message.find("a loop goes through"), std::string::npos);

  points = a_campus();
  points[5].parent = "north";
  EXPECT_EQ(error_of(points).message, "topology: n-3 hangs on north, which is not there");

  points = a_campus();
  points[2].parent = "";
  EXPECT_EQ(error_of(points).message, "topology: both core and west have no parent");

  points = a_campus();
  points[4].name = "n-1";
  EXPECT_EQ(error_of(points).message, "topology: n-1 is named twice");

  EXPECT_EQ(error_of({}).message, "topology: no point is the root");
}

TEST(LinkTopology, negative_and_absurd_rates_are_refused) {
  for (const double rate : {0.0, -1.0, 2e12, std::numeric_limits<double>::quiet_NaN()}) {
    auto points = a_campus();
    points[3].up_bytes_per_s = rate;
    EXPECT_EQ(error_of(points).code, ErrorCode::kInvalid) << rate;
    EXPECT_NE(error_of(points).message.find("n-1 has a link of"), std::string::npos) << rate;
  }
}

TEST(LinkTopology, a_tree_that_is_too_deep_or_too_large_is_refused) {
  auto points = a_campus();
  for (const auto& [name, parent] :
       {std::pair("a", "n-1"), std::pair("b", "a"), std::pair("c", "b")})
    points.push_back(a_point(name, parent));
  EXPECT_EQ(error_of(points).message, "topology: c is more than 4 links away from core");

  points = {a_point("core", "")};
  for (std::size_t i = 0; i <= kMaxLinks / 2; ++i)
    points.push_back(a_point(("n-" + std::to_string(i)).c_str(), "core"));
  EXPECT_EQ(error_of(points).code, ErrorCode::kExhausted);
}

TEST(LinkBudget, guests_leave_the_background_and_the_guard_free_outside_an_evacuation) {
  LinkState link = a_plain_link(100);
  link.background_bytes_per_s = 30;
  link.guard_bytes_per_s = 10;

  EXPECT_DOUBLE_EQ(steady_budget(link, 100), 60);
  EXPECT_DOUBLE_EQ(steady_budget(link, 35), 0);
  EXPECT_DOUBLE_EQ(evacuation_budget(link, 100), 90);
}

TEST(LinkBudget, an_evacuations_share_ends_when_its_seconds_are_over) {
  LinkState link = a_plain_link(100);
  link.background_bytes_per_s = 40;
  link.capacity.push_back({at_s(110), 50});

  const BudgetCurve curve = evacuation_curve(link, at_s(100), at_s(120));

  EXPECT_DOUBLE_EQ(curve.at(0), 90);
  EXPECT_DOUBLE_EQ(curve.at(10), 45);
  EXPECT_DOUBLE_EQ(curve.at(20), 10);
  EXPECT_DOUBLE_EQ(curve.bytes_until(25), 900 + 450 + 50);
  EXPECT_DOUBLE_EQ(curve.bytes_until(-1), 0);
}

TEST(LinkBudget, links_that_make_no_sense_are_refused_by_name) {
  const auto message_of = [](const LinkState& link) {
    const Status status = check_link(link);
    return status ? std::string("fine") : status.error().message;
  };
  EXPECT_EQ(message_of(a_plain_link()), "fine");

  LinkState link = a_plain_link();
  link.capacity.clear();
  EXPECT_EQ(message_of(link), "link n-1 up: its capacity is not said");

  link = a_plain_link();
  link.capacity.push_back({instant_from_ns(0), 5});
  EXPECT_EQ(message_of(link), "link n-1 up: the steps of its forecast are not in order");

  link = a_plain_link(-1);
  EXPECT_NE(message_of(link).find("is not between 0 and 1e12"), std::string::npos);

  link = a_plain_link();
  link.evacuation_share = 1.5;
  EXPECT_EQ(message_of(link), "link n-1 up: an evacuation's share lies between 0 and 1");

  link = a_plain_link();
  link.background_bytes_per_s = std::numeric_limits<double>::infinity();
  EXPECT_NE(message_of(link).find("background and guard"), std::string::npos);

  link = a_plain_link();
  link.probe_rtt_s = -0.1;
  EXPECT_NE(message_of(link).find("round trip"), std::string::npos);
}

}  // namespace
}  // namespace rn::reclaim
