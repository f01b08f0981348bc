// SPDX-License-Identifier: Apache-2.0
#include "coordinator/sqlite_write.h"

#include "base/crypto.h"
#include "model/codec.h"

namespace rn::coordinator {

namespace {

/// One transaction's writes; `memory` is a copy that the caller keeps if it commits.
class Writer {
 public:
  Writer(SqliteDatabase& database, WriterMemory& memory) : database_(database), memory_(memory) {}

  Status operator()(const PutJob& write) {
    const Job& job = write.row.job;
    // NOTE: the wrapped key has its own column, so that no dump of bodies shows it.
    JobRow row = write.row;
    row.wrapped_key.clear();
    RN_TRY(
        auto statement,
        database_.prepare(
            "INSERT INTO jobs VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11) "
            "ON CONFLICT (id) DO UPDATE SET number=?2, state=?3, is_finished=?4, owner=?5, lab=?6, "
            "epoch_generation=?7, epoch_attempt=?8, submitted_wall_ms=?9, wrapped_key=?10, body=?11"
        )
    );
    statement.bind(1, job.id.str())
        .bind(2, static_cast<std::int64_t>(job.number))
        .bind(3, to_string(job.state))
        .bind(4, is_terminal(job.state) ? 1 : 0)
        .bind(5, job.owner.str())
        .bind(6, job.lab.str())
        .bind(7, job.epoch.generation)
        .bind(8, job.epoch.attempt)
        .bind(9, job.submitted_wall_ms)
        .bind_blob(10, write.row.wrapped_key)
        .bind(11, to_json(row));
    return run(statement);
  }

  Status operator()(const PutAttempt& write) {
    const Attempt& attempt = write.row.attempt;
    RN_TRY(
        auto statement,
        database_.prepare("INSERT OR REPLACE INTO attempts VALUES (?1,?2,?3,?4,?5,?6)")
    );
    statement.bind(1, attempt.job.str())
        .bind(2, attempt.epoch.generation)
        .bind(3, attempt.epoch.attempt)
        .bind(4, attempt.node.str())
        .bind(5, to_string(attempt.state))
        .bind(6, to_json(write.row));
    return run(statement);
  }

  Status operator()(const PutNode& write) {
    RN_TRY(auto statement, database_.prepare("INSERT OR REPLACE INTO nodes VALUES (?1,?2,?3,?4)"));
    statement.bind(1, write.row.node.str())
        .bind(2, write.row.lab.str())
        .bind(3, to_string(write.row.state))
        .bind(4, to_json(write.row));
    return run(statement);
  }

  Status operator()(const PutGeneration& write) {
    const GenerationRef& generation = write.row.generation;
    RN_TRY(
        auto statement,
        database_.prepare("INSERT OR REPLACE INTO generations SELECT ?1,?2,?3,?4 WHERE EXISTS "
                          "(SELECT 1 FROM jobs "
                          "WHERE id=?1 AND epoch_generation=?5 AND epoch_attempt=?6)")
    );
    statement.bind(1, generation.job.str())
        .bind(2, generation.generation)
        .bind_blob(3, generation.manifest)
        .bind(4, to_json(write.row))
        .bind(5, write.required_epoch.generation)
        .bind(6, write.required_epoch.attempt);
    return run_conditional(
        statement,
        "generation " + std::to_string(generation.generation) + " of " + generation.job.str() +
            " needs epoch " + to_string(write.required_epoch)
    );
  }

  Status operator()(const PutOutputs& write) {
    const OutputsRow& row = write.row;
    RN_TRY(
        auto statement,
        database_.prepare(
            "INSERT OR REPLACE INTO outputs SELECT ?1,?2,?3,?4,?5 WHERE EXISTS (SELECT 1 FROM jobs "
            "WHERE id=?1 AND epoch_generation=?2 AND epoch_attempt=?3)"
        )
    );
    statement.bind(1, row.job.str())
        .bind(2, row.epoch.generation)
        .bind(3, row.epoch.attempt)
        .bind_blob(4, row.listing)
        .bind(5, to_json(row));
    return run_conditional(
        statement, "outputs of " + row.job.str() + " need epoch " + to_string(row.epoch)
    );
  }

  Status operator()(const PutReclaim& write) {
    const ReclaimRecord& record = write.row.record;
    RN_TRY(
        auto statement,
        database_.prepare("INSERT OR REPLACE INTO reclaims VALUES (?1,?2,?3,?4,?5,?6)")
    );
    statement.bind(1, record.node.str())
        .bind(2, record.id.str())
        .bind(3, to_string(record.kind))
        .bind(4, to_string(record.phase))
        .bind(5, write.row.reported_wall_ms)
        .bind(6, to_json(write.row));
    return run(statement);
  }

