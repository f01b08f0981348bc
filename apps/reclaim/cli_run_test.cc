// SPDX-License-Identifier: Apache-2.0
#include "cli_run.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <thread>

#include "cli_commands.h"
#include "cli_live.h"
#include "cli_offers.h"
#include "cli_plan.h"
#include "cli_site_fixture.h"
#include "cli_top.h"
#include "cli_upload.h"
#include <gtest/gtest.h>

#include "coordinator/daemon_finishing_agent.h"
#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_live_agent.h"
#include "model/codec_detail.h"

namespace rn::cli {
namespace {

using coordinator::LiveSite;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CliRun, a_run_uploads_streams_brings_outputs_and_logs_home_and_exits_as_the_job_did) {
  const LiveSite site;
  const std::string image = site.add_base_image();
  const std::string weights(kPieceBytes + 3, 'w');
  Listing outputs;
  outputs.files.push_back(
      {.path = "model/final.pt",
       .bytes = weights.size(),
       .blobs =
           {*digest_from_hex(site.put(weights.substr(0, kPieceBytes))),
            *digest_from_hex(site.put("www"))}}
  );
  coordinator::FinishingAgent agent(site, image, outputs);
  const ScratchFolder folder;
  std::ofstream(folder.path() + "/train.py") << "torch.save(x, 'checkpoint.pt')\n";
  RunOptions options;
  options.spec.command = {"python3", "train.py"};
  options.folder = folder.path();

  const int code = run_job(client_of(site, site.admin()), options);
  agent.stop();

  EXPECT_EQ(code, 0);
  EXPECT_EQ(text_of(folder.path() + "/model/final.pt"), weights);
  std::size_t logs = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder.path() + "/.reclaim")) {
    if (entry.path().filename() != "attempt-1.log") continue;
    ++logs;
    EXPECT_EQ(text_of(entry.path()), "hello from the guest\n");
  }
  EXPECT_EQ(logs, 1u);
}

TEST(CliRun, errors_have_their_exit_codes) {
  const LiveSite site;
  const Client admin = client_of(site, site.admin());
  const Client stranger = client_of(
      site, "rnu1.t-1." + std::string(64, '0') + "." + fingerprint_in_token(site.admin())
  );
  RunOptions off_list;
  off_list.spec.command = {"true"};
  off_list.uploads = false;

  EXPECT_EQ(why(admin, "99", false), 3);
  EXPECT_EQ(ps(stranger, {}), 4);
  EXPECT_NE(run_job(admin, off_list), 0);
  EXPECT_EQ(copy(admin, "no-colon", "."), 2);
  EXPECT_EQ(nodes(admin, true), 0);
}

TEST(CliRun, nothing_is_uploaded_for_an_image_that_is_not_listed) {
  const LiveSite site;
  site.add_base_image();
  const ScratchFolder folder;
  std::ofstream(folder.path() + "/train.py") << "print(1)\n";
  const auto is_there = [&] {
    const auto name = to_hex(crypto::sha256(as_bytes("print(1)\n")));
    return site.call("GET", "/v1/blobs/" + name).status == 200;
  };
  RunOptions options;
  options.spec.command = {"python3", "train.py"};
  options.folder = folder.path();
  options.is_detached = true;
  options.spec.image = "bass";

  testing::internal::CaptureStderr();
  EXPECT_EQ(run_job(client_of(site, site.admin()), options), 4);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("'bass' is not on the allow list\n  next: allowed images: base;"), said.npos)
      << said;
  EXPECT_FALSE(is_there());

  options.spec.image = "base";
  EXPECT_EQ(run_job(client_of(site, site.admin()), options), 0);
  EXPECT_TRUE(is_there());
}

