// SPDX-License-Identifier: Apache-2.0
#include "agent/core_harness.h"

namespace rn::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class CoreLife : public CoreTest {};

TEST_F(CoreLife, nothing_is_told_to_the_coordinator_before_the_warden_was_asked) {
  feed(Started{facts, contract, 0});
  feed(CoordinatorConnected{});
  EXPECT_THAT(messages, IsEmpty());

  feed(WardenConnected{});
  EXPECT_THAT(messages, IsEmpty());
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });

  EXPECT_THAT(sent<wire::Hello>(), SizeIs(1));
}

TEST_F(CoreLife, a_dead_warden_delays_the_hello_only_for_a_while_and_the_node_lends_nothing) {
  feed(Started{facts, contract, 0});
  feed(CoordinatorConnected{});
  advance(seconds(6));

  ASSERT_THAT(sent<wire::Hello>(), SizeIs(1));
  EXPECT_EQ(sent<wire::Hello>().front().lending, LendingState::kNotLending);
}

TEST_F(CoreLife, a_lease_is_in_the_journal_before_it_is_granted) {
  start();
  lease();

  ASSERT_THAT(sent<wire::CommitReply>(), SizeIs(1));
  EXPECT_TRUE(sent<wire::CommitReply>().front().is_granted);
  EXPECT_TRUE(journal.contains("attempt/j-1/1.1"));
  EXPECT_TRUE(journal.contains("commit/j-1/1.1"));
  EXPECT_TRUE(journal.contains("epoch/j-1"));
}

TEST_F(CoreLife, an_attempt_goes_from_lease_to_running_step_by_step) {
  start();
  lease();

  EXPECT_EQ(phase(), "fetching");
  EXPECT_EQ(work_body<FetchImage>().digest, "sha256:img");
  finish<FetchImage>(ImageFetched{"/state/images/img"});
  EXPECT_EQ(phase(), "loading");
  EXPECT_EQ(asked<warden_wire::LoadImage>().front().archive_path, "/state/images/img");
  answer<warden_wire::LoadImage>();
  EXPECT_EQ(phase(), "mounting");
  EXPECT_EQ(asked<warden_wire::PrepareDisk>().front().disk_mib, 1000u);
  answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
  EXPECT_EQ(phase(), "restoring");
  EXPECT_EQ(work_body<PrepareWork>().disk, "/disk/1");
  finish<PrepareWork>(WorkPrepared{});
  EXPECT_EQ(phase(), "adopting");
  answer<warden_wire::AdoptDisk>();
  EXPECT_EQ(phase(), "starting");
  const auto request = asked<warden_wire::StartGuest>().front();
  EXPECT_EQ(request.env.at("RECLAIM_JOB_ID"), "j-1");
  EXPECT_EQ(request.env.at("RECLAIM_ATTEMPT"), "1");
  EXPECT_FALSE(request.env.contains("RECLAIM_RESUME_FROM"));
  answer<warden_wire::StartGuest>();
  EXPECT_EQ(phase(), "running");

  std::vector<AttemptState> states;
  for (const auto& event : sent<wire::AttemptEvent>()) states.push_back(event.report.state);
  EXPECT_THAT(
      states,
      testing::IsSupersetOf(
          {AttemptState::kFetching,
           AttemptState::kPreparing,
           AttemptState::kStarting,
           AttemptState::kRunning}
      )
  );
  ASSERT_THAT(watches, SizeIs(1));
  EXPECT_EQ(watches.front().disk, "/disk/1");
}

TEST_F(CoreLife, a_node_offers_what_its_owner_names_and_its_warden_has) {
  config.data_sets = {"photos", "digits"};
  make_core();
  warden.data_sets = {"digits", "imagenet"};
  start();
  EXPECT_THAT(sent<wire::Hello>().front().facts.data_sets, ElementsAre("digits"));

  warden.data_sets = {"digits", "imagenet", "photos"};
  push_state();
  EXPECT_THAT(sent<wire::NodeUpdate>().back().facts.data_sets, ElementsAre("digits", "photos"));
  feed(FactsChanged{facts});
  EXPECT_THAT(sent<wire::NodeUpdate>().back().facts.data_sets, ElementsAre("digits", "photos"));

  warden.data_sets.clear();
  push_state();
  EXPECT_THAT(sent<wire::NodeUpdate>().back().facts.data_sets, IsEmpty());
}

