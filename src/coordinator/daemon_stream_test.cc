// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_live_agent.h"

namespace rn::coordinator {
namespace {

using nlohmann::json;

constexpr const char* kPlainJob = R"({"command": ["true"]})";

struct StreamMessage {
  std::string id;
  std::string kind;
  json data;
};

/// One block of a stream; comments and numbers alone are no messages.
std::optional<StreamMessage> stream_message(const std::string& block) {
  StreamMessage told;
  std::size_t begin = 0;
  bool has_data = false;
  while (begin < block.size()) {
    const std::size_t end = std::min(block.find('\n', begin), block.size());
    const std::string line = block.substr(begin, end - begin);
    if (line.starts_with("id: ")) told.id = line.substr(4);
    if (line.starts_with("event: ")) told.kind = line.substr(7);
    if (line.starts_with("data: ")) {
      told.data = json::parse(line.substr(6));
      has_data = true;
    }
    begin = end + 1;
  }
  return has_data ? std::optional(told) : std::nullopt;
}

/// Reads a stream, calling `each` with every message (in order) until it says false or the stream
/// ends. Answers all messages.
std::vector<StreamMessage> hear(
    const LiveSite& site,
    const std::function<bool(const StreamMessage&)>& each,
    const std::string& token = "admin",
    const std::string& last_id = {}
) {
  std::vector<StreamMessage> all;
  std::string rest;
  io::HttpCall call = site.prepared("GET", "/v1/events/stream", token);
  if (!last_id.empty()) call.headers.emplace_back("Last-Event-ID", last_id);
  call.timeout = seconds(30);
  call.on_data = [&](BlobView piece) -> Status {
    rest += as_text(piece);
    for (std::size_t end = rest.find("\n\n"); end != std::string::npos; end = rest.find("\n\n")) {
      const auto told = stream_message(rest.substr(0, end));
      rest.erase(0, end + 2);
      if (!told) continue;
      all.push_back(*told);
      if (!each(*told)) return fail(ErrorCode::kInternal, "enough");
    }
    return {};
  };
  const auto reply = io::perform_blocking(call);
  if (!reply) {
    EXPECT_EQ(reply.error().message, "enough");
  } else {
    EXPECT_EQ(reply->status, 200) << reply->body;
  }
  return all;
}

bool is_of_submit(const StreamMessage& told) {
  return told.kind == "event" && told.data["kind"] == "job.submitted";
}

TEST(EventStream, begins_at_the_newest_event_and_tells_what_comes_later) {
  const LiveSite site;
  site.add_base_image();

  const auto told = hear(site, [&](const StreamMessage& one) {
    if (one.kind == "hello") {
      EXPECT_EQ(site.call("POST", "/v1/jobs", kPlainJob).status, 201);
    }
    return !is_of_submit(one);
  });

  ASSERT_GE(told.size(), 2u);
  EXPECT_EQ(told.front().kind, "hello");
  EXPECT_EQ(told.front().data["is_complete"], true);
  EXPECT_EQ(told.front().id, std::to_string(told.front().data["seq"].get<std::uint64_t>()));
  EXPECT_EQ(told.back().id, std::to_string(told.back().data["seq"].get<std::uint64_t>()));
  EXPECT_GT(told.back().data["seq"], told.front().data["seq"]);
}

TEST(EventStream, who_comes_back_is_told_what_was_missed_once_and_in_order) {
  const LiveSite site;
  site.add_base_image();
  const auto before = hear(site, [](const StreamMessage&) { return false; });
  for (int i = 0; i < 3; ++i) ASSERT_EQ(site.call("POST", "/v1/jobs", kPlainJob).status, 201);

  int submits = 0;
  const auto told = hear(
      site,
      [&](const StreamMessage& one) { return !is_of_submit(one) || ++submits < 3; },
      "admin",
      before.front().id
  );

  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.front().data["is_complete"], true);
  std::uint64_t last = std::stoull(before.front().id);
  for (std::size_t i = 1; i < told.size(); ++i) {
    EXPECT_EQ(told[i].data["seq"], last + 1);
    last = told[i].data["seq"];
  }
}

TEST(EventStream, who_knows_a_number_that_was_never_given_is_told_to_load_anew) {
  const LiveSite site;

  const auto told = hear(
      site, [](const StreamMessage&) { return false; }, "admin", "4000000000"
  );

  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told.front().data["is_complete"], false);
  EXPECT_LT(std::stoull(told.front().id), 4000000000u);
}

