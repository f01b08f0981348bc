// SPDX-License-Identifier: Apache-2.0
#include "coordinator/sqlite_schema.h"

#include <array>
#include <string>

namespace rn::coordinator {

namespace {

// Key columns are what queries and conditions need; the body is the row's JSON (rows.h), the truth.
constexpr const char* kVersion1 = R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  number INTEGER NOT NULL UNIQUE,
  state TEXT NOT NULL,
  is_finished INTEGER NOT NULL,
  owner TEXT NOT NULL,
  lab TEXT NOT NULL,
  epoch_generation INTEGER NOT NULL,
  epoch_attempt INTEGER NOT NULL,
  submitted_wall_ms INTEGER NOT NULL,
  wrapped_key BLOB NOT NULL,
  body TEXT NOT NULL
) STRICT;
CREATE INDEX jobs_by_state ON jobs (is_finished, number);
CREATE INDEX jobs_by_owner ON jobs (owner, number);

CREATE TABLE attempts (
  job TEXT NOT NULL,
  epoch_generation INTEGER NOT NULL,
  epoch_attempt INTEGER NOT NULL,
  node TEXT NOT NULL,
  state TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (job, epoch_generation, epoch_attempt)
) STRICT;

CREATE TABLE generations (
  job TEXT NOT NULL,
  generation INTEGER NOT NULL,
  manifest BLOB NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (job, generation)
) STRICT;

CREATE TABLE outputs (
  job TEXT NOT NULL,
  epoch_generation INTEGER NOT NULL,
  epoch_attempt INTEGER NOT NULL,
  listing BLOB NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (job, epoch_generation, epoch_attempt)
) STRICT;

CREATE TABLE nodes (id TEXT PRIMARY KEY, lab TEXT NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL) STRICT;

CREATE TABLE reclaims (
  node TEXT NOT NULL,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  phase TEXT NOT NULL,
  reported_wall_ms INTEGER NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (node, id)
) STRICT;
CREATE INDEX reclaims_by_time ON reclaims (reported_wall_ms);

CREATE TABLE images (name TEXT PRIMARY KEY, digest TEXT NOT NULL, body TEXT NOT NULL) STRICT;

CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  secret_hash BLOB NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  expires_wall_ms INTEGER NOT NULL,
  body TEXT NOT NULL
) STRICT;

CREATE TABLE users (id TEXT PRIMARY KEY, lab TEXT NOT NULL, role TEXT NOT NULL, body TEXT NOT NULL) STRICT;

CREATE TABLE usage (
  user TEXT NOT NULL,
  lab TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (user, lab)
) STRICT;

CREATE TABLE events (
  seq INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  job TEXT NOT NULL,
  node TEXT NOT NULL,
  user TEXT NOT NULL,
  at_wall_ms INTEGER NOT NULL,
  body TEXT NOT NULL,
  hash BLOB NOT NULL
) STRICT;
CREATE INDEX events_by_job ON events (job, seq);
CREATE INDEX events_by_node ON events (node, seq);
CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
  BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER events_are_not_removed BEFORE DELETE ON events
  BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;

CREATE TABLE rollups (
  node TEXT NOT NULL,
  bucket_wall_ms INTEGER NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (node, bucket_wall_ms)
) STRICT;

CREATE TABLE rollups_gpu (
  node TEXT NOT NULL,
  gpu INTEGER NOT NULL,
  bucket_wall_ms INTEGER NOT NULL,
  utilisation_percent REAL NOT NULL,
  memory_used_mib REAL NOT NULL,
  power_mw REAL NOT NULL,
  temperature_c_max INTEGER NOT NULL,
  PRIMARY KEY (node, gpu, bucket_wall_ms)
) STRICT;
)sql";

// What was learnt of the owners (reclaim/hazard_state.h): scope is 'campus' (with an empty id),
// 'lab' or 'node'. The first start on it begins with the histories in the nodes' rows.
constexpr const char* kVersion2 = R"sql(
CREATE TABLE hazards (
  scope TEXT NOT NULL CHECK (scope IN ('campus', 'lab', 'node')),
  id TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (scope, id)
) STRICT, WITHOUT ROWID;
)sql";

// What users and laboratories may have, and what they used of GPUs hour by hour.
constexpr const char* kVersion3 = R"sql(
CREATE TABLE quotas (
  subject TEXT NOT NULL,
  gpu_model TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (subject, gpu_model)
) STRICT, WITHOUT ROWID;

CREATE TABLE gpu_hours (
  hour INTEGER NOT NULL,
  user TEXT NOT NULL,
  lab TEXT NOT NULL,
  gpu_model TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (hour, user, lab, gpu_model)
) STRICT, WITHOUT ROWID;
)sql";

// What belongs to all members of a gang (ADR 0027); `first_job` is rank 0's, which is finished in
// the transaction in which the gang is over.
constexpr const char* kVersion4 = R"sql(
CREATE TABLE gangs (
  id TEXT PRIMARY KEY,
  first_job TEXT NOT NULL,
  state TEXT NOT NULL,
  is_over INTEGER NOT NULL,
  body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX gangs_by_state ON gangs (is_over);
CREATE INDEX gangs_by_job ON gangs (first_job);
)sql";

/// Step i brings version i to version i + 1.
constexpr std::array<const char*, kSchemaVersion> kSteps = {
    kVersion1, kVersion2, kVersion3, kVersion4};

}  // namespace

Status migrate(SqliteDatabase& database) {
  RN_TRY(std::int64_t version, database.schema_version());
  if (version > kSchemaVersion) {
    return fail(
        ErrorCode::kUnsupported,
        "the database has schema version " + std::to_string(version) +
            ", this coordinator knows versions up to " + std::to_string(kSchemaVersion),
        "start the newer coordinator that wrote it, or restore the backup made before the upgrade"
    );
  }
  for (; version < kSchemaVersion; ++version) {
    const auto step = [&]() -> Status {
      RN_CHECK(database.execute(kSteps.at(static_cast<std::size_t>(version))));
      return database.execute("PRAGMA user_version=" + std::to_string(version + 1));
    };
    const auto migrated = database.transaction(step);
    if (!migrated)
      return fail(migrated.error().with("schema version " + std::to_string(version + 1)));
  }
  return {};
}

}  // namespace rn::coordinator
