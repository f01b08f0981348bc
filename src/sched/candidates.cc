// SPDX-License-Identifier: Apache-2.0
#include "sched/candidates.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>

#include "model/data_sets.h"
#include "model/gang.h"

namespace rn::sched {

namespace {

constexpr std::size_t kNamedMax = 3;  // nodes, in a sentence for people
/// Who computes at home disturbs nobody else; more would outweigh that the machine is taken back.
constexpr double kOwnLab = 1.05;

Judgement never(std::string reason, double shortfall) {
  return {.fit = Fit::kNever, .reason = std::move(reason), .shortfall = shortfall};
}

Judgement not_now(std::string reason) {
  return {.fit = Fit::kNotNow, .reason = std::move(reason)};
}

std::string wanted_of(std::uint64_t has, std::uint64_t wanted, const char* what) {
  return "has " + std::to_string(has) + " " + what + ", " + std::to_string(wanted) + " wanted";
}

double missing_share(double has, double wanted) {
  return wanted <= 0 ? 0 : std::clamp(1 - has / wanted, 0.0, 1.0);
}

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::uint32_t guest_cpu(const Candidate& c) {
  return lent_cpu_milli(*c.contract, *c.facts);
}

std::uint32_t guest_cpu_of_one(const Candidate& c) {
  if (c.contract->guest_cpu_each_milli == 0) return guest_cpu(c);
  return std::min(c.contract->guest_cpu_each_milli, guest_cpu(c));
}

std::uint64_t guest_memory(const Candidate& c) {
  return lent_memory_mib(*c.contract, *c.facts);
}

/// GPUs that are lent and big and new enough.
struct GpuCount {
  std::uint32_t matching = 0;
  std::uint32_t lent = 0;
  std::uint32_t foreign = 0;   ///< matching, but the owner computes there
  std::uint32_t short_of = 0;  ///< matching, not foreign, too little VRAM free now
  std::uint32_t wedged = 0;
  std::uint32_t sick = 0;
  std::uint32_t outside = 0;               ///< matching, outside its own lending windows
  std::vector<std::uint32_t> closes_in_s;  ///< of the matching that are open; 0 = not in sight
  std::uint64_t biggest_mib = 0;
  std::string newest;
};

GpuCount count_gpus(const Demand& demand, const Candidate& c) {
  GpuCount count;
  for (const Gpu& gpu : c.facts->gpus) {
    if (!is_gpu_lent(*c.contract, gpu.index)) continue;
    ++count.lent;
    count.biggest_mib = std::max(count.biggest_mib, gpu.memory_mib);
    if (compare_versions(gpu.compute_capability, count.newest) > 0)
      count.newest = gpu.compute_capability;
    if (gpu.memory_mib < demand.resources.gpu_memory_mib) continue;
    if (compare_versions(gpu.compute_capability, demand.resources.compute_capability_min) < 0)
      continue;
    ++count.matching;
    std::uint32_t closes_in_s = 0;
    bool is_outside = false;
    for (const GpuTelemetry& live : c.telemetry->gpus) {
      if (live.index != gpu.index) continue;
      const std::uint64_t not_free_mib = live.memory_used_mib + live.memory_reserved_mib;
      closes_in_s = live.closes_in_s;
      is_outside = live.is_outside_window;
      if (is_outside) {
        ++count.outside;
      } else if (live.is_wedged) {
        ++count.wedged;
      } else if (!live.sickness.empty()) {
        ++count.sick;
      } else if (is_owners_own(*c.contract, live)) {
        ++count.foreign;
      } else if (not_free_mib + demand.resources.gpu_memory_mib > gpu.memory_mib) {
        ++count.short_of;
      }
    }
    if (!is_outside) count.closes_in_s.push_back(closes_in_s);
  }
  return count;
}

std::optional<Judgement> judge_permission(const Demand& demand, const Candidate& c) {
  const Contract& contract = *c.contract;
  if (!contract.lends) return never("only stores copies, lends nothing", 1);
  if (demand.is_member) {
    if (!contains(c.facts->features, std::string(kGangsFeature)))
      return never("its version knows no jobs on several machines", 0.9);
    if (!contract.gangs) return never("its contract does not admit jobs on several machines", 0.9);
    if (!c.has_peer_port) return never("takes no connections of other nodes (listen_peer)", 0.9);
  }
  if (!demand.only_labs.empty() && !contains(demand.only_labs, c.lab.str()))
    return never("is not in the labs that the job trusts", 1);
  if (!contract.allow_users.empty() && !contains(contract.allow_users, demand.user.str()))
    return never("its contract does not admit user " + demand.user.str(), 0.9);
  if (!contract.allow_labs.empty() && !contains(contract.allow_labs, demand.lab.str()))
    return never("its contract does not admit lab " + demand.lab.str(), 0.9);
  if (!contract.allow_images.empty() && !contains(contract.allow_images, demand.image_digest))
    return never("its contract does not admit the image", 0.9);
  return std::nullopt;
}

/// Less near than a node that has the data and is too small.
std::optional<Judgement> judge_data(const Demand& demand, const Candidate& c) {
  const std::string missing = missing_data_set(demand.data, c.facts->data_sets);
  if (missing.empty()) return std::nullopt;
  return never("offers no data set " + missing, 0.95);
}

/// The first data set that nobody offers; empty if there is none.
std::string data_set_nowhere(const Demand& demand, const std::vector<Candidate>& candidates) {
  for (const std::string& name : demand.data) {
    const bool is_somewhere =
        std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
          return contains(c.facts->data_sets, name);
        });
    if (!is_somewhere) return name;
  }
  return {};
}

