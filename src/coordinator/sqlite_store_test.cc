// SPDX-License-Identifier: Apache-2.0
#include "coordinator/sqlite_store.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include "base/places_fixture.h"
#include "coordinator/core.h"
#include "coordinator/sqlite_database.h"
#include "coordinator/sqlite_schema.h"
#include "coordinator/store_fixture.h"

namespace rn::coordinator {
namespace {

std::string database_in(const ScratchFolder& folder) {
  return folder.path() + "/coordinator.db";
}

/// Somebody else's hands on the database: no triggers of ours, no busy timeout.
class Intruder {
 public:
  explicit Intruder(const ScratchFolder& folder) {
    EXPECT_EQ(sqlite3_open(database_in(folder).c_str(), &handle_), SQLITE_OK);
  }

  ~Intruder() { sqlite3_close(handle_); }

  Intruder(const Intruder&) = delete;
  Intruder& operator=(const Intruder&) = delete;

  void run(const std::string& sql) {
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK)
        << (error != nullptr ? error : "");
  }

 private:
  sqlite3* handle_ = nullptr;
};

void append_three_events(const ScratchFolder& folder) {
  auto store = SqliteStore::open(folder.path()).value();
  for (const char* kind : {"a", "b", "c"}) {
    const std::vector<Write> writes = {AppendEvent{an_event(kind, "j-1")}};
    ASSERT_TRUE(store->apply(writes).has_value());
  }
}

TEST(SqliteStore, a_second_coordinator_on_the_folder_is_refused_and_told_whom_to_stop) {
  ScratchFolder folder;
  const auto first = SqliteStore::open(folder.path());
  ASSERT_TRUE(first.has_value());

  const auto second = SqliteStore::open(folder.path());

  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kConflict);
  EXPECT_EQ(
      second.error().message,
      "another coordinator (process " + std::to_string(::getpid()) + ") uses this state folder"
  );
  EXPECT_EQ(second.error().hint, "stop it first, or give this one its own folder with --state");
}

TEST(SqliteStore, a_coordinator_that_was_overtaken_writes_nothing_more) {
  ScratchFolder folder;
  auto store = SqliteStore::open(folder.path()).value();
  const std::vector<Write> opened = {SetMeta{"generation", "4"}};
  ASSERT_TRUE(store->apply(opened).has_value());
  Intruder(folder).run("UPDATE meta SET value='5' WHERE key='generation'");

  const std::vector<Write> late = {PutUser{UserRow{.user = UserId("ann")}}};
  const Status status = store->apply(late);

  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kConflict);
  EXPECT_NE(status.error().message.find("its generation is 5, ours is 4"), std::string::npos);
  EXPECT_TRUE(store->load()->users.empty());
}