TEST(EventStream, who_missed_too_much_is_told_to_load_anew) {
  const LiveSite site;
  io::HttpCall call = site.prepared("POST", "/v1/tokens");
  call.body = R"({"kind": "join", "lab": "lab-a"})";
  std::vector<std::thread> callers;  // side by side, because each call waits for its commit
  for (int i = 0; i < 16; ++i) {
    callers.emplace_back([&call] {
      io::HttpSession session;
      for (int j = 0; j < 64; ++j) EXPECT_EQ(session.perform(call)->status, 201);
    });
  }
  for (std::thread& caller : callers) caller.join();

  const auto told = hear(
      site, [](const StreamMessage&) { return false; }, "admin", "1"
  );

  EXPECT_EQ(told.front().data["is_complete"], false);
  EXPECT_EQ(told.front().id, std::to_string(told.front().data["seq"].get<std::uint64_t>()));
}

TEST(EventStream, a_foreign_job_is_not_told_of) {
  const LiveSite site;
  site.add_base_image();
  const std::string ann = site.make_token(R"({"kind":"user","user":"ann","lab":"lab-a"})");
  const std::string bob = site.make_token(R"({"kind":"user","user":"bob","lab":"lab-b"})");

  const auto told = hear(
      site,
      [&](const StreamMessage& one) {
        if (one.kind == "hello") {
          EXPECT_EQ(site.call("POST", "/v1/jobs", kPlainJob, ann).status, 201);
          EXPECT_EQ(site.call("POST", "/v1/jobs", kPlainJob, bob).status, 201);
        }
        return !is_of_submit(one);
      },
      bob
  );

  for (const StreamMessage& one : told) {
    if (one.kind != "event") continue;
    EXPECT_EQ(one.data["user"], "bob") << one.data.dump();
  }
  EXPECT_EQ(told.back().data["user"], "bob");
}

TEST(EventStream, an_owner_hears_that_something_happened_on_the_own_machine_and_no_more) {
  const LiveSite site;
  LightAgent::Behaviour behaviour;
  behaviour.image_digest = site.add_base_image();
  LiveAgent agent(site, "lab-a", "machine-1", behaviour);
  const std::string student = site.make_token(R"({"kind":"user","user":"stu","lab":"lab-b"})");
  const std::string owner =
      site.make_token(R"({"kind":"user","user":"olga","lab":"lab-a","role":"owner"})");

  const auto told = hear(
      site,
      [&](const StreamMessage& one) {
        if (one.kind == "hello") {
          EXPECT_EQ(site.call("POST", "/v1/jobs", kPlainJob, student).status, 201);
        }
        return one.kind != "touched";
      },
      owner
  );
  agent.stop();

  EXPECT_EQ(told.back().data, json({{"node", agent.node().str()}}));
  for (const StreamMessage& one : told) {
    if (one.kind != "event") continue;
    EXPECT_EQ(one.data["job"], "") << one.data.dump();
  }
}