  Status operator()(const PutImage& write) {
    RN_TRY(auto statement, database_.prepare("INSERT OR REPLACE INTO images VALUES (?1,?2,?3)"));
    statement.bind(1, write.image.name).bind(2, write.image.digest).bind(3, to_json(write.image));
    return run(statement);
  }

  Status operator()(const DeleteImage& write) {
    RN_TRY(auto statement, database_.prepare("DELETE FROM images WHERE name=?1"));
    statement.bind(1, write.name);
    return run(statement);
  }

  Status operator()(const PutToken& write) {
    RN_TRY(
        auto statement,
        database_.prepare(
            "INSERT INTO tokens VALUES (?1,?2,?3,?4,?5) ON CONFLICT (id) DO UPDATE SET "
            "secret_hash=?2, kind=?3, expires_wall_ms=?4, body=?5"
        )
    );
    statement.bind(1, write.row.id)
        .bind_blob(2, write.row.secret_hash)
        .bind(3, to_string(write.row.kind))
        .bind(4, write.row.expires_wall_ms)
        .bind(5, to_json(write.row));
    return run(statement);
  }

  Status operator()(const PutUser& write) {
    RN_TRY(auto statement, database_.prepare("INSERT OR REPLACE INTO users VALUES (?1,?2,?3,?4)"));
    statement.bind(1, write.row.user.str())
        .bind(2, write.row.lab.str())
        .bind(3, to_string(write.row.role))
        .bind(4, to_json(write.row));
    return run(statement);
  }

  Status operator()(const PutUsage& write) {
    RN_TRY(auto statement, database_.prepare("INSERT OR REPLACE INTO usage VALUES (?1,?2,?3)"));
    statement.bind(1, write.row.user.str())
        .bind(2, write.row.lab.str())
        .bind(3, to_json(write.row));
    return run(statement);
  }

  Status operator()(const AppendEvent& write) {
    const std::string body = to_json(write.row);
    const Digest hash = chain_hash(memory_.head, body);
    RN_TRY(
        auto statement, database_.prepare("INSERT INTO events VALUES (?1,?2,?3,?4,?5,?6,?7,?8)")
    );
    statement.bind(1, static_cast<std::int64_t>(memory_.next_seq))
        .bind(2, write.row.kind)
        .bind(3, write.row.job.str())
        .bind(4, write.row.node.str())
        .bind(5, write.row.user.str())
        .bind(6, write.row.at_wall_ms)
        .bind(7, body)
        .bind_blob(8, hash);
    RN_CHECK(run(statement));
    memory_.head = hash;
    ++memory_.next_seq;
    has_events_ = true;
    return {};
  }

  Status operator()(const SetMeta& write) {
    RN_CHECK(set_meta(write.key, write.value));
    if (write.key == kGenerationKey) memory_.generation = write.value;
    return {};
  }

  Status operator()(const PutRollup& write) {
    const RollupRow& row = write.row;
    RN_TRY(auto statement, database_.prepare("INSERT OR REPLACE INTO rollups VALUES (?1,?2,?3)"));
    statement.bind(1, row.node.str()).bind(2, row.bucket_wall_ms).bind(3, to_json(row));
    RN_CHECK(run(statement));
    for (const GpuRollup& gpu : row.gpus) RN_CHECK(put_gpu(row, gpu));
    return {};
  }

  Status operator()(const PutCampusHazard& write) {
    return put_hazard("campus", "", to_json(write.row));
  }

  Status operator()(const PutLabHazard& write) {
    return put_hazard("lab", write.row.lab.str(), to_json(write.row));
  }

  Status operator()(const PutNodeHazard& write) {
    return put_hazard("node", write.row.node.str(), to_json(write.row));
  }

  Status operator()(const PutQuota& write) {
    RN_TRY(auto statement, database_.prepare("INSERT OR REPLACE INTO quotas VALUES (?1,?2,?3)"));
    statement.bind(1, write.row.subject).bind(2, write.row.gpu_model).bind(3, to_json(write.row));
    return run(statement);
  }

  Status operator()(const DeleteQuota& write) {
    RN_TRY(
        auto statement, database_.prepare("DELETE FROM quotas WHERE subject=?1 AND gpu_model=?2")
    );
    statement.bind(1, write.subject).bind(2, write.gpu_model);
    return run(statement);
  }

