// SPDX-License-Identifier: Apache-2.0
#include "cli_top.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <sstream>
#include <tuple>

#include "cli_print.h"

#include "base/printable.h"

namespace rn::cli {

namespace {

constexpr std::uint32_t kUsualBucket_s = 300;
constexpr double kNotHeard = -1;
constexpr std::size_t kNameColumns = 20;
constexpr std::size_t kReasonColumns = 60;

/// What the coordinator kept of the nodes, by node and by the number of the bucket.
class Buckets {
 public:
  Buckets(const api::TelemetryList& telemetry, std::int64_t now_wall_ms) {
    std::int64_t newest_ms = 0;
    std::uint32_t width_s = kUsualBucket_s;
    for (const api::NodeHistoryPoint& point : telemetry.points) {
      if (point.bucket_wall_ms < newest_ms || point.bucket_s == 0) continue;
      newest_ms = point.bucket_wall_ms;
      width_s = point.bucket_s;
    }
    width_ms_ = std::int64_t{width_s} * 1000;
    now_ = now_wall_ms / width_ms_;
    for (const api::NodeHistoryPoint& point : telemetry.points)
      points_[point.node][point.bucket_wall_ms / width_ms_] = &point;
  }

  /// The last buckets that are over, as `value` reads them; then `now`.
  template <class Value>
  History history(const NodeId& node, double now, Value value) const {
    History result;
    const auto of_node = points_.find(node);
    for (std::int64_t at = now_ - static_cast<std::int64_t>(kTopBuckets); at < now_; ++at) {
      double one = kNotHeard;
      if (of_node != points_.end()) {
        const auto point = of_node->second.find(at);
        if (point != of_node->second.end()) one = value(*point->second);
      }
      result.push_back(one);
    }
    result.push_back(now);
    return result;
  }

