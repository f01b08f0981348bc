// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_commands.h"

#include "coordinator/core_harness.h"

namespace rn::coordinator {
namespace {

class Commands : public CoreSite {
 protected:
  void SetUp() override { start(); }

  std::string refusal(const JobSpec& spec) {
    const auto answer = run(user(), SubmitJob{.spec = spec});
    return answer ? "" : answer.error().describe();
  }

  TokenMade join_token(std::uint32_t ttl_s = 3600) {
    const auto made = run(admin(), CreateJoinToken{.lab = LabId("lab-a"), .ttl_s = ttl_s});
    return std::get<TokenMade>(made.value());
  }

  static JoinNode a_join(const TokenMade& made, std::uint8_t key = 7) {
    JoinNode join{
        .token = made.token.id, .secret = made.secret, .machine_id = "m-1", .hostname = "h"};
    join.public_key.fill(key);
    return join;
  }
};

TEST_F(Commands, a_submitted_job_is_in_the_tables_with_its_wrapped_key_before_the_reply) {
  const JobId id = submit();

  const JobRow& row = tables.jobs.at(id);
  EXPECT_EQ(row.job.state, JobState::kQueued);
  EXPECT_EQ(row.job.number, 1U);
  EXPECT_TRUE(crypto::unseal(keys.wrapping_key, row.wrapped_key, as_bytes(id.str())));
  EXPECT_FALSE(crypto::unseal(keys.wrapping_key, row.wrapped_key, as_bytes("j-other")));
  EXPECT_EQ(count_events("job.submitted"), 1U);
}

TEST_F(Commands, the_same_key_gives_the_same_job_also_after_a_restart) {
  const JobId id = submit(a_spec(), user(), "k1");
  EXPECT_EQ(submit(a_spec(), user(), "k1"), id);
  EXPECT_NE(submit(a_spec(), user("bob"), "k1"), id) << "keys are per user";
  restart();

  const auto again = run(user(), SubmitJob{.idempotency_key = "k1", .spec = a_spec()});
  EXPECT_EQ(std::get<JobSubmitted>(again.value()).job.id, id);
  EXPECT_TRUE(std::get<JobSubmitted>(again.value()).is_repeat);
  EXPECT_EQ(tables.jobs.size(), 2U);
}

TEST_F(Commands, the_same_key_with_another_job_is_a_conflict) {
  submit(a_spec(), user(), "k1");
  JobSpec other = a_spec();
  other.command = {"true"};

  const auto answer = run(user(), SubmitJob{.idempotency_key = "k1", .spec = other});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kConflict);
}

TEST_F(Commands, an_image_off_the_list_is_denied_with_the_list) {
  JobSpec spec = a_spec();
  spec.image = "docker.io/evil";

  EXPECT_EQ(
      refusal(spec),
      "denied: image: 'docker.io/evil' is not on the allow list (allowed images: base; an "
      "administrator adds one with `reclaim image add`)"
  );
}

TEST_F(Commands, an_image_may_be_named_by_its_digest) {
  JobSpec spec = a_spec();
  spec.image = "sha256:" + std::string(64, 'a');

  EXPECT_EQ(refusal(spec), "");
}

TEST_F(Commands, a_specification_that_makes_no_sense_is_refused_with_its_field) {
  const auto with = [](auto change) {
    JobSpec spec = a_spec();
    change(spec);
    return check_spec(spec).error().message;
  };

  EXPECT_EQ(with([](JobSpec& s) { s.command.clear(); }), "command: is empty");
  EXPECT_EQ(
      with([](JobSpec& s) { s.env["LD_PRELOAD"] = "x.so"; }),
      "env.LD_PRELOAD: steers the runtime and is set by the node"
  );
  EXPECT_EQ(
      with([](JobSpec& s) { s.env["NVIDIA_VISIBLE_DEVICES"] = "all"; }),
      "env.NVIDIA_VISIBLE_DEVICES: steers the runtime and is set by the node"
  );
  EXPECT_EQ(
      with([](JobSpec& s) { s.env["GLIBC_TUNABLES"] = "glibc.malloc.check=3"; }),
      "env.GLIBC_TUNABLES: steers the runtime and is set by the node"
  );
  EXPECT_EQ(
      with([](JobSpec& s) { s.env[std::string(129, 'A')] = ""; }),
      "env." + std::string(40, 'A') + "…: a name of more than 128 bytes"
  );
  EXPECT_EQ(
      with([](JobSpec& s) { s.env["a b"] = ""; }), "env.a b: is not the name or value of a variable"
  );
  EXPECT_EQ(with([](JobSpec& s) { s.priority = 8; }), "priority: expected 0 (highest) to 7");
  EXPECT_EQ(
      with([](JobSpec& s) { s.work_dir = "/data/../etc"; }),
      "work_dir: '/data/../etc' is not a plain path"
  );
  EXPECT_EQ(
      with([](JobSpec& s) { s.work_dir = "/etc/x"; }),
      "work_dir: '/etc/x' lies over a system folder"
  );
  EXPECT_EQ(
      with([](JobSpec& s) { s.work_dir = "/work dir"; }),
      "work_dir: '/work dir' has a blank, comma, colon or control character"
  );
  EXPECT_EQ(
      with([](JobSpec& s) { s.checkpoint.paths = {"../../etc/*"}; }),
      "checkpoint.paths: '../../etc/*' is not a pattern inside the job's folder"
  );
  EXPECT_EQ(
      with([](JobSpec& s) { s.resources.cpu_milli_min = 2000; }),
      "resources.cpu_milli_min: is more than resources.cpu_milli"
  );
  EXPECT_EQ(
      with([](JobSpec& s) { s.command.assign(2, std::string(40'000, 'x')); }),
      "command: more than 64 KiB"
  );
  EXPECT_TRUE(check_spec(a_spec()));
}

TEST_F(Commands, a_job_that_says_nothing_about_saving_is_accepted_with_a_warning) {
  JobSpec spec = a_spec();
  spec.checkpoint.paths.clear();
  auto answer = run(user(), SubmitJob{.spec = spec});
  ASSERT_FALSE(std::get<JobSubmitted>(answer.value()).warnings.empty());
  EXPECT_NE(
      std::get<JobSubmitted>(answer.value()).warnings.front().find("nothing says where"),
      std::string::npos
  );

  spec.checkpoint.is_stateless = true;
  add_node("a", "lab-a");
  answer = run(user(), SubmitJob{.spec = spec});
  EXPECT_TRUE(std::get<JobSubmitted>(answer.value()).warnings.empty());
}

TEST_F(Commands, a_stateless_job_names_no_files_that_would_say_that_it_has_saved) {
  JobSpec spec = a_spec();
  spec.checkpoint = {};
  spec.checkpoint.is_stateless = true;
  spec.checkpoint.complete_marker = "done";

  EXPECT_EQ(run(user(), SubmitJob{.spec = spec}).error().code, ErrorCode::kInvalid);
}

TEST_F(Commands, a_job_that_saves_when_it_is_told_names_its_signal) {
  JobSpec spec = a_spec();
  spec.checkpoint.is_told = true;
  EXPECT_EQ(run(user(), SubmitJob{.spec = spec}).error().code, ErrorCode::kInvalid);
  spec.checkpoint.signal = SaveSignal::kNone;
  EXPECT_EQ(run(user(), SubmitJob{.spec = spec}).error().code, ErrorCode::kInvalid);

  spec.checkpoint.signal = SaveSignal::kUsr1;
  EXPECT_TRUE(run(user(), SubmitJob{.spec = spec}));
  spec.checkpoint.is_stateless = true;
  spec.checkpoint.paths.clear();
  EXPECT_EQ(run(user(), SubmitJob{.spec = spec}).error().code, ErrorCode::kInvalid);
}

TEST_F(Commands, a_job_that_is_told_by_a_file_names_one_of_its_own_and_is_told_in_one_way) {
  const auto refusal_of = [](auto change) {
    JobSpec spec = a_spec();
    spec.checkpoint.tell_file = "SAVE";
    change(spec.checkpoint);
    const Status checked = check_spec(spec);
    return checked ? std::string("taken") : checked.error().message + "; " + checked.error().hint;
  };

  for (const char* name : {"SAVE", "ctl/save-now", ".save", "a.b/c"})
    EXPECT_EQ(refusal_of([&](CheckpointSpec& c) { c.tell_file = name; }), "taken") << name;
  const std::string long_one(256, 's');
  for (const char* name :
       {"/SAVE",
        "../SAVE",
        "a/../SAVE",
        "./SAVE",
        "ctl/",
        "ctl//SAVE",
        ".",
        "SAVE*",
        "SAVE NOW",
        "SAVE\n",
        "S'",
        "[S]",
        long_one.c_str()}) {
    const std::string said = refusal_of([&](CheckpointSpec& c) { c.tell_file = name; });
    EXPECT_NE(said.find("is not the plain name of a file inside the job's folder; name"), said.npos)
        << said;
  }
  for (const auto& change : std::vector<void (*)(CheckpointSpec&)>{
           [](CheckpointSpec& c) { c.signal = SaveSignal::kUsr1; },
           [](CheckpointSpec& c) {
             c.signal = SaveSignal::kUsr1;
             c.is_told = true;
           },
           [](CheckpointSpec& c) {
             c.is_stateless = true;
             c.paths.clear();
           },
           [](CheckpointSpec& c) { c.complete_marker = "SAVE"; }}) {
    const std::string said = refusal_of(change);
    EXPECT_EQ(said.find("checkpoint.tell_file: "), 0u) << said;
    EXPECT_FALSE(said.ends_with("; ")) << "nothing to do next: " << said;
  }
  EXPECT_EQ(refusal_of([](CheckpointSpec& c) { c.signal = SaveSignal::kNone; }), "taken");
}

TEST_F(Commands, a_job_that_is_told_by_a_hook_or_the_api_is_told_in_one_way) {
  const auto refusal_of = [](auto change) {
    JobSpec spec = a_spec();
    change(spec.checkpoint);
    const Status checked = check_spec(spec);
    return checked ? std::string("taken") : checked.error().message + "; " + checked.error().hint;
  };
  using Change = void (*)(CheckpointSpec&);
  const Change hook = [](CheckpointSpec& c) { c.tell_hook = "sh save.sh\necho saved"; };
  const Change api = [](CheckpointSpec& c) { c.tell_api = true; };
  const Change file = [](CheckpointSpec& c) { c.tell_file = "SAVE"; };
  const Change signal = [](CheckpointSpec& c) { c.signal = SaveSignal::kUsr1; };
  const Change stateless = [](CheckpointSpec& c) {
    c.is_stateless = true;
    c.paths.clear();
  };
  const Change none = [](CheckpointSpec& c) { c.signal = SaveSignal::kNone; };

  for (const Change& way : {hook, api}) {
    EXPECT_EQ(refusal_of(way), "taken");
    const auto both = [&](const Change& other) {
      return refusal_of([&](CheckpointSpec& c) {
        way(c);
        other(c);
      });
    };
    EXPECT_EQ(both(none), "taken");
    for (const Change& other : {way == hook ? api : hook, file, signal, stateless}) {
      const std::string said = both(other);
      EXPECT_NE(said.find("contradicts"), said.npos) << said;
      EXPECT_FALSE(said.ends_with("; ")) << "nothing to do next: " << said;
    }
  }
  for (const std::string& bad :
       {std::string(4097, 'x'), std::string("a\0b", 3), std::string(" \n")}) {
    const std::string said = refusal_of([&](CheckpointSpec& c) { c.tell_hook = bad; });
    EXPECT_EQ(said.find("checkpoint.tell_hook: "), 0u) << said;
  }
  EXPECT_EQ(refusal_of([](CheckpointSpec& c) { c.tell_hook = std::string(4096, 'x'); }), "taken");
}

TEST_F(Commands, a_job_that_nothing_can_ever_run_is_accepted_and_says_so) {
  add_node("a", "lab-a");
  JobSpec spec = a_spec();
  spec.resources.gpus = 1;
  spec.max_duration_s = 60;
  const auto answer = run(user(), SubmitJob{.spec = spec});

  EXPECT_EQ(
      std::get<JobSubmitted>(answer.value()).warnings,
      std::vector<std::string>{"it waits until a node fits: 0 of 0 GPUs can ever match; closest: "
                               "lab-a/a lends 0 GPUs, 1 wanted"}
  );
  settle();
  EXPECT_NE(
      core->why(std::get<JobSubmitted>(*answer).job.id, clock.now())
          .value()
          .find("0 of 0 GPUs can ever match"),
      std::string::npos
  );
}

TEST_F(Commands, more_cores_than_anybody_gives_are_taken_and_said) {
  add_node("a", "lab-a");
  JobSpec spec = a_spec();
  spec.resources.cpu_milli = 64'000;
  spec.resources.cpu_milli_min = 100;

  const auto answer = run(user(), SubmitJob{.spec = spec});

  const auto warnings = std::get<JobSubmitted>(answer.value()).warnings;
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(warnings[0].starts_with("it asks for 64 cores, and no guest gets more than "))
      << warnings[0];
}

TEST_F(Commands, a_job_that_asks_for_more_notice_than_anybody_grants_is_told_what_it_gets) {
  add_node("a", "lab-a");
  JobSpec spec = a_spec();
  spec.notice_s = 60;  // what the default contract grants
  EXPECT_TRUE(std::get<JobSubmitted>(run(user(), SubmitJob{.spec = spec}).value()).warnings.empty()
  );

  spec.notice_s = 300;
  const auto answer = run(user(), SubmitJob{.spec = spec});

  EXPECT_EQ(
      std::get<JobSubmitted>(answer.value()).warnings,
      std::vector<std::string>{
          "it asks for 300 s of notice before a reclaim, and the longest that a node's owner "
          "grants is 60 s: save more often than that"}
  );
}

TEST_F(Commands, a_job_whose_copies_the_site_cannot_give_is_told_so_at_once) {
  add_node("a", "lab-a");
  add_node("b", "lab-b");
  const auto warnings = [&](std::uint32_t copies, std::vector<std::string> where = {}) {
    JobSpec spec = a_spec();
    spec.checkpoint.copies = copies;
    spec.checkpoint.destinations = std::move(where);
    const auto answer = run(user(), SubmitJob{.spec = spec}).value();
    std::string all;
    for (const std::string& one : std::get<JobSubmitted>(answer).warnings) all += one;
    return all;
  };

  EXPECT_EQ(warnings(1), "");
  EXPECT_NE(
      warnings(2).find("asks for 2 copies, and the nodes where they may lie are 2 failure domains"),
      std::string::npos
  );
  EXPECT_NE(warnings(1, {"mars"}).find("nothing becomes durable"), std::string::npos);
  add_node("c", "lab-c");
  EXPECT_EQ(warnings(2), "");
  EXPECT_EQ(warnings(1, {"mars", "lab-c"}), "");
}

TEST_F(Commands, viewers_submit_nothing_and_only_the_owner_lab_owner_or_admin_stops) {
  EXPECT_EQ(
      run({UserId("v"), LabId("lab-x"), Role::kViewer}, SubmitJob{.spec = a_spec()}).error().code,
      ErrorCode::kDenied
  );
  const JobId id = submit();

  EXPECT_EQ(run(user("bob"), StopJob{id}).error().code, ErrorCode::kDenied);
  EXPECT_EQ(
      run({UserId("o"), LabId("lab-y"), Role::kOwner}, StopJob{id}).error().code, ErrorCode::kDenied
  );
  EXPECT_EQ(
      run({UserId("ann"), LabId("lab-x"), Role::kViewer}, StopJob{id}).error().code,
      ErrorCode::kDenied
  );
  EXPECT_EQ(state(id), JobState::kQueued);
  EXPECT_TRUE(run({UserId("o"), LabId("lab-x"), Role::kOwner}, StopJob{id}));
  EXPECT_EQ(state(id), JobState::kCancelled);
  EXPECT_TRUE(run(user(), StopJob{id})) << "stopping twice is fine";
  EXPECT_EQ(run(user(), StopJob{JobId("j-none")}).error().code, ErrorCode::kNotFound);
}

TEST_F(Commands, only_admins_list_images_and_a_name_keeps_its_digest) {
  EXPECT_EQ(run(user(), AddImage{a_image("x")}).error().code, ErrorCode::kDenied);
  EXPECT_TRUE(run(admin(), AddImage{a_image("x", 'b')}));
  EXPECT_EQ(run(admin(), AddImage{a_image("x", 'c')}).error().code, ErrorCode::kConflict);
  EXPECT_TRUE(run(admin(), RemoveImage{"x"}));
  EXPECT_EQ(run(admin(), RemoveImage{"x"}).error().code, ErrorCode::kNotFound);
  Image bad = a_image("y");
  bad.digest = "sha256:xyz";
  EXPECT_EQ(run(admin(), AddImage{bad}).error().code, ErrorCode::kInvalid);
}

class BuiltOn : public Commands {
 protected:
  void SetUp() override {
    Commands::SetUp();
    root = a_image("root", '1');
    EXPECT_TRUE(run(admin(), AddImage{root}));
    saved = a_image("saved", '2');
    saved.layers = {layer('a'), layer('b')};
    EXPECT_TRUE(run(admin(), AddImage{saved}));
  }

  static Digest layer(char c) { return *digest_from_hex(std::string(64, c)); }

  Result<Answer> add(const std::string& base, std::vector<Digest> layers, char digest = '3') {
    Image image = a_image("mine", digest);
    image.base = base;
    image.layers = std::move(layers);
    image.added_by = user().user;
    return run(user(), AddImage{image});
  }

  Image root, saved;
};

TEST_F(BuiltOn, a_user_lists_what_has_the_layers_of_a_listed_image_and_takes_it_off_again) {
  ASSERT_TRUE(add("saved", {layer('a'), layer('b'), layer('c')}));

  JobSpec spec = a_spec();
  spec.image = "mine";
  EXPECT_TRUE(run(user(), SubmitJob{.idempotency_key = "", .spec = spec}));
  EXPECT_EQ(run(user(), RemoveImage{"saved"}).error().code, ErrorCode::kDenied);
  EXPECT_TRUE(run(user(), RemoveImage{"mine"}));
}

TEST_F(BuiltOn, a_root_file_system_is_the_one_layer_that_it_becomes) {
  EXPECT_TRUE(add(root.digest, {layer('1'), layer('c')}));
  EXPECT_EQ(add(root.digest, {layer('2'), layer('c')}, '4').error().code, ErrorCode::kDenied);
}

TEST_F(BuiltOn, other_layers_fewer_or_none_are_refused_with_the_first_that_differs) {
  const auto other = add("saved", {layer('a'), layer('c')});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kDenied);
  EXPECT_NE(other.error().message.find("its layer 2 is cccc"), std::string::npos);
  EXPECT_NE(add("saved", {layer('a')}).error().message.find("is missing"), std::string::npos);
  EXPECT_FALSE(add("saved", {}));
  EXPECT_FALSE(add("nowhere", {layer('a'), layer('b')}));
}

TEST_F(BuiltOn, an_image_stays_its_first_listers_and_a_user_lists_sixteen) {
  Image again = root;
  again.base = "saved";
  again.layers = {layer('a'), layer('b')};
  again.added_by = user().user;
  ASSERT_TRUE(run(user(), AddImage{again}));
  EXPECT_EQ(run(user(), RemoveImage{"root"}).error().code, ErrorCode::kDenied);

  for (int i = 0; i < 16; ++i) {
    Image image = a_image("", '5');
    image.name = "mine" + std::to_string(i);
    image.base = "saved";
    image.layers = {layer('a'), layer('b')};
    ASSERT_TRUE(run(user(), AddImage{image})) << i;
  }
  EXPECT_EQ(add("saved", {layer('a'), layer('b')}).error().code, ErrorCode::kExhausted);
}

TEST_F(Commands, a_join_token_works_once) {
  const TokenMade token = join_token();
  ASSERT_TRUE(run({}, a_join(token)));
  EXPECT_TRUE(run({}, a_join(token))) << "a lost answer may be asked for again";

  const auto second = run({}, a_join(token, 8));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kDenied);
  EXPECT_NE(second.error().message.find("was used already"), std::string::npos);
  EXPECT_EQ(count_events("token.reused"), 1U);
  clock.advance(std::chrono::minutes(11));
  EXPECT_FALSE(run({}, a_join(token)));
  EXPECT_EQ(tables.nodes.size(), 1U);
}

TEST_F(Commands, a_join_token_is_still_used_after_a_restart) {
  const TokenMade token = join_token();
  ASSERT_TRUE(run({}, a_join(token)));
  restart();

  EXPECT_FALSE(run({}, a_join(token, 8)));
}

TEST_F(Commands, an_expired_a_revoked_or_a_made_up_join_token_is_denied) {
  const TokenMade token = join_token(60);
  clock.advance(std::chrono::seconds(61));
  EXPECT_NE(run({}, a_join(token)).error().message.find("expired"), std::string::npos);
  TokenMade made_up = token;
  made_up.secret = "0123";
  EXPECT_NE(run({}, a_join(made_up)).error().message.find("unknown"), std::string::npos);
  const TokenMade other = join_token();
  TokenMade mixed = other;
  mixed.token.id = token.token.id;
  EXPECT_NE(run({}, a_join(mixed)).error().message.find("unknown"), std::string::npos)
      << "one's id with the other's secret";
  ASSERT_TRUE(run(admin(), RevokeToken{other.token.id}));
  EXPECT_NE(run({}, a_join(other)).error().message.find("revoked"), std::string::npos);
}

TEST_F(Commands, a_user_token_does_not_join_a_node_and_a_join_token_does_not_log_in) {
  const auto made = run(admin(), CreateUserToken{.user = UserId("ann"), .lab = LabId("lab-x")});
  const TokenMade token = std::get<TokenMade>(made.value());
  EXPECT_FALSE(run({}, a_join(token)));
  const auto authenticate = [this](const std::string& id, const std::string& secret) {
    return core->authenticate(id, secret, clock.now().wall);
  };
  const TokenMade join = join_token();
  EXPECT_FALSE(authenticate(join.token.id, join.secret));
  EXPECT_FALSE(authenticate(join.token.id, token.secret)) << "an id that is another's";
  EXPECT_FALSE(authenticate("", token.secret));

  const auto caller = authenticate(token.token.id, token.secret);
  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->user, UserId("ann"));
  EXPECT_EQ(caller->role, Role::kUser);
  ASSERT_TRUE(run(admin(), RevokeToken{token.token.id}));
  EXPECT_FALSE(authenticate(token.token.id, token.secret));
}

TEST_F(Commands, a_machine_that_is_alive_cannot_be_joined_a_second_time) {
  FakeAgent& a = add_node("a", "lab-a");
  JoinNode join = a_join(join_token());
  join.machine_id = a.hello.machine_id;

  const auto answer = run({}, join);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kConflict);
  disconnect(a);
  EXPECT_TRUE(run({}, join)) << "a reinstalled agent replaces its dead predecessor";
  EXPECT_TRUE(tables.nodes.at(a.id).is_revoked);
}

TEST_F(Commands, a_machine_that_joins_again_with_its_key_is_the_same_node) {
  FakeAgent& a = add_node("a", "lab-a");
  JoinNode again = a_join(join_token());
  again.machine_id = "m-a";
  again.hostname = "a";
  again.public_key = public_key_of(a);
  const auto connected = run({}, again);
  ASSERT_TRUE(connected) << connected.error().describe();
  EXPECT_EQ(std::get<NodeJoined>(*connected).node, a.id);
  EXPECT_EQ(core->node(a.id, clock.now())->row.state, NodeState::kUp) << "only a new certificate";

  disconnect(a);
  pass(60'000);
  const TokenMade next = join_token();
  again.token = next.token.id;
  again.secret = next.secret;
  const auto answer = run({}, again);
  ASSERT_TRUE(answer) << answer.error().describe();
  EXPECT_EQ(std::get<NodeJoined>(*answer).node, a.id);
  EXPECT_EQ(core->node(a.id, clock.now())->row.history.lost, 1U) << "its history stays";
  connect(a);
  EXPECT_EQ(core->node(a.id, clock.now())->row.state, NodeState::kUp);
}

TEST_F(Commands, only_the_coordinator_itself_writes_history) {
  const NoteJob note{JobId("j-1"), UserId("ann"), LabId("lab-x"), "outputs.expire", "soon"};
  EXPECT_FALSE(run(user(), note));
  EXPECT_TRUE(run(Core::system_caller(), note));

  EXPECT_EQ(last_event("outputs.expire").job, JobId("j-1"));
  EXPECT_EQ(last_event("outputs.expire").user, UserId("ann"));
}

TEST_F(Commands, tokens_are_made_by_those_who_may) {
  EXPECT_FALSE(run(user(), CreateJoinToken{.lab = LabId("lab-x")}));
  const Caller owner{UserId("o"), LabId("lab-x"), Role::kOwner};
  EXPECT_TRUE(run(owner, CreateJoinToken{.lab = LabId("lab-x")}));
  EXPECT_FALSE(run(owner, CreateJoinToken{.lab = LabId("lab-y")}));
  EXPECT_FALSE(run(owner, CreateUserToken{.user = UserId("u"), .lab = LabId("lab-x")}));
}

TEST_F(Commands, the_queue_is_bounded_for_a_user_and_for_the_site) {
  config.max_unfinished_jobs_per_user = 2;
  config.max_unfinished_jobs = 3;
  restart();
  submit();
  submit();

  EXPECT_EQ(run(user(), SubmitJob{.spec = a_spec()}).error().code, ErrorCode::kExhausted);
  submit(a_spec(), user("bob"));
  EXPECT_EQ(run(user("cyd"), SubmitJob{.spec = a_spec()}).error().code, ErrorCode::kExhausted);
}

TEST_F(Commands, finished_jobs_are_forgotten_in_memory_beyond_the_bound) {
  config.max_finished_jobs_kept = 2;
  restart();
  std::vector<JobId> ids;
  for (int i = 0; i < 5; ++i) {
    ids.push_back(submit());
    ASSERT_TRUE(run(user(), StopJob{ids.back()}));
  }
  const JobId open = submit();
  pass(2000);

  EXPECT_EQ(core->find_job(ids[0]), nullptr);
  EXPECT_NE(core->find_job(ids[4]), nullptr);
  EXPECT_NE(core->find_job(open), nullptr);
  EXPECT_EQ(tables.jobs.size(), 6U);
}

TEST_F(Commands, others_jobs_may_not_be_read) {
  const JobId id = submit();

  EXPECT_TRUE(Core::may_read(user(), job(id)));
  EXPECT_TRUE(Core::may_read(admin(), job(id)));
  EXPECT_FALSE(Core::may_read(user("bob"), job(id)));
  EXPECT_FALSE(Core::may_read({}, job(id)));
}

}  // namespace
}  // namespace rn::coordinator