  Status operator()(const PutGpuHour& write) {
    const GpuHourRow& row = write.row;
    RN_TRY(
        auto statement,
        database_.prepare("INSERT OR REPLACE INTO gpu_hours VALUES (?1,?2,?3,?4,?5)")
    );
    statement.bind(1, row.hour)
        .bind(2, row.user.str())
        .bind(3, row.lab.str())
        .bind(4, row.gpu_model)
        .bind(5, to_json(row));
    return run(statement);
  }

  Status operator()(const DropGpuHours& write) {
    RN_TRY(auto statement, database_.prepare("DELETE FROM gpu_hours WHERE hour<?1"));
    statement.bind(1, write.before_hour);
    return run(statement);
  }

  Status operator()(const PutGang& write) {
    const GangRow& row = write.row;
    RN_TRY(
        auto statement, database_.prepare("INSERT OR REPLACE INTO gangs VALUES (?1,?2,?3,?4,?5)")
    );
    statement.bind(1, row.id.str())
        .bind(2, row.members.empty() ? std::string() : row.members.front().str())
        .bind(3, to_string(row.state))
        .bind(4, row.state == GangState::kOver ? 1 : 0)
        .bind(5, to_json(row));
    return run(statement);
  }

  Status finish() {
    if (!has_events_) return {};
    return set_meta(
        kChainHeadKey, std::to_string(memory_.next_seq - 1) + ":" + to_hex(memory_.head)
    );
  }

  /// A second coordinator on the same database has opened a newer generation: this one is fenced.
  Status check_generation() {
    if (!memory_.generation) return {};
    RN_TRY(auto statement, database_.prepare("SELECT value FROM meta WHERE key=?1"));
    statement.bind(1, kGenerationKey);
    RN_TRY(const bool is_there, statement.step());
    if (is_there && statement.text(0) == *memory_.generation) return {};
    return fail(
        ErrorCode::kConflict,
        "another coordinator has taken over this database (its generation is " +
            (is_there ? statement.text(0) : "gone") + ", ours is " + *memory_.generation + ")",
        "run only one coordinator on a state folder"
    );
  }

 private:
  static Status run(SqliteStatement& statement) {
    RN_CHECK(statement.run());
    return {};
  }

  static Status run_conditional(SqliteStatement& statement, const std::string& condition) {
    RN_TRY(const std::int64_t changed, statement.run());
    if (changed == 0)
      return fail(ErrorCode::kConflict, condition + ", which the job's row does not have");
    return {};
  }

  Status set_meta(const std::string& key, const std::string& value) {
    RN_TRY(auto statement, database_.prepare("INSERT OR REPLACE INTO meta VALUES (?1,?2)"));
    statement.bind(1, key).bind(2, value);
    return run(statement);
  }

  Status put_hazard(std::string_view scope, const std::string& id, const std::string& body) {
    RN_TRY(auto statement, database_.prepare("INSERT OR REPLACE INTO hazards VALUES (?1,?2,?3)"));
    statement.bind(1, scope).bind(2, id).bind(3, body);
    return run(statement);
  }

  Status put_gpu(const RollupRow& row, const GpuRollup& gpu) {
    RN_TRY(
        auto statement,
        database_.prepare("INSERT OR REPLACE INTO rollups_gpu VALUES (?1,?2,?3,?4,?5,?6,?7)")
    );
    statement.bind(1, row.node.str()).bind(2, gpu.index).bind(3, row.bucket_wall_ms);
    statement.bind_real(4, gpu.utilisation_percent)
        .bind_real(5, gpu.memory_used_mib)
        .bind_real(6, gpu.power_mw)
        .bind(7, gpu.temperature_c_max);
    return run(statement);
  }

  SqliteDatabase& database_;
  WriterMemory& memory_;
  bool has_events_ = false;
};

}  // namespace

Digest chain_hash(const Digest& previous, std::string_view body) {
  crypto::Sha256 hash;
  hash.update(previous);
  hash.update(as_bytes(body));
  return hash.finish();
}

Status apply_writes(SqliteDatabase& database, std::span<const Write> writes, WriterMemory& memory) {
  WriterMemory changed = memory;
  const auto work = [&]() -> Status {
    Writer writer(database, changed);
    RN_CHECK(writer.check_generation());
    for (const Write& write : writes) RN_CHECK(std::visit(writer, write));
    return writer.finish();
  };
  RN_CHECK(database.transaction(work));
  memory = changed;
  return {};
}

}  // namespace rn::coordinator
