// SPDX-License-Identifier: Apache-2.0
#include "arbiter/contract_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rn::arbiter {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

NodeFacts a_machine() {
  NodeFacts facts;
  facts.cpu_milli = 4000;
  facts.memory_mib = 8192;
  facts.disk_mib = 100'000;
  facts.gpus = {Gpu{0, "GPU-0", "RTX", 24'000, "8.6"}, Gpu{1, "GPU-1", "RTX", 24'000, "8.6"}};
  return facts;
}

std::vector<std::string> problems(const Contract& contract) {
  return problems_of(contract, a_machine());
}

TEST(ContractRules, the_default_contract_is_good) {
  EXPECT_THAT(problems(Contract{}), IsEmpty());
  EXPECT_THAT(problems_of(Contract{}, NodeFacts{}), IsEmpty());
  EXPECT_TRUE(check_contract(Contract{}, a_machine()));
}

TEST(ContractRules, a_window_that_never_opens_is_refused) {
  Contract contract;
  contract.windows = {{{"mon"}, "08:00", "08:00"}};

  EXPECT_THAT(problems(contract), ElementsAre(HasSubstr("windows[0]: from and to are both 08:00")));
}

TEST(ContractRules, a_notice_longer_than_its_window_is_refused_with_what_to_change) {
  Contract contract;
  contract.windows = {{{"mon", "wed"}, "08:00", "08:10"}};
  contract.notice_s = 900;

  EXPECT_THAT(
      problems(contract),
      ElementsAre(AllOf(
          HasSubstr("windows[0]: lends for 600 s from mon 08:00 on"),
          HasSubstr("a notice of 900 s"),
          HasSubstr("make the window longer than the notice by a minute at least")
      ))
  );
  contract.notice_s = 600;
  EXPECT_THAT(problems(contract), ElementsAre(HasSubstr("windows[0]"))) << "closing from the first";
  contract.notice_s = 541;
  EXPECT_THAT(problems(contract), ElementsAre(HasSubstr("windows[0]"))) << "less than a minute";
  contract.notice_s = 540;
  EXPECT_THAT(problems(contract), IsEmpty());
  contract.notice_s = 900;
  contract.lends = false;
  EXPECT_THAT(problems(contract), IsEmpty()) << "no guest comes, and none needs notice";
}

TEST(ContractRules, windows_of_a_gpu_that_is_there_and_lent_are_good) {
  Contract contract;
  contract.gpu_windows = {{1, {{{}, "20:00", "08:00"}}, {"2026-12-24"}}};
  EXPECT_THAT(problems(contract), IsEmpty());
  contract.gpus = {1};
  EXPECT_THAT(problems(contract), IsEmpty());
}

TEST(ContractRules, windows_of_a_gpu_that_is_not_there_or_not_lent_are_refused) {
  Contract contract;
  contract.gpu_windows = {{2, {{{}, "20:00", "08:00"}}, {}}};
  EXPECT_THAT(
      problems(contract),
      ElementsAre(HasSubstr("gpu_windows[0].gpu: the machine has no GPU 2 (it has 2)"))
  );
  EXPECT_THAT(problems_of(contract, NodeFacts{}), IsEmpty()) << "not known yet";
  contract.gpu_windows[0].gpu = 64;
  EXPECT_THAT(problems(contract), ElementsAre(HasSubstr("above 63")));
  contract.gpu_windows[0].gpu = 0;
  contract.gpus = {1};
  EXPECT_THAT(problems(contract), ElementsAre(HasSubstr("GPU 0 is not lent (gpus)")));
}

TEST(ContractRules, a_gpu_has_its_windows_once_and_has_some) {
  Contract contract;
  contract.gpu_windows = {{1, {{{}, "20:00", "08:00"}}, {}}, {1, {{{}, "12:00", "13:00"}}, {}}};
  EXPECT_THAT(
      problems(contract), ElementsAre(HasSubstr("gpu_windows[1].gpu: GPU 1 has windows twice"))
  );
  contract.gpu_windows = {{1, {}, {}}};
  EXPECT_THAT(
      problems(contract), ElementsAre(HasSubstr("gpu_windows[0].windows: say when GPU 1 is lent"))
  );
}