 private:
  std::int64_t width_ms_ = 1;
  std::int64_t now_ = 0;
  std::map<NodeId, std::map<std::int64_t, const api::NodeHistoryPoint*>> points_;
};

double gpu_of_bucket(const api::NodeHistoryPoint& point, std::uint32_t index) {
  for (const api::GpuHistory& gpu : point.gpus)
    if (gpu.index == index && gpu.samples > 0) return gpu.utilisation_percent;
  return kNotHeard;
}

TopGpu top_gpu(const api::NodeInfo& node, const Gpu& gpu, const Buckets& buckets) {
  TopGpu out;
  out.index = gpu.index;
  out.model = gpu.model;
  out.memory_mib = gpu.memory_mib;
  out.is_lent = node.contract.lends && is_gpu_lent(node.contract, gpu.index);
  double now = kNotHeard;
  for (const GpuTelemetry& live : node.telemetry.gpus) {
    if (live.index != gpu.index || live.is_unseen) continue;
    out.is_wedged = live.is_wedged;
    out.sickness = live.sickness;
    out.is_owners = is_owners_own(node.contract, live);
    out.foreign_processes = live.foreign_processes;
    out.utilisation_percent = live.utilisation_percent;
    out.memory_used_mib = live.memory_used_mib;
    out.temperature_c = live.temperature_c;
    if (node.is_connected) now = live.utilisation_percent;
  }
  out.history = buckets.history(node.id, now, [&](const api::NodeHistoryPoint& point) {
    return gpu_of_bucket(point, gpu.index);
  });
  return out;
}

TopNode top_node(const api::NodeInfo& node, const Buckets& buckets) {
  TopNode out;
  out.node = node.id;
  out.host = node.facts.hostname.empty() ? node.id.str() : node.facts.hostname;
  out.lab = node.lab;
  out.is_connected = node.is_connected;
  out.lending = node.lending;
  out.guests = node.telemetry.guests;
  out.cpu_percent = node.telemetry.cpu_percent;
  out.memory_used_mib = node.telemetry.memory_used_mib;
  out.memory_mib = node.facts.memory_mib;
  out.used_gpus = node.used_gpus;
  out.history = buckets.history(
      node.id,
      node.is_connected ? node.telemetry.cpu_percent : kNotHeard,
      [](const api::NodeHistoryPoint& point) {
        return point.samples > 0 ? point.cpu_percent : kNotHeard;
      }
  );
  for (const Gpu& gpu : node.facts.gpus) out.gpus.push_back(top_gpu(node, gpu, buckets));
  return out;
}

History mean_of_gpus(const TopNode& node) {
  History mean;
  for (std::size_t i = 0; i < node.history.size(); ++i) {
    double sum = 0;
    double heard = 0;
    for (const TopGpu& gpu : node.gpus) {
      if (gpu.history[i] < 0) continue;
      sum += gpu.history[i];
      ++heard;
    }
    mean.push_back(heard == 0 ? kNotHeard : sum / heard);
  }
  return mean;
}

TopJob top_job(const Job& job, const std::vector<TopNode>& nodes) {
  TopJob out;
  out.job = job.id;
  out.number = job.number;
  out.name = job.spec.name;
  out.user = job.owner;
  out.state = job.state;
  out.gpus = job.spec.resources.gpus;
  out.attempt = job.epoch.attempt;
  out.started_wall_ms = job.started_wall_ms;
  out.reason = job.reason;
  const bool is_waiting = job.state == JobState::kQueued || job.state == JobState::kPlacing;
  if (job.node.empty() || is_waiting) return out;
  out.host = job.node.str();
  for (const TopNode& node : nodes) {
    if (node.node != job.node) continue;
    out.host = node.host;
    out.history = out.gpus > 0 ? mean_of_gpus(node) : node.history;
  }
  return out;
}

/// Who has guests first, then who lends, then who does not, then who is away.
int order_of(const TopNode& node) {
  if (!node.is_connected) return 3;
  if (node.guests > 0) return 0;
  return node.lending == LendingState::kOpen ? 1 : 2;
}

std::string percent_now(const History& history) {
  if (history.empty() || history.back() < 0) return "-";
  return std::to_string(std::lround(history.back())) + " %";
}

std::string memory_words(std::uint64_t used_mib, std::uint64_t all_mib) {
  return human_bytes(used_mib << 20) + " of " + human_bytes(all_mib << 20);
}

std::string gpu_state(const TopGpu& gpu) {
  if (gpu.is_wedged) return "wedged";
  if (!gpu.sickness.empty()) return "sick";
  if (!gpu.is_lent) return "not lent";
  return gpu.is_owners ? "in use by its owner" : "lent";
}

std::vector<std::vector<std::string>> rows_of_nodes(const TopView& view, bool is_utf8) {
  std::vector<std::vector<std::string>> rows;
  for (const TopNode& node : view.nodes) {
    rows.push_back(
        {shorten(node.host, kNameColumns),
         node.lab.str(),
         node.is_connected ? std::string(to_string(node.lending)) : "away",
         node.is_connected ? std::to_string(node.guests) : "-",
         sparkline(node.history, is_utf8),
         percent_now(node.history),
         node.is_connected ? memory_words(node.memory_used_mib, node.memory_mib) : "-"}
    );
    for (const TopGpu& gpu : node.gpus) {
      const bool is_heard = gpu.history.back() >= 0;
      rows.push_back(
          {"  gpu " + std::to_string(gpu.index),
           shorten(dash(gpu.model), kNameColumns),
           gpu_state(gpu),
           is_heard && gpu.temperature_c > 0 ? std::to_string(gpu.temperature_c) + " C" : "",
           sparkline(gpu.history, is_utf8),
           percent_now(gpu.history),
           is_heard ? memory_words(gpu.memory_used_mib, gpu.memory_mib) : "-"}
      );
    }
  }
  return rows;
}

std::vector<std::vector<std::string>> rows_of_jobs(const TopView& view, bool is_utf8) {
  std::vector<std::vector<std::string>> rows;
  for (const TopJob& job : view.jobs) {
    rows.push_back(
        {std::to_string(job.number),
         dash(shorten(job.name, kNameColumns)),
         job.user.str(),
         std::string(to_string(job.state)),
         dash(shorten(job.host, kNameColumns)),
         std::to_string(job.attempt),
         relative_time(job.started_wall_ms, view.at_wall_ms),
         sparkline(job.history, is_utf8),
         percent_now(job.history),
         shorten(job.reason, kReasonColumns)}
    );
  }
  return rows;
}

std::string heading(const TopView& view) {
  std::array<std::size_t, 3> nodes{};  // lend, closed, away
  std::size_t lent = 0;
  std::size_t used = 0;
  for (const TopNode& node : view.nodes) {
    const bool is_open = node.is_connected && node.lending == LendingState::kOpen;
    ++nodes[is_open ? 0 : node.is_connected ? 1 : 2];
    used += node.used_gpus;
    if (!is_open) continue;
    lent += static_cast<std::size_t>(
        std::count_if(node.gpus.begin(), node.gpus.end(), [](const TopGpu& g) { return g.is_lent; })
    );
  }
  const auto waiting = static_cast<std::size_t>(std::count_if(
      view.jobs.begin(), view.jobs.end(), [](const TopJob& j) { return j.host.empty(); }
  ));
  return absolute_time(view.at_wall_ms) + "  nodes: " + std::to_string(nodes[0]) + " lend, " +
         std::to_string(nodes[1]) + " do not, " + std::to_string(nodes[2]) +
         " away  GPUs: " + std::to_string(lent) + " lent, " + std::to_string(used) +
         " used  jobs: " + std::to_string(view.jobs.size() - waiting) + " placed, " +
         std::to_string(waiting) + " wait";
}

/// The lines of a table; of more rows than there is room for, how many more there are.
std::vector<std::string> lines_of_table(
    const std::vector<std::string>& heads,
    std::vector<std::vector<std::string>> rows,
    std::size_t room
) {
  std::string more;
  if (rows.size() > room) {
    const std::size_t shown = room == 0 ? 0 : room - 1;
    more = "... " + std::to_string(rows.size() - shown) + " more";
    rows.resize(shown);
  }
  std::vector<std::string> lines;
  std::istringstream text(table(heads, rows));
  for (std::string line; std::getline(text, line);) lines.push_back(std::move(line));
  if (!more.empty() && room > 0) lines.push_back(std::move(more));
  return lines;
}

/// Columns are characters: each of ours takes one.
std::string cut_to(std::string line, std::size_t columns) {
  if (columns == 0) return line;
  std::size_t seen = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(line[i]) & 0xc0) != 0x80;
    if (begins && seen++ == columns) return line.substr(0, i);
  }
  return line;
}