TEST_F(CoreLife, what_changes_between_hello_and_welcome_is_told_after_it) {
  config.data_sets = {"digits"};
  make_core();
  start();
  feed(CoordinatorDisconnected{});
  feed(CoordinatorConnected{});
  ASSERT_THAT(sent<wire::Hello>(), SizeIs(2));
  const std::size_t told = sent<wire::NodeUpdate>().size();

  warden.data_sets = {"digits"};
  push_state();
  EXPECT_THAT(sent<wire::NodeUpdate>(), SizeIs(told)) << "the coordinator does not know us yet";
  wire::Welcome welcome;
  welcome.generation = 1;
  welcome.heartbeat_ms = 5000;
  tell(welcome);

  ASSERT_THAT(sent<wire::NodeUpdate>(), SizeIs(told + 1));
  EXPECT_THAT(sent<wire::NodeUpdate>().back().facts.data_sets, ElementsAre("digits"));
}

TEST_F(CoreLife, the_warden_is_told_the_names_of_a_jobs_data_sets) {
  config.data_sets = warden.data_sets = {"digits"};
  make_core();
  spec.data = {"digits"};
  start();
  prepare();

  EXPECT_THAT(asked<warden_wire::StartGuest>().front().data, ElementsAre("digits"));
}

TEST_F(CoreLife, a_start_whose_data_has_gone_ends_the_attempt_and_the_job_goes_elsewhere) {
  config.data_sets = warden.data_sets = {"digits"};
  make_core();
  spec.data = {"digits"};
  start();
  prepare();

  answer<warden_wire::StartGuest>([](warden_wire::Answer& a) {
    a.code = to_string(ErrorCode::kNotFound);
    a.message = "data set digits: /srv/digits is no folder that is there";
  });
  answer<warden_wire::KillGuest>();

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("data set digits"));
}

TEST_F(CoreLife, nothing_is_laid_out_before_the_warden_has_named_a_disk) {
  warden.images = {"sha256:img"};
  start();
  lease();
  ASSERT_EQ(phase(), "mounting");

  answer<warden_wire::PrepareDisk>();

  EXPECT_EQ(phase(), "mounting");
  EXPECT_FALSE(has_work<PrepareWork>());
  advance(seconds(5));
  answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/1"; });
  EXPECT_EQ(phase(), "restoring");
}

TEST_F(CoreLife, a_job_cannot_pretend_our_variables) {
  spec.env = {{"RECLAIM_ATTEMPT", "99"}, {"RECLAIM_SECRET", "x"}, {"MINE", "1"}};
  resume = a_generation(4);
  start();
  prepare();

  const auto env = asked<warden_wire::StartGuest>().front().env;
  EXPECT_EQ(env.at("RECLAIM_ATTEMPT"), "1");
  EXPECT_FALSE(env.contains("RECLAIM_SECRET"));
  EXPECT_EQ(env.at("MINE"), "1");
  EXPECT_EQ(env.at("RECLAIM_RESUME_FROM"), "/work");
}

TEST_F(CoreLife, a_job_that_is_told_of_slurm_knows_its_number_and_only_such_a_one) {
  spec.env = {{"SLURM_JOB_NAME", "resnet"}, {"SLURM_JOB_ID", "1"}, {"SLURM_RESTART_COUNT", "9"}};
  start();
  prepare();

  const auto env = asked<warden_wire::StartGuest>().front().env;
  EXPECT_EQ(env.at("SLURM_JOB_ID"), env.at("RECLAIM_JOB_NUMBER"));
  EXPECT_EQ(env.at("SLURM_JOBID"), env.at("RECLAIM_JOB_NUMBER"));
  EXPECT_FALSE(env.contains("SLURM_RESTART_COUNT")) << "it was never restarted";
}

TEST_F(CoreLife, a_job_that_is_not_told_of_slurm_has_no_variable_of_it) {
  start();
  prepare();
  EXPECT_FALSE(asked<warden_wire::StartGuest>().front().env.contains("SLURM_JOB_ID"));
}

TEST_F(CoreLife, a_guest_that_is_told_by_a_file_finds_its_name) {
  spec.work_dir = "/home/me";
  spec.checkpoint.tell_file = "ctl/SAVE";
  start();
  prepare();

  const auto request = asked<warden_wire::StartGuest>().front();
  EXPECT_EQ(request.env.at("RECLAIM_TELL_FILE"), "/home/me/ctl/SAVE");
}

