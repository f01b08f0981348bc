// SPDX-License-Identifier: Apache-2.0
#include "evaluate/production_store.h"

#include <algorithm>

namespace rn::evaluate {

void StateStore::put(const GenerationRef& ref, double progress_s) {
  OfJob& job = jobs_[ref.job];
  job.generations[ref.generation] = {ref.manifest, progress_s};
  job.beginnings.erase(ref.generation);
}

bool StateStore::has(const GenerationRef& ref) const {
  const auto job = jobs_.find(ref.job);
  if (job == jobs_.end()) return false;
  const auto held = job->second.generations.find(ref.generation);
  return held != job->second.generations.end() && held->second.manifest == ref.manifest;
}

double StateStore::missing(const GenerationRef& ref, double progress_s, const StateKind& kind)
    const {
  if (has(ref)) return 0;
  double least = whole_bytes(kind, progress_s);
  const auto job = jobs_.find(ref.job);
  if (job != jobs_.end()) {
    for (const auto& [number, held] : job->second.generations)
      least = std::min(least, differing_bytes(kind, held.progress_s, progress_s));
  }
  return std::max(0.0, least - beginning(ref));
}

double StateStore::beginning(const GenerationRef& ref) const {
  const auto job = jobs_.find(ref.job);
  if (job == jobs_.end()) return 0;
  const auto found = job->second.beginnings.find(ref.generation);
  const bool is_same =
      found != job->second.beginnings.end() && found->second.manifest == ref.manifest;
  return is_same ? found->second.bytes : 0;
}

void StateStore::keep_beginning(const GenerationRef& ref, double bytes) {
  jobs_[ref.job].beginnings[ref.generation] = {ref.manifest, beginning(ref) + bytes};
}

void StateStore::drop_before(const JobId& job, std::uint32_t keep_from) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  std::erase_if(found->second.generations, [&](const auto& g) { return g.first < keep_from; });
  std::erase_if(found->second.beginnings, [&](const auto& b) { return b.first < keep_from; });
}

void StateStore::drop_one(const JobId& job, std::uint32_t generation) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  found->second.generations.erase(generation);
  found->second.beginnings.erase(generation);
}

void StateStore::drop_job(const JobId& job) {
  jobs_.erase(job);
}

std::vector<JobId> StateStore::jobs() const {
  std::vector<JobId> out;
  for (const auto& [job, held] : jobs_) out.push_back(job);
  return out;
}

}  // namespace rn::evaluate
