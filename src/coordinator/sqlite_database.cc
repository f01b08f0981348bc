// SPDX-License-Identifier: Apache-2.0
#include "coordinator/sqlite_database.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/assert.h"

namespace rn::coordinator {

namespace {

Error error_of(sqlite3* database, int code) {
  const std::string said = database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {
          ErrorCode::kUnavailable,
          "the database is locked by another program (" + said + ")",
          "close the program that has coordinator.db open (fuser coordinator.db names it)"};
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return {
          ErrorCode::kDenied,
          "the database is read-only (" + said + ")",
          "make the state folder and coordinator.db writable for the coordinator's user"};
    case SQLITE_CANTOPEN:
      return {
          ErrorCode::kDenied,
          "the database cannot be opened (" + said + ")",
          "check that the state folder exists and that the coordinator's user may write to it"};
    case SQLITE_FULL:
      return {
          ErrorCode::kExhausted,
          "the database's disk is full (" + said + ")",
          "make room on the disk of the state folder, then start the coordinator again"};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {
          ErrorCode::kCorrupt,
          "the database is damaged (" + said + ")",
          "restore coordinator.db from its newest backup; keep the damaged file"};
    case SQLITE_CONSTRAINT:
      return {ErrorCode::kConflict, "the database refused a row (" + said + ")", ""};
    default:
      return {
          ErrorCode::kInternal, "database: " + said, "look at the disk and at the kernel's log"};
  }
}

}  // namespace

SqliteStatement::~SqliteStatement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : statement_(std::exchange(other.statement_, nullptr)) {}

SqliteStatement& SqliteStatement::bind(int index, std::int64_t value) {
  RN_ASSERT(sqlite3_bind_int64(statement_, index, value) == SQLITE_OK, "no such parameter");
  return *this;
}

SqliteStatement& SqliteStatement::bind(int index, std::string_view text) {
  const int bound = sqlite3_bind_text64(
      statement_, index, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8
  );
  RN_ASSERT(bound == SQLITE_OK, "no such parameter");
  return *this;
}

SqliteStatement& SqliteStatement::bind_real(int index, double value) {
  RN_ASSERT(sqlite3_bind_double(statement_, index, value) == SQLITE_OK, "no such parameter");
  return *this;
}

SqliteStatement& SqliteStatement::bind_blob(int index, BlobView bytes) {
  // NOTE: a null pointer would bind NULL, which a STRICT NOT NULL column refuses.
  const void* data = bytes.empty() ? static_cast<const void*>("") : bytes.data();
  const int bound = sqlite3_bind_blob64(statement_, index, data, bytes.size(), SQLITE_TRANSIENT);
  RN_ASSERT(bound == SQLITE_OK, "no such parameter");
  return *this;
}

Result<bool> SqliteStatement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return fail(error_of(sqlite3_db_handle(statement_), code));
}

Result<std::int64_t> SqliteStatement::run() {
  RN_CHECK(step());
  return sqlite3_changes64(sqlite3_db_handle(statement_));
}

std::int64_t SqliteStatement::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string SqliteStatement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
  return data == nullptr ? std::string() : std::string(data, size);
}

Blob SqliteStatement::blob(int column) const {
  const auto* data = static_cast<const std::uint8_t*>(sqlite3_column_blob(statement_, column));
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
  return data == nullptr ? Blob() : Blob(data, data + size);
}

struct SqliteDatabase::State {
  sqlite3* handle = nullptr;
  std::map<std::string, sqlite3_stmt*, std::less<>> statements;

  ~State() {
    for (const auto& [text, statement] : statements) sqlite3_finalize(statement);
    sqlite3_close(handle);
  }
};

SqliteDatabase::SqliteDatabase(std::unique_ptr<State> state) : state_(std::move(state)) {}

SqliteDatabase::~SqliteDatabase() = default;