TEST_F(CoreLife, a_guest_starts_as_many_threads_as_its_job_asked_whole_processors_for) {
  spec.resources.cpu_milli = 2900;
  spec.env = {{"MKL_NUM_THREADS", "7"}};
  contract.guest_cpu_each_milli = 1000;
  start();
  prepare();

  const auto request = asked<warden_wire::StartGuest>().front();
  EXPECT_EQ(request.cpu_milli, 1000u) << "granted less, and still the same number of threads";
  EXPECT_EQ(request.env.at("RECLAIM_CPUS_NUM"), "2");
  EXPECT_EQ(request.env.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(request.env.at("OPENBLAS_NUM_THREADS"), "2");
  EXPECT_EQ(request.env.at("NUMEXPR_NUM_THREADS"), "2");
  EXPECT_EQ(request.env.at("PYTHON_CPU_COUNT"), "2");
  EXPECT_EQ(request.env.at("MKL_NUM_THREADS"), "7") << "what the submitter says stays";
}

TEST_F(CoreLife, what_a_python_script_prints_is_told_at_once_unless_its_author_says_otherwise) {
  spec.env = {};
  start();
  prepare();
  EXPECT_EQ(asked<warden_wire::StartGuest>().front().env.at("PYTHONUNBUFFERED"), "1");
}

TEST_F(CoreLife, an_author_who_wants_pythons_output_buffered_has_it_so) {
  spec.env = {{"PYTHONUNBUFFERED", ""}};
  start();
  prepare();
  EXPECT_EQ(asked<warden_wire::StartGuest>().front().env.at("PYTHONUNBUFFERED"), "");
}

TEST_F(CoreLife, python_leaves_no_compiled_modules_to_be_saved) {
  spec.env = {};
  start();
  prepare();
  EXPECT_EQ(asked<warden_wire::StartGuest>().front().env.at("PYTHONDONTWRITEBYTECODE"), "1");
}

TEST_F(CoreLife, an_author_who_wants_compiled_modules_kept_has_them) {
  spec.env = {{"PYTHONDONTWRITEBYTECODE", ""}};
  start();
  prepare();
  EXPECT_EQ(asked<warden_wire::StartGuest>().front().env.at("PYTHONDONTWRITEBYTECODE"), "");
}

TEST_F(CoreLife, a_guest_of_less_than_one_processor_starts_one_thread) {
  spec.resources.cpu_milli = 500;
  start();
  prepare();

  EXPECT_EQ(asked<warden_wire::StartGuest>().front().env.at("OMP_NUM_THREADS"), "1");
}

TEST_F(CoreLife, an_image_that_the_engine_has_is_not_fetched) {
  start();
  warden.images = {"sha256:img"};
  push_state();
  lease();

  EXPECT_FALSE(has_work<FetchImage>());
  EXPECT_EQ(phase(), "mounting");
}

TEST_F(CoreLife, a_fetch_that_may_succeed_later_is_repeated_and_one_that_cannot_refuses) {
  start();
  lease();
  finish<FetchImage>(Error{ErrorCode::kUnavailable, "no peer answers", ""});
  EXPECT_FALSE(has_work<FetchImage>());
  advance(seconds(3));
  ASSERT_TRUE(has_work<FetchImage>());

  finish<FetchImage>(Error{ErrorCode::kCorrupt, "SHA-256 differs", ""});

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("SHA-256 differs"));
}

TEST_F(CoreLife, a_disk_that_fills_while_the_image_comes_refuses) {
  start();
  lease();

  finish<FetchImage>(Error{ErrorCode::kExhausted, "no space left on device", ""});

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("no space left"));
}

TEST_F(CoreLife, a_wrong_digest_found_by_the_warden_ends_the_attempt_as_refused) {
  start();
  lease();
  finish<FetchImage>(ImageFetched{"/x"});
  answer<warden_wire::LoadImage>([](warden_wire::Answer& a) {
    a.code = std::string(to_string(ErrorCode::kCorrupt));
    a.message = "the archive is not what the digest says";
  });

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
}

class CoreEngine : public CoreTest {
 protected:
  static void fail_with(warden_wire::Answer& a, ErrorCode code, const char* message) {
    a.code = std::string(to_string(code));
    a.message = message;
  }

  void engine(bool is_up) {
    warden.engine = "docker 27.0";
    warden.is_engine_up = is_up;
    push_state();
  }
};

