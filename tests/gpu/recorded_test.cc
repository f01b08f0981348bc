// SPDX-License-Identifier: Apache-2.0
//
// Both readers of NVML, the agent's and the warden's, on what a real card answered: a recording of
// record_nvml.py, replayed byte by byte by replay_nvml.c. It goes from state to state as the card
// did; pids are those of the machine where it was recorded.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/telemetry_nvml.h"
#include "base/places_fixture.h"
#include "base/scratch_folder.h"
#include "warden/gpu_processes.h"
#include "warden/verify.h"

namespace rn {
namespace {

using Words = std::vector<std::string>;

constexpr std::uint64_t kSameLevel_mib = 64;  // as docs/gpu-check.md has it
constexpr std::uint64_t kHeld_mib = 10'000;   // by the tenant `holding`
constexpr milliseconds kLookLimit = seconds(30);

struct RecordedState {
  std::string name;
  std::vector<pid_t> pids;  ///< of the tenants that its name says
};

std::vector<RecordedState> states_of(const std::string& recording) {
  std::vector<RecordedState> states;
  std::ifstream file(recording);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word != "state") continue;
    RecordedState state;
    words >> state.name;
    state.pids.assign(std::istream_iterator<pid_t>(words), std::istream_iterator<pid_t>());
    states.push_back(state);
  }
  return states;
}

std::string named(pid_t pid) {
  return "GPU context of process " + std::to_string(pid) + ": GPU 0";
}

class ReplayedGpu : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("RN_NVML_RECORDING");
    unsetenv("RN_NVML_STATE");
  }

  /// NOTE: before the warden's thread runs, which reads the environment.
  void replay(const std::string& recording) {
    const std::string state = folder_.path() + "/state";
    setenv("RN_NVML_RECORDING", recording.c_str(), 1);
    setenv("RN_NVML_STATE", state.c_str(), 1);
    states_ = states_of(recording);
    ASSERT_FALSE(states_.empty()) << recording;
    go_to(states_.front().name);
    auto telemetry = agent::NvmlSampler::open(places::kReplayNvml);
    ASSERT_TRUE(telemetry) << telemetry.error().describe();
    telemetry_ = *std::move(telemetry);
    auto processes = warden::open_nvml(places::kReplayNvml);
    ASSERT_TRUE(processes) << processes.error().describe();
    processes_ = *std::move(processes);
  }

  /// The card is now in this state; answers the pids of its tenants.
  std::vector<pid_t> go_to(const std::string& name) {
    std::ofstream(folder_.path() + "/state") << name << '\n';
    for (const RecordedState& state : states_) {
      if (state.name == name) return state.pids;
    }
    ADD_FAILURE() << "the recording has no state " << name;
    return {0, 0};
  }

  /// The agent's reader, with these processes for guests.
  std::vector<GpuTelemetry> sample(const std::vector<pid_t>& guests = {}) const {
    return telemetry_->sample([&](pid_t pid) {
      return std::find(guests.begin(), guests.end(), pid) != guests.end();
    });
  }

  std::uint64_t used_mib() const { return sample().at(0).memory_used_mib; }

  /// The warden's look at what these guests still hold; empty: free.
  Words held_by(const std::vector<pid_t>& guests) {
    const auto pids = std::make_unique<warden::PidSet>();
    for (const pid_t pid : guests) pids->add(pid);
    warden::Remains remains;
    // Pids of another machine: whether one of them lives here says nothing.
    constexpr std::uint64_t kGoneOnNone = 0;
    warden::look_at_gpus(*processes_, *pids, kGoneOnNone, kLookLimit, remains);
    return remains.describe();
  }

  ScratchFolder folder_;
  std::vector<RecordedState> states_;
  std::unique_ptr<agent::NvmlSampler> telemetry_;
  std::unique_ptr<warden::GpuProcesses> processes_;
};

struct Recording {
  const char* file;
  /// Of a card that nobody uses. nvidia-smi said 0 of both; who records without the newer query has
  /// what the driver keeps for itself among what is used, as an old driver does.
  std::uint64_t used_mib;
  std::uint64_t reserved_mib;
};

class RecordedGpu : public ReplayedGpu, public testing::WithParamInterface<Recording> {
 protected:
  void SetUp() override { replay(std::string(places::kGpuRecordings) + "/" + GetParam().file); }
};

INSTANTIATE_TEST_SUITE_P(
    H100,
    RecordedGpu,
    testing::Values(Recording{"h100.txt", 0, 480}, Recording{"h100_older_query.txt", 480, 0}),
    [](const auto& recording) {
      return std::string(recording.param.reserved_mib > 0 ? "both_queries" : "older_query");
    }
);