TEST(CliRun, nothing_is_uploaded_of_a_whole_home_folder) {
  const LiveSite site;
  site.add_base_image();
  const ScratchFolder home;
  std::ofstream(home.path() + "/secret") << "a private key\n";
  const auto is_there = [&] {
    const auto name = to_hex(crypto::sha256(as_bytes("a private key\n")));
    return site.call("GET", "/v1/blobs/" + name).status == 200;
  };
  RunOptions options;
  options.spec.command = {"true"};
  options.folder = home.path();
  options.is_detached = true;
  const char* const own = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe): a test's own
  const std::string before = own == nullptr ? "" : own;
  ASSERT_EQ(::setenv("HOME", home.path().c_str(), 1), 0);

  testing::internal::CaptureStderr();
  EXPECT_EQ(run_job(client_of(site, site.admin()), options), 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("is your home folder, and all of it would be uploaded"), said.npos) << said;
  EXPECT_FALSE(is_there());
  options.uploads = false;
  EXPECT_EQ(run_job(client_of(site, site.admin()), options), 0) << "none of it";
  options.uploads = true;
  std::ofstream(home.path() + "/.reclaimignore") << "secret\n";
  EXPECT_EQ(run_job(client_of(site, site.admin()), options), 0) << "it says what stays";

  EXPECT_FALSE(is_there());
  ASSERT_EQ(before.empty() ? ::unsetenv("HOME") : ::setenv("HOME", before.c_str(), 1), 0);
}

TEST(CliRun, an_array_is_one_job_for_each_task_and_is_stopped_as_a_whole) {
  const LiveSite site;
  site.add_base_image();
  const Client admin = client_of(site, site.admin());
  RunOptions options;
  options.spec.command = {"true"};
  options.uploads = false;

  testing::internal::CaptureStdout();
  EXPECT_EQ(submit_array(admin, options, {.indices = {3, 4, 9}, .at_most = 2}), 0);
  std::string id = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(id.starts_with("a-") && id.ends_with('\n')) << id;
  id.pop_back();
  const auto list = admin.get_as<api::JobList>("/v1/jobs");
  ASSERT_TRUE(list) << list.error().describe();
  ASSERT_EQ(list->jobs.size(), 3u);
  const Job& last = list->jobs.front();
  EXPECT_EQ(last.spec.env.at("SLURM_ARRAY_TASK_ID"), "9");
  EXPECT_EQ(last.array, (ArrayTask{id, 9, 3, 2, list->jobs.back().number}));

  testing::internal::CaptureStdout();
  EXPECT_EQ(stop_jobs(admin, {.jobs = {id}}), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), id + " 3 jobs stopping, 0 were over\n");
  EXPECT_TRUE(admin.get_as<api::JobList>("/v1/jobs")->jobs.empty());
  EXPECT_EQ(stop_jobs(admin, {.jobs = {"a-none"}}), 3);
}

TEST(CliRun, members_of_a_gang_are_shown_with_their_rank_and_stopped_as_a_whole) {
  const LiveSite site;
  site.add_base_image();
  const Client admin = client_of(site, site.admin());
  api::GangRequest request;
  request.spec.name = "train";
  request.spec.command = {"true"};
  request.size = 3;
  const auto made = [&] {
    return admin.send_as<api::GangAnswer>("POST", "/v1/gangs", to_json(request)).value();
  };
  const auto said = [](const std::function<int()>& command) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(command(), 0);
    return testing::internal::GetCapturedStdout();
  };

  const api::GangAnswer first = made();
  const std::string id = first.gang.str();
  const std::string list = said([&] { return ps(admin, {}); });
  EXPECT_NE(list.find("train/2"), std::string::npos) << list;
  const std::string shown =
      said([&] { return show_job(admin, first.members.at(2).job.str(), false); });
  EXPECT_NE(shown.find(id + ", member 2 of 3"), std::string::npos) << shown;
  EXPECT_EQ(said([&] { return stop_jobs(admin, {.jobs = {id}}); }), id + " over\n");
  EXPECT_TRUE(admin.get_as<api::JobList>("/v1/jobs")->jobs.empty());

  const api::GangAnswer second = made();
  const std::string stopped =
      said([&] { return stop_jobs(admin, {.jobs = {second.members.front().job.str()}}); });
  EXPECT_NE(stopped.find("with all members of gang " + second.gang.str()), std::string::npos)
      << stopped;
  EXPECT_TRUE(admin.get_as<api::JobList>("/v1/jobs")->jobs.empty());
  EXPECT_EQ(stop_jobs(admin, {.jobs = {"g-none"}}), 3);
}

