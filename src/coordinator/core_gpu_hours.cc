// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_gpu_hours.h"

#include <algorithm>
#include <iterator>

#include "sched/quota.h"

namespace rn::coordinator {

namespace {

constexpr std::int64_t kHourMs = 3'600'000;

/// Also before 1970, where a clock is wrong.
std::int64_t wall_hour(std::int64_t wall_ms) {
  return wall_ms >= 0 ? wall_ms / kHourMs : -((-wall_ms + kHourMs - 1) / kHourMs);
}

std::string model_of_gpu(const NodeRow& node, std::uint32_t index) {
  for (const Gpu& gpu : node.facts.gpus) {
    if (gpu.index == index) return gpu.model;
  }
  return {};
}

std::string first_lent_model(const NodeRow& node) {
  for (const Gpu& gpu : node.facts.gpus) {
    if (is_gpu_lent(node.contract, gpu.index)) return gpu.model;
  }
  return {};
}

}  // namespace

void GpuHours::count(const Key& key, std::int64_t hour, double gpu_s) {
  const auto& [user, lab, model] = key;
  rows_[key][hour] += gpu_s;
  by_subject_[quota_subject(user)][model][hour] += gpu_s;
  by_subject_[quota_subject(lab)][model][hour] += gpu_s;
}

void GpuHours::add(
    const UserId& user,
    const LabId& lab,
    const std::string& gpu_model,
    std::int64_t wall_ms,
    double gpu_s
) {
  const Key key(user, lab, gpu_model);
  const std::int64_t hour = wall_hour(wall_ms);
  count(key, hour, gpu_s);
  changed_.emplace(key, hour);
}

void GpuHours::restore(const GpuHourRow& row) {
  count(Key(row.user, row.lab, row.gpu_model), row.hour, row.gpu_s);
}

double GpuHours::used(
    const std::string& subject,
    std::string_view pattern,
    std::int64_t wall_ms,
    std::uint32_t window_s
) const {
  const auto found = by_subject_.find(subject);
  if (found == by_subject_.end()) return 0;
  const std::int64_t from_ms = wall_ms - std::int64_t{window_s} * 1000;
  const std::int64_t first = wall_hour(from_ms);
  const std::int64_t last = wall_hour(wall_ms);
  const double share_of_first =
      static_cast<double>((first + 1) * kHourMs - from_ms) / static_cast<double>(kHourMs);
  double gpu_s = 0;
  for (const auto& [model, hours] : found->second) {
    if (!sched::is_gpu_model(pattern, model)) continue;
    for (auto at = hours.lower_bound(first); at != hours.end() && at->first <= last; ++at)
      gpu_s += at->first == first ? at->second * share_of_first : at->second;
  }
  return gpu_s / 3600;
}

std::vector<GpuHourRow> GpuHours::take_changed() {
  std::vector<GpuHourRow> rows;
  for (const auto& [key, hour] : changed_) {
    const auto& [user, lab, model] = key;
    rows.push_back(
        {.user = user,
         .lab = lab,
         .gpu_model = model,
         .hour = hour,
         .gpu_s = rows_.at(key).at(hour)}
    );
  }
  changed_.clear();
  return rows;
}

std::optional<std::int64_t> GpuHours::forget_old(std::int64_t wall_ms) {
  const std::int64_t first = wall_hour(wall_ms - std::int64_t{kQuotaWindowMostS} * 1000);
  bool is_any = false;
  const auto forget_in = [&is_any, first](Hours& hours) {
    const auto end = hours.lower_bound(first);
    is_any = is_any || hours.begin() != end;
    hours.erase(hours.begin(), end);
    return hours.empty();
  };
  const auto forget_in_all = [&forget_in](auto& all) {
    for (auto it = all.begin(); it != all.end();)
      it = forget_in(it->second) ? all.erase(it) : std::next(it);
  };
  forget_in_all(rows_);
  for (auto& [subject, models] : by_subject_) forget_in_all(models);
  std::erase_if(by_subject_, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(changed_, [first](const auto& entry) { return entry.second < first; });
  return is_any ? std::optional(first) : std::nullopt;
}

std::set<std::string> GpuHours::subjects() const {
  std::set<std::string> all;
  for (const auto& [subject, models] : by_subject_) all.insert(subject);
  return all;
}

std::vector<std::string> gpu_models_of(
    const NodeRow& node, const std::vector<std::uint32_t>& known, std::uint32_t gpus
) {
  std::vector<std::string> models;
  for (const std::uint32_t index : known) {
    if (models.size() < gpus) models.push_back(model_of_gpu(node, index));
  }
  while (models.size() < gpus) models.push_back(first_lent_model(node));
  return models;
}

std::string quota_subject(const UserId& user) {
  return "user:" + user.str();
}

std::string quota_subject(const LabId& lab) {
  return "lab:" + lab.str();
}

}  // namespace rn::coordinator