TEST_P(RecordedGpu, is_known_by_its_model_its_size_and_what_it_can_compute) {
  const auto gpus = telemetry_->gpus();

  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(gpus[0].uuid, "GPU-00000000-0000-0000-0000-000000000000") << "as it was recorded";
  EXPECT_EQ(gpus[0].memory_mib, 81'559U) << "as nvidia-smi says it";
  EXPECT_EQ(gpus[0].compute_capability, "9.0");
}

TEST_P(RecordedGpu, is_nobodys_while_nobody_uses_it) {
  go_to("nobody");

  const auto seen = sample();
  const auto listed = processes_->list(kLookLimit);

  EXPECT_FALSE(seen.at(0).is_wedged);
  EXPECT_EQ(seen.at(0).foreign_processes, 0U);
  EXPECT_EQ(seen.at(0).foreign_vram_mib, 0U);
  ASSERT_TRUE(listed) << listed.error().describe();
  EXPECT_TRUE(listed->empty());
}

TEST_P(RecordedGpu, lists_its_one_tenant_with_what_it_holds) {
  const pid_t tenant = go_to("holding").at(0);

  const auto listed = processes_->list(kLookLimit);
  const auto seen = sample();

  ASSERT_TRUE(listed) << listed.error().describe();
  ASSERT_EQ(listed->size(), 1U);
  EXPECT_EQ((*listed)[0].gpu, 0U);
  EXPECT_EQ((*listed)[0].pid, tenant);
  EXPECT_GT((*listed)[0].used_bytes >> 20, kHeld_mib);
  EXPECT_LT((*listed)[0].used_bytes >> 20, kHeld_mib + 1024) << "and its context";
  EXPECT_EQ(seen.at(0).foreign_vram_mib, (*listed)[0].used_bytes >> 20) << "both readers agree";
  EXPECT_EQ(seen.at(0).foreign_processes, 1U);
}

TEST_P(RecordedGpu, a_guest_and_a_process_of_the_owner_are_told_apart_by_their_pids) {
  const auto pids = go_to("idle_and_training");
  const pid_t guest = pids.at(0);
  const pid_t owner = pids.at(1);

  const auto seen = sample({guest});
  const auto reversed = sample({owner});
  const auto nobodys = sample();

  EXPECT_EQ(seen.at(0).foreign_processes, 1U);
  EXPECT_EQ(sample({guest, owner}).at(0).foreign_processes, 0U);
  EXPECT_EQ(nobodys.at(0).foreign_processes, 2U);
  EXPECT_NE(seen.at(0).foreign_vram_mib, reversed.at(0).foreign_vram_mib) << "one computes";
  EXPECT_EQ(
      seen.at(0).foreign_vram_mib + reversed.at(0).foreign_vram_mib, nobodys.at(0).foreign_vram_mib
  );
  EXPECT_EQ(held_by({guest}), (Words{named(guest)})) << "what the owner holds is not in the way";
  EXPECT_GT(seen.at(0).utilisation_percent, 0U);
}

TEST_P(RecordedGpu, a_guest_that_is_gone_leaves_the_owners_process_listed_and_is_cleared) {
  const pid_t guest = go_to("idle_and_training").at(0);
  ASSERT_EQ(held_by({guest}).size(), 1U);
  const pid_t owner = go_to("training").at(0);

  EXPECT_EQ(held_by({guest}), Words{});
  EXPECT_EQ(held_by({owner}), (Words{named(owner)}));
  EXPECT_EQ(sample({guest}).at(0).foreign_processes, 1U);
}

TEST_P(RecordedGpu, a_killed_guest_holds_it_until_the_driver_has_let_go_and_then_never_again) {
  go_to("nobody");
  const std::uint64_t before_mib = used_mib();
  const pid_t guest = go_to("holding").at(0);
  std::vector<bool> was_held;
  Words looks;
  for (const RecordedState& state : states_) {
    if (state.name.starts_with("killed_") || state.name == "after") looks.push_back(state.name);
  }

  for (const std::string& look : looks) {
    SCOPED_TRACE(look);
    EXPECT_EQ(go_to(look), (std::vector<pid_t>{guest}));
    const Words held = held_by({guest});
    was_held.push_back(!held.empty());
    if (was_held.back()) {
      EXPECT_EQ(held, (Words{named(guest)}));
    } else {
      EXPECT_LE(used_mib(), before_mib + kSameLevel_mib) << "verified free, and memory is in use";
    }
  }

  ASSERT_GE(was_held.size(), 3U);
  EXPECT_TRUE(was_held.front()) << "cleared, and nothing was taken down yet";
  EXPECT_FALSE(was_held.back());
  EXPECT_TRUE(std::is_partitioned(was_held.begin(), was_held.end(), [](bool held) { return held; }))
      << "free, and then held again";
  go_to(looks.front());
  EXPECT_GT(used_mib(), before_mib + kHeld_mib) << "a look at nothing cannot fail";
  go_to("after");
  EXPECT_EQ(used_mib(), before_mib);
}

TEST_P(RecordedGpu, what_the_driver_keeps_for_itself_is_told_apart_where_it_can_be) {
  go_to("nobody");

  EXPECT_EQ(used_mib(), GetParam().used_mib);
  EXPECT_EQ(sample().at(0).memory_reserved_mib, GetParam().reserved_mib);
}

TEST_P(RecordedGpu, is_well_where_nothing_of_its_health_was_recorded) {
  agent::GpuHealth health;
  for (const RecordedState& state : states_) {
    SCOPED_TRACE(state.name);
    go_to(state.name);
    const auto signs = telemetry_->signs();
    ASSERT_EQ(signs.size(), 1U);
    EXPECT_FALSE(agent::note_signs(health, signs[0]));
    EXPECT_EQ(agent::sickness_of(health, signs[0], false), "");
  }
}

/// Bytes as NVML leaves them, of states that no card of ours was ever in.
TEST_F(ReplayedGpu, is_sick_by_what_the_driver_tells_of_its_memory) {
  const std::string recording = folder_.path() + "/sick.txt";
  const std::string memory =
      "nvmlDeviceGetMemoryInfo 0 0 000000000100000000000000010000000000000000000000\n"
      "nvmlDeviceGetComputeRunningProcesses_v3 0 0 00000000\n";
  std::ofstream(recording
  ) << "nvmlDeviceGetCount_v2 0 0 01000000\n"
    << "state well\n"
    << memory << "nvmlDeviceGetTotalEccErrors 0 0 0000000000000000\n"
    << "nvmlDeviceGetRemappedRows 0 0 01000000000000000000000000000000\n"
    << "nvmlDeviceGetRetiredPagesPendingStatus 0 3 -\n"
    << "nvmlDeviceGetCurrentClocksThrottleReasons 0 0 0400000000000000\n"
    << "state error\n"
    << memory << "nvmlDeviceGetTotalEccErrors 0 0 0100000000000000\n"
    << "state pending\n"
    << memory << "nvmlDeviceGetRemappedRows 0 0 00000000010000000100000000000000\n"
    << "state broken\n"
    << memory << "nvmlDeviceGetRemappedRows 0 0 00000000010000000000000001000000\n"
    << "state hot\n"
    << memory << "nvmlDeviceGetCurrentClocksThrottleReasons 0 0 6000000000000000\n"
    << "state lost\n"
    << "nvmlDeviceGetMemoryInfo 0 15 -\n";
  replay(recording);
  const auto is_said = [&](const std::string& state, const std::string& words) {
    go_to(state);
    const auto signs = telemetry_->signs().at(0);
    const std::string sickness = agent::sickness_of({}, signs, signs.is_slowed_by_heat);
    return words.empty() ? sickness.empty() : sickness.find(words) != std::string::npos;
  };

  EXPECT_TRUE(is_said("well", ""));
  EXPECT_TRUE(is_said("error", "1 errors of its memory"));
  EXPECT_TRUE(is_said("pending", "waits to be replaced"));
  EXPECT_TRUE(is_said("broken", "have the card replaced"));
  EXPECT_TRUE(is_said("hot", "slowed by heat"));
  EXPECT_TRUE(is_said("lost", "fallen off the bus"));
}

TEST_F(ReplayedGpu, that_answers_nothing_is_wedged_and_not_cleared) {
  const std::string recording = folder_.path() + "/silent.txt";
  std::ofstream(recording) << "nvmlDeviceGetCount_v2 0 0 01000000\nstate lost 595\n"
                           << "nvmlDeviceGetMemoryInfo 0 15 -\n"
                           << "nvmlDeviceGetComputeRunningProcesses_v3 0 15 -\n";
  replay(recording);

  EXPECT_TRUE(sample().at(0).is_wedged);
  EXPECT_EQ(held_by({595}), (Words{"not verified: NVML cannot list the processes of GPU 0"}));
}

}  // namespace
}  // namespace rn
