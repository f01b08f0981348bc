// SPDX-License-Identifier: Apache-2.0
#include "coordinator/sqlite_store.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include <unistd.h>

#include "base/log.h"
#include "coordinator/sqlite_database.h"
#include "coordinator/sqlite_schema.h"
#include "coordinator/sqlite_write.h"
#include "coordinator/states.h"
#include "model/codec.h"

namespace rn::coordinator {

namespace {

/// Finished jobs that a restarted core gets back, newest first; older ones are answered from here.
constexpr std::int64_t kFinishedJobsLoaded = 10'000;

constexpr std::uint32_t kMaxRows = 100'000;

template <class T>
Result<std::vector<T>> read_bodies(SqliteStatement& statement, int column = 0) {
  std::vector<T> rows;
  while (true) {
    RN_TRY(const bool is_row, statement.step());
    if (!is_row) return rows;
    auto row = from_json<T>(statement.text(column), Unknown::kLenient);
    if (!row) return fail(Error{ErrorCode::kCorrupt, row.error().message, ""}.with("a stored row"));
    rows.push_back(*std::move(row));
  }
}

template <class T>
Status load_all(SqliteDatabase& database, const char* sql, std::vector<T>& out) {
  RN_TRY(auto statement, database.prepare(sql));
  RN_TRY(out, read_bodies<T>(statement));
  return {};
}

Status load_hazards(SqliteDatabase& database, Snapshot& snapshot) {
  std::vector<reclaim::CampusHazard> campus;
  RN_CHECK(load_all(database, "SELECT body FROM hazards WHERE scope='campus'", campus));
  if (!campus.empty()) snapshot.campus_hazard = std::move(campus.front());
  const auto of_scope = [](const char* scope) {
    return std::string("SELECT body FROM hazards WHERE scope='") + scope + "' ORDER BY id";
  };
  RN_CHECK(load_all(database, of_scope("lab").c_str(), snapshot.lab_hazards));
  return load_all(database, of_scope("node").c_str(), snapshot.node_hazards);
}

Result<std::vector<JobRow>> read_jobs(SqliteStatement& statement) {
  std::vector<JobRow> rows;
  while (true) {
    RN_TRY(const bool is_row, statement.step());
    if (!is_row) return rows;
    auto row = from_json<JobRow>(statement.text(0), Unknown::kLenient);
    if (!row) return fail(Error{ErrorCode::kCorrupt, row.error().message, ""}.with("a job's row"));
    row->wrapped_key = statement.blob(1);
    rows.push_back(*std::move(row));
  }
}

/// The first state that is not what the events say; empty if all are. Rows of which no event tells
/// are older than the events' states.
Result<std::string> compare_states(SqliteDatabase& database, const States& told) {
  Snapshot tables;
  RN_CHECK(load_all(database, "SELECT body FROM jobs", tables.jobs));
  RN_CHECK(load_all(database, "SELECT body FROM attempts", tables.attempts));
  RN_CHECK(load_all(database, "SELECT body FROM nodes", tables.nodes));
  RN_CHECK(load_all(database, "SELECT body FROM reclaims", tables.reclaims));
  RN_CHECK(load_all(database, "SELECT body FROM gangs", tables.gangs));
  const States states = states_of(tables);
  for (const auto& [name, state] : told) {
    const auto found = states.find(name);
    if (found == states.end()) return name + " is not there, and the events say " + state;
    if (found->second != state)
      return name + " is " + found->second + ", and the events say " + state;
  }
  return std::string();
}

constexpr const char* kJobsToLoad =
    "SELECT body, wrapped_key FROM jobs WHERE is_finished=0 OR number IN "
    "(SELECT number FROM jobs WHERE is_finished=1 ORDER BY number DESC LIMIT ?1) ORDER BY number";

/// Those that are not over, and those whose rank 0 is among the jobs of kJobsToLoad.
constexpr const char* kGangsToLoad =
    "SELECT body FROM gangs WHERE is_over=0 OR first_job IN "
    "(SELECT id FROM jobs WHERE is_finished=1 ORDER BY number DESC LIMIT ?1) ORDER BY id";

/// Attempts and generations of exactly the jobs of kJobsToLoad.
std::string of_loaded_jobs(const std::string& select, const std::string& order) {
  return select +
         " WHERE job IN (SELECT id FROM jobs WHERE is_finished=0 OR number IN "
         "(SELECT number FROM jobs WHERE is_finished=1 ORDER BY number DESC LIMIT ?1)) ORDER BY " +
         order;
}

template <class T>
Status load_of_jobs(
    SqliteDatabase& database,
    const std::string& table,
    const std::string& order,
    std::vector<T>& out
) {
  RN_TRY(auto statement, database.prepare(of_loaded_jobs("SELECT body FROM " + table, order)));
  statement.bind(1, kFinishedJobsLoaded);
  RN_TRY(out, read_bodies<T>(statement));
  return {};
}

Result<std::optional<std::string>> read_meta(SqliteDatabase& database, const char* key) {
  RN_TRY(auto statement, database.prepare("SELECT value FROM meta WHERE key=?1"));
  statement.bind(1, key);
  RN_TRY(const bool is_row, statement.step());
  if (!is_row) return std::optional<std::string>();
  return std::optional(statement.text(0));
}

struct ChainHead {
  std::uint64_t seq = 0;
  Digest hash{};
};

Result<ChainHead> read_recorded_head(SqliteDatabase& database) {
  RN_TRY(const auto text, read_meta(database, kChainHeadKey));
  if (!text) return ChainHead{};
  const auto colon = text->find(':');
  ChainHead head;
  head.seq = std::strtoull(text->c_str(), nullptr, 10);
  RN_TRY(head.hash, digest_from_hex(colon == std::string::npos ? "" : text->substr(colon + 1)));
  return head;
}

Status read_digest(const SqliteStatement& statement, int column, Digest& out) {
  const Blob raw = statement.blob(column);
  if (raw.size() != out.size())
    return fail(ErrorCode::kCorrupt, "a stored digest has not 32 bytes");
  std::copy(raw.begin(), raw.end(), out.begin());
  return {};
}

}  // namespace

struct SqliteStore::State {
  std::optional<ExclusiveLock> lock;
  std::unique_ptr<SqliteDatabase> writer;  ///< the writing thread's; none when opened to read
  WriterMemory memory;                     ///< the writing thread's
  std::mutex reading;                      ///< guards `reader`
  std::unique_ptr<SqliteDatabase> reader;
};

SqliteStore::SqliteStore(std::unique_ptr<State> state) : state_(std::move(state)) {}

SqliteStore::~SqliteStore() = default;

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(
    const std::string& folder, milliseconds busy_timeout
) {
  auto state = std::make_unique<State>();
  RN_TRY(auto lock, ExclusiveLock::take(folder + "/coordinator.lock"));
  state->lock.emplace(std::move(lock));
  const std::string path = folder + "/coordinator.db";
  RN_TRY(state->writer, SqliteDatabase::open(path, SqliteDatabase::Mode::kReadWrite, busy_timeout));
  RN_CHECK(migrate(*state->writer));
  RN_TRY(state->reader, SqliteDatabase::open(path, SqliteDatabase::Mode::kReadOnly));
  RN_TRY(const ChainHead head, read_recorded_head(*state->writer));
  state->memory.next_seq = head.seq + 1;
  state->memory.head = head.hash;
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(state)));
}

