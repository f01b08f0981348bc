// SPDX-License-Identifier: Apache-2.0
#include "agent/journal_db.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <sqlite3.h>

#include "base/log.h"

namespace rn::agent {

namespace {

constexpr std::chrono::milliseconds kRoomPause{200};

/// Pages that were used once stay in the file as free ones, and the log keeps its length when it is
/// begun anew: what rows need later is taken from the disk now.
constexpr const char* kTakeReserve =
    "CREATE TABLE IF NOT EXISTS reserve(bytes BLOB);"
    "BEGIN IMMEDIATE;"
    "INSERT INTO reserve VALUES(zeroblob(8388608));"
    "COMMIT;"
    "PRAGMA wal_checkpoint(RESTART);"
    "DROP TABLE reserve";

struct Batch {
  std::vector<JournalWrite> writes;
  std::function<void(Status)> done;
};

Error error_of(sqlite3* db, int code, const std::string& doing) {
  const std::string what = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {
          ErrorCode::kConflict,
          doing + ": " + what,
          "another agent uses this state folder; stop it"};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {
          ErrorCode::kCorrupt,
          doing + ": " + what,
          "move the file away and start again; the node's running guests will be removed"};
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return {ErrorCode::kDenied, doing + ": " + what, "give the agent's user write access to it"};
    case SQLITE_FULL:
      return {
          ErrorCode::kExhausted, doing + ": " + what, "free space on the disk of the state folder"};
    default:
      return {ErrorCode::kInternal, doing + ": " + what, ""};
  }
}

}  // namespace

struct JournalDb::State {
  sqlite3* db = nullptr;
  sqlite3_stmt* put = nullptr;
  sqlite3_stmt* drop = nullptr;
  std::mutex mutex;  // guards queue and is_stopping
  std::condition_variable wake;
  std::vector<Batch> queue;
  bool is_stopping = false;
  Status broken;          // writer thread only
  bool is_short = false;  // writer thread only: it waits, or has waited, for room
  JournalDb::OnRoom on_room;
  std::thread writer;

  ~State() {
    {
      const std::lock_guard lock(mutex);
      is_stopping = true;
    }
    wake.notify_all();
    if (writer.joinable()) writer.join();
    sqlite3_finalize(put);
    sqlite3_finalize(drop);
    sqlite3_close(db);
  }

  Status execute(const char* sql) {
    const int code = sqlite3_exec(db, sql, nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) return fail(error_of(db, code, "journal"));
    return {};
  }

  Status apply(const JournalWrite& write) {
    sqlite3_stmt* const statement = write.value ? put : drop;
    sqlite3_reset(statement);
    sqlite3_bind_text(
        statement, 1, write.key.data(), static_cast<int>(write.key.size()), SQLITE_STATIC
    );
    if (write.value)
      sqlite3_bind_text(
          statement, 2, write.value->data(), static_cast<int>(write.value->size()), SQLITE_STATIC
      );
    const int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    if (code != SQLITE_DONE) return fail(error_of(db, code, "journal row " + write.key));
    return {};
  }

  /// Rows in one transaction; what failed is undone.
  Status commit(const std::vector<Batch>& batches) {
    RN_CHECK(execute("BEGIN IMMEDIATE"));
    const Status written = [&]() -> Status {
      for (const Batch& batch : batches) {
        for (const JournalWrite& write : batch.writes) RN_CHECK(apply(write));
      }
      return execute("COMMIT");
    }();
    if (!written) (void)execute("ROLLBACK");  // fails where SQLite has done that itself
    return written;
  }

  /// As commit, but a full disk is waited for: until there is room, or the process ends.
  Status commit_when_there_is_room(const std::vector<Batch>& batches) {
    for (;;) {
      Status written = commit(batches);
      if (written || written.error().code != ErrorCode::kExhausted) return written;
      if (!is_short) {
        is_short = true;
        log::warning("journal.waits_for_room", {{"why", written.error().describe()}});
        if (on_room) on_room(written);
      }
      std::unique_lock lock(mutex);
      if (wake.wait_for(lock, kRoomPause, [this] { return is_stopping; })) return written;
    }
  }

