// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon.h"

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "base/places_fixture.h"
#include "coordinator/api.h"
#include "coordinator/daemon_finishing_agent.h"
#include "coordinator/daemon_fixture.h"
#include "coordinator/sqlite_store.h"
#include "model/yaml.h"

namespace rn::coordinator {
namespace {

using nlohmann::json;

/// code, message and hint of an error body, as "code: message (hint)".
std::string said(const io::HttpReply& reply) {
  const json error = json::parse(reply.body)["error"];
  EXPECT_FALSE(error["hint"].get<std::string>().empty()) << reply.body;
  return error["code"].get<std::string>() + ": " + error["message"].get<std::string>();
}

constexpr const char* kJob = R"({"command": ["true"]})";

// ---- documents

/// Block YAML whose strings are JSON strings.
void write_yaml(const json& value, const std::string& indent, std::string& out) {
  const auto is_plain = [](const std::string& key) {
    return !key.empty() && std::isalpha(static_cast<unsigned char>(key[0])) != 0 &&
           key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
           ) == std::string::npos;
  };
  const auto nested = [&](const json& inner) {
    if (inner.is_structured() && !inner.empty()) {
      out += "\n";
      write_yaml(inner, indent + "  ", out);
    } else {
      out += " " + inner.dump() + "\n";
    }
  };
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      out += indent + (is_plain(key) ? key : json(key).dump()) + ":";
      nested(inner);
    }
  } else {
    for (const auto& inner : value) {
      out += indent + "-";
      nested(inner);
    }
  }
}

TEST(Openapi, the_file_in_the_repository_is_what_the_routes_and_field_tables_say) {
  const json document = openapi_document(Config{}.version);
  const std::string path = std::string(places::kDocs) + "/openapi.yaml";
  if (std::getenv("RN_UPDATE_GOLDEN") != nullptr) {
    std::string text =
        "# SPDX-License-Identifier: Apache-2.0\n# Made from the routes and field tables; a test "
        "compares.\n";
    write_yaml(document, "", text);
    std::ofstream(path) << text;
  }
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});

  const auto written = parse_yaml(text);

  ASSERT_TRUE(written.has_value()) << written.error().describe();
  // Not EXPECT_EQ, which would print both documents whole.
  EXPECT_TRUE(*written == document)
      << "if this is meant, rerun with RN_UPDATE_GOLDEN=1 and read the diff";
}

TEST(Openapi, every_route_is_an_operation_and_every_operation_a_route) {
  const json document = openapi_document("x");
  std::size_t operations = 0;
  for (const auto& [path, methods] : document["paths"].items()) operations += methods.size();
  std::set<std::string_view> ids;
  for (const Route& route : routes()) {
    ids.insert(route.id);
    std::map<std::string, std::string> parameters;
    const auto found = find_route(route.method, route.pattern, parameters);
    ASSERT_TRUE(found.has_value()) << route.pattern;
    EXPECT_EQ((*found)->id, route.id);
    if (!route.request.empty() && route.request != "bytes") {
      EXPECT_TRUE(document["components"]["schemas"].contains(std::string(route.request)))
          << route.request;
    }
  }
  EXPECT_EQ(operations, routes().size());
  EXPECT_EQ(ids.size(), routes().size());
}

// ---- service

TEST(Daemon, a_new_site_starts_without_configuration_and_keeps_its_secrets_to_itself) {
  const LiveSite site;

  EXPECT_EQ(site.call("GET", "/healthz", "", "").status, 200);
  EXPECT_EQ(site.call("GET", "/readyz", "", "").status, 200);
  EXPECT_EQ(json::parse(site.call("GET", "/v1/whoami").body)["role"], "admin");
  for (const char* file : {"/admin.token", "/pki/ca.key", "/pki/site.key", "/pki/ticket.key"}) {
    struct stat there {};

    ASSERT_EQ(::stat((site.state() + file).c_str(), &there), 0) << file;
    EXPECT_EQ(there.st_mode & 0777, 0600u) << file;
  }
}

