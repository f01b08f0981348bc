// SPDX-License-Identifier: Apache-2.0
#include "sim/memory_store.h"

namespace rn::sim {

namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

template <class Map>
auto values(const Map& map) {
  std::vector<typename Map::mapped_type> out;
  out.reserve(map.size());
  for (const auto& [key, value] : map) out.push_back(value);
  return out;
}

}  // namespace

Status MemoryStore::check(const coordinator::Write& write) const {
  const auto current = [&](const JobId& job, LeaseEpoch epoch) -> Status {
    const auto found = jobs_.find(job);
    if (found == jobs_.end() || found->second.job.epoch != epoch) {
      return fail(
          ErrorCode::kConflict, "job " + job.str() + " is not at epoch " + to_string(epoch)
      );
    }
    return {};
  };
  if (const auto* put = std::get_if<coordinator::PutGeneration>(&write)) {
    return current(put->row.generation.job, put->required_epoch);
  }
  if (const auto* put = std::get_if<coordinator::PutOutputs>(&write))
    return current(put->row.job, put->row.epoch);
  return {};
}

void MemoryStore::restore(const MemoryStore& backup) {
  auto watcher = std::move(on_write);
  auto after = std::move(on_committed);
  *this = backup;
  on_write = std::move(watcher);
  on_committed = std::move(after);
}

void MemoryStore::rewrite_history(const NodeId& node, const NodeHistory& history) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  found->second.history = history;
  campus_hazard_.reset();
  lab_hazards_.clear();
  node_hazards_.clear();
}

void MemoryStore::apply(const coordinator::Write& write) {
  std::visit(
      Overloaded{
          [&](const coordinator::PutJob& w) { jobs_[w.row.job.id] = w.row; },
          [&](const coordinator::PutAttempt& w) {
            attempts_[{w.row.attempt.job, w.row.attempt.epoch}] = w.row;
          },
          [&](const coordinator::PutNode& w) { nodes_[w.row.node] = w.row; },
          [&](const coordinator::PutGeneration& w) {
            generations_[{w.row.generation.job, w.row.generation.generation}] = w.row;
          },
          [&](const coordinator::PutReclaim& w) {
            reclaims_[{w.row.record.node, w.row.record.id}] = w.row;
          },
          [&](const coordinator::PutImage& w) { images_[w.image.name] = w.image; },
          [&](const coordinator::DeleteImage& w) { images_.erase(w.name); },
          [&](const coordinator::PutToken& w) { tokens_[w.row.id] = w.row; },
          [&](const coordinator::PutUser& w) { users_[w.row.user] = w.row; },
          [&](const coordinator::PutUsage& w) {
            usage_[{w.row.user, w.row.lab}] = w.row;
          },
          [&](const coordinator::PutOutputs& w) {
            outputs_[{w.row.job, w.row.epoch}] = w.row;
          },
          [&](const coordinator::AppendEvent& w) { events_.push_back(w.row); },
          [&](const coordinator::SetMeta& w) { meta_[w.key] = w.value; },
          [&](const coordinator::PutRollup&) {},
          [&](const coordinator::PutCampusHazard& w) { campus_hazard_ = w.row; },
          [&](const coordinator::PutLabHazard& w) { lab_hazards_[w.row.lab] = w.row; },
          [&](const coordinator::PutNodeHazard& w) { node_hazards_[w.row.node] = w.row; },
          [&](const coordinator::PutQuota& w) {
            quotas_[{w.row.subject, w.row.gpu_model}] = w.row;
          },
          [&](const coordinator::DeleteQuota& w) {
            quotas_.erase({w.subject, w.gpu_model});
          },
          [&](const coordinator::PutGpuHour& w) {
            gpu_hours_[{w.row.hour, w.row.user, w.row.lab, w.row.gpu_model}] = w.row;
          },
          [&](const coordinator::DropGpuHours& w) {
            std::erase_if(gpu_hours_, [&](const auto& one) {
              return one.second.hour < w.before_hour;
            });
          },
          [&](const coordinator::PutGang& w) { gangs_[w.row.id] = w.row; },
      },
      write
  );
  if (on_write) on_write(write);
}

Status MemoryStore::commit(const std::vector<coordinator::Write>& writes) {
  // Conditions are checked against the state that earlier writes of the same transaction leave. A
  // condition that fails ends the simulated process (and the run), so there is nothing to roll back
  // to.
  for (const auto& write : writes) {
    if (const Status ok = check(write); !ok) return ok;
    apply(write);
  }
  if (on_committed) on_committed();
  return {};
}

coordinator::Snapshot MemoryStore::load() const {
  return {
      meta_,
      values(jobs_),
      values(attempts_),
      values(nodes_),
      values(generations_),
      values(reclaims_),
      values(images_),
      values(tokens_),
      values(users_),
      values(usage_),
      campus_hazard_,
      values(lab_hazards_),
      values(node_hazards_),
      values(quotas_),
      values(gpu_hours_),
      values(gangs_)};
}

}  // namespace rn::sim