TEST_F(CoreEngine, an_engine_that_does_not_come_back_gives_the_job_to_other_nodes_and_is_named) {
  start();
  prepare();
  engine(false);
  answer<warden_wire::StartGuest>([](warden_wire::Answer& a) {
    fail_with(a, ErrorCode::kUnavailable, "the container engine does not answer");
  });
  advance(seconds(115));
  EXPECT_EQ(phase(), "starting") << "an engine may be restarted";
  EXPECT_THAT(core->view(clock.now()).why, HasSubstr("has not answered for 115 s"));
  EXPECT_THAT(core->view(clock.now()).why, HasSubstr("next: "));
  advance(seconds(10));
  answer<warden_wire::KillGuest>();

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
  EXPECT_THAT(
      sent<wire::AttemptEvent>().back().report.detail,
      HasSubstr("its container engine does not answer (waited 120 s)")
  );
}

TEST_F(CoreEngine, an_engine_that_is_refused_is_not_said_to_be_silent) {
  start();
  warden.engine_refusal = "engine 19.3 is below 20.10.24";
  engine(false);
  advance(seconds(30));

  const NodeView view = core->view(clock.now());
  EXPECT_THAT(
      view.why, HasSubstr("engine is refused (--engine-floor-strict): engine 19.3 is below")
  );
  EXPECT_THAT(view.why, HasSubstr("next: upgrade it"));
  EXPECT_THAT(view.why, testing::Not(HasSubstr("has not answered")));
}

TEST_F(CoreEngine, what_keeps_guests_from_starting_is_said_once) {
  const auto times_said = [this](const std::string& what) {
    const std::string why = core->view(clock.now()).why;
    std::size_t times = 0;
    for (std::size_t at = 0; (at = why.find(what, at)) != std::string::npos; ++at) ++times;
    return times;
  };
  start();
  engine(false);
  EXPECT_EQ(times_said("container engine"), 1U) << core->view(clock.now()).why;

  warden.engine_refusal = "engine 19.3 is below 20.10.24";
  push_state();

  EXPECT_EQ(times_said(warden.engine_refusal), 1U) << core->view(clock.now()).why;
}

TEST_F(CoreEngine, the_campus_is_told_that_an_engine_is_refused_and_that_it_is_used_again) {
  start();
  EXPECT_EQ(sent<wire::Hello>().back().facts.engine_refusal, "");
  warden.engine_refusal = "engine 19.3 is below 20.10.24";
  engine(false);
  EXPECT_EQ(sent<wire::NodeUpdate>().back().facts.engine_refusal, warden.engine_refusal);
  feed(FactsChanged{facts});
  EXPECT_EQ(sent<wire::NodeUpdate>().back().facts.engine_refusal, warden.engine_refusal);

  warden.engine_refusal.clear();
  engine(true);

  EXPECT_EQ(sent<wire::NodeUpdate>().back().facts.engine_refusal, "");
}

TEST_F(CoreEngine, an_engine_that_is_refused_gives_the_job_to_other_nodes_with_why) {
  start();
  prepare();
  warden.engine_refusal = "engine 19.3 is below 20.10.24";
  engine(false);
  answer<warden_wire::StartGuest>([](warden_wire::Answer& refused) {
    fail_with(refused, ErrorCode::kUnavailable, "the container engine does not answer");
  });
  advance(seconds(125));
  answer<warden_wire::KillGuest>();

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
  EXPECT_THAT(
      sent<wire::AttemptEvent>().back().report.detail,
      HasSubstr("its container engine is refused: engine 19.3 is below 20.10.24")
  );
}

TEST_F(CoreEngine, an_engine_that_is_back_in_time_loses_no_attempt) {
  start();
  prepare();
  engine(false);
  advance(seconds(100));
  engine(true);
  advance(seconds(100));

  EXPECT_EQ(phase(), "starting") << "a start that takes long is no engine that is gone";
  EXPECT_EQ(core->view(clock.now()).engine_gone_s, -1);
  while (has_asked<warden_wire::StartGuest>()) answer<warden_wire::StartGuest>();  // asked twice
  EXPECT_EQ(phase(), "running");
}

