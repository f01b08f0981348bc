// SPDX-License-Identifier: Apache-2.0
#pragma once

// A core with a clock and a machine that the test plays. For tests.

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "warden/core.h"

namespace rn::warden {

inline constexpr const char* kImage = "sha256:image";

class CoreUnderTest {
 public:
  explicit CoreUnderTest(Journal journal = with_image(), const std::string& boot = "boot-1")
      : core(CoreConfig{.boot_id = boot}, std::move(journal), rng) {}

  static Journal with_image() {
    Journal journal;
    journal.boot_id = "boot-1";
    journal.images = {{kImage, "id-1"}};
    return journal;
  }

  /// Up, reconciled with nothing found, engine answering.
  CoreUnderTest& ready() {
    last = core.start(clock.now());
    tell(EngineChanged{true, "docker 20.10.24"});
    tell(Reconciled{{}, {}, core.journal().images});
    return *this;
  }

  /// What an event changes is in the journal of the same output: a crash after it forgets nothing.
  const Output& tell(Event event) {
    if (last.journal) kept = *last.journal;
    last = core.handle(event, clock.now());
    if (last.journal) kept = *last.journal;
    EXPECT_EQ(kept, core.journal()) << "an event changed something that was not journalled";
    return last;
  }

  const Output& ask(warden_wire::Request request, bool is_owner = true) {
    return tell(Asked{Caller{1, ++number, is_owner}, std::move(request)});
  }

  const Output& after(nanoseconds time) {
    clock.advance(time);
    return tell(Tick{});
  }

  /// The first effect of the kind in the last output, or nothing.
  template <class E>
  const E* did() const {
    for (const Effect& effect : last.effects) {
      if (const E* found = std::get_if<E>(&effect)) return found;
    }
    return nullptr;
  }

  /// Code of the last output's answer: "" for success, "none" when nobody was answered.
  std::string answer() const {
    const auto* sent = did<SendAnswer>();
    return sent == nullptr ? "none" : sent->answer.code;
  }

  std::size_t answers() const {
    std::size_t count = 0;
    for (const Effect& effect : last.effects) count += std::holds_alternative<SendAnswer>(effect);
    return count;
  }

  static GuestName guest(int number) {
    return {JobId("j-" + std::to_string(number)), LeaseEpoch{1, 1}};
  }

  static warden_wire::StartGuest start_of(int n, std::vector<std::uint32_t> gpus = {}) {
    warden_wire::StartGuest start;
    start.guest = guest(n);
    start.image_digest = kImage;
    start.command = {"true"};
    start.gpus = std::move(gpus);
    return start;
  }

  void give_disk(int n) {
    ask(warden_wire::PrepareDisk{guest(n), 64});
    tell(DiskMade{did<MakeDisk>()->op, "/disk/" + std::to_string(n)});
    ask(warden_wire::AdoptDisk{guest(n)});
    tell(Finished{did<AdoptDisk>()->op, {}});
  }

  void run(int n, std::vector<std::uint32_t> gpus = {}) {
    give_disk(n);
    ask(start_of(n, std::move(gpus)));
    tell(Started{did<Start>()->op, StartedGuest{"c" + std::to_string(n), 100 + n, 5}});
    tell(Finished{did<Go>()->op, {}});
  }

  ReclaimRecord reclaim(ReclaimKind kind, std::uint32_t notice_s = 60) {
    warden_wire::DeclareReclaim request;
    request.kind = kind;
    request.notice_s = request.in_s = notice_s;
    ask(request);
    return core.journal().reclaims.back();
  }

  GuestState state_of(int n) const {
    for (const auto& report : core.state().guests) {
      if (report.guest == guest(n)) return report.state;
    }
    return GuestState::kUnknown;
  }

  const GuestRecord* record(int n) const {
    for (const auto& guest_record : core.journal().guests) {
      if (guest_record.guest == guest(n)) return &guest_record;
    }
    return nullptr;
  }

  ReclaimPhase phase(std::size_t n = 0) const { return core.journal().reclaims.at(n).phase; }

  std::int64_t now_ns() const { return to_ns(clock.now().boot); }

  ManualClock clock;
  SeededRng rng{1};
  WardenCore core;
  Output last;
  Journal kept;  ///< as the disk has it
  std::uint64_t number = 0;
};

}  // namespace rn::warden