TEST(EventStream, a_token_that_is_revoked_ends_the_stream_with_a_word) {
  const LiveSite site;
  const auto made = json::parse(
      site.call("POST", "/v1/tokens", R"({"kind":"user","user":"ann","lab":"lab-a"})").body
  );

  const auto told = hear(
      site,
      [&](const StreamMessage& one) {
        const std::string id = made["info"]["id"];
        if (one.kind == "hello") {
          EXPECT_EQ(site.call("DELETE", "/v1/tokens/" + id).status, 204);
        }
        return true;
      },
      made["token"]
  );

  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told.back().kind, "denied");
  EXPECT_EQ(told.back().data["error"]["message"], "the token was revoked");
}

/// Whether one more stream is begun for the administrator; it is left at once.
bool is_admitted(const LiveSite& site) {
  bool is_begun = false;
  io::HttpCall call = site.prepared("GET", "/v1/events/stream");
  call.on_data = [&](BlobView) -> Status {
    is_begun = true;
    return fail(ErrorCode::kInternal, "enough");
  };
  const auto reply = io::perform_blocking(call);
  EXPECT_TRUE(!reply || reply->status == 429);
  return is_begun;
}

TEST(EventStream, one_user_opens_only_so_many_and_gets_new_ones_when_the_old_ones_end) {
  const LiveSite site;
  io::Loop loop;
  auto client = std::make_unique<io::HttpClient>(loop);
  int begun = 0;
  for (int i = 0; i < 32; ++i) {
    io::HttpCall call = site.prepared("GET", "/v1/events/stream");
    call.on_data = [&begun, is_first = true](BlobView) mutable -> Status {
      begun += is_first ? 1 : 0;
      is_first = false;
      return {};
    };
    client->perform(std::move(call), [](const auto&) {});
  }
  const auto limit = loop.run_after(seconds(60), [&] { loop.stop(); });
  const auto look = loop.run_every(milliseconds(10), [&] {
    if (begun == 32) loop.stop();
  });
  loop.run();
  loop.cancel(limit);
  loop.cancel(look);
  ASSERT_EQ(begun, 32);

  const bool is_one_more = is_admitted(site);
  client.reset();
  bool is_one_later = false;
  for (int i = 0; i < 500 && !is_one_later; ++i) {
    is_one_later = is_admitted(site);
    if (!is_one_later) std::this_thread::sleep_for(milliseconds(10));  // between two looks
  }

  EXPECT_FALSE(is_one_more);
  EXPECT_TRUE(is_one_later);
}

TEST(EventStream, a_number_that_is_none_is_refused) {
  const LiveSite site;

  EXPECT_EQ(site.call("GET", "/v1/events/stream?after=x").status, 400);
  EXPECT_EQ(site.call("GET", "/v1/events/stream", "", "").status, 401);
}

// ---- who is on a machine

TEST(Nodes, only_the_machines_owner_and_the_operator_see_who_is_on_it) {
  const LiveSite site;
  LightAgent::Behaviour behaviour;
  behaviour.image_digest = site.add_base_image();
  LiveAgent agent(site, "lab-a", "machine-1", behaviour);
  const auto token = [&](const char* user, const char* lab, const char* role) {
    return site.make_token(
        json{{"kind", "user"}, {"user", user}, {"lab", lab}, {"role", role}}.dump()
    );
  };
  const std::string student = token("stu", "lab-b", "user");
  ASSERT_EQ(site.call("POST", "/v1/jobs", kPlainJob, student).status, 201);
  const auto guests = [&](const std::string& caller) {
    return json::parse(site.call("GET", "/v1/nodes", "", caller).body)["nodes"][0]["guests"];
  };
  for (int i = 0; i < 500 && guests("admin").empty(); ++i)
    std::this_thread::sleep_for(milliseconds(20));  // between two looks

  const json seen = guests(token("olga", "lab-a", "owner"));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["user"], "stu");
  EXPECT_EQ(seen[0]["lab"], "lab-b");
  EXPECT_GT(seen[0]["since_wall_ms"], 0);
  EXPECT_EQ(guests(token("otto", "lab-b", "owner")).size(), 0u);
  EXPECT_EQ(guests(token("vera", "lab-a", "viewer")).size(), 0u);
  EXPECT_EQ(guests(student).size(), 0u);
  agent.stop();
}