TEST_F(CoreEngine, a_start_that_fails_again_and_again_is_given_up_with_its_reason) {
  start();
  prepare();
  for (int i = 0; i < 60 && phase() == "starting"; ++i) {
    if (has_asked<warden_wire::StartGuest>())
      answer<warden_wire::StartGuest>([](warden_wire::Answer& a) {
        fail_with(a, ErrorCode::kTimeout, "engine: no answer within 30 s");
      });
    advance(seconds(3));
  }
  answer<warden_wire::KillGuest>();

  EXPECT_EQ(last_end(), AttemptEnd::kRefused);
  EXPECT_THAT(
      sent<wire::AttemptEvent>().back().report.detail, HasSubstr("no answer within 30 s (waited")
  );
}

TEST_F(CoreEngine, running_guests_outlive_the_engine) {
  start();
  run();
  engine(false);
  advance(seconds(1000));

  EXPECT_EQ(phase(), "running");
}

TEST_F(CoreEngine, a_container_that_cannot_be_removed_is_asked_for_ever_more_seldom) {
  start();
  run();
  fails_with(1);
  ASSERT_EQ(phase(), "ended");
  int asked = 0;
  for (int s = 0; s < 600; ++s) {
    while (has_asked<warden_wire::RemoveGuest>()) {
      ++asked;
      answer<warden_wire::RemoveGuest>([](warden_wire::Answer& a) {
        fail_with(a, ErrorCode::kTimeout, "engine: no answer");
      });
    }
    EXPECT_FALSE(has_asked<warden_wire::ReleaseDisk>()) << "the container holds it";
    advance(seconds(1));
  }
  EXPECT_GE(asked, 30);
  EXPECT_LE(asked, 45);

  advance(seconds(65));
  answer<warden_wire::RemoveGuest>();
  EXPECT_TRUE(has_asked<warden_wire::ReleaseDisk>());
}

TEST_F(CoreEngine, a_removal_that_the_warden_forgot_is_asked_for_again) {
  start();
  run();
  fails_with(1);
  ASSERT_TRUE(has_asked<warden_wire::RemoveGuest>());
  feed(WardenDisconnected{});
  asks.clear();
  feed(WardenConnected{});
  answer<warden_wire::Query>([this](warden_wire::Answer& a) { a.state = warden; });
  if (has_asked<warden_wire::ReleaseDisk>())
    answer<warden_wire::ReleaseDisk>([](warden_wire::Answer& a) {
      fail_with(a, ErrorCode::kConflict, "job j-1 is exited, so its disk cannot be released");
    });
  advance(seconds(5));

  EXPECT_TRUE(has_asked<warden_wire::RemoveGuest>());
}

TEST_F(CoreLife, a_success_uploads_outputs_publishes_them_sends_the_whole_log_and_ends) {
  start();
  run();
  set_guest(GuestState::kExited, 0);
  push_state();
  EXPECT_EQ(phase(), "publishing");
  Digest listing{};
  listing[0] = 9;
  finish<UploadOutputs>(OutputsUploaded{listing});
  ASSERT_THAT(sent<wire::PublishOutputs>(), SizeIs(1));
  EXPECT_EQ(sent<wire::PublishOutputs>().front().listing, listing);
  // The log's last bytes are still missing: the end must wait for them.
  finish<ReadLog>(LogRead{0, {'b', 'y', 'e'}, 3});
  if (has_work<ReadLog>()) finish<ReadLog>(LogRead{0, {'b', 'y', 'e'}, 3});
  tell(wire::AttemptAck{JobId("j-1"), kEpoch, 0, true});
  EXPECT_EQ(phase(), "closing");
  ASSERT_FALSE(sent<wire::LogAppend>().empty());
  EXPECT_EQ(sent<wire::LogAppend>().back().bytes, (Blob{'b', 'y', 'e'}));

  tell(wire::LogAck{JobId("j-1"), kEpoch, 3, true});

  EXPECT_EQ(last_end(), AttemptEnd::kSucceeded);
  answer<warden_wire::RemoveGuest>();
  answer<warden_wire::ReleaseDisk>();
  EXPECT_EQ(phase(), "ended");  // until the end is acknowledged
  acknowledge();
  EXPECT_EQ(phase(), "none");
  EXPECT_FALSE(journal.contains("attempt/j-1/1.1"));
  EXPECT_TRUE(journal.contains("epoch/j-1"));
}

