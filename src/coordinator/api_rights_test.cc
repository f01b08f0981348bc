// SPDX-License-Identifier: Apache-2.0

// Who may do what: every route, every kind of caller, and objects that are really there and mostly
// somebody else's. A route without a row fails, so nobody adds one without saying for whom it is.

#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "coordinator/api.h"
#include "coordinator/daemon_finishing_agent.h"
#include "coordinator/daemon_fixture.h"

namespace rn::coordinator {
namespace {

using nlohmann::json;

/// What stands for {…} in a path, and for @ in a query or a body. All but the ended job, the node
/// and blobs are made anew for each call, so that no call finds what another one has done.
enum class Object {
  kNothing,
  kEndedJob,   ///< of ann, with log and outputs
  kJob,        ///< of ann, queued
  kNotebook,   ///< a job of ann's that serves browsers, queued
  kArray,      ///< of ann, queued
  kGang,       ///< of an administrator, queued
  kNode,       ///< of lab-a
  kOtherNode,  ///< of lab-a, which may be lost
  kToken,      ///< of ann
  kJoinToken,  ///< made by oli for lab-a
  kImage,      ///< listed by an administrator
  kRule,       ///< a notification of ann's
  kQuota,      ///< of ann
  kBlob,
  kArchive  ///< the blob of an image
};

constexpr std::array<std::string_view, 10> kCallers = {
    "nobody",
    "a token that counts no more",
    "vic, viewer of lab-a",
    "ann, user of lab-a, whose the object is",
    "uma, user of lab-a",
    "bob, user of lab-b",
    "oli, owner of lab-a",
    "ola, owner of lab-b",
    "root, admin",
    "a node of lab-a"};

/// One row of the table of rights.
struct Right {
  std::string_view route;
  Object object;
  std::string_view query;
  std::string_view body;
  std::array<int, kCallers.size()> answers;  ///< statuses; what is not said is 0 and fails
};

constexpr std::string_view kSubmit = R"({"command": ["true"]})";
constexpr std::string_view kSubmitNotebook =
    R"({"command": ["true"], "env": {"NOTEBOOK_PORT": "8888"}})";
constexpr std::string_view kSubmitAfter = R"({"command": ["true"], "after": [{"job": "@"}]})";
constexpr std::string_view kHook = R"({"webhook": "http://127.0.0.1:9/h"})";
constexpr std::string_view kHookOfJob = R"({"webhook": "http://127.0.0.1:9/h", "job": "@"})";
constexpr std::string_view kHookOfNodes = R"({"webhook": "http://127.0.0.1:9/h", "on": ["lost"]})";
constexpr std::string_view kOrder = R"({"order": "order-0001", "kind": "emergency"})";
constexpr std::string_view kContract =
    R"({"edit": "edit-0001", "from": "another", "contract": {"lends": false}})";
constexpr std::string_view kListImage =
    R"({"name": "again", "digest": "sha256:@", "bytes": 14, "blobs": ["@"]})";
constexpr std::string_view kMakeJoin = R"({"kind": "join", "lab": "lab-a"})";
constexpr std::string_view kMakeUser = R"({"kind": "user", "user": "new", "lab": "lab-a"})";

using O = Object;

// clang-format off
const std::vector<Right> kRights = {
  //                                                     nobody dead vic  ann  uma  bob  oli  ola  root node
  {"submitJob", O::kNothing, "", kSubmit,                 {401, 403, 403, 201, 201, 201, 201, 201, 201, 403}},
  {"submitJob", O::kEndedJob, "", kSubmitAfter,           {401, 403, 403, 201, 404, 404, 404, 404, 404, 403}},
  {"listJobs", O::kNothing, "", "",                       {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"showJob", O::kEndedJob, "", "",                       {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  {"showJob", O::kJob, "", "",                            {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  {"readLog", O::kEndedJob, "", "",                       {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  {"findInLog", O::kEndedJob, "?tail=1", "",              {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  {"explainJob", O::kEndedJob, "", "",                    {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  {"explainJob", O::kJob, "", "",                         {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  {"planJob", O::kNothing, "", kSubmit,                   {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"planJob", O::kEndedJob, "", kSubmitAfter,             {401, 403, 404, 200, 404, 404, 404, 404, 404, 403}},
  {"stopJob", O::kJob, "", "{}",                          {401, 403, 403, 200, 404, 404, 200, 404, 200, 403}},
  {"stopJob", O::kEndedJob, "", "{}",                     {401, 403, 403, 200, 404, 404, 200, 404, 200, 403}},
  {"submitArray", O::kNothing, "",
   R"({"spec": {"command": ["x"]}, "indices": [1, 2]})",  {401, 403, 403, 201, 201, 201, 201, 201, 201, 403}},
  {"stopArray", O::kArray, "", "{}",                      {401, 403, 403, 200, 404, 404, 200, 404, 200, 403}},
  {"submitGang", O::kNothing, "",
   R"({"spec": {"command": ["x"]}, "size": 2})",          {401, 403, 403, 403, 403, 403, 403, 403, 201, 403}},
  {"showGang", O::kGang, "", "",                          {401, 403, 404, 404, 404, 404, 404, 404, 200, 403}},
  {"stopGang", O::kGang, "", "{}",                        {401, 403, 403, 404, 404, 404, 404, 404, 200, 403}},
  {"listAttempts", O::kEndedJob, "", "",                  {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  {"listGenerations", O::kEndedJob, "", "",               {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  {"showOutputs", O::kEndedJob, "", "",                   {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  {"listJobEvents", O::kEndedJob, "", "",                 {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  // Without an upgrade; whose job is reached with one: daemon_tunnels_test.cc.
  {"forwardPort", O::kEndedJob, "?job=@&port=8888", "",   {401, 403, 403, 400, 400, 400, 400, 400, 400, 403}},
  {"visitGuest", O::kEndedJob, "?job=@", "",              {401, 403, 403, 400, 400, 400, 400, 400, 400, 403}},
  // Administrators neither, who are told what they may.
  {"openNotebook", O::kNotebook, "", "",                  {401, 403, 403, 200, 404, 404, 404, 404, 403, 403}},

  {"listNodes", O::kNothing, "", "",                      {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"showNode", O::kNode, "", "",                          {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"explainHazard", O::kNode, "", "",                     {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"revokeNode", O::kOtherNode, "", "",                   {401, 403, 403, 403, 403, 403, 403, 403, 204, 403}},
  {"orderReclaim", O::kNode, "", kOrder,                  {401, 403, 403, 403, 403, 403, 200, 403, 403, 403}},
  // Whose machine is away, and told nothing; what another one is told: core_contracts_test.cc.
  {"editContract", O::kNode, "", kContract,               {401, 403, 403, 403, 403, 403, 503, 403, 403, 403}},
  {"checkContract", O::kNode, "", kContract,              {401, 403, 403, 403, 403, 403, 200, 403, 403, 403}},
  {"listEvents", O::kNothing, "", "",                     {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"listEvents", O::kEndedJob, "?job=@", "",              {401, 403, 404, 200, 404, 404, 404, 404, 200, 403}},
  {"listEvents", O::kNode, "?node=@", "",                 {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"streamEvents", O::kNothing, "", "",                   {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"listReclaims", O::kNothing, "", "",                   {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"listTelemetry", O::kNode, "?node=@", "",              {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"findMissingBlobs", O::kBlob, "",
   R"({"digests": ["@"]})",                               {401, 403, 403, 200, 200, 200, 200, 200, 200, 200}},
  {"putBlob", O::kBlob, "", "rights",                     {401, 403, 403, 204, 204, 204, 204, 204, 204, 204}},
  {"getBlob", O::kBlob, "", "",                           {401, 403, 200, 200, 200, 200, 200, 200, 200, 200}},
  {"headBlob", O::kBlob, "", "",                          {401, 403, 200, 200, 200, 200, 200, 200, 200, 200}},
  {"listImages", O::kNothing, "", "",                     {401, 403, 200, 200, 200, 200, 200, 200, 200, 200}},
  {"addImage", O::kArchive, "", kListImage,               {401, 403, 403, 403, 403, 403, 403, 403, 201, 403}},
  {"removeImage", O::kImage, "", "",                      {401, 403, 403, 403, 403, 403, 403, 403, 204, 403}},

  {"listTokens", O::kNothing, "", "",                     {401, 403, 403, 403, 403, 403, 200, 200, 200, 403}},
  {"makeToken", O::kNothing, "", kMakeJoin,               {401, 403, 403, 403, 403, 403, 201, 403, 201, 403}},
  {"makeToken", O::kNothing, "", kMakeUser,               {401, 403, 403, 403, 403, 403, 403, 403, 201, 403}},
  {"revokeToken", O::kToken, "", "",                      {401, 403, 403, 204, 404, 404, 403, 404, 204, 403}},
  {"revokeToken", O::kJoinToken, "", "",                  {401, 403, 403, 404, 404, 404, 204, 404, 204, 403}},
  {"whoami", O::kNothing, "", "",                         {401, 403, 200, 200, 200, 200, 200, 200, 200, 200}},
  {"joinNode", O::kNothing, "", "{}",                     {400, 400, 400, 400, 400, 400, 400, 400, 400, 400}},
  {"renewCertificate", O::kNothing, "", "{}",             {401, 403, 403, 403, 403, 403, 403, 403, 403, 400}},
  {"connectAgent", O::kNothing, "", "",                   {401, 403, 403, 403, 403, 403, 403, 403, 403, 400}},
  {"connectTunnels", O::kNothing, "", "",                 {401, 403, 403, 403, 403, 403, 403, 403, 403, 400}},
  {"showVersion", O::kNothing, "", "",                    {200, 200, 200, 200, 200, 200, 200, 200, 200, 200}},
  {"showHealth", O::kNothing, "", "",                     {200, 200, 200, 200, 200, 200, 200, 200, 200, 200}},
  {"showReadiness", O::kNothing, "", "",                  {200, 200, 200, 200, 200, 200, 200, 200, 200, 200}},
  {"showMetrics", O::kNothing, "", "",                    {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"showOpenapi", O::kNothing, "", "",                    {200, 200, 200, 200, 200, 200, 200, 200, 200, 200}},

  {"listNotifications", O::kNothing, "", "",              {401, 403, 403, 200, 200, 200, 200, 200, 200, 403}},
  {"listNotifications", O::kNothing, "?all=1", "",        {401, 403, 403, 403, 403, 403, 403, 403, 200, 403}},
  {"addNotification", O::kNothing, "", kHook,             {401, 403, 403, 201, 201, 201, 201, 201, 201, 403}},
  {"addNotification", O::kEndedJob, "", kHookOfJob,       {401, 403, 403, 201, 404, 404, 404, 404, 403, 403}},
  {"addNotification", O::kNothing, "", kHookOfNodes,      {401, 403, 403, 403, 403, 403, 201, 201, 201, 403}},
  {"confirmNotification", O::kRule, "",
   R"({"code": "00000000"})",                             {401, 403, 403, 200, 404, 404, 404, 404, 404, 403}},
  {"testNotification", O::kRule, "", "",                  {401, 403, 403, 204, 404, 404, 404, 404, 404, 403}},
  {"removeNotification", O::kRule, "", "",                {401, 403, 403, 204, 404, 404, 404, 404, 204, 403}},

  {"listQuotas", O::kNothing, "", "",                     {401, 403, 200, 200, 200, 200, 200, 200, 200, 403}},
  {"setQuota", O::kQuota, "", R"({"jobs": 2000})",        {401, 403, 403, 403, 403, 403, 403, 403, 200, 403}},
  {"removeQuota", O::kQuota, "", "",                      {401, 403, 403, 403, 403, 403, 403, 403, 204, 403}},

  // A site without a provider; with one: oidc_test.cc.
  {"describeSignIn", O::kNothing, "", "",                 {200, 200, 200, 200, 200, 200, 200, 200, 200, 200}},
  {"beginSignIn", O::kNothing, "", "",                    {404, 404, 404, 404, 404, 404, 404, 404, 404, 404}},
  {"finishSignIn", O::kNothing, "", "{}",                 {404, 404, 404, 404, 404, 404, 404, 404, 404, 404}},
  {"beginDeviceSignIn", O::kNothing, "", "",              {404, 404, 404, 404, 404, 404, 404, 404, 404, 404}},
  {"finishDeviceSignIn", O::kNothing, "", "{}",           {404, 404, 404, 404, 404, 404, 404, 404, 404, 404}},
  {"returnFromSignIn", O::kNothing, "?code=a&other=b", "",{404, 404, 404, 404, 404, 404, 404, 404, 404, 404}},

  {"openDashboard", O::kNothing, "", "",                  {303, 303, 303, 303, 303, 303, 303, 303, 303, 303}},
  {"showDashboard", O::kNothing, "", "",                  {404, 404, 404, 404, 404, 404, 404, 404, 404, 404}},
  {"showDashboardFile", O::kNothing, "", "",              {404, 404, 404, 404, 404, 404, 404, 404, 404, 404}},
};

// clang-format on

NotifyConfig with_dead_receivers() {
  NotifyConfig config;
  config.webhooks = {"http://127.0.0.1:9"};
  return config;
}

std::string with_object(std::string_view text, const std::string& object) {
  std::string result;
  for (const char c : text) result += c == '@' ? object : std::string(1, c);
  return result;
}

/// "/v1/jobs/{id}/why" with the object in it; as it is if there is none.
std::string path_with(std::string_view pattern, const std::string& object) {
  const auto open = pattern.find('{');
  if (open == std::string_view::npos || object.empty()) return std::string(pattern);
  const auto close = pattern.find('}', open);
  return std::string(pattern.substr(0, open)) + object + std::string(pattern.substr(close + 1));
}

/// A site on which each kind of caller has a token, and each kind of object is there.
class RightsSite : public ::testing::Test {
 protected:
  RightsSite() : site_({}, 100, {}, {}, with_dead_receivers()) {}

  void SetUp() override {
    archive_ = site_.add_base_image().substr(7);
    make_people();
    const auto node = join("machine-9");
    ASSERT_TRUE(node.has_value()) << node.error().describe();
    node_ = *node;
  }

  Result<LightIdentity> join(const std::string& machine) {
    return join_light_agent(site_.url(), site_.make_token(std::string(kMakeJoin)), machine);
  }

  static std::string person(const char* user, const char* lab, const char* role, int ttl_s = 0) {
    return json{{"kind", "user"}, {"user", user}, {"lab", lab}, {"role", role}, {"ttl_s", ttl_s}}
        .dump();
  }

  void make_people() {
    tokens_ = {
        "",
        "",
        site_.make_token(person("vic", "lab-a", "viewer")),
        site_.make_token(person("ann", "lab-a", "user")),
        site_.make_token(person("uma", "lab-a", "user")),
        site_.make_token(person("bob", "lab-b", "user")),
        site_.make_token(person("oli", "lab-a", "owner")),
        site_.make_token(person("ola", "lab-b", "owner")),
        "admin",
        ""};
  }

  void make_dead_tokens() {
    const json revoked =
        json::parse(site_.call("POST", "/v1/tokens", person("ann", "lab-a", "user")).body);
    const std::string id = revoked["info"]["id"];
    ASSERT_EQ(site_.call("DELETE", "/v1/tokens/" + id).status, 204);
    dead_ = {
        revoked["token"].get<std::string>(),
        site_.make_token(person("ann", "lab-a", "user", 1)),
        site_.make_token(std::string(kMakeJoin))};
    std::this_thread::sleep_for(milliseconds(1200));  // until the second one has expired
  }

  /// Ann's, with everything that a job leaves behind. Its machine is gone then, and what is
  /// submitted later waits.
  void end_a_job() {
    Listing outputs;
    outputs.files.push_back(
        {.path = "model.pt", .bytes = 7, .blobs = {*digest_from_hex(site_.put("weights"))}}
    );
    FinishingAgent agent(site_, "sha256:" + archive_, outputs);
    ended_job_ = submitted();
    for (int i = 0; i < 1000; ++i) {
      const std::string path = "/v1/jobs/" + ended_job_;
      if (json::parse(site_.call("GET", path).body)["state"] == "succeeded") break;
      std::this_thread::sleep_for(milliseconds(20));  // between two looks
    }
    agent.stop();
  }

  const std::string& ann() const { return tokens_[3]; }

  std::string submitted() { return made("/v1/jobs", std::string(kSubmit), ann(), "/job/id"); }

  std::string made(
      const std::string& path, const std::string& body, const std::string& who, const char* at
  ) {
    const auto reply = site_.call("POST", path, body, who);
    EXPECT_EQ(reply.status, 201) << path << ": " << reply.body;
    return json::parse(reply.body).at(json::json_pointer(at)).get<std::string>();
  }

  std::string make(Object object) {
    switch (object) {
      case Object::kNothing:
        return {};
      case Object::kEndedJob:
        return ended_job_;
      case Object::kJob:
        return submitted();
      case Object::kNotebook:
        return made("/v1/jobs", std::string(kSubmitNotebook), ann(), "/job/id");
      case Object::kArray:
        return made(
            "/v1/arrays", R"({"spec": {"command": ["x"]}, "indices": [1, 2]})", ann(), "/array"
        );
      case Object::kGang:
        return made("/v1/gangs", R"({"spec": {"command": ["x"]}, "size": 2})", "admin", "/gang");
      case Object::kNode:
        return node_.node.str();
      case Object::kOtherNode: {
        const auto other = join("machine-x" + std::to_string(++count_));
        EXPECT_TRUE(other.has_value());
        return other ? other->node.str() : "none";
      }
      case Object::kToken:
        return made("/v1/tokens", person("ann", "lab-a", "user"), "admin", "/info/id");
      case Object::kJoinToken:
        return made("/v1/tokens", std::string(kMakeJoin), tokens_[6], "/info/id");
      case Object::kImage: {
        const json image = {
            {"name", "image-" + std::to_string(++count_)},
            {"digest", "sha256:" + archive_},
            {"bytes", 14},
            {"blobs", {archive_}}};
        return made("/v1/images", image.dump(), "admin", "/name");
      }
      case Object::kRule:
        return made("/v1/notifications", std::string(kHook), ann(), "/rule/id");
      case Object::kQuota:
        EXPECT_EQ(site_.call("PUT", "/v1/quotas/user%3Aann", R"({"jobs": 1000})").status, 200);
        return "user%3Aann";
      case Object::kBlob:
        return site_.put("rights");
      case Object::kArchive:
        return archive_;
    }
    return {};
  }

  io::HttpCall prepared(const Route& route, const Right& right, std::size_t caller) {
    const std::string object = make(right.object);
    const bool is_dead = caller == 1;
    const std::string token = is_dead ? dead_[++count_ % dead_.size()] : tokens_[caller];
    io::HttpCall call = site_.prepared(
        std::string(route.method),
        path_with(route.pattern, object) + with_object(right.query, object),
        token
    );
    call.body = with_object(right.body, object);
    if (caller == kCallers.size() - 1) call.tls = node_.tls;
    return call;
  }

  /// A stream has no end: what begins well is enough.
  int status_of(const Route& route, io::HttpCall call) {
    bool has_begun = false;
    if (route.answer == "events")
      call.on_data = [&has_begun](BlobView) -> Status {
        has_begun = true;
        return fail(ErrorCode::kUnavailable, "enough");
      };
    const auto reply =
        route.answer == "events" ? io::perform_blocking(call) : session_.perform(call);
    if (has_begun) return 200;
    EXPECT_TRUE(reply.has_value()) << route.pattern << ": " << reply.error().describe();
    return reply ? reply->status : -1;
  }

  int answered(const Route& route, const Right& right, std::size_t caller) {
    for (int tries = 0;; ++tries) {
      const int status = status_of(route, prepared(route, right, caller));
      // Strangers are rate-limited by real time.
      if (status != 429 || tries == 20) return status;
      std::this_thread::sleep_for(milliseconds(100));  // the time in which some more are let in
    }
  }

  LiveSite site_;
  io::HttpSession session_;
  std::string archive_;  ///< its SHA-256
  std::array<std::string, kCallers.size()> tokens_;
  std::array<std::string, 3> dead_;
  std::string ended_job_;
  LightIdentity node_;
  std::size_t count_ = 0;
};

const Route* route_named(std::string_view id) {
  for (const Route& route : routes())
    if (route.id == id) return &route;
  return nullptr;
}

TEST(Rights, every_route_has_a_row_in_the_table_and_every_row_a_route) {
  std::set<std::string_view> rows;
  for (const Right& right : kRights) {
    EXPECT_NE(route_named(right.route), nullptr) << right.route << " is no route any more";
    rows.insert(right.route);
  }
  for (const Route& route : routes())
    EXPECT_TRUE(rows.contains(route.id))
        << route.id << ": say in kRights who may do it, and with whose objects";
}

TEST_F(RightsSite, every_caller_gets_what_the_table_says_of_every_route_and_object) {
  make_dead_tokens();
  end_a_job();
  for (const Right& right : kRights) {
    const Route* const route = route_named(right.route);
    if (route == nullptr) continue;  // the test above says it
    for (std::size_t caller = 0; caller < kCallers.size(); ++caller)
      EXPECT_EQ(answered(*route, right, caller), right.answers[caller])
          << route->method << " " << route->pattern << right.query << " " << right.body << " by "
          << kCallers[caller];
  }
}

TEST_F(RightsSite, what_one_may_not_have_is_answered_as_what_is_not_there) {
  const std::string job = make(Object::kJob);
  const std::string token = make(Object::kToken);
  const std::string rule = make(Object::kRule);
  const auto said = [&](const char* method, const std::string& path) {
    return json::parse(site_.call(method, path, "{}", tokens_[5]).body)["error"];
  };
  const auto without = [](json error, const std::string& name) {
    std::string text = error.dump();
    for (auto at = text.find(name); at != std::string::npos; at = text.find(name))
      text.replace(at, name.size(), "X");
    return text;
  };

  struct Pair {
    const char* method;
    std::string before;
    std::string there;
    std::string not_there;
    std::string after;
  };

  const std::vector<Pair> pairs = {
      {"GET", "/v1/jobs/", job, "j-0000000000000000", ""},
      {"GET", "/v1/jobs/", job, "j-0000000000000000", "/logs"},
      {"POST", "/v1/jobs/", job, "j-0000000000000000", "/stop"},
      {"DELETE", "/v1/tokens/", token, "t-0000000000000000", ""},
      {"DELETE", "/v1/notifications/", rule, "w-0000000000000000", ""}};
  for (const Pair& pair : pairs)
    EXPECT_EQ(
        without(said(pair.method, pair.before + pair.there + pair.after), pair.there),
        without(said(pair.method, pair.before + pair.not_there + pair.after), pair.not_there)
    ) << pair.method
      << " " << pair.before << " … " << pair.after;
}

TEST_F(RightsSite, lists_show_each_what_is_theirs_and_no_more) {
  end_a_job();
  make(Object::kJob);
  make(Object::kRule);
  make(Object::kJoinToken);
  make(Object::kQuota);
  const auto listed = [&](const std::string& path, const char* list, std::size_t caller) {
    return json::parse(site_.call("GET", path, "", tokens_[caller]).body)[list].size();
  };
  // vic, ann, uma, bob, oli, ola, root
  const std::vector<std::size_t> callers = {2, 3, 4, 5, 6, 7, 8};
  const auto of_all = [&](const std::string& path, const char* list) {
    std::vector<std::size_t> counts;
    for (const std::size_t caller : callers) counts.push_back(listed(path, list, caller));
    return counts;
  };
  using Counts = std::vector<std::size_t>;

  EXPECT_EQ(of_all("/v1/jobs?all=1", "jobs"), (Counts{0, 2, 0, 0, 0, 0, 2}));
  EXPECT_EQ(of_all("/v1/quotas", "quotas"), (Counts{0, 1, 0, 0, 1, 0, 1}));
  for (const std::size_t caller : {std::size_t{4}, std::size_t{5}, std::size_t{6}, std::size_t{7}})
    EXPECT_EQ(listed("/v1/notifications", "rules", caller), 0U) << kCallers[caller];
  EXPECT_EQ(listed("/v1/notifications", "rules", 3), 1U);
  EXPECT_GT(listed("/v1/tokens", "tokens", 6), 0U);
  EXPECT_EQ(listed("/v1/tokens", "tokens", 7), 2U) << "bob's and her own";
  for (const std::size_t caller : callers) {
    const json all =
        json::parse(site_.call("GET", "/v1/events?limit=1000", "", tokens_[caller]).body)["events"];
    for (const json& event : all) {
      const bool is_anns = event["job"] != "";
      EXPECT_TRUE(!is_anns || caller == 3 || caller == 8) << kCallers[caller] << event;
    }
  }
}

TEST_F(RightsSite, an_owner_who_stops_a_job_of_the_lab_is_not_told_what_it_is) {
  const json spec = {
      {"command", {"python3", "secret.py"}}, {"name", "secret"}, {"env", {{"KEY", "secret"}}}};
  const std::string job = made("/v1/jobs", spec.dump(), ann(), "/job/id");
  const auto stopped = site_.call("POST", "/v1/jobs/" + job + "/stop", "{}", tokens_[6]);

  ASSERT_EQ(stopped.status, 200) << stopped.body;
  EXPECT_EQ(stopped.body.find("secret"), std::string::npos) << stopped.body;
  const json shown = json::parse(stopped.body);
  EXPECT_EQ(shown["id"], job);
  EXPECT_EQ(shown["state"], "cancelled");
  const json seen = json::parse(site_.call("GET", "/v1/jobs/" + job, "", ann()).body);
  EXPECT_EQ(seen["state"], "cancelled");
  EXPECT_EQ(seen["reason"], "stopped by oli");
}

}  // namespace
}  // namespace rn::coordinator