Result<std::unique_ptr<SqliteDatabase>> SqliteDatabase::open(
    const std::string& path, Mode mode, milliseconds busy_timeout
) {
  auto state = std::make_unique<State>();
  const int flags =
      SQLITE_OPEN_NOMUTEX |
      (mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  const int code = sqlite3_open_v2(path.c_str(), &state->handle, flags, nullptr);
  if (code != SQLITE_OK) return fail(error_of(state->handle, code).with("opening " + path));
  sqlite3_extended_result_codes(state->handle, 1);
  sqlite3_busy_timeout(state->handle, static_cast<int>(busy_timeout.count()));
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(std::move(state)));
  const auto prepared = [&]() -> Status {
    if (mode == Mode::kReadOnly) return database->execute("PRAGMA query_only=ON");
    // NOTE: SQLite silently opens a file read-only that it may not write.
    if (sqlite3_db_readonly(database->state_->handle, "main") == 1)
      return fail(error_of(nullptr, SQLITE_READONLY));
    RN_CHECK(database->execute("PRAGMA journal_mode=WAL"));
    RN_CHECK(database->execute("PRAGMA synchronous=FULL"));
    RN_CHECK(database->execute("PRAGMA foreign_keys=ON"));
    return database->execute("PRAGMA trusted_schema=OFF");
  }();
  if (!prepared) return fail(prepared.error().with("opening " + path));
  return database;
}

Status SqliteDatabase::execute(const std::string& sql) {
  const int code = sqlite3_exec(state_->handle, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return fail(error_of(state_->handle, code));
  return {};
}

Result<SqliteStatement> SqliteDatabase::prepare(std::string_view sql) {
  const auto found = state_->statements.find(sql);
  if (found != state_->statements.end()) return SqliteStatement(found->second);
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(
      state_->handle,
      sql.data(),
      static_cast<int>(sql.size()),
      SQLITE_PREPARE_PERSISTENT,
      &statement,
      nullptr
  );
  if (code != SQLITE_OK) return fail(error_of(state_->handle, code).with(sql));
  state_->statements.emplace(std::string(sql), statement);
  return SqliteStatement(statement);
}

Status SqliteDatabase::transaction(const std::function<Status()>& work) {
  RN_CHECK(execute("BEGIN IMMEDIATE"));
  Status done = work();
  if (done) done = execute("COMMIT");
  if (!done) (void)execute("ROLLBACK");
  return done;
}

Status SqliteDatabase::read_transaction(const std::function<Status()>& work) {
  RN_CHECK(execute("BEGIN DEFERRED"));
  Status done = work();
  const Status ended = execute(done ? "COMMIT" : "ROLLBACK");
  if (done) done = ended;
  return done;
}

Status SqliteDatabase::check_integrity() {
  RN_TRY(auto statement, prepare("PRAGMA integrity_check(1)"));
  RN_TRY(const bool has_row, statement.step());
  if (has_row && statement.text(0) != "ok") {
    return fail(
        ErrorCode::kCorrupt,
        "the database is damaged: " + statement.text(0),
        "restore coordinator.db from its newest backup; keep the damaged file"
    );
  }
  return {};
}

Result<std::int64_t> SqliteDatabase::schema_version() {
  RN_TRY(auto statement, prepare("PRAGMA user_version"));
  RN_CHECK(statement.step());
  return statement.integer(0);
}

Result<ExclusiveLock> ExclusiveLock::take(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return fail(
        ErrorCode::kDenied,
        "cannot open " + path + ": " + std::strerror(errno),
        "make the state folder writable for the coordinator's user"
    );
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    const auto length = ::pread(fd, holder, sizeof(holder) - 1, 0);
    ::close(fd);
    return fail(
        ErrorCode::kConflict,
        "another coordinator" +
            (length > 0 ? " (process " + std::string(holder, static_cast<std::size_t>(length)) + ")"
                        : std::string()) +
            " uses this state folder",
        "stop it first, or give this one its own folder with --state"
    );
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, pid.data(), pid.size(), 0);
  return ExclusiveLock(fd);
}

ExclusiveLock::~ExclusiveLock() {
  if (fd_ >= 0) ::close(fd_);
}

ExclusiveLock::ExclusiveLock(ExclusiveLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

}  // namespace rn::coordinator