std::optional<Judgement> judge_size(const Demand& demand, const Candidate& c) {
  const Resources& want = demand.resources;
  if (want.gpus > 0) {
    const GpuCount gpus = count_gpus(demand, c);
    if (gpus.lent < want.gpus)
      return never(
          "lends " + std::to_string(gpus.lent) + " GPUs, " + std::to_string(want.gpus) + " wanted",
          gpus.lent == 0 ? 1 : missing_share(gpus.lent, want.gpus)
      );
    if (gpus.matching < want.gpus && gpus.biggest_mib < want.gpu_memory_mib)
      return never(
          wanted_of(gpus.biggest_mib, want.gpu_memory_mib, "MiB of GPU memory"),
          missing_share(
              static_cast<double>(gpus.biggest_mib), static_cast<double>(want.gpu_memory_mib)
          )
      );
    if (gpus.matching < want.gpus)
      return never(
          "has compute capability " + gpus.newest + ", " + want.compute_capability_min + " wanted",
          0.5
      );
  }
  if (guest_cpu_of_one(c) < want.cpu_milli_min)
    return never(
        wanted_of(guest_cpu_of_one(c), want.cpu_milli_min, "milli-cores for a guest"),
        missing_share(guest_cpu_of_one(c), want.cpu_milli_min)
    );
  if (guest_memory(c) < want.memory_mib)
    return never(
        wanted_of(guest_memory(c), want.memory_mib, "MiB for guests"),
        missing_share(static_cast<double>(guest_memory(c)), static_cast<double>(want.memory_mib))
    );
  if (c.contract->guest_disk_mib < want.disk_mib)
    return never(
        wanted_of(c.contract->guest_disk_mib, want.disk_mib, "MiB of disk for a guest"),
        missing_share(
            static_cast<double>(c.contract->guest_disk_mib), static_cast<double>(want.disk_mib)
        )
    );
  return std::nullopt;
}

std::string_view words_for(LendingState lending) {
  switch (lending) {
    case LendingState::kOpen:
      return "open";
    case LendingState::kNotLending:
      return "not lending";
    case LendingState::kOutsideWindow:
      return "outside its lending window";
    case LendingState::kOwnerPresent:
      return "in use by its owner";
    case LendingState::kReclaimed:
      return "taken back by its owner";
    case LendingState::kPaused:
      return "paused by its owner";
    case LendingState::kDraining:
      return "draining";
  }
  return "closed";
}

std::optional<Judgement> judge_moment(const Demand& demand, const Candidate& c) {
  const Resources& want = demand.resources;
  if (!c.is_up) return not_now("not connected");
  if (c.lending == LendingState::kNotLending && !c.facts->engine_refusal.empty()) {
    Judgement judgement = not_now("its container engine is refused: " + c.facts->engine_refusal);
    judgement.is_named = true;
    return judgement;
  }
  if (c.lending != LendingState::kOpen) return not_now(std::string(words_for(c.lending)));
  // Neither links nor what it saves would pass.
  if (demand.is_member && c.facts->are_transfers_cut)
    return not_now("cut off from transfers by its owner");
  if (c.guests >= c.contract->max_guests) return not_now("full of guests");
  if (want.gpus > 0) {
    const GpuCount gpus = count_gpus(demand, c);
    const std::uint32_t taken = gpus.foreign + gpus.wedged + gpus.sick + gpus.outside +
                                std::max(gpus.short_of, c.used_gpus);
    if (gpus.matching < want.gpus + taken) {
      if (gpus.matching < want.gpus + c.used_gpus) return not_now("GPUs busy with other jobs");
      if (gpus.outside > 0) return not_now("GPUs outside their lending windows");
      if (gpus.foreign > 0) return not_now("GPUs busy with processes of the owner");
      if (gpus.sick > 0) return not_now("a GPU is sick");
      return not_now(gpus.wedged > 0 ? "a GPU is wedged" : "too little GPU memory free");
    }
  }
  const std::uint32_t cpu = guest_cpu(c);
  if (cpu < c.used_cpu_milli + want.cpu_milli_min) return not_now("cores busy with other jobs");
  if (guest_memory(c) < c.used_memory_mib + want.memory_mib)
    return not_now("memory busy with other jobs");
  if (c.telemetry->disk_free_mib > 0 &&
      c.telemetry->disk_free_mib < want.disk_mib + c.contract->reserve_disk_mib)
    return not_now("disk too full");
  return std::nullopt;
}

