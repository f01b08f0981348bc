// SPDX-License-Identifier: Apache-2.0
#include "cli_notebook.h"

#include <string>
#include <vector>

#include "cli_site_fixture.h"
#include <gtest/gtest.h>

#include "coordinator/daemon_fixture.h"

namespace rn::cli {
namespace {

/// What a command line gives.
Result<NotebookFlags> parsed(const std::vector<std::string>& words) {
  CLI::App app;
  NotebookFlags flags;
  add_notebook_flags(app, flags);
  std::vector<std::string> backwards(words.rbegin(), words.rend());  // as CLI11 takes them
  try {
    app.parse(backwards);
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalid, error.what());
  }
  RN_CHECK(check_notebook_flags(app, flags));
  return flags;
}

TEST(NotebookFlags, make_a_job_that_saves_when_asked_and_serves_one_port) {
  const auto flags = parsed({"--gpu", "24GB", "--idle", "2h", "--name", "thesis"});
  ASSERT_TRUE(flags) << flags.error().message;

  const auto spec = notebook_spec(*flags);

  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->image, "notebook");
  EXPECT_EQ(spec->command, (std::vector<std::string>{"reclaim-notebook"}));
  EXPECT_EQ(spec->name, "thesis");
  EXPECT_TRUE(spec->checkpoint.tell_api);
  EXPECT_EQ(spec->env.at("NOTEBOOK_PORT"), "8888");
  EXPECT_EQ(spec->env.at("NOTEBOOK_IDLE_S"), "7200");
  EXPECT_EQ(notebook_spec(*parsed({}))->env.count("NOTEBOOK_IDLE_S"), 0u) << "it never ends";
}

TEST(NotebookFlags, are_refused_with_the_flags_name) {
  const auto flags = parsed({"--idle", "soon"});
  ASSERT_TRUE(flags);
  const auto spec = notebook_spec(*flags);
  ASSERT_FALSE(spec);
  EXPECT_TRUE(spec.error().message.starts_with("--idle: ")) << spec.error().message;

  const auto both = parsed({"12", "--gpu", "1"});
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().message, "job 12 is there already: --gpu is of a new one");
  EXPECT_TRUE(parsed({"12", "--wait", "5"}));
  EXPECT_FALSE(parsed({"--wait", "0"}));
  EXPECT_FALSE(parsed({"a/b"}));
}

class CliNotebook : public testing::Test {
 protected:
  int run(const NotebookFlags& flags) {
    testing::internal::CaptureStderr();
    const int code = notebook(client_of(site_, site_.admin()), flags);
    said_ = testing::internal::GetCapturedStderr();
    return code;
  }

  coordinator::LiveSite site_;
  std::string said_;
};

TEST_F(CliNotebook, one_that_does_not_answer_is_waited_for_and_then_left_as_it_is) {
  site_.add_base_image();
  ASSERT_EQ(
      site_.call("POST", "/v1/jobs", R"({"command": ["x"], "env": {"NOTEBOOK_PORT": "8888"}})")
          .status,
      201
  );
  NotebookFlags flags;
  flags.job = "1";
  flags.wait_s = 1;

  EXPECT_EQ(run(flags), 7);

  EXPECT_NE(said_.find("did not answer within 1 s; the job goes on"), said_.npos) << said_;
  EXPECT_NE(site_.call("GET", "/v1/jobs/1").body.find("\"queued\""), std::string::npos);
}

TEST_F(CliNotebook, a_job_that_is_not_there_or_has_none_is_said) {
  site_.add_base_image();
  ASSERT_EQ(site_.call("POST", "/v1/jobs", R"({"command": ["x"]})").status, 201);
  NotebookFlags flags;
  flags.job = "99";
  EXPECT_EQ(run(flags), 3) << said_;
  flags.job = "1";
  EXPECT_EQ(run(flags), 1) << said_;
  EXPECT_NE(said_.find("job 1 has no notebook\n  next: "), said_.npos) << said_;
}

}  // namespace
}  // namespace rn::cli
