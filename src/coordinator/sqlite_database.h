// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "base/time.h"

struct sqlite3;
struct sqlite3_stmt;

namespace rn::coordinator {

/// One prepared statement in use; reset when it goes away. Parameters count from 1, columns from 0.
class SqliteStatement {
 public:
  explicit SqliteStatement(sqlite3_stmt* statement) : statement_(statement) {}

  ~SqliteStatement();
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&&) = delete;

  SqliteStatement& bind(int index, std::int64_t value);
  SqliteStatement& bind(int index, std::string_view text);
  SqliteStatement& bind_real(int index, double value);
  SqliteStatement& bind_blob(int index, BlobView bytes);

  /// True while there is a row. Errors as SqliteDatabase.
  Result<bool> step();
  /// For statements without rows; answers how many rows were changed.
  Result<std::int64_t> run();

  std::int64_t integer(int column) const;
  std::string text(int column) const;
  Blob blob(int column) const;

 private:
  sqlite3_stmt* statement_;
};

/// One connection. Every error of SQLite is mapped here: kUnavailable (locked), kDenied
/// (read-only), kExhausted (disk full), kCorrupt, kConflict (constraint), kInternal; with a hint.
/// One thread at a time. Blocking.
class SqliteDatabase {
 public:
  enum class Mode { kReadWrite, kReadOnly };

  /// Waits for `busy_timeout` when another program holds the lock.
  static Result<std::unique_ptr<SqliteDatabase>> open(
      const std::string& path, Mode mode, milliseconds busy_timeout = seconds(5)
  );
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  /// Statements without parameters and rows.
  Status execute(const std::string& sql);
  /// Prepared once per text and kept. RN_ASSERTs that the text is valid SQL of this schema, unless
  /// the database itself is at fault.
  Result<SqliteStatement> prepare(std::string_view sql);
  /// BEGIN IMMEDIATE, `work`, COMMIT; ROLLBACK and the error if anything fails.
  Status transaction(const std::function<Status()>& work);
  /// The same with BEGIN DEFERRED: all reads of `work` see one state.
  Status read_transaction(const std::function<Status()>& work);
  /// SQLite's own check of the whole file. kCorrupt with its first complaint.
  Status check_integrity();
  Result<std::int64_t> schema_version();

 private:
  struct State;
  explicit SqliteDatabase(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Held for as long as a coordinator owns a state folder.
class ExclusiveLock {
 public:
  /// kConflict when another process holds it, with its process id in the message.
  static Result<ExclusiveLock> take(const std::string& path);
  ~ExclusiveLock();
  ExclusiveLock(ExclusiveLock&& other) noexcept;
  ExclusiveLock& operator=(ExclusiveLock&&) = delete;

 private:
  explicit ExclusiveLock(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace rn::coordinator