TEST(ContractRules, a_gpus_windows_are_longer_than_the_notice_and_can_be_read) {
  Contract contract;
  contract.notice_s = 600;
  contract.gpu_windows = {{1, {{{}, "12:00", "12:10"}}, {}}};
  EXPECT_THAT(
      problems(contract),
      ElementsAre(HasSubstr("gpu_windows[0].windows[0]: lends for 600 s from mon 12:00 on"))
  );
  contract.gpu_windows = {{1, {{{"someday"}, "12:00", "25:00"}}, {"christmas"}}};
  EXPECT_THAT(
      problems(contract),
      ElementsAre(
          HasSubstr("gpu_windows[0].windows[0].days: \"someday\""),
          HasSubstr("gpu_windows[0].windows[0].to: \"25:00\""),
          HasSubstr("gpu_windows[0].holidays: \"christmas\"")
      )
  );
}

TEST(ContractRules, hours_of_a_gpu_that_lie_beside_those_of_the_machine_are_refused) {
  Contract contract;
  contract.windows = {{{}, "20:00", "08:00"}};
  contract.gpu_windows = {{1, {{{}, "09:00", "18:00"}}, {}}};
  EXPECT_THAT(
      problems(contract),
      ElementsAre(HasSubstr("gpu_windows[0].windows: GPU 1 is lent while the machine is, which is "
                            "for 0 s on end at most"))
  );
  contract.gpu_windows[0].windows[0].to = "20:01";
  EXPECT_THAT(problems(contract), ElementsAre(HasSubstr("for 60 s on end"))) << "all of it notice";
  contract.gpu_windows[0].windows[0].to = "20:02";
  EXPECT_THAT(problems(contract), IsEmpty());
}

TEST(ContractRules, windows_that_touch_are_one_for_the_notice) {
  Contract contract;
  contract.notice_s = 900;
  contract.windows = {{{"sun"}, "23:50", "24:00"}, {{"mon"}, "00:00", "06:00"}};
  EXPECT_THAT(problems(contract), IsEmpty());

  contract.windows = {{{}, "08:00", "12:00"}, {{"fri"}, "11:55", "12:00"}};
  EXPECT_THAT(problems(contract), IsEmpty()) << "the second lends nothing that the first does not";

  contract.windows = {
      {{}, "22:00", "06:00"}, {{"sat"}, "23:55", "00:05"}, {{"tue"}, "12:00", "12:05"}};
  EXPECT_THAT(
      problems(contract), ElementsAre(HasSubstr("windows[2]: lends for 300 s from tue 12:00"))
  );
}

