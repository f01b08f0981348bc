// SPDX-License-Identifier: Apache-2.0
// What the agent's decisions cost: one tick of its core, with guests that run, an owner who is
// known and generations that wait; beside the same without an owner who is known, where nothing is
// planned to wait.
//   bench_schedule [guests, default 16] [ticks, default 16000]

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench_report.h"

#include "agent/core.h"
#include "agent/core_records.h"

namespace rn::agent {
namespace {

GuestName name_of(std::size_t guest) {
  return {JobId("j-" + std::to_string(guest)), {1, 1}};
}

class Node {
 public:
  Node(std::size_t guests, bool is_owner_known) : core_(config(), rng_) {
    std::vector<JournalRow> rows;
    warden_wire::WardenState state;
    state.is_engine_up = true;
    for (std::size_t i = 0; i < guests; ++i) add(name_of(i), rows, state);
    if (!core_.restore(rows)) std::abort();
    NodeFacts facts;
    facts.cpu_milli = 16'000;
    feed(Started{facts, {}, 0});
    feed(WardenConnected{});
    feed(WardenReply{warden_wire::StateChanged{state}});
    feed(CoordinatorConnected{});
    wire::Welcome welcome;
    welcome.heartbeat_ms = 5000;
    feed(CoordinatorMessage{welcome});
    wire::HazardForecast told{.step_s = 3600, .low = 0.6, .high = is_owner_known ? 1.5 : 5.0};
    told.per_day.assign(96, 0.01);
    feed(CoordinatorMessage{wire::HeartbeatAck{.hazard = told}});
  }

  /// Microseconds of one tick, a tenth of a second after the one before; each tenth one plans.
  double tick() {
    feed(CoordinatorMessage{wire::HeartbeatAck{}});
    const auto began = std::chrono::steady_clock::now();
    feed(Tick{});
    const auto took = std::chrono::steady_clock::now() - began;
    now_.boot += milliseconds(100);
    return std::chrono::duration<double, std::micro>(took).count();
  }

  std::string saving() const { return core_.reports(now_).front().saving; }

 private:
  static CoreConfig config() {
    CoreConfig out;
    out.node = NodeId("n-1");
    out.boot_id = "boot";
    return out;
  }

  /// It runs; its first generation is durable, the second is not.
  void add(const GuestName& name, std::vector<JournalRow>& rows, warden_wire::WardenState& state)
      const {
    wire::Commit commit;
    commit.job = name.job;
    commit.epoch = name.epoch;
    commit.spec.orphan_limit_s = 1'000'000;
    AttemptRow row;
    row.phase = Phase::kRunning;
    row.boot_id = "boot";
    row.disk = "/disk/" + name.job.str();
    row.started_ns = 1;
    for (const std::uint32_t number : {1u, 2u}) {
      GenerationRow generation;
      generation.ref.job = name.job;
      generation.ref.epoch = name.epoch;
      generation.ref.generation = number;
      generation.ref.bytes = generation.ref.new_bytes = 100'000'000;
      generation.ref.snapshot_boot_ns = to_ns(now_.boot) - seconds(10).count() * (3 - number);
      generation.is_committed = number == 1;
      row.generations.push_back(generation);
    }
    const std::string key = name.job.str() + "/" + to_string(name.epoch);
    rows.push_back({"commit/" + key, encode_row(commit)});
    rows.push_back({"attempt/" + key, encode_row(row)});
    warden_wire::GuestReport report;
    report.guest = name;
    report.state = GuestState::kRunning;
    report.disk = row.disk;
    report.started_boot_ns = 1;
    state.guests.push_back(report);
  }

  void feed(const Event& event) { (void)core_.handle(event, now_); }

  SeededRng rng_{1};
  Core core_;
  Now now_{Instant(seconds(1000)), WallTime(seconds(1'600'000'000))};
};

void measure(std::size_t guests, std::size_t ticks, bool is_owner_known) {
  Node node(guests, is_owner_known);
  for (int i = 0; i < 20; ++i) node.tick();
  const std::string saving = node.saving();
  std::vector<double> samples;
  for (std::size_t i = 0; i < ticks; ++i) samples.push_back(node.tick());
  std::printf(
      "%zu guests, owner %s: n %zu, median %.1f us, p99 %.1f us, max %.1f us\n  %s\n",
      guests,
      is_owner_known ? "known" : "not known",
      samples.size(),
      bench::quantile(samples, 0.5),
      bench::quantile(samples, 0.99),
      bench::quantile(samples, 1),
      saving.empty() ? "nothing waits" : saving.c_str()
  );
}

}  // namespace
}  // namespace rn::agent

int main(int argc, char** argv) {
  const std::size_t guests = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 16;
  const std::size_t ticks = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 16'000;
  constexpr std::size_t kMostTicks = 17'000;  // then no lease was renewed for half an hour
  if (guests == 0 || ticks == 0 || ticks > kMostTicks) {
    std::fprintf(stderr, "usage: bench_schedule [guests] [ticks, 1 to 17000]\n");
    return 2;
  }
  rn::bench::print_machine("one tick of the agent's core");
  for (const bool is_owner_known : {false, true}) rn::agent::measure(guests, ticks, is_owner_known);
}
