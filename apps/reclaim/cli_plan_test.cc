// SPDX-License-Identifier: Apache-2.0
#include "cli_plan.h"

#include "cli_offers.h"
#include "cli_run_flags.h"
#include <gtest/gtest.h>

namespace rn::cli {
namespace {

api::PlanCandidate a_candidate(const char* host, PlanFit fit, std::uint32_t rank = 0) {
  api::PlanCandidate one;
  one.node = NodeId(std::string("n-") + host);
  one.lab = LabId("lab-a");
  one.hostname = host;
  one.fit = fit;
  one.rank = rank;
  one.notice_s = 60;
  one.interruptions = 0.04;
  one.stays = 0.9;
  one.stays_low = 0.81;
  one.stays_high = 0.96;
  one.reason = fit == PlanFit::kFits ? "score 0.812" : "cores busy with other jobs";
  return one;
}

api::Plan a_plan(PlanVerdict verdict) {
  api::Plan plan;
  plan.verdict = verdict;
  plan.sentence = "as nodes are";
  plan.queue_position = 1;
  plan.horizon_s = 4 * 3600;
  plan.interruptions_least = 0.04;
  plan.interruptions_most = 1.26;
  plan.notice_least_s = 60;
  plan.notice_most_s = 300;
  plan.candidates = {a_candidate("one", PlanFit::kFits, 1), a_candidate("two", PlanFit::kNotNow)};
  return plan;
}

TEST(Plan, its_verdict_is_the_exit_status_and_every_error_is_255) {
  EXPECT_EQ(exit_code_of_plan(PlanVerdict::kNow), 0);
  EXPECT_EQ(exit_code_of_plan(PlanVerdict::kWaits), 1);
  EXPECT_EQ(exit_code_of_plan(PlanVerdict::kNever), 2);
  const Client nobody(Login{"https://127.0.0.1:1", "secret", std::string(64, 'a')});
  PlanOptions senseless;
  senseless.spec.command = {"true"};
  senseless.spec.priority = 8;
  PlanOptions sensible;
  sensible.spec.command = {"true"};
  testing::internal::CaptureStderr();

  EXPECT_EQ(plan(nobody, senseless), 255);
  EXPECT_EQ(plan(nobody, sensible), 255);

  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("priority: expected 0"), std::string::npos) << said;
  EXPECT_NE(said.find("127.0.0.1"), std::string::npos) << said;
}

TEST(Plan, a_job_that_starts_now_is_told_with_its_figures) {
  api::Plan plan = a_plan(PlanVerdict::kNow);
  plan.starts_in_s = 12;
  plan.notice_wanted_s = 300;

  EXPECT_EQ(
      words_of_plan(plan),
      "starts now: as nodes are\n"
      "  expected start  in about 12 s, as starts on lab-a/one took lately\n"
      "  interruptions   0.04 to 1.3 expected in 4.0 h of running\n"
      "  notice          60 to 300 s before a reclaim, 300 s asked for\n"
  );
  EXPECT_EQ(next_after_plan(plan, "train.yaml"), "'reclaim submit train.yaml'");
  EXPECT_EQ(next_after_plan(plan, ""), "'reclaim run' with the same flags and a command");
}

TEST(Plan, a_job_that_would_wait_is_told_when_as_far_as_that_is_known) {
  api::Plan plan = a_plan(PlanVerdict::kWaits);
  plan.is_horizon_assumed = true;
  plan.interruptions_most = plan.interruptions_least;
  EXPECT_EQ(
      words_of_plan(plan),
      "would wait, as number 1 in the queue: as nodes are\n"
      "  expected start  not known: nothing says when a node can take it\n"
      "  interruptions   0.04 expected in 4.0 h, which is assumed: it does not say how long it may "
      "run\n"
      "  notice          60 to 300 s before a reclaim\n"
  );

  plan.starts_in_s = 550;
  plan.queue_position = 3;
  EXPECT_NE(
      words_of_plan(plan).find("in about 9 min, if nobody who waits before it takes the place\n"),
      std::string::npos
  ) << words_of_plan(plan);
}

TEST(Plan, a_job_that_can_never_run_has_no_figures_and_is_told_what_to_do) {
  api::Plan plan = a_plan(PlanVerdict::kNever);
  EXPECT_EQ(words_of_plan(plan), "can never run here: as nodes are\n");
  EXPECT_NE(next_after_plan(plan, "").find("ask for less"), std::string::npos);
  plan.candidates.clear();
  EXPECT_EQ(next_after_plan(plan, ""), "lend a machine: reclaim token create --lab LAB");
}

TEST(Plan, what_similar_jobs_used_is_told_with_how_many_there_were) {
  api::Plan plan = a_plan(PlanVerdict::kNow);
  plan.is_horizon_assumed = plan.is_horizon_estimated = true;
  api::PlanEstimate took{.of = Estimated::kDuration, .likeness = Likeness::kCommand};
  took.jobs = 120;
  took.share = 0.9;
  took.low = 1200;
  took.high = 4 * 3600;
  api::PlanEstimate saved{.of = Estimated::kCheckpoint};
  saved.jobs = 7;
  saved.jobs_needed = 19;
  api::PlanEstimate held{.of = Estimated::kMemory, .likeness = Likeness::kUserAndImage};
  held.jobs = 19;
  held.share = 0.9;
  held.low = 512;
  held.high = 2048;
  api::PlanEstimate on_gpus{.of = Estimated::kGpuMemory};
  on_gpus.jobs_needed = 19;
  plan.estimates = {took, saved, held, on_gpus};

  const std::string words = words_of_plan(plan);
  EXPECT_NE(
      words.find(
          "expected in 4.0 h, the upper end of what similar jobs took: it does not say how long it "
          "may run\n"
      ),
      std::string::npos
  ) << words;
  EXPECT_TRUE(words.ends_with(
      "  run time        similar jobs took 20 min to 4.0 h (9 of 10 of 120 jobs: yours, of this "
      "image and command)\n"
      "  checkpoint      not enough history: 7 jobs that ended well tell it, and 19 are needed\n"
      "  memory          similar jobs held 512.0 MiB to 2.0 GiB (9 of 10 of 19 jobs: yours, of "
      "this "
      "image)\n"
  )) << words;
}

TEST(Plan, each_node_is_listed_with_its_reason_and_strange_names_are_printable) {
  api::Plan plan = a_plan(PlanVerdict::kNow);
  plan.candidates[0].starts_in_s = 12;
  plan.candidates[1].leaves_in_s = 1800;
  plan.candidates[1].hostname = "two\x1b[2J";

  EXPECT_EQ(
      table_of_plan(plan),
      "NODE   HOST        LAB    FIT      START  INTERRUPTIONS  UNDISTURBED          NOTICE  LEAVES"
      "     WHY\n"
      "n-one  one         lab-a  fits, 1  12 s   0.04           90 % (81 % to 96 %)  60 s    -"
      "          score 0.812\n"
      "n-two  two\\x1b[2J  lab-a  not now  -      0.04           90 % (81 % to 96 %)  60 s    in "
      "30 "
      "min  cores busy with other jobs\n"
  );
}

TEST(Plan, its_flags_are_those_of_run_that_say_where_a_job_may_run) {
  CLI::App of_plan;
  CLI::App of_run;
  RunFlags flags;
  RunFlags others;
  add_place_flags(of_plan, flags);
  add_run_flags(of_run, others);
  for (const CLI::Option* option : of_plan.get_options())
    EXPECT_NE(of_run.get_option_no_throw(option->get_name()), nullptr) << option->get_name();
  EXPECT_EQ(of_plan.get_option_no_throw("--env"), nullptr);
  std::vector<std::string> words = {"2h", "--max-duration", "24GB:2", "--gpu"};  // last first
  of_plan.parse(words);

  const auto spec = spec_of(flags);
  ASSERT_TRUE(spec) << spec.error().describe();
  EXPECT_EQ(spec->resources.gpus, 2U);
  EXPECT_EQ(spec->max_duration_s, 7200U);
}

// ---- what is lent

api::NodeInfo a_lender(const char* host, std::uint32_t gpus) {
  api::NodeInfo node;
  node.id = NodeId(std::string("n-") + host);
  node.lab = LabId("lab-a");
  node.is_connected = true;
  node.facts.hostname = host;
  node.facts.cpu_milli = 8000;
  node.facts.memory_mib = 64 * 1024;
  node.contract.notice_s = 120;
  node.stays_1h = 0.97;
  node.stays_8h = 0.8;
  for (std::uint32_t i = 0; i < gpus; ++i) {
    node.facts.gpus.push_back({.index = i, .memory_mib = 24 * 1024});
    node.telemetry.gpus.push_back({.index = i});
  }
  return node;
}

std::vector<std::string> hosts_of(const OfferList& list) {
  std::vector<std::string> hosts;
  for (const Offer& offer : list.offers) hosts.push_back(offer.host);
  return hosts;
}

TEST(Offers, of_what_is_lent_it_is_said_what_is_free) {
  api::NodeInfo node = a_lender("one", 4);
  node.contract.gpus = {0, 1, 2};
  node.contract.guest_cpu_milli = 6000;
  node.telemetry.gpus[2].foreign_processes = 1;
  node.telemetry.gpus[3].foreign_processes = 1;  // not lent
  node.used_gpus = 1;
  node.used_cpu_milli = 1500;
  node.used_memory_mib = 8 * 1024;
  node.leaves_in_s = 90;
  const Offer offer = offers_of({{node}}, 0, 0, 1'000'000).offers.at(0);

  EXPECT_EQ(offer.gpus, 3U);
  EXPECT_EQ(offer.gpus_free, 1U);
  EXPECT_EQ(offer.gpu_memory_mib, 24U * 1024);
  EXPECT_EQ(offer.cpu_milli_free, 4500U);
  EXPECT_EQ(offer.memory_mib, 48U * 1024);
  EXPECT_EQ(offer.memory_mib_free, 40U * 1024);
  EXPECT_EQ(offer.until_wall_ms, 1'090'000);

  node.contract.idle.foreign_vram_mib = 500;
  EXPECT_EQ(offers_of({{node}}, 0, 0, 0).offers.at(0).gpus_free, 2U) << "its owner tolerates it";
  node.used_gpus = 9;
  EXPECT_EQ(offers_of({{node}}, 0, 0, 0).offers.at(0).gpus_free, 0U);
}

TEST(Offers, only_nodes_that_take_guests_now_are_listed_the_freest_first) {
  api::NodeInfo busy = a_lender("busy", 2);
  busy.used_gpus = 2;
  api::NodeInfo closed = a_lender("closed", 2);
  closed.lending = LendingState::kOutsideWindow;
  api::NodeInfo away = a_lender("away", 2);
  away.is_connected = false;
  api::NodeInfo store = a_lender("store", 2);
  store.contract.lends = false;
  api::NodeInfo gone = a_lender("gone", 2);
  gone.is_revoked = true;
  api::NodeInfo sure = a_lender("sure", 2);
  sure.stays_8h = 0.9;
  const api::NodeList site{{busy, closed, away, store, gone, a_lender("one", 2), sure}};

  EXPECT_EQ(hosts_of(offers_of(site, 0, 0, 0)), (std::vector<std::string>{"sure", "one", "busy"}));
  EXPECT_EQ(
      words_of_no_offer({{closed, away, store, gone}}, true),
      "nothing is lent now: 1 away, 1 only stores copies, 1 outside_window"
  );
  EXPECT_EQ(words_of_no_offer({{busy}}, false), "no such GPUs are lent now: 1 with other GPUs");
  EXPECT_EQ(words_of_no_offer({}, true), "nothing is lent: no node has joined yet");
}

TEST(Offers, who_asks_for_gpus_sees_nodes_that_lend_so_many_that_are_big_enough) {
  api::NodeInfo mixed = a_lender("mixed", 2);
  mixed.facts.gpus[1].memory_mib = 80 * 1024;
  const api::NodeList site{{a_lender("none", 0), a_lender("one", 1), mixed}};

  EXPECT_EQ(hosts_of(offers_of(site, 1, 0, 0)), (std::vector<std::string>{"mixed", "one"}));
  EXPECT_EQ(hosts_of(offers_of(site, 2, 0, 0)), (std::vector<std::string>{"mixed"}));
  EXPECT_EQ(hosts_of(offers_of(site, 1, 40 * 1024, 0)), (std::vector<std::string>{"mixed"}));
  EXPECT_EQ(hosts_of(offers_of(site, 2, 40 * 1024, 0)), (std::vector<std::string>{}));
}

TEST(Offers, a_table_says_until_when_with_which_notice_and_for_whom) {
  api::NodeInfo node = a_lender("one", 1);
  node.leaves_in_s = 3 * 3600;
  node.contract.allow_labs = {"lab-b", "lab-c"};
  node.contract.allow_users = {"ada"};
  node.facts.data_sets = {"digits"};

  EXPECT_EQ(
      table_of_offers(offers_of({{node, a_lender("two", 0)}}, 0, 0, 5000), 5000),
      "NODE   HOST  LAB    FREE GPUS          FREE CORES  FREE MEMORY           NOTICE  UNTIL   "
      "STAYS 1 H  STAYS 8 H  FOR                          DATA\n"
      "n-one  one   lab-a  1 of 1 x 24.0 GiB  8.0 of 8.0  48.0 GiB of 48.0 GiB  120 s   in 3 h  "
      "97 %       80 %       labs lab-b,lab-c; users ada  digits\n"
      "n-two  two   lab-a  -                  8.0 of 8.0  48.0 GiB of 48.0 GiB  120 s   -       "
      "97 %       80 %       all                          -\n"
  );
}

}  // namespace
}  // namespace rn::cli