TEST(ContractRules, a_rate_that_no_line_has_is_refused_with_the_bounds) {
  for (const std::uint64_t bps :
       {std::uint64_t{1}, std::uint64_t{999'999}, std::uint64_t{1'000'000'000'001}, UINT64_MAX}) {
    Contract contract;
    contract.uplink_bps_normal = contract.uplink_bps_evacuation = bps;

    const auto said = " bits a second is no rate from 1000000 (1 Mbit/s) to 1000000000000";
    EXPECT_THAT(
        problems(contract),
        ElementsAre(
            AllOf(HasSubstr("uplink_bps_normal: " + std::to_string(bps)), HasSubstr(said)),
            AllOf(HasSubstr("uplink_bps_evacuation: " + std::to_string(bps)), HasSubstr(said))
        )
    );
  }
  Contract contract;
  contract.uplink_bps_normal = 1'000'000;
  contract.uplink_bps_evacuation = 1'000'000'000'000;
  EXPECT_THAT(problems(contract), IsEmpty());
}

TEST(ContractRules, unreadable_windows_and_dates_name_the_place) {
  Contract contract;
  contract.windows = {{{"mo"}, "25:00", "9:00"}};
  contract.holidays = {"24.12.2026"};

  EXPECT_THAT(
      problems(contract),
      ElementsAre(
          HasSubstr("windows[0].days: \"mo\""),
          HasSubstr("windows[0].from: \"25:00\""),
          HasSubstr("windows[0].to: \"9:00\""),
          HasSubstr("holidays: \"24.12.2026\"")
      )
  );
}

TEST(ContractRules, lending_with_no_guest_places_contradicts_itself) {
  Contract contract;
  contract.max_guests = 0;

  EXPECT_THAT(problems(contract), ElementsAre(HasSubstr("max_guests: is 0 though lends is true")));
  contract.lends = false;
  EXPECT_THAT(problems(contract), IsEmpty());
}

TEST(ContractRules, an_evacuation_slower_than_normal_copying_contradicts_itself) {
  Contract contract;
  contract.uplink_bps_normal = 100'000'000;
  contract.uplink_bps_evacuation = 10'000'000;

  EXPECT_THAT(problems(contract), ElementsAre(HasSubstr("uplink_bps_evacuation")));
}

TEST(ContractRules, one_guest_cannot_have_more_than_all_together) {
  Contract contract;
  contract.guest_cpu_milli = 500;
  contract.guest_cpu_each_milli = 600;

  EXPECT_THAT(
      problems(contract),
      ElementsAre(HasSubstr("guest_cpu_each_milli: one guest may have 600, all together only 500"))
  );
}

TEST(ContractRules, more_than_the_machine_has_is_refused) {
  Contract contract;
  contract.guest_cpu_milli = 8000;
  contract.guest_memory_mib = 9000;
  contract.reserve_disk_mib = 200'000;
  contract.gpus = {1, 2, 1};

  EXPECT_THAT(
      problems(contract),
      ElementsAre(
          HasSubstr("gpus: 2 is lent, but the machine has no such GPU (it has 2)"),
          HasSubstr("gpus: 1 is named twice"),
          HasSubstr("guest_cpu_milli: lends 8000, the machine has 4000"),
          HasSubstr("guest_memory_mib"),
          HasSubstr("reserve_disk_mib")
      )
  );
}

TEST(ContractRules, a_gpu_above_the_last_that_a_kill_order_can_name_is_refused) {
  Contract contract;
  contract.gpus = {64, 1};

  const std::string said = "gpus: 64 is above 63, the last that a node can lend";
  EXPECT_THAT(problems(contract), ElementsAre(said));
}

TEST(ContractRules, a_notice_above_fifteen_minutes_is_refused) {
  Contract contract;
  contract.notice_s = 901;

  EXPECT_THAT(problems(contract), ElementsAre(HasSubstr("notice_s")));
}

TEST(ContractRules, images_and_networks_must_be_readable) {
  Contract contract;
  contract.allow_images = {"debian:12"};
  contract.network = {
      {"10.1.2.0/33", 0, "any"}, {"fd00::/8", 80, "any"}, {"10.0.0.1", 70000, "sctp"}};

  EXPECT_THAT(
      problems(contract),
      ElementsAre(
          HasSubstr("allow_images: \"debian:12\""),
          HasSubstr("network[0].prefix"),
          HasSubstr("network[1].port: a port needs"),
          HasSubstr("network[2].port: is above 65535"),
          HasSubstr("network[2].protocol")
      )
  );
}

TEST(ContractRules, a_wanted_peer_is_opened_only_by_an_entry_that_contains_it) {
  const std::vector<NetworkAllow> open = {{"10.1.0.0/16", 0, "udp"}, {"fd00::/8", 443, "tcp"}};

  EXPECT_TRUE(is_opened({"10.1.2.3", 9, "udp"}, open));
  EXPECT_TRUE(is_opened({"10.1.2.0/24", 0, "udp"}, open));
  EXPECT_FALSE(is_opened({"10.1.2.3", 9, "any"}, open));
  EXPECT_FALSE(is_opened({"10.2.2.3", 9, "udp"}, open));
  EXPECT_FALSE(is_opened({"10.0.0.0/8", 9, "udp"}, open));
  EXPECT_TRUE(is_opened({"fd12::1", 443, "tcp"}, open));
  EXPECT_FALSE(is_opened({"fd12::1", 0, "tcp"}, open));
  EXPECT_FALSE(is_opened({"nonsense", 443, "tcp"}, open));
}

TEST(ContractRules, the_error_names_every_problem_and_says_that_the_old_one_stays) {
  Contract contract;
  contract.notice_s = 1000;
  contract.max_pids = 1;

  const Status status = check_contract(contract, a_machine());

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(status.error().message, HasSubstr("notice_s"));
  EXPECT_THAT(status.error().message, HasSubstr("max_pids"));
  EXPECT_THAT(status.error().hint, HasSubstr("stays in force"));
}

}  // namespace
}  // namespace rn::arbiter