TEST_F(CoreLife, publish_is_repeated_until_it_is_acknowledged) {
  start();
  run();
  set_guest(GuestState::kExited, 0);
  push_state();
  Digest listing{};
  listing[0] = 9;
  finish<UploadOutputs>(OutputsUploaded{listing});
  advance(seconds(3));

  EXPECT_THAT(sent<wire::PublishOutputs>(), SizeIs(2));
}

TEST_F(CoreLife, a_job_without_outputs_ends_without_publishing) {
  start();
  run();
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(OutputsUploaded{});
  log_is_empty();

  EXPECT_THAT(sent<wire::PublishOutputs>(), IsEmpty());
  EXPECT_EQ(last_end(), AttemptEnd::kSucceeded);
}

TEST_F(CoreLife, outputs_that_could_not_be_read_are_named_with_the_success) {
  start();
  run();
  set_guest(GuestState::kExited, 0);
  push_state();
  finish<UploadOutputs>(OutputsUploaded{{}, "pipe (no file)\nsecret"});
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kSucceeded);
  EXPECT_EQ(
      sent<wire::AttemptEvent>().back().report.detail, "not brought home: pipe (no file)?secret"
  );
}

TEST_F(CoreLife, a_crash_saves_what_is_complete_and_reports_the_exit_code) {
  start();
  run();
  set_guest(GuestState::kExited, 3);
  push_state();
  EXPECT_TRUE(work_body<TakeSnapshot>().is_final);
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kCrashed);
  EXPECT_EQ(sent<wire::AttemptEvent>().back().report.exit_code, 3);
}

TEST_F(CoreLife, a_crash_is_saved_in_a_second_or_third_try) {
  start();
  run();
  set_guest(GuestState::kExited, 3);
  push_state();
  for (int tries = 0; tries < 3; ++tries) {
    finish<TakeSnapshot>(Error{ErrorCode::kInternal, "a sync failed", ""});
    advance(milliseconds(400));
  }
  log_is_empty();

  EXPECT_FALSE(has_work<TakeSnapshot>());
  EXPECT_EQ(last_end(), AttemptEnd::kCrashed);
  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("a sync failed"));
}

TEST_F(CoreLife, a_guest_killed_for_memory_says_so) {
  start();
  run();
  set_guest(GuestState::kExited, 137);
  warden.guests.front().is_oom_killed = true;
  push_state();
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();

  EXPECT_THAT(sent<wire::AttemptEvent>().back().report.detail, HasSubstr("MiB of memory"));
}

TEST_F(CoreLife, exit_85_asks_for_a_restart_and_is_no_crash) {
  start();
  run();
  fails_with(85);

  EXPECT_EQ(last_end(), AttemptEnd::kMigrated);
}

TEST_F(CoreLife, the_same_commit_again_is_granted_again_and_starts_nothing_new) {
  start();
  lease();
  works.clear();
  wire::Commit again = a_commit();
  again.hold = HoldId("h-old");
  tell(again);

  ASSERT_THAT(sent<wire::CommitReply>(), SizeIs(2));
  EXPECT_TRUE(sent<wire::CommitReply>().back().is_granted);
  EXPECT_THAT(works, IsEmpty());
}

TEST_F(CoreLife, a_commit_without_a_hold_is_lost) {
  start();
  wire::Commit commit = a_commit();
  commit.hold = HoldId("h-none");
  tell(commit);

  EXPECT_FALSE(sent<wire::CommitReply>().back().is_granted);
  EXPECT_FALSE(journal.contains("commit/j-1/1.1"));
  EXPECT_THAT(core->reports(clock.now()), IsEmpty());
}

TEST_F(CoreLife, events_are_repeated_until_acknowledged) {
  start();
  lease();
  const auto first = sent<wire::AttemptEvent>().size();
  advance(seconds(3));
  EXPECT_GT(sent<wire::AttemptEvent>().size(), first);
  acknowledge();
  const auto acked = sent<wire::AttemptEvent>().size();
  advance(seconds(3));

  EXPECT_EQ(sent<wire::AttemptEvent>().size(), acked);
}

TEST_F(CoreLife, a_stop_for_an_attempt_that_is_not_here_is_answered_as_lost) {
  start();
  wire::StopAttempt stop;
  stop.job = JobId("j-9");
  stop.epoch = {1, 4};
  tell(stop);

  ASSERT_THAT(sent<wire::AttemptEvent>(), SizeIs(1));
  EXPECT_EQ(last_end(), AttemptEnd::kLost);
}