/// Rows of both tables beside their heads, the heading, a blank line and the status: each half, or
/// what the other does not need.
std::pair<std::size_t, std::size_t> share_lines(
    std::size_t lines, std::size_t nodes, std::size_t jobs, bool has_status
) {
  if (lines == 0) return {nodes, jobs};
  const std::size_t taken = has_status ? 5 : 4;
  const std::size_t room = lines > taken ? lines - taken : 0;
  const std::size_t for_jobs = std::min(jobs, std::max(room / 2, room - std::min(room, nodes)));
  return {std::min(nodes, room - for_jobs), for_jobs};
}

}  // namespace

TopView top_view(
    const api::NodeList& nodes,
    const api::JobList& jobs,
    const api::TelemetryList& telemetry,
    std::int64_t now_wall_ms
) {
  const Buckets buckets(telemetry, now_wall_ms);
  TopView view;
  view.at_wall_ms = now_wall_ms;
  for (const api::NodeInfo& node : nodes.nodes) {
    if (node.is_revoked || node.state == NodeState::kLeft) continue;
    view.nodes.push_back(top_node(node, buckets));
  }
  std::sort(view.nodes.begin(), view.nodes.end(), [](const TopNode& a, const TopNode& b) {
    return std::make_tuple(order_of(a), a.lab, a.host, a.node) <
           std::make_tuple(order_of(b), b.lab, b.host, b.node);
  });
  for (const Job& job : jobs.jobs)
    if (!is_terminal(job.state)) view.jobs.push_back(top_job(job, view.nodes));
  std::sort(view.jobs.begin(), view.jobs.end(), [](const TopJob& a, const TopJob& b) {
    return std::make_tuple(a.host.empty(), a.number) < std::make_tuple(b.host.empty(), b.number);
  });
  return view;
}

std::string sparkline(const History& history, bool is_utf8) {
  static constexpr std::array<const char*, 8> kBlocks = {
      "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};
  static constexpr std::array<const char*, 8> kPlain = {"_", ".", ":", "-", "=", "+", "*", "#"};
  std::string text;
  for (const double percent : history) {
    if (percent < 0) {
      text += ' ';
      continue;
    }
    const auto level = static_cast<std::size_t>(std::clamp(percent / 12.5, 0.0, 7.0));
    text += is_utf8 ? kBlocks[level] : kPlain[level];
  }
  return text;
}

std::string top_screen(
    const TopView& view, const ScreenSize& size, const std::string& status, bool is_utf8
) {
  auto nodes = rows_of_nodes(view, is_utf8);
  auto jobs = rows_of_jobs(view, is_utf8);
  const auto room = share_lines(size.lines, nodes.size(), jobs.size(), !status.empty());
  std::vector<std::string> lines{heading(view)};
  const auto add = [&lines](std::vector<std::string> more) {
    for (std::string& line : more) lines.push_back(std::move(line));
  };
  add(lines_of_table(
      {"NODE", "LAB", "LENDING", "GUESTS", "LATELY", "NOW", "MEMORY"}, std::move(nodes), room.first
  ));
  lines.emplace_back();
  add(lines_of_table(
      {"NO",
       "NAME",
       "USER",
       "STATE",
       "NODE",
       "ATTEMPT",
       "STARTED",
       "ITS NODE LATELY",
       "NOW",
       "WHY"},
      std::move(jobs),
      room.second
  ));
  if (!status.empty()) lines.push_back(printable(status));
  if (size.lines != 0 && lines.size() > size.lines) lines.resize(size.lines);
  std::string text;
  for (std::string& line : lines) {
    while (line.ends_with(' ')) line.pop_back();
    text += cut_to(std::move(line), size.columns) + "\n";
  }
  return text;
}

}  // namespace rn::cli