Result<std::unique_ptr<SqliteStore>> SqliteStore::open_to_read(const std::string& folder) {
  auto state = std::make_unique<State>();
  const std::string path = folder + "/coordinator.db";
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT)
    return fail(
        ErrorCode::kNotFound,
        "there is no " + path,
        "name the coordinator's state folder with --state"
    );
  RN_TRY(state->reader, SqliteDatabase::open(path, SqliteDatabase::Mode::kReadOnly));
  RN_TRY(const auto version, state->reader->schema_version());
  if (version != kSchemaVersion) {
    return fail(
        ErrorCode::kUnsupported,
        "the database has schema version " + std::to_string(version) + ", this program reads " +
            std::to_string(kSchemaVersion),
        "use the program of the version that wrote it"
    );
  }
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(state)));
}

Result<Snapshot> SqliteStore::load() {
  const std::lock_guard guard(state_->reading);
  SqliteDatabase& database = *state_->reader;
  Snapshot snapshot;
  const auto work = [&]() -> Status {
    {
      RN_TRY(auto statement, database.prepare("SELECT key, value FROM meta"));
      while (true) {
        RN_TRY(const bool is_row, statement.step());
        if (!is_row) break;
        snapshot.meta[statement.text(0)] = statement.text(1);
      }
    }
    {
      RN_TRY(auto statement, database.prepare(kJobsToLoad));
      statement.bind(1, kFinishedJobsLoaded);
      RN_TRY(snapshot.jobs, read_jobs(statement));
    }
    {
      RN_TRY(auto statement, database.prepare(kGangsToLoad));
      statement.bind(1, kFinishedJobsLoaded);
      RN_TRY(snapshot.gangs, read_bodies<GangRow>(statement));
    }
    const std::string by_epoch = "job, epoch_generation, epoch_attempt";
    RN_CHECK(load_of_jobs(database, "attempts", by_epoch, snapshot.attempts));
    RN_CHECK(load_of_jobs(database, "generations", "job, generation", snapshot.generations));
    RN_CHECK(load_all(database, "SELECT body FROM nodes ORDER BY id", snapshot.nodes));
    RN_CHECK(load_all(database, "SELECT body FROM reclaims ORDER BY node, id", snapshot.reclaims));
    RN_CHECK(load_all(database, "SELECT body FROM images ORDER BY name", snapshot.images));
    RN_CHECK(load_all(database, "SELECT body FROM tokens ORDER BY id", snapshot.tokens));
    RN_CHECK(load_all(database, "SELECT body FROM users ORDER BY id", snapshot.users));
    RN_CHECK(load_all(database, "SELECT body FROM usage ORDER BY user, lab", snapshot.usage));
    RN_CHECK(
        load_all(database, "SELECT body FROM quotas ORDER BY subject, gpu_model", snapshot.quotas)
    );
    RN_CHECK(load_all(
        database,
        "SELECT body FROM gpu_hours ORDER BY hour, user, lab, gpu_model",
        snapshot.gpu_hours
    ));
    return load_hazards(database, snapshot);
  };
  RN_CHECK(database.read_transaction(work));
  return snapshot;
}