std::string format(const char* pattern, double a) {
  char text[32];
  std::snprintf(text, sizeof text, pattern, a);
  return text;
}

/// Until the first GPU's own window ends of those that the node would give, which are those that
/// close last; none if that is not in sight. Which of them others have is the node's to know.
std::optional<double> gpus_close_in_s(const Demand& demand, const Candidate& c) {
  if (demand.resources.gpus == 0) return std::nullopt;
  std::vector<std::uint32_t> closes = count_gpus(demand, c).closes_in_s;
  if (closes.size() < demand.resources.gpus) return std::nullopt;
  for (std::uint32_t& one : closes) one = one == 0 ? UINT32_MAX : one;
  std::sort(closes.begin(), closes.end(), std::greater<>());
  const std::uint32_t first = closes[demand.resources.gpus - 1];
  if (first == UINT32_MAX) return std::nullopt;
  return static_cast<double>(first);
}

/// Nobody computes there after the end of its GPUs' windows.
double useful_share(const Demand& demand, const Candidate& c) {
  const auto closes_s = gpus_close_in_s(demand, c);
  if (!closes_s || *closes_s >= demand.horizon_s)
    return cautious_mean_survival(c.outlook, demand.horizon_s);
  return cautious_mean_survival(c.outlook, *closes_s) * *closes_s / demand.horizon_s;
}

std::size_t lent_gpus(const Candidate& c) {
  return static_cast<std::size_t>(std::count_if(
      c.facts->gpus.begin(),
      c.facts->gpus.end(),
      [&](const Gpu& gpu) { return is_gpu_lent(*c.contract, gpu.index); }
  ));
}

std::string name_of(const Candidate& c) {
  return c.lab.str() + "/" + (c.facts->hostname.empty() ? c.node.str() : c.facts->hostname);
}

}  // namespace

Ranked score(const Demand& demand, const Candidate& c, std::size_t index, std::uint32_t cpu) {
  Ranked ranked{.index = index, .cpu_milli = cpu};
  ranked.speed = demand.resources.gpus > 0 || demand.resources.cpu_milli == 0
                     ? 1.0
                     : std::min(1.0, static_cast<double>(cpu) / demand.resources.cpu_milli);
  ranked.survival = survival(c.outlook, 3600);
  ranked.worth = useful_share(demand, c);
  ranked.score = ranked.speed * ranked.worth;
  const auto times = [&ranked](double factor) {
    ranked.worth *= factor;
    ranked.score *= factor;
  };
  if (c.lab == demand.lab) times(kOwnLab);
  if (contains(c.facts->images, demand.image_digest)) times(1.02);
  if (c.contract->notice_s < demand.notice_s) times(0.8);
  if (c.node == demand.avoided) times(0.5);
  return ranked;
}

std::string because(const Demand& demand, const Candidate& c, const Ranked& ranked) {
  std::string text = "survives 1 h with " + format("%.2f", ranked.survival) + ", grants " +
                     std::to_string(ranked.cpu_milli) + " of " +
                     std::to_string(demand.resources.cpu_milli) + " milli-cores";
  if (c.node == demand.chosen) text += ", where its evacuation went";
  if (c.node == demand.preferred) text += ", its home";
  if (c.lab == demand.lab) text += ", own lab";
  if (demand.notice_s > 0)
    text += ", gives " + std::to_string(c.contract->notice_s) + " s of notice, " +
            std::to_string(demand.notice_s) + " asked for";
  if (c.node == demand.avoided) text += ", it failed there before";
  return text + ", score " + format("%.3f", ranked.score);
}

int compare_versions(const std::string& a, const std::string& b) {
  const auto part = [](const char*& at, const char* end) {
    int value = 0;
    const auto read = std::from_chars(at, end, value);
    at = read.ptr == end ? end : read.ptr + 1;
    return value;
  };
  const char* x = a.data();
  const char* y = b.data();
  for (int i = 0; i < 3; ++i) {
    const int left = part(x, a.data() + a.size());
    const int right = part(y, b.data() + b.size());
    if (left != right) return left < right ? -1 : 1;
  }
  return 0;
}