// ---- the dashboard's files

constexpr std::array<DashboardFile, 2> kPages = {
    DashboardFile{
        "index.html", "text/html; charset=utf-8", "aa11", "<!doctype html>", "zipped", false},
    DashboardFile{"app-77.js", "text/javascript", "bb22", "run()", "", true}};

std::string header_of_page(const io::HttpReply& reply, std::string_view name) {
  return std::string(io::find_header(reply.headers, name));
}

io::HttpReply get_page(
    const LiveSite& site, const std::string& path, const io::HttpHeaders& headers
) {
  io::HttpCall call = site.prepared("GET", path, "");
  call.headers = headers;
  const auto reply = io::perform_blocking(call);
  EXPECT_TRUE(reply.has_value());
  return reply ? *reply : io::HttpReply{};
}

TEST(Dashboard, its_page_needs_no_token_and_lets_nothing_foreign_in) {
  const LiveSite site({}, 100, {}, kPages);

  const auto start = get_page(site, "/", {});
  const auto page = get_page(site, "/ui/", {});

  EXPECT_EQ(start.status, 303);
  EXPECT_EQ(header_of_page(start, "Location"), "/ui/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, "<!doctype html>");
  EXPECT_EQ(header_of_page(page, "Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(header_of_page(page, "Cache-Control"), "no-cache");
  EXPECT_EQ(header_of_page(page, "X-Content-Type-Options"), "nosniff");
  const std::string policy = header_of_page(page, "Content-Security-Policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'self'; ")) << policy;
  EXPECT_NE(policy.find("frame-ancestors 'none'"), std::string::npos) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
}

TEST(Dashboard, a_file_that_a_browser_has_is_not_sent_again) {
  const LiveSite site({}, 100, {}, kPages);
  const auto first = get_page(site, "/ui/", {});

  const auto again = get_page(site, "/ui/", {{"If-None-Match", header_of_page(first, "ETag")}});
  const auto other = get_page(site, "/ui/", {{"If-None-Match", "\"cc33\""}});
  const auto hashed = get_page(site, "/ui/app-77.js", {});

  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
  EXPECT_EQ(other.status, 200);
  EXPECT_NE(header_of_page(hashed, "Cache-Control").find("immutable"), std::string::npos);
}

TEST(Dashboard, who_takes_gzip_gets_what_was_compressed_before) {
  const LiveSite site({}, 100, {}, kPages);
  const auto plain = get_page(site, "/ui/", {});

  const auto page = get_page(site, "/ui/", {{"Accept-Encoding", "gzip, deflate, br"}});
  const auto refused = get_page(site, "/ui/", {{"Accept-Encoding", "gzip;q=0"}});
  const auto small = get_page(site, "/ui/app-77.js", {{"Accept-Encoding", "gzip"}});

  EXPECT_EQ(page.body, "zipped");
  EXPECT_EQ(header_of_page(page, "Content-Encoding"), "gzip");
  EXPECT_EQ(header_of_page(page, "Vary"), "Accept-Encoding");
  EXPECT_NE(header_of_page(page, "ETag"), header_of_page(plain, "ETag"));
  EXPECT_EQ(refused.body, "<!doctype html>");
  EXPECT_EQ(small.body, "run()");
  EXPECT_EQ(header_of_page(small, "Content-Encoding"), "");
}

TEST(Dashboard, what_is_not_there_is_said) {
  const LiveSite with({}, 100, {}, kPages);
  const LiveSite without;

  const auto missing = with.call("GET", "/ui/..%2fadmin.token", "", "");
  const auto none = without.call("GET", "/ui/", "", "");

  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(none.status, 404);
  EXPECT_NE(none.body.find("built without the dashboard"), std::string::npos);
}

}  // namespace
}  // namespace rn::coordinator