TEST(SqliteStore, a_database_of_the_first_schema_is_taken_over_with_all_that_it_holds) {
  ScratchFolder folder;
  std::ifstream dump(std::string(places::kGolden) + "/coordinator_v1.sql");
  Intruder(folder).run(std::string((std::istreambuf_iterator<char>(dump)), {}));

  const auto store = SqliteStore::open(folder.path());
  ASSERT_TRUE(store.has_value()) << store.error().describe();
  const Snapshot snapshot = (*store)->load().value();

  ASSERT_EQ(snapshot.nodes.size(), 2u);
  EXPECT_EQ(snapshot.nodes[0].history.exposure_s, 360'000u);
  EXPECT_EQ(snapshot.nodes[0].history.notice, 30u);
  EXPECT_EQ(snapshot.jobs.size(), 1u);
  EXPECT_EQ(snapshot.attempts.size(), 1u);
  EXPECT_EQ(snapshot.reclaims.size(), 1u);
  EXPECT_EQ((*store)->rollups({})->size(), 1u);
  EXPECT_EQ((*store)->verify_chain()->events, 2u);
  EXPECT_EQ((*store)->verify_chain()->first_bad_seq, 0u);
  EXPECT_FALSE(snapshot.campus_hazard.has_value());

  SeededRng rng(1);
  SiteKeys keys;
  Core core(Config{}, keys, rng);
  const Now now{Instant(seconds(1000)), wall_from_ms(1'790'000'000'000)};
  const Output output = core.restore(snapshot, now);
  ASSERT_TRUE((*store)->apply(output.writes).has_value());
  EXPECT_GT(
      core.hazard(NodeId("n-1"), now)->rate_per_hour,
      10 * core.hazard(NodeId("n-2"), now)->rate_per_hour
  ) << "what was counted of its owner is not lost";
  EXPECT_TRUE((*store)->load()->campus_hazard.has_value());
}

TEST(SqliteStore, a_database_from_before_gangs_gets_their_table) {
  ScratchFolder folder;
  const std::vector<Write> before = {PutUser{UserRow{.user = UserId("ann")}}};
  {
    auto store = SqliteStore::open(folder.path()).value();
    ASSERT_TRUE(store->apply(before).has_value());
  }
  Intruder(folder).run("DROP TABLE gangs; PRAGMA user_version=3");

  const auto store = SqliteStore::open(folder.path());
  ASSERT_TRUE(store.has_value()) << store.error().describe();
  const std::vector<Write> gang = {PutGang{GangRow{.id = GangId("g-1")}}};
  ASSERT_TRUE((*store)->apply(gang).has_value());

  EXPECT_EQ((*store)->load()->users.size(), 1u);
  EXPECT_EQ((*store)->load()->gangs, (std::vector{GangRow{.id = GangId("g-1")}}));
}

TEST(SqliteStore, a_newer_schema_is_refused_with_what_to_do) {
  ScratchFolder folder;
  ASSERT_TRUE(SqliteStore::open(folder.path()).has_value());
  Intruder(folder).run("PRAGMA user_version=99");

  const auto store = SqliteStore::open(folder.path());

  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(
      store.error().message,
      "the database has schema version 99, this coordinator knows versions up to " +
          std::to_string(kSchemaVersion)
  );
  EXPECT_FALSE(store.error().hint.empty());
}

TEST(SqliteStore, a_file_that_is_no_database_is_corrupt_and_left_as_it_was) {
  ScratchFolder folder;
  const std::string garbage(8192, 'x');
  std::ofstream(database_in(folder)) << garbage;

  const auto store = SqliteStore::open(folder.path());

  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(store.error().hint.find("backup"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(database_in(folder)), garbage.size());
}

TEST(SqliteStore, a_read_only_database_is_refused_before_anything_is_accepted) {
  ScratchFolder folder;
  ASSERT_TRUE(SqliteStore::open(folder.path()).has_value());
  ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
  ASSERT_EQ(::chmod((folder.path() + "/coordinator.lock").c_str(), 0666), 0);
  ASSERT_EQ(::chmod(database_in(folder).c_str(), 0444), 0);

  // Root may write everything, so the store is opened as nobody.
  const uid_t was = ::geteuid();
  ASSERT_EQ(::seteuid(was == 0 ? 65534 : was), 0);
  const auto store = SqliteStore::open(folder.path());
  ASSERT_EQ(::seteuid(was), 0);

  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, ErrorCode::kDenied);
  EXPECT_NE(store.error().message.find("the database is read-only"), std::string::npos);
  EXPECT_FALSE(store.error().hint.empty());
}

TEST(SqliteStore, a_database_that_another_program_locks_is_said_to_be_locked) {
  ScratchFolder folder;
  auto store = SqliteStore::open(folder.path(), milliseconds(1)).value();
  Intruder intruder(folder);
  intruder.run("BEGIN IMMEDIATE");

  const std::vector<Write> writes = {PutUser{UserRow{.user = UserId("ann")}}};
  const Status locked = store->apply(writes);
  intruder.run("ROLLBACK");

  ASSERT_FALSE(locked.has_value());
  EXPECT_EQ(locked.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(locked.error().message.find("locked by another program"), std::string::npos);
  EXPECT_TRUE(store->apply(writes).has_value());
}

TEST(SqliteStore, events_cannot_be_changed_or_removed_through_the_schema) {
  ScratchFolder folder;
  append_three_events(folder);
  auto database =
      SqliteDatabase::open(database_in(folder), SqliteDatabase::Mode::kReadWrite).value();

  EXPECT_FALSE(database->execute("UPDATE events SET kind='x' WHERE seq=2").has_value());
  EXPECT_FALSE(database->execute("DELETE FROM events WHERE seq=2").has_value());
}

TEST(SqliteStore, a_changed_event_breaks_the_chain_where_it_was_changed) {
  ScratchFolder folder;
  append_three_events(folder);
  Intruder(folder).run(
      "DROP TRIGGER events_are_not_changed; UPDATE events SET body=replace(body,'happened','!') "
      "WHERE seq=2"
  );

  const auto report = SqliteStore::open_to_read(folder.path()).value()->verify_chain();

  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->first_bad_seq, 2u);
  EXPECT_EQ(report->complaint, "the event or its hash was changed");
}

TEST(SqliteStore, a_removed_event_breaks_the_chain) {
  ScratchFolder folder;
  append_three_events(folder);
  Intruder(folder).run("DROP TRIGGER events_are_not_removed; DELETE FROM events WHERE seq=2");

  const auto report = SqliteStore::open_to_read(folder.path()).value()->verify_chain();

  EXPECT_EQ(report->first_bad_seq, 2u);
  EXPECT_EQ(report->complaint, "the event is missing");
}

TEST(SqliteStore, a_cut_tail_is_seen_by_the_recorded_head) {
  ScratchFolder folder;
  append_three_events(folder);
  Intruder(folder).run("DROP TRIGGER events_are_not_removed; DELETE FROM events WHERE seq=3");

  const auto report = SqliteStore::open_to_read(folder.path()).value()->verify_chain();

  EXPECT_EQ(report->first_bad_seq, 0u);
  EXPECT_EQ(report->missing_to, 3u);
}

TEST(SqliteStore, a_state_that_was_changed_behind_the_events_back_is_named) {
  ScratchFolder folder;
  {
    auto store = SqliteStore::open(folder.path()).value();
    EventRow event = an_event("job.submitted", "j-1");
    event.states = {{"job j-1", "queued"}};
    const std::vector<Write> writes = {PutJob{a_job("j-1", 1)}, AppendEvent{event}};
    ASSERT_TRUE(store->apply(writes).has_value());
    EXPECT_EQ(store->verify_chain()->differs, "");
  }
  Intruder(folder).run("UPDATE jobs SET body=replace(body,'queued','running')");

  const auto report = SqliteStore::open_to_read(folder.path()).value()->verify_chain();

  EXPECT_EQ(report->first_bad_seq, 0u);
  EXPECT_EQ(report->differs, "job j-1 is running, and the events say queued");
}

TEST(SqliteStore, a_store_opened_to_read_refuses_writes) {
  ScratchFolder folder;
  append_three_events(folder);
  auto store = SqliteStore::open_to_read(folder.path()).value();

  EXPECT_EQ(store->apply({}).error().code, ErrorCode::kDenied);
}

}  // namespace
}  // namespace rn::coordinator