TEST(Daemon, a_first_start_that_cannot_listen_keeps_no_admin_token_for_itself) {
  const ScratchFolder folder;
  DaemonConfig config;
  config.state = folder.path() + "/state";
  config.listen_address = "127.0.0.1";
  {
    const LiveSite other;
    config.port = static_cast<std::uint16_t>(std::stoul(other.url().substr(18)));
    io::Loop loop;
    const auto busy = Daemon::start(loop, config, {});
    ASSERT_FALSE(busy.has_value());
    EXPECT_NE(busy.error().hint.find("another address or port"), std::string::npos);
  }

  const LiveSite site(config.state);
  EXPECT_EQ(json::parse(site.call("GET", "/v1/whoami").body)["role"], "admin");
}

TEST(Daemon, the_campuss_clocks_are_looked_at_as_long_as_it_runs) {
  const LiveSite site;
  const std::uint32_t before = site.clock_looks();

  for (int i = 0; i < 2000 && site.clock_looks() < before + 3; ++i)
    std::this_thread::sleep_for(milliseconds(10));  // between two looks

  EXPECT_GE(site.clock_looks(), before + 3);
}

TEST(Daemon, a_second_coordinator_on_the_same_folder_is_refused) {
  const LiveSite site;
  io::Loop loop;
  DaemonConfig config;
  config.state = site.state();
  config.listen_address = "127.0.0.1";
  config.port = 0;

  const auto second = Daemon::start(loop, config, {});

  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kConflict);
  EXPECT_NE(second.error().message.find("another coordinator"), std::string::npos);
  EXPECT_NE(second.error().hint.find("--state"), std::string::npos);
}