TEST_F(CoreLife, a_cancelled_attempt_is_killed_at_once_and_saves_nothing) {
  start();
  run();
  wire::StopAttempt stop;
  stop.job = JobId("j-1");
  stop.epoch = kEpoch;
  tell(stop);
  EXPECT_TRUE(has_asked<warden_wire::KillGuest>());
  answer<warden_wire::KillGuest>();

  EXPECT_FALSE(has_work<TakeSnapshot>());
  log_is_empty();
  EXPECT_EQ(last_end(), AttemptEnd::kCancelled);
}

TEST_F(CoreLife, a_stop_while_fetching_cancels_the_work) {
  start();
  lease();
  wire::StopAttempt stop;
  stop.job = JobId("j-1");
  stop.epoch = kEpoch;
  tell(stop);

  EXPECT_THAT(cancelled, SizeIs(1));
  EXPECT_EQ(last_end(), AttemptEnd::kCancelled);
  EXPECT_FALSE(has_asked<warden_wire::KillGuest>());
}

TEST_F(CoreLife, a_job_that_runs_longer_than_it_asked_for_is_timed_out) {
  spec.max_duration_s = 100;
  spec.orphan_limit_s = 10'000;
  contract.orphan_limit_s = 10'000;
  start();
  run();
  advance(seconds(101));
  answer<warden_wire::KillGuest>();
  finish<TakeSnapshot>(NothingNew{});
  log_is_empty();

  EXPECT_EQ(last_end(), AttemptEnd::kTimedOut);
}

TEST_F(CoreLife, heartbeats_carry_attempts_and_silence_closes_the_connection) {
  start();
  run();
  advance(seconds(5));
  ASSERT_FALSE(sent<wire::Heartbeat>().empty());
  EXPECT_EQ(sent<wire::Heartbeat>().back().attempts.front().state, AttemptState::kRunning);
  EXPECT_THAT(closes, IsEmpty());

  is_acking = false;
  advance(seconds(16));

  EXPECT_THAT(closes, SizeIs(1));
}

TEST_F(CoreLife, a_refusal_for_good_is_not_tried_again) {
  start();
  wire::Refused refused;
  refused.message = "a clone of node n-1";
  refused.hint = "join it on its own";
  tell(refused);

  ASSERT_THAT(closes, SizeIs(1));
  EXPECT_TRUE(closes.front().is_final);
  EXPECT_THAT(
      core->view(clock.now()).why,
      testing::HasSubstr(
          "; the coordinator refuses this machine: a clone of node n-1; next: join it on its own"
      )
  );
}

TEST_F(CoreLife, a_node_that_stays_does_not_leave_because_it_is_refused) {
  start();
  wire::Refused refused;
  refused.code = to_string(ErrorCode::kDenied);
  tell(refused);
  advance(seconds(60));

  EXPECT_FALSE(has_left);
}

TEST_F(CoreLife, the_owner_no_longer_reads_of_a_refusal_when_the_coordinator_welcomes_the_machine) {
  start();
  wire::Refused refused;
  refused.message = "two machines use this identity";
  refused.retry_after_ms = 7500;
  tell(refused);
  ASSERT_THAT(core->view(clock.now()).why, testing::HasSubstr("two machines"));

  feed(CoordinatorConnected{});
  tell(wire::Welcome{});

  EXPECT_THAT(core->view(clock.now()).why, testing::Not(testing::HasSubstr("two machines")));
}

TEST_F(CoreLife, a_changed_contract_is_shown_to_the_coordinator) {
  start();
  contract.notice_s = 120;
  feed(ContractChanged{contract, 0});

  ASSERT_FALSE(sent<wire::NodeUpdate>().empty());
  EXPECT_EQ(sent<wire::NodeUpdate>().back().contract.notice_s, 120u);
}

TEST_F(CoreLife, works_are_bounded_and_evacuations_go_first) {
  config.works_max = 1;
  make_core();
  start();
  run();
  // One copy takes the only place; a snapshot for the evacuation must come before a second fetch.
  save(1);
  ASSERT_TRUE(has_work<CopyGeneration>());
  advance(seconds(1));
  feed(GenerationDetected{GuestName{JobId("j-1"), kEpoch}});
  EXPECT_FALSE(has_work<TakeSnapshot>());

  copied("n-2", 1);

  EXPECT_TRUE(has_work<TakeSnapshot>());
}

}  // namespace
}  // namespace rn::agent
