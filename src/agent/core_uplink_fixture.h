// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/core_harness.h"

namespace rn::agent {

using std::chrono::minutes;

/// Two guests on four cores, whose uplink nobody has measured yet (12.5 MB/s): eight seconds for
/// each save of 100 MB.
class CoreUplink : public CoreTest {
 protected:
  static constexpr std::uint64_t kSaveBytes = 100'000'000;

  void SetUp() override {
    spec.orphan_limit_s = contract.orphan_limit_s = 100'000;
    start();
  }

  void expect_owner(double hours, double high = 1.5, std::uint32_t leaves_in_s = 0) {
    wire::HazardForecast told{.step_s = 3600, .low = 0.6, .high = high, .leaves_in_s = leaves_in_s};
    told.per_day.assign(48, 24 / hours);
    tell(wire::HeartbeatAck{.seq = 1, .hazard = told});
    advance(seconds(2));  // it is planned once a second
  }

  /// The guest has saved, and it became generation `number` in the own store.
  void safe(std::uint32_t number, const std::string& job = "j-1") {
    feed(GenerationDetected{GuestName{JobId(job), kEpoch}});
    if (!has_work<TakeSnapshot>()) advance(seconds(1));
    GenerationRef ref = a_generation(number);
    ref.job = JobId(job);
    ref.bytes = ref.new_bytes = kSaveBytes;
    finish<TakeSnapshot>(SnapshotTaken{ref, taking_takes});
  }

  /// Its copies are made, and the coordinator knows.
  void durable(std::uint32_t number, const std::string& job = "j-1") {
    Receipt receipt = a_receipt("n-2", number);
    receipt.job = JobId(job);
    finish<CopyGeneration>(GenerationCopied{receipt, kSaveBytes, a_copy_takes});
    wire::GenerationCommitted answer;
    answer.job = JobId(job);
    answer.epoch = kEpoch;
    answer.generation = number;
    answer.is_accepted = true;
    tell(answer);
  }

  /// "JOB/GENERATION" of what is on its way to peers.
  std::vector<std::string> copying() const {
    std::vector<std::string> out;
    for (const Work& one : works) {
      if (const auto* copy = std::get_if<CopyGeneration>(&one.body))
        out.push_back(one.guest.job.str() + "/" + std::to_string(copy->generation.generation));
    }
    return out;
  }

  std::vector<std::uint32_t> replaced() const {
    std::vector<std::uint32_t> out;
    for (const Work& one : works) {
      const auto* garbage = std::get_if<CollectGarbage>(&one.body);
      if (garbage != nullptr && garbage->replaced != 0) out.push_back(garbage->replaced);
    }
    return out;
  }

  std::string saving(const std::string& job = "j-1") const {
    for (const auto& report : core->reports(clock.now()))
      if (report.job == JobId(job)) return report.saving;
    return "no such job";
  }

  std::string trouble() const { return core->reports(clock.now()).front().save_trouble; }

  /// How long until a generation that waits goes, in seconds; it is complete all the time.
  std::int64_t waits_for() {
    const Instant began = clock.now().boot;
    while (copying().empty() && clock.now().boot - began < minutes(150)) advance(seconds(5));
    return (clock.now().boot - began) / seconds(1);
  }

  std::int64_t second_waits_with_owner(double hours) {
    run();
    expect_owner(hours);
    advance(minutes(5));
    safe(1);
    durable(1);
    advance(seconds(5));
    safe(2);
    return waits_for();
  }

  nanoseconds taking_takes{0};  ///< of a core; 0: nobody measures it
  nanoseconds a_copy_takes{0};

  void run_another() {
    wire::Probe probe;
    probe.job = JobId("j-2");
    probe.resources.disk_mib = 1000;
    tell(probe);
    wire::Commit commit = a_commit();
    commit.job = commit.plan.job = JobId("j-2");
    commit.hold = sent<wire::ProbeReply>().back().hold;
    tell(commit);
    answer<warden_wire::PrepareDisk>([](warden_wire::Answer& a) { a.disk = "/disk/2"; });
    finish<PrepareWork>(WorkPrepared{resume, ""});
    answer<warden_wire::AdoptDisk>();
    answer<warden_wire::StartGuest>();
    warden_wire::GuestReport report;
    report.guest = GuestName{JobId("j-2"), kEpoch};
    report.state = GuestState::kRunning;
    report.disk = "/disk/2";
    report.started_boot_ns = to_ns(clock.now().boot);
    warden.guests.push_back(report);
    push_state();
    acknowledge();
  }
};

}  // namespace rn::agent
