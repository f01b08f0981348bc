// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <utility>

#include "sim/cluster.h"

// Hours of machines and of single GPUs, in their contracts.
namespace rn::sim {

void Cluster::close_window(
    std::size_t node, nanoseconds in, nanoseconds length, std::optional<std::uint32_t> gpu
) {
  Node& mine = nodes_[node];
  const auto full = [](std::int64_t ms) { return (ms + 59'999) / 60'000; };  // minutes
  const auto text = [](std::int64_t minute) {
    char out[8];
    const auto of_day = static_cast<int>(minute % 1440);
    std::snprintf(out, sizeof out, "%02d:%02d", of_day / 60, of_day % 60);
    return std::string(out);
  };
  const std::int64_t now_ms = to_ms(mine.machine->clock().now().wall);
  const std::int64_t end = full(now_ms + in / milliseconds(1));
  const std::int64_t begin = end + full(length / milliseconds(1));
  Contract contract = mine.agent->contract();
  const LendingWindow open{{}, text(begin), text(end)};
  if (gpu) {
    std::erase_if(contract.gpu_windows, [&](const GpuWindows& own) { return own.gpu == *gpu; });
    contract.gpu_windows.push_back({*gpu, {open}, {}});
  } else {
    contract.windows = {open};
  }
  const std::string what = gpu ? "lends GPU " + std::to_string(*gpu) : std::string("lends");
  world_.trace(mine.name, what + " until " + text(end) + ", and again from " + text(begin));
  const TrueTime ends = world_.now() + milliseconds(end * 60'000 - now_ms);
  owners_.on_window({mine.name, gpu}, ends, ends + std::chrono::minutes(begin - end));
  mine.agent->owner_writes(std::move(contract));
}

void Cluster::open_windows(std::size_t node) {
  Contract contract = nodes_[node].agent->contract();
  if (contract.windows.empty() && contract.gpu_windows.empty()) return;
  if (!contract.windows.empty()) owners_.on_window({nodes_[node].name, {}}, {}, {});
  for (const GpuWindows& own : contract.gpu_windows)
    owners_.on_window({nodes_[node].name, own.gpu}, {}, {});
  contract.windows.clear();
  contract.gpu_windows.clear();
  nodes_[node].agent->owner_writes(std::move(contract));
}

}  // namespace rn::sim