Judgement judge(const Demand& demand, const Candidate& candidate) {
  if (auto refusal = judge_permission(demand, candidate)) return *refusal;
  if (auto refusal = judge_data(demand, candidate)) return *refusal;
  if (auto refusal = judge_size(demand, candidate)) return *refusal;
  if (auto refusal = judge_moment(demand, candidate)) return *refusal;
  const std::uint32_t left = guest_cpu(candidate) - candidate.used_cpu_milli;
  const std::uint32_t one = std::min(left, guest_cpu_of_one(candidate));
  return {.fit = Fit::kFits, .cpu_milli = std::min(one, demand.resources.cpu_milli)};
}

std::vector<Ranked> rank(const Demand& demand, const std::vector<Candidate>& candidates) {
  std::vector<Ranked> result;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Judgement judgement = judge(demand, candidates[i]);
    if (judgement.fit == Fit::kFits)
      result.push_back(score(demand, candidates[i], i, judgement.cpu_milli));
  }
  std::sort(result.begin(), result.end(), [&](const Ranked& a, const Ranked& b) {
    const Candidate& x = candidates[a.index];
    const Candidate& y = candidates[b.index];
    const auto place_of = [&](const NodeId& node) {
      return node == demand.chosen ? 2 : node == demand.preferred ? 1 : 0;
    };
    const int a_first = place_of(x.node);
    const int b_first = place_of(y.node);
    if (a_first != b_first) return a_first > b_first;
    if (a.score != b.score) return a.score > b.score;
    const std::size_t a_left = lent_gpus(x) - std::min<std::size_t>(lent_gpus(x), x.used_gpus);
    const std::size_t b_left = lent_gpus(y) - std::min<std::size_t>(lent_gpus(y), y.used_gpus);
    if (a_left != b_left) return a_left < b_left;
    return x.node < y.node;
  });
  return result;
}

std::optional<std::uint32_t> most_cpu_milli(
    const Demand& demand, const std::vector<Candidate>& candidates
) {
  std::optional<std::uint32_t> most;
  for (const Candidate& c : candidates) {
    if (judge(demand, c).fit != Fit::kNever) most = std::max(most.value_or(0), guest_cpu_of_one(c));
  }
  return most;
}

std::optional<std::uint32_t> longest_notice_s(
    const Demand& demand, const std::vector<Candidate>& candidates
) {
  std::optional<std::uint32_t> longest;
  for (const Candidate& c : candidates) {
    if (judge(demand, c).fit != Fit::kNever)
      longest = std::max(longest.value_or(0), c.contract->notice_s);
  }
  return longest;
}

bool is_feasible(const Demand& demand, const std::vector<Candidate>& candidates) {
  return std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
    return judge(demand, c).fit != Fit::kNever;
  });
}

std::string explain(const Demand& demand, const std::vector<Candidate>& candidates) {
  if (candidates.empty()) return "no node has joined yet";
  if (const std::string name = data_set_nowhere(demand, candidates); !name.empty())
    return "no node offers data set " + name;
  std::size_t gpus = 0;
  std::size_t possible = 0;
  std::size_t fits = 0;
  const Candidate* closest = nullptr;
  Judgement closest_judgement;
  std::map<std::string, std::size_t> moments;
  std::vector<std::string> named;
  for (const Candidate& c : candidates) {
    gpus += lent_gpus(c);
    Judgement judgement = judge(demand, c);
    if (judgement.fit == Fit::kNever) {
      if (closest == nullptr || judgement.shortfall < closest_judgement.shortfall) {
        closest = &c;
        closest_judgement = std::move(judgement);
      }
      continue;
    }
    ++possible;
    if (judgement.fit == Fit::kFits) ++fits;
    if (judgement.fit == Fit::kFits) continue;
    if (!judgement.is_named) {
      ++moments[judgement.reason];
    } else if (named.size() < kNamedMax) {
      named.push_back(name_of(c) + ": " + judgement.reason);
    } else {
      ++moments["more with a container engine that is refused"];
    }
  }
  if (possible == 0) {
    const bool is_gpu_job = demand.resources.gpus > 0;
    return "0 of " + std::to_string(is_gpu_job ? gpus : candidates.size()) +
           (is_gpu_job ? " GPUs" : " nodes") + " can ever match; closest: " + name_of(*closest) +
           " " + closest_judgement.reason;
  }
  if (fits > 0)
    return std::to_string(fits) + " of " + std::to_string(candidates.size()) +
           " nodes fit and will be asked";
  std::string text = std::to_string(possible) + " of " + std::to_string(candidates.size()) +
                     " nodes could run it, none can now: ";
  for (const auto& [reason, count] : moments) named.push_back(std::to_string(count) + " " + reason);
  for (std::size_t i = 0; i < named.size(); ++i) text += (i == 0 ? "" : "; ") + named[i];
  return text;
}

}  // namespace rn::sched