  void take_reserve() {
    const Status taken = execute(kTakeReserve);
    if (taken) return;
    (void)execute("ROLLBACK");
    log::warning("journal.without_reserve", {{"why", taken.error().describe()}});
  }

  void run() {
    for (;;) {
      std::vector<Batch> batches;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [this] { return is_stopping || !queue.empty(); });
        if (queue.empty()) return;
        batches.swap(queue);
      }
      if (broken) broken = commit_when_there_is_room(batches);
      for (Batch& batch : batches) {
        if (batch.done) batch.done(broken);
      }
      if (!is_short || !broken) continue;
      is_short = false;
      log::info("journal.has_room");
      if (on_room) on_room({});
    }
  }
};

JournalDb::JournalDb(std::unique_ptr<State> state) : state_(std::move(state)) {}

JournalDb::~JournalDb() = default;

Result<std::unique_ptr<JournalDb>> JournalDb::open(const std::string& path, OnRoom on_room) {
  auto state = std::make_unique<State>();
  state->on_room = std::move(on_room);
  const int code = sqlite3_open_v2(
      path.c_str(),
      &state->db,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX,
      nullptr
  );
  if (code != SQLITE_OK) return fail(error_of(state->db, code, "opening " + path));
  const auto context = [&](Status status) -> Status {
    if (!status) return fail(status.error().with(path));
    return {};
  };
  // Exclusive: a second agent on the same folder is refused at its first statement.
  RN_CHECK(context(state->execute("PRAGMA locking_mode=EXCLUSIVE")));
  RN_CHECK(context(state->execute("PRAGMA journal_mode=WAL")));
  RN_CHECK(context(state->execute("PRAGMA synchronous=FULL")));
  RN_CHECK(context(state->execute(
      "CREATE TABLE IF NOT EXISTS journal(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT"
  )));
  RN_CHECK(context(state->execute("BEGIN IMMEDIATE; COMMIT")));
  state->take_reserve();
  const auto prepare = [&](const char* sql, sqlite3_stmt** statement) -> Status {
    const int result = sqlite3_prepare_v2(state->db, sql, -1, statement, nullptr);
    if (result != SQLITE_OK) return fail(error_of(state->db, result, path));
    return {};
  };
  RN_CHECK(prepare(
      "INSERT INTO journal(key, value) VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value = ?2",
      &state->put
  ));
  RN_CHECK(prepare("DELETE FROM journal WHERE key = ?1", &state->drop));
  State* const raw = state.get();
  state->writer = std::thread([raw] { raw->run(); });
  return std::make_unique<JournalDb>(std::move(state));
}

Result<std::vector<JournalRow>> JournalDb::load() {
  sqlite3_stmt* statement = nullptr;
  int code = sqlite3_prepare_v2(
      state_->db, "SELECT key, value FROM journal ORDER BY key", -1, &statement, nullptr
  );
  if (code != SQLITE_OK) return fail(error_of(state_->db, code, "reading the journal"));
  std::vector<JournalRow> rows;
  const auto text = [&](int column) {
    return std::string(
        reinterpret_cast<const char*>(sqlite3_column_text(statement, column)),
        static_cast<std::size_t>(sqlite3_column_bytes(statement, column))
    );
  };
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) rows.push_back({text(0), text(1)});
  sqlite3_finalize(statement);
  if (code != SQLITE_DONE) return fail(error_of(state_->db, code, "reading the journal"));
  return rows;
}

void JournalDb::write(std::vector<JournalWrite> writes, std::function<void(Status)> done) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->queue.push_back({std::move(writes), std::move(done)});
  }
  state_->wake.notify_one();
}

}  // namespace rn::agent