TEST(Daemon, a_width_of_roll_ups_that_makes_no_sense_is_refused_with_what_to_do) {
  for (const std::uint32_t rollup_s : {0u, 9u, 86'401u}) {
    DaemonConfig config;
    config.core.rollup_s = rollup_s;
    const Status status = finish_config(config);
    ASSERT_FALSE(status.has_value()) << rollup_s;
    EXPECT_EQ(status.error().message, "rollup_s: expected 10 seconds to a day (86400)");
    EXPECT_FALSE(status.error().hint.empty());
  }
  DaemonConfig config;
  config.core.rollup_s = 10;
  EXPECT_TRUE(finish_config(config).has_value());
}

TEST(DaemonConfig, a_wait_that_makes_no_sense_before_owners_are_told_is_refused_with_what_to_do) {
  for (const std::uint32_t wanted_after_s : {0u, 9u, 2'592'001u}) {
    DaemonConfig config;
    config.core.wanted_after_s = wanted_after_s;
    const Status status = finish_config(config);
    ASSERT_FALSE(status.has_value()) << wanted_after_s;
    EXPECT_EQ(status.error().message, "wanted_after_s: expected 10 seconds to 30 days (2592000)");
    EXPECT_FALSE(status.error().hint.empty());
  }
  DaemonConfig config;
  config.core.wanted_after_s = 10;
  EXPECT_TRUE(finish_config(config).has_value());
}

TEST(DaemonConfig, addresses_and_names_are_checked_before_anything_starts) {
  const auto listens = [](const std::string& text) {
    DaemonConfig config;
    const Status parsed = parse_listen(text, config);
    return parsed ? config.listen_address + " " + std::to_string(config.port) : "refused";
  };
  EXPECT_EQ(listens("[::]:8000"), ":: 8000");
  EXPECT_EQ(listens(":0"), "0.0.0.0 0");
  EXPECT_EQ(listens("127.0.0.1:7443"), "127.0.0.1 7443");
  for (const char* wrong :
       {"localhost:7443", "::1:7443", "[::1:7443", "10.0.0.300:1", "1:65536", "", ":-1"})
    EXPECT_EQ(listens(wrong), "refused") << wrong;

  DaemonConfig config;
  config.port = 8000;
  config.url = "campus.example.org";
  ASSERT_TRUE(finish_config(config));
  EXPECT_EQ(config.url, "https://campus.example.org:8000") << "the port where it listens";
  config.url = "http://campus";
  EXPECT_EQ(
      finish_config(config).error().message,
      "url: the coordinator's address 'http://campus' is not one of https"
  );
  config.url = "";
  config.names = {"https://campus"};
  EXPECT_EQ(
      finish_config(config).error().message,
      "names: 'https://campus' is neither a name nor an address of a machine"
  );
}

/// Starts on a folder of a site that ran; the error's words, empty if it started.
std::string refusal_of(const std::string& state) {
  io::Loop loop;
  DaemonConfig config;
  config.state = state;
  config.listen_address = "127.0.0.1";
  config.port = 0;
  config.disk_reserve_bytes = 0;
  EXPECT_TRUE(finish_config(config).has_value());
  const auto daemon = Daemon::start(loop, config, {});
  if (daemon) return "";
  EXPECT_EQ(daemon.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(daemon.error().hint.find("backup"), std::string::npos);
  EXPECT_NE(daemon.error().hint.find("move " + state), std::string::npos);
  return daemon.error().message;
}

/// The state folder of a site that ran and stopped.
std::string make_used_state(const ScratchFolder& folder) {
  LiveSite site(folder.path() + "/state");
  site.put("something");
  site.stop();
  return site.state();
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Daemon, a_used_folder_without_its_database_is_refused_and_stays_as_it_is) {
  const ScratchFolder folder;
  const std::string state = make_used_state(folder);
  const std::string authority = text_of(state + "/pki/ca.pem");
  std::filesystem::rename(state + "/coordinator.db", folder.path() + "/kept.db");

  EXPECT_NE(refusal_of(state).find("coordinator.db is missing"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(state + "/coordinator.db"));

  std::ofstream(state + "/coordinator.db").close();
  EXPECT_NE(refusal_of(state).find("coordinator.db is empty"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(state + "/coordinator.db"), 0u);

  // Also with nothing but the blobs left.
  std::filesystem::rename(state + "/pki", folder.path() + "/kept.pki");
  std::filesystem::rename(state + "/admin.token", folder.path() + "/kept.token");
  EXPECT_NE(refusal_of(state).find("coordinator.db is empty"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(state + "/pki/ca.pem"));

  std::filesystem::rename(folder.path() + "/kept.pki", state + "/pki");
  std::filesystem::rename(folder.path() + "/kept.token", state + "/admin.token");
  std::filesystem::rename(folder.path() + "/kept.db", state + "/coordinator.db");
  EXPECT_EQ(refusal_of(state), "");
  EXPECT_EQ(text_of(state + "/pki/ca.pem"), authority);
}

TEST(Daemon, a_used_folder_without_its_keys_is_refused_and_gets_no_new_ones) {
  const ScratchFolder folder;
  const std::string state = make_used_state(folder);
  const std::string pki = state + "/pki";
  const std::string site_key = text_of(pki + "/site.key");
  // One file, then all of them, then the folder; at last the database alone tells.
  std::filesystem::rename(pki + "/ca.pem", folder.path() + "/ca.pem");
  EXPECT_NE(refusal_of(state).find("pki/ca.pem is missing"), std::string::npos);
  EXPECT_EQ(text_of(pki + "/site.key"), site_key);

  std::filesystem::rename(pki, folder.path() + "/kept.pki");
  std::filesystem::create_directory(pki);
  EXPECT_NE(refusal_of(state).find("pki/ca.pem is missing"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(pki));

  for (const char* name : {"/admin.token", "/blobs", "/logs"})
    std::filesystem::rename(state + name, folder.path() + name);
  EXPECT_NE(refusal_of(state).find("pki/ca.pem is missing"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(pki));

  std::filesystem::remove(pki);
  std::filesystem::rename(folder.path() + "/kept.pki", pki);
  std::filesystem::rename(folder.path() + "/ca.pem", pki + "/ca.pem");
  EXPECT_EQ(refusal_of(state), "");
}

TEST(Daemon, a_first_start_that_was_cut_off_before_the_keys_is_begun_again) {
  const ScratchFolder folder;
  const std::string state = folder.path() + "/state";
  std::filesystem::create_directories(state + "/blobs/lost+found");  // a disk of its own
  { ASSERT_TRUE(SqliteStore::open(state).has_value()); }
  std::filesystem::create_directory(state + "/pki");
  std::ofstream(state + "/pki/site.key") << "half";

  EXPECT_EQ(refusal_of(state), "");
}

TEST(Daemon, what_was_acknowledged_is_there_after_a_restart) {
  LiveSite site;
  site.add_base_image();
  const json job = json::parse(site.call("POST", "/v1/jobs", kJob).body)["job"];
  site.stop();
  site.start();

  const auto again = site.call("GET", "/v1/jobs/1");

  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(json::parse(again.body)["id"], job["id"]);
}

TEST(Daemon, an_old_job_that_still_waits_hides_no_younger_one_that_is_over) {
  LiveSite site("", 0);
  site.add_base_image();
  for (int i = 0; i < 3; ++i) site.call("POST", "/v1/jobs", kJob);
  EXPECT_EQ(site.call("POST", "/v1/jobs/2/stop", "{}").status, 200);
  site.call("POST", "/v1/jobs", kJob);
  site.stop();  // and what is over is only in the store
  site.start();
  const auto numbers = [&](const std::string& query) {
    const json list = json::parse(site.call("GET", "/v1/jobs" + query).body);
    std::vector<int> out;
    for (const json& job : list["jobs"]) out.push_back(job["number"]);
    return out;
  };

  EXPECT_EQ(numbers(""), (std::vector{4, 3, 1}));
  EXPECT_EQ(numbers("?all=1"), (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(numbers("?all=1&limit=2"), (std::vector{4, 3}));
  EXPECT_EQ(numbers("?all=1&limit=2&before=3"), (std::vector{2, 1}));
}

TEST(Daemon, metrics_speak_prometheus) {
  const LiveSite site;

  const auto page = site.call("GET", "/metrics");

  EXPECT_EQ(page.status, 200);
  EXPECT_NE(
      page.body.find("# TYPE reclaimnet_submit_to_start_seconds histogram\n"), std::string::npos
  );
  EXPECT_NE(page.body.find("reclaimnet_reclaims_total{kind=\"emergency\"} 0\n"), std::string::npos);
  EXPECT_NE(
      page.body.find("reclaimnet_http_requests_total{operation=\"showMetrics\"} 1\n"),
      std::string::npos
  );
}

// ---- bad input

TEST(BadInput, unknown_and_malformed_fields_are_named) {
  const LiveSite site;
  site.add_base_image();

  EXPECT_EQ(
      said(site.call("POST", "/v1/jobs", R"({"command": ["true"], "resources": {"memroy_mib": 1}})")
      ),
      "invalid: resources.memroy_mib: no such field"
  );
  EXPECT_EQ(
      said(site.call("POST", "/v1/jobs", R"({"command": ["true"], "priority": "high"})")),
      "invalid: priority: expected a whole number from 0 to 4294967295"
  );
  EXPECT_EQ(site.call("POST", "/v1/jobs", "{\"command\": [").status, 400);
  EXPECT_EQ(site.call("POST", "/v1/jobs", std::string(50, '[') + std::string(50, ']')).status, 400);
  EXPECT_EQ(said(site.call("GET", "/v1/jobs?al=1")), "invalid: no such query parameter: al");
  EXPECT_EQ(
      said(site.call("GET", "/v1/jobs?limit=many")), "invalid: limit: expected a whole number"
  );
  EXPECT_EQ(json::parse(site.call("GET", "/v1/jobs?all=1").body)["jobs"].size(), 0u);
}

TEST(BadInput, unknown_paths_and_methods_are_refused_with_what_there_is) {
  const LiveSite site;

  EXPECT_EQ(site.call("GET", "/v1/jbos").status, 404);
  EXPECT_EQ(said(site.call("DELETE", "/v1/jobs")), "unsupported: /v1/jobs does not take DELETE");
}

TEST(BadInput, oversize_bodies_are_refused_by_route) {
  const LiveSite site;

  EXPECT_EQ(site.call("POST", "/v1/tokens", std::string(100 << 10, ' ')).status, 413);
  EXPECT_EQ(site.call("POST", "/v1/jobs", std::string((1 << 20) + 1, ' ')).status, 413);
  EXPECT_EQ(site.call("GET", "/healthz", "x", "").status, 413);
  const std::string big((4 << 20) + 1, 'x');
  EXPECT_EQ(site.call("PUT", "/v1/blobs/" + std::string(64, 'a'), big).status, 413);
}

TEST(BadInput, a_blob_with_another_digest_is_refused_and_not_kept) {
  const LiveSite site;
  const std::string name(64, 'a');

  const auto reply = site.call("PUT", "/v1/blobs/" + name, "other bytes");

  EXPECT_EQ(reply.status, 422);
  EXPECT_TRUE(said(reply).starts_with("corrupt: the bytes have SHA-256 "));
  EXPECT_EQ(site.call("HEAD", "/v1/blobs/" + name).status, 404);
  EXPECT_EQ(site.call("PUT", "/v1/blobs/abc", "x").status, 400);
}

TEST(BadInput, an_image_whose_archive_is_another_is_not_listed) {
  const LiveSite site;
  const std::string piece = site.put("an archive");
  json body = {
      {"name", "base"},
      {"digest", "sha256:" + std::string(64, 'b')},
      {"bytes", 10},
      {"blobs", {piece}}};

  EXPECT_EQ(
      said(site.call("POST", "/v1/images", body.dump())),
      "corrupt: the archive's digest is sha256:" + piece + ", not sha256:" + std::string(64, 'b')
  );
  body["blobs"] = {std::string(64, 'c')};
  EXPECT_EQ(site.call("POST", "/v1/images", body.dump()).status, 404);
  EXPECT_EQ(json::parse(site.call("GET", "/v1/images").body)["images"].size(), 0u);
}

TEST(BadInput, an_image_whose_archive_is_none_is_not_listed) {
  const LiveSite site;
  const std::string piece = site.put("an archive");
  const json body = {
      {"name", "base"}, {"digest", "sha256:" + piece}, {"bytes", 10}, {"blobs", {piece}}};

  const auto reply = site.call("POST", "/v1/images", body.dump());

  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(said(reply), "invalid: the uploaded file is no archive of an image");
  EXPECT_EQ(json::parse(site.call("GET", "/v1/images").body)["images"].size(), 0u);
}

TEST(BadInput, an_image_off_the_list_and_a_missing_workspace_are_refused_at_submit) {
  const LiveSite site;

  const auto off_list = site.call("POST", "/v1/jobs", kJob);
  EXPECT_GE(off_list.status, 400);
  EXPECT_NE(said(off_list).find("base"), std::string::npos) << off_list.body;

  site.add_base_image();
  const json body = {{"command", {"true"}}, {"workspace", std::string(64, 'a')}};
  const auto missing = site.call("POST", "/v1/jobs", body.dump());
  EXPECT_EQ(missing.status, 404);
  EXPECT_NE(said(missing).find("no blob aaaa"), std::string::npos);
}

TEST(BadInput, a_listing_that_leaves_the_folder_is_refused) {
  const LiveSite site;
  site.add_base_image();
  Listing listing;
  listing.files.push_back({.path = "../../etc/passwd"});
  const Blob bytes = to_cbor(listing);
  const json body = {{"command", {"true"}}, {"workspace", site.put(std::string(as_text(bytes)))}};

  EXPECT_EQ(
      said(site.call("POST", "/v1/jobs", body.dump())),
      "invalid: not a path inside the folder: '../../etc/passwd'"
  );
}

TEST(BadInput, a_join_token_works_once) {
  const LiveSite site;
  const std::string token = site.make_token(R"({"kind": "join", "lab": "lab-a"})");

  const auto first = join_light_agent(site.url(), token, "machine-1");
  const auto second = join_light_agent(site.url(), token, "machine-2");

  ASSERT_TRUE(first.has_value()) << first.error().describe();
  EXPECT_EQ(first->lab, LabId("lab-a"));
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().message.find("used"), std::string::npos) << second.error().describe();
  EXPECT_FALSE(second.error().hint.empty());
}

TEST(BadInput, a_join_token_lives_an_hour_at_most) {
  const LiveSite site;

  const auto reply =
      site.call("POST", "/v1/tokens", R"({"kind": "join", "lab": "a", "ttl_s": 7200})");

  EXPECT_EQ(said(reply), "invalid: ttl_s: a join token lives from 1 to 3600 s");
}

// ---- rights

TEST(Rights, without_a_token_only_the_public_routes_answer) {
  const LiveSite site;
  for (const Route& route : routes()) {
    const auto reply = site.call(std::string(route.method), std::string(route.pattern), "", "");
    if (route.access == Access::kPublic) {
      EXPECT_NE(reply.status, 401) << route.pattern;
    } else {
      EXPECT_EQ(reply.status, 401) << route.method << " " << route.pattern;
    }
    if (::testing::Test::HasFailure()) return;
    // Strangers are rate-limited by real time; the routes outnumber the burst.
    std::this_thread::sleep_for(milliseconds(20));  // the time in which the limit allows one more
  }
}

TEST(Rights, each_route_refuses_every_role_below_its_own) {
  const LiveSite site;
  const std::vector<std::pair<Role, std::string>> tokens = {
      {Role::kViewer,
       site.make_token(R"({"kind":"user","user":"vic","lab":"lab-a","role":"viewer"})")},
      {Role::kUser, site.make_token(R"({"kind":"user","user":"uma","lab":"lab-a","role":"user"})")},
      {Role::kOwner,
       site.make_token(R"({"kind":"user","user":"oli","lab":"lab-a","role":"owner"})")}};
  const std::map<Access, Role> needed = {
      {Access::kUser, Role::kUser},
      {Access::kUserOrNode, Role::kUser},
      {Access::kOwner, Role::kOwner},
      {Access::kAdmin, Role::kAdmin}};
  for (const Route& route : routes()) {
    if (route.id == "streamEvents") continue;  // has no end: daemon_stream_test.cc
    for (const auto& [role, token] : tokens) {
      const auto reply =
          site.call(std::string(route.method), std::string(route.pattern), "", token);
      const bool is_refused = route.access == Access::kNode ||
                              (needed.contains(route.access) && role < needed.at(route.access));
      if (is_refused) {
        EXPECT_EQ(reply.status, 403)
            << to_string(role) << " " << route.method << " " << route.pattern;
      } else {
        EXPECT_LT(reply.status, 500)
            << to_string(role) << " " << route.method << " " << route.pattern;
      }
    }
  }
}

TEST(Rights, a_foreign_job_is_as_unknown_as_none) {
  const LiveSite site;
  site.add_base_image();
  const std::string ann = site.make_token(R"({"kind":"user","user":"ann","lab":"lab-a"})");
  const std::string bob = site.make_token(R"({"kind":"user","user":"bob","lab":"lab-b"})");
  ASSERT_EQ(site.call("POST", "/v1/jobs", kJob, ann).status, 201);

  for (const char* path :
       {"", "/why", "/logs", "/logs/range", "/attempts", "/generations", "/outputs", "/events"})
    EXPECT_EQ(
        said(site.call("GET", std::string("/v1/jobs/1") + path, "", bob)), "not_found: no job 1"
    );
  EXPECT_EQ(site.call("POST", "/v1/jobs/1/stop", "{}", bob).status, 404);
  EXPECT_EQ(
      said(site.call("POST", "/v1/jobs", R"({"command": ["x"], "after": [{"job": "1"}]})", bob)),
      "not_found: after[0]: no job 1"
  );
  EXPECT_EQ(site.call("GET", "/v1/events?job=1", "", bob).status, 404);
  EXPECT_EQ(json::parse(site.call("GET", "/v1/jobs?all=1", "", bob).body)["jobs"].size(), 0u);
  EXPECT_EQ(json::parse(site.call("GET", "/v1/events", "", bob).body)["events"].size(), 0u);
  EXPECT_EQ(site.call("GET", "/v1/jobs/1", "", ann).status, 200);
  EXPECT_EQ(json::parse(site.call("GET", "/v1/jobs", "", ann).body)["jobs"].size(), 1u);
}

TEST(Rights, an_array_is_stopped_by_its_user_and_unknown_to_others) {
  const LiveSite site;
  site.add_base_image();
  const std::string ann = site.make_token(R"({"kind":"user","user":"ann","lab":"lab-a"})");
  const std::string bob = site.make_token(R"({"kind":"user","user":"bob","lab":"lab-b"})");
  const std::string body = R"({"spec": {"command": ["x"]}, "indices": [1, 2, 5], "at_most": 1})";
  const auto made = site.call("POST", "/v1/arrays", body, ann);
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string id = json::parse(made.body)["array"];

  EXPECT_EQ(
      said(site.call("POST", "/v1/arrays/" + id + "/stop", "{}", bob)), "not_found: no array " + id
  );
  EXPECT_EQ(json::parse(site.call("GET", "/v1/jobs", "", bob).body)["jobs"].size(), 0u);
  const json stopped = json::parse(site.call("POST", "/v1/arrays/" + id + "/stop", "{}", ann).body);
  EXPECT_EQ(stopped["stopping"], 3u) << stopped;
  EXPECT_EQ(json::parse(site.call("GET", "/v1/jobs", "", ann).body)["jobs"].size(), 0u);
}

TEST(Rights, a_machine_is_ordered_back_by_its_own_owners_alone) {
  const LiveSite site;
  const std::string join = site.make_token(R"({"kind": "join", "lab": "lab-a"})");
  const auto node = join_light_agent(site.url(), join, "machine-1");
  ASSERT_TRUE(node.has_value()) << node.error().describe();
  const std::string path = "/v1/nodes/" + node->node.str();
  const auto token = [&](const char* lab, const char* role) {
    return site.make_token(json{
        {"kind", "user"},
        {"user", std::string("u-") + lab + role},
        {"lab", lab},
        {"role", role}}.dump());
  };
  const auto order = [&](const std::string& body, const std::string& who) {
    return site.call("POST", path + "/reclaim", body, who);
  };
  const std::string now = R"({"order": "order-0001", "kind": "emergency"})";
  const std::vector<std::pair<const char*, const char*>> strangers = {
      {"lab-a", "viewer"}, {"lab-a", "user"}, {"lab-b", "owner"}, {"it", "admin"}};
  for (const auto& [lab, role] : strangers)
    EXPECT_EQ(order(now, token(lab, role)).status, 403) << lab << " " << role;
  EXPECT_EQ(order(now, "admin").status, 403) << "the first administrator owns no machine";
  const std::string owner = token("lab-a", "owner");
  EXPECT_EQ(
      said(order(R"({"order": "order-0001", "lends": true})", owner)),
      "invalid: lends: no such field"
  );
  EXPECT_EQ(order(R"({"order": "order-0001", "kind": "release"})", owner).status, 400);

  const json given = json::parse(order(now, owner).body);
  EXPECT_EQ(given["state"], "waiting") << given;
  EXPECT_EQ(json::parse(order(now, owner).body), given) << "said again";
  const auto orders_for = [&](const std::string& who) {
    return json::parse(site.call("GET", path, "", who).body)["orders"].size();
  };
  EXPECT_EQ(orders_for(owner), 1u);
  EXPECT_EQ(orders_for("admin"), 1u);
  EXPECT_EQ(orders_for(token("lab-b", "owner")), 0u);
  EXPECT_EQ(orders_for(token("lab-a", "user")), 0u);
}

TEST(Api, events_of_a_node_or_a_kind_that_is_none_are_an_error_and_no_empty_list) {
  const LiveSite site;

  EXPECT_EQ(said(site.call("GET", "/v1/events?node=zz")), "not_found: no node zz");
  EXPECT_EQ(site.call("GET", "/v1/events?kind=a%25b").status, 400);
  EXPECT_EQ(site.call("GET", "/v1/events?kind=job.").status, 200);
}

TEST(Rights, a_token_that_is_not_whole_opens_nothing) {
  const LiveSite site;
  const std::string admin = site.admin();
  const std::size_t id = admin.find('.') + 1;
  const std::size_t secret = admin.find('.', id) + 1;
  std::string another = admin;
  another.replace(id, secret - 1 - id, "t-0000000000000001");

  for (const std::string& token : {another, admin.substr(secret), admin.substr(secret, 64)}) {
    EXPECT_EQ(site.call("GET", "/v1/whoami", "", token).status, 403) << token.size();
  }
  EXPECT_EQ(site.call("GET", "/v1/whoami").status, 200);
}

TEST(Rights, a_revoked_token_opens_nothing) {
  const LiveSite site;
  const auto made = json::parse(
      site.call("POST", "/v1/tokens", R"({"kind":"user","user":"ann","lab":"lab-a"})").body
  );
  const std::string token = made["token"];
  ASSERT_EQ(site.call("GET", "/v1/whoami", "", token).status, 200);

  ASSERT_EQ(site.call("DELETE", "/v1/tokens/" + made["info"]["id"].get<std::string>()).status, 204);

  EXPECT_EQ(site.call("GET", "/v1/whoami", "", token).status, 403);
}

// ---- jobs

TEST(Jobs, a_repeated_submit_with_the_same_key_is_the_same_job) {
  LiveSite site;
  site.add_base_image();
  site.use_key("once");

  const auto first = site.call("POST", "/v1/jobs", kJob);
  const auto second = site.call("POST", "/v1/jobs", kJob);
  const auto other = site.call("POST", "/v1/jobs", R"({"command": ["false"]})");

  EXPECT_EQ(first.status, 201);
  EXPECT_EQ(second.status, 200);
  EXPECT_EQ(json::parse(first.body)["job"]["id"], json::parse(second.body)["job"]["id"]);
  EXPECT_EQ(other.status, 409);
}

TEST(Jobs, a_job_goes_over_the_wire_from_submit_to_log_and_outputs) {
  const LiveSite site;
  const std::string image = site.add_base_image();
  Listing outputs;
  outputs.files.push_back(
      {.path = "model.pt", .bytes = 7, .blobs = {*digest_from_hex(site.put("weights"))}}
  );
  FinishingAgent agent(site, image, outputs);

  ASSERT_EQ(site.call("POST", "/v1/jobs", kJob).status, 201);
  json job;
  for (int i = 0; i < 1000; ++i) {
    job = json::parse(site.call("GET", "/v1/jobs/1").body);
    if (job["state"] == "succeeded" || job["state"] == "failed") break;
    std::this_thread::sleep_for(milliseconds(20));  // between two looks
  }
  const auto log = site.call("GET", "/v1/jobs/1/logs?follow=1&attempt=1");
  const auto part = site.call("GET", "/v1/jobs/1/logs?attempt=1&offset=6&end=9");
  const auto range = json::parse(site.call("GET", "/v1/jobs/1/logs/range?tail=1").body);
  const auto early = json::parse(site.call("GET", "/v1/jobs/1/logs/range?until_ms=1").body);
  const auto bad = site.call("GET", "/v1/jobs/1/logs/range?since_ms=yesterday");
  const auto published = site.call("GET", "/v1/jobs/1/outputs");
  agent.stop();

  EXPECT_EQ(job["state"], "succeeded") << job.dump() << site.call("GET", "/v1/jobs/1/why").body;
  EXPECT_EQ(log.body, "hello from the guest\n");
  EXPECT_EQ(part.body, "fro");
  EXPECT_EQ(range["begin"], 0) << range.dump();
  EXPECT_EQ(range["end"], 21);
  EXPECT_EQ(range["attempt"], 1);
  ASSERT_EQ(range["times"].size(), 1U);
  EXPECT_GT(range["times"][0]["wall_ms"], 1'600'000'000'000);
  EXPECT_EQ(early["end"], 0);
  EXPECT_EQ(bad.status, 400);
  ASSERT_EQ(published.status, 200) << published.body;
  EXPECT_EQ(json::parse(published.body)["files"][0]["path"], "model.pt");
  EXPECT_EQ(json::parse(site.call("GET", "/v1/jobs/1/attempts").body)["attempts"].size(), 1u);
}

}  // namespace
}  // namespace rn::coordinator