TEST(CliRun, jobs_of_one_file_have_files_of_their_own_and_all_know_the_first) {
  const LiveSite site;
  site.add_base_image();
  const Client admin = client_of(site, site.admin());
  const ScratchFolder folder;
  for (const char* name : {"/a.csv", "/b.csv"}) std::ofstream(folder.path() + name) << name;
  std::vector<RunOptions> jobs(3);
  for (RunOptions& one : jobs) {
    one.spec.command = {"true"};
    one.folder = folder.path();
    one.inputs = {{folder.path() + "/a.csv", "in.csv", false}};
  }
  jobs[2].inputs[0].from = folder.path() + "/b.csv";

  testing::internal::CaptureStdout();
  EXPECT_EQ(submit_series(admin, jobs, "FIRST"), 0);
  std::istringstream ids(testing::internal::GetCapturedStdout());
  std::vector<Job> made;
  for (std::string id; std::getline(ids, id);) made.push_back(*admin.get_as<Job>("/v1/jobs/" + id));

  ASSERT_EQ(made.size(), 3u);
  EXPECT_EQ(made[2].spec.env.at("FIRST"), std::to_string(made[0].number));
  EXPECT_FALSE(made[0].spec.env.contains("FIRST"));
  EXPECT_NE(made[0].spec.workspace, Digest{});
  EXPECT_EQ(made[1].spec.workspace, made[0].spec.workspace);
  EXPECT_NE(made[2].spec.workspace, made[0].spec.workspace);

  jobs[1].inputs[0].from = folder.path() + "/gone.csv";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(submit_series(admin, jobs, "FIRST"), 3);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(testing::internal::GetCapturedStdout(), "") << "the first one is there";
  EXPECT_NE(said.find("jobs 1 to 2 of the file are not submitted: "), said.npos) << said;
}

TEST(CliNodes, a_node_that_is_away_is_listed_and_revoked_by_its_hostname_when_that_is_confirmed) {
  const LiveSite site;
  const Client admin = client_of(site, site.admin());
  const auto joined = coordinator::join_light_agent(
      site.url(), site.make_token(R"({"kind": "join", "lab": "lab-a"})"), "machine-1"
  );
  ASSERT_TRUE(joined) << joined.error().describe();
  const auto is_revoked = [&] {
    return admin.get_as<api::NodeInfo>("/v1/nodes/" + joined->node.str())->is_revoked;
  };
  testing::internal::CaptureStdout();
  EXPECT_EQ(nodes(admin, false), 0);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_EQ(shown[shown.find('\n') + 1 + shown.find("GUESTS")], '-') << shown;
  std::string asked;
  RevokeNodeOptions options{"light-machine-1", false, [&](const std::string& question) {
                              asked = question;
                              return false;
                            }};

  EXPECT_EQ(revoke_node(admin, options), 5);
  EXPECT_NE(asked.find(joined->node.str() + " (light-machine-1, lab lab-a)"), std::string::npos);
  EXPECT_NE(asked.find("no job that you may see runs there"), std::string::npos);
  EXPECT_FALSE(is_revoked());

  options.confirms = [](const std::string&) { return true; };
  EXPECT_EQ(revoke_node(admin, options), 0);
  EXPECT_TRUE(is_revoked());

  options.node = joined->node.str();
  options.confirms = [](const std::string&) -> bool {
    ADD_FAILURE() << "nothing is left to confirm";
    return false;
  };
  EXPECT_EQ(revoke_node(admin, options), 0) << "it is already";
  options.node = "light-machine-1";
  EXPECT_EQ(revoke_node(admin, options), 3) << "a name is that of a node that is there";
}

TEST(CliNodes, what_is_expected_of_a_nodes_owner_is_explained_by_its_hostname) {
  const LiveSite site;
  const Client admin = client_of(site, site.admin());
  ASSERT_TRUE(coordinator::join_light_agent(
      site.url(), site.make_token(R"({"kind": "join", "lab": "lab-a"})"), "machine-1"
  ));

  testing::internal::CaptureStdout();
  EXPECT_EQ(node_hazard(admin, "light-machine-1", false), 0);
  const std::string words = testing::internal::GetCapturedStdout();
  for (const char* said :
       {"taken back within 5 min",
        "within 8.0 h",
        "n = 0 departures in 0 s lent",
        "the prior stands for it, one departure in 35.0 h"})
    EXPECT_NE(words.find(said), std::string::npos) << said << " in:\n" << words;

  testing::internal::CaptureStdout();
  EXPECT_EQ(node_hazard(admin, "light-machine-1", true), 0);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("\"reclaimed_within\""), std::string::npos);
  EXPECT_EQ(node_hazard(admin, "nobody", false), 3);
}