Status SqliteStore::apply(std::span<const Write> writes) {
  if (!state_->writer) return fail(ErrorCode::kDenied, "the store was opened to read only");
  return apply_writes(*state_->writer, writes, state_->memory);
}

Status SqliteStore::check_writable() {
  if (!state_->writer) return fail(ErrorCode::kDenied, "the store was opened to read only");
  return state_->writer->transaction([&]() -> Status {
    return state_->writer->execute("INSERT OR REPLACE INTO meta VALUES ('store.probe','1')");
  });
}

Result<std::vector<StoredEvent>> SqliteStore::events(const EventFilter& filter) {
  const std::lock_guard guard(state_->reading);
  RN_TRY(
      auto statement,
      state_->reader->prepare(
          std::string("SELECT seq, hash, body FROM events WHERE seq>?1 AND (?2='' OR job=?2) AND "
                      "(?3='' OR node=?3) AND (?4='' OR user=?4) AND "
                      "(?5='' OR substr(kind,1,length(?5))=?5) ORDER BY seq ") +
          (filter.is_newest_first ? "DESC" : "ASC") + " LIMIT ?6"
      )
  );
  statement.bind(1, static_cast<std::int64_t>(filter.after))
      .bind(2, filter.job.str())
      .bind(3, filter.node.str())
      .bind(4, filter.user.str())
      .bind(5, filter.kind_prefix)
      .bind(6, std::min(filter.limit, kMaxRows));
  std::vector<StoredEvent> events;
  while (true) {
    RN_TRY(const bool is_row, statement.step());
    if (!is_row) return events;
    StoredEvent event;
    event.seq = static_cast<std::uint64_t>(statement.integer(0));
    RN_CHECK(read_digest(statement, 1, event.hash));
    RN_TRY(event.row, from_json<EventRow>(statement.text(2), Unknown::kLenient));
    events.push_back(std::move(event));
  }
}

Result<std::vector<Job>> SqliteStore::jobs(const JobFilter& filter) {
  const std::lock_guard guard(state_->reading);
  RN_TRY(
      auto statement,
      state_->reader->prepare("SELECT body, wrapped_key FROM jobs WHERE (?1='' OR owner=?1) AND "
                              "(?2=1 OR is_finished=0) "
                              "AND (?3=0 OR number<?3) ORDER BY number DESC LIMIT ?4")
  );
  statement.bind(1, filter.owner.str())
      .bind(2, filter.with_finished ? 1 : 0)
      .bind(3, static_cast<std::int64_t>(filter.before_number))
      .bind(4, std::min(filter.limit, kMaxRows));
  RN_TRY(auto rows, read_jobs(statement));
  std::vector<Job> jobs;
  jobs.reserve(rows.size());
  for (JobRow& row : rows) jobs.push_back(std::move(row.job));
  return jobs;
}

namespace {

Result<Job> one_job(SqliteStatement& statement, const std::string& asked) {
  RN_TRY(auto rows, read_jobs(statement));
  if (rows.empty())
    return fail(ErrorCode::kNotFound, "no job " + asked, "'reclaim ps -a' lists yours");
  return std::move(rows.front().job);
}

}  // namespace