/// What a command says, with its exit status in front.
template <class Command>
std::string said_by(Command command) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = command();
  const std::string errors = testing::internal::GetCapturedStderr();
  return std::to_string(status) + ": " + testing::internal::GetCapturedStdout() + errors;
}

TEST(CliPlan, its_exit_status_says_whether_a_job_would_start_wait_or_never_run) {
  const LiveSite site;
  coordinator::LightAgent::Behaviour behaviour;
  behaviour.image_digest = site.add_base_image();
  const Client viewer = client_of(
      site, site.make_token(R"({"kind": "user", "user": "vi", "lab": "lab-v", "role": "viewer"})")
  );
  PlanOptions options;
  options.spec.command = {"true"};
  const auto said = [&] { return said_by([&] { return plan(viewer, options); }); };
  const auto wait_until_said = [&](const std::string& begin) {
    for (int i = 0; i < 500 && !said().starts_with(begin); ++i)
      std::this_thread::sleep_for(milliseconds(20));  // between two looks
    return said();
  };

  EXPECT_TRUE(said().starts_with("2: can never run here: no node has joined yet\n")) << said();
  coordinator::LiveAgent agent(site, "lab-a", "machine-1", behaviour);
  const std::string now = wait_until_said("0: ");
  EXPECT_TRUE(now.starts_with("0: starts now: 1 of 1 nodes fit and will be asked\n")) << now;
  EXPECT_NE(now.find("light-machine-1  lab-a  fits, 1"), std::string::npos) << now;
  EXPECT_NE(now.find("\n  next: 'reclaim run'"), std::string::npos) << now;
  agent.stop();
  const std::string later = wait_until_said("1: ");
  EXPECT_NE(later.find("none can now: 1 not connected"), std::string::npos) << later;

  options.spec.image = "bass";
  EXPECT_TRUE(said().starts_with("255: reclaim: image: 'bass' is not on the allow list\n"));
}

TEST(CliSite, what_is_lent_and_what_it_does_is_shown_and_told_in_json) {
  const LiveSite site;
  coordinator::LightAgent::Behaviour behaviour;
  behaviour.image_digest = site.add_base_image();
  const Client admin = client_of(site, site.admin());
  const auto said = [&](const OffersOptions& options) {
    return said_by([&] { return offers(admin, options); });
  };
  EXPECT_NE(said({}).find("nothing is lent: no node has joined yet"), std::string::npos);
  coordinator::LiveAgent agent(site, "lab-a", "machine-1", behaviour);
  for (int i = 0; i < 500 && said({}).find("light-machine-1") == std::string::npos; ++i)
    std::this_thread::sleep_for(milliseconds(20));  // between two looks

  const auto list = from_json<OfferList>(said({"", true}).substr(3));
  ASSERT_TRUE(list) << list.error().describe();
  ASSERT_EQ(list->offers.size(), 1U);
  EXPECT_EQ(list->offers[0].cpu_milli_free, 64'000U);
  EXPECT_GT(list->offers[0].stays_1h, list->offers[0].stays_8h);
  EXPECT_NE(
      said({"1", false}).find("no such GPUs are lent now: 1 with other GPUs"), std::string::npos
  );
  EXPECT_TRUE(said({"A100", false}).starts_with("2: ")) << "models cannot be asked for";

  const auto top_said = [&](TopOptions options) {
    return said_by([&] { return top(admin, options); });
  };
  const auto view = from_json<TopView>(top_said({.is_json = true}).substr(3));
  ASSERT_TRUE(view) << view.error().describe();
  EXPECT_EQ(view->nodes.at(0).host, "light-machine-1");
  EXPECT_EQ(view->nodes.at(0).history.size(), kTopBuckets + 1);
  EXPECT_NE(top_said({.is_once = true}).find("nodes: 1 lend, 0 do not"), std::string::npos);
  agent.stop();
}

TEST(CliRun, an_unreachable_coordinator_is_said_to_be_unreachable) {
  const Client nobody(Login{"https://127.0.0.1:1", "secret", std::string(64, 'a')});

  EXPECT_EQ(nodes(nobody, false), 6);
}

}  // namespace
}  // namespace rn::cli