Result<Job> SqliteStore::find_job(const JobId& id) {
  const std::lock_guard guard(state_->reading);
  RN_TRY(auto statement, state_->reader->prepare("SELECT body, wrapped_key FROM jobs WHERE id=?1"));
  statement.bind(1, id.str());
  return one_job(statement, id.str());
}

Result<Job> SqliteStore::find_job(std::uint64_t number) {
  const std::lock_guard guard(state_->reading);
  RN_TRY(
      auto statement, state_->reader->prepare("SELECT body, wrapped_key FROM jobs WHERE number=?1")
  );
  statement.bind(1, static_cast<std::int64_t>(number));
  return one_job(statement, std::to_string(number));
}

Result<std::vector<Attempt>> SqliteStore::attempts(const JobId& job) {
  const std::lock_guard guard(state_->reading);
  RN_TRY(
      auto statement,
      state_->reader->prepare(
          "SELECT body FROM attempts WHERE job=?1 ORDER BY epoch_generation, epoch_attempt"
      )
  );
  statement.bind(1, job.str());
  RN_TRY(auto rows, read_bodies<AttemptRow>(statement));
  std::vector<Attempt> attempts;
  attempts.reserve(rows.size());
  for (AttemptRow& row : rows) attempts.push_back(std::move(row.attempt));
  return attempts;
}

Result<std::vector<GenerationRow>> SqliteStore::generations(const JobId& job) {
  const std::lock_guard guard(state_->reading);
  RN_TRY(
      auto statement,
      state_->reader->prepare("SELECT body FROM generations WHERE job=?1 ORDER BY generation")
  );
  statement.bind(1, job.str());
  return read_bodies<GenerationRow>(statement);
}

Result<std::vector<ReclaimRow>> SqliteStore::reclaims(std::uint32_t limit) {
  const std::lock_guard guard(state_->reading);
  RN_TRY(
      auto statement,
      state_->reader->prepare("SELECT body FROM reclaims ORDER BY reported_wall_ms DESC LIMIT ?1")
  );
  statement.bind(1, std::min(limit, kMaxRows));
  return read_bodies<ReclaimRow>(statement);
}

Result<std::vector<RollupRow>> SqliteStore::rollups(const RollupFilter& filter) {
  const std::lock_guard guard(state_->reading);
  RN_TRY(
      auto statement,
      state_->reader->prepare(
          "SELECT body FROM rollups WHERE (?1='' OR node=?1) AND bucket_wall_ms>=?2 AND "
          "bucket_wall_ms<?3 ORDER BY bucket_wall_ms, node LIMIT ?4"
      )
  );
  statement.bind(1, filter.node.str())
      .bind(2, filter.from_wall_ms)
      .bind(3, filter.to_wall_ms)
      .bind(4, std::min(filter.limit, kMaxRows));
  return read_bodies<RollupRow>(statement);
}

Result<ChainReport> SqliteStore::verify_chain() {
  const std::lock_guard guard(state_->reading);
  SqliteDatabase& database = *state_->reader;
  ChainReport report;
  const auto work = [&]() -> Status {
    RN_CHECK(database.check_integrity());
    RN_TRY(const ChainHead recorded, read_recorded_head(database));
    States told;
    RN_TRY(auto statement, database.prepare("SELECT seq, body, hash FROM events ORDER BY seq"));
    while (true) {
      RN_TRY(const bool is_row, statement.step());
      if (!is_row) break;
      const auto seq = static_cast<std::uint64_t>(statement.integer(0));
      const auto complain = [&](std::uint64_t at, std::string what) -> Status {
        report.first_bad_seq = at;
        report.complaint = std::move(what);
        return {};
      };
      if (seq != report.events + 1) return complain(report.events + 1, "the event is missing");
      Digest stored{};
      RN_CHECK(read_digest(statement, 2, stored));
      if (stored != chain_hash(report.head, statement.text(1)))
        return complain(seq, "the event or its hash was changed");
      report.head = stored;
      report.events = seq;
      RN_TRY(const EventRow event, from_json<EventRow>(statement.text(1), Unknown::kLenient));
      replay(event, told);
    }
    if (recorded.seq > report.events) report.missing_to = recorded.seq;
    RN_TRY(report.differs, compare_states(database, told));
    return {};
  };
  RN_CHECK(database.read_transaction(work));
  return report;
}

}  // namespace rn::coordinator
