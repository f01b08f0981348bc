// SPDX-License-Identifier: Apache-2.0
//
// reclaim-scrub: overwrites the free memory of one GPU and ends (ADR 0018). It needs the NVIDIA
// driver's libcuda.so.1 and nothing else, runs as a process of its own because a driver may hang,
// and has no deadline: who starts it kills it at one. One line of JSON on standard output says what
// was done; exit codes: 0 all that was free is overwritten, and holds what was written; 1 it is
// not; 2 usage; 3 there is no CUDA driver, or not that GPU.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "scrub.h"
#include <sys/random.h>

namespace {

constexpr int kNotScrubbed = 1;
constexpr int kUsage = 2;
constexpr int kNoGpu = 3;

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

int say_usage(const char* why) {
  std::fprintf(
      stderr,
      "reclaim-scrub: %s\n"
      "  usage: reclaim-scrub --gpu UUID   (`nvidia-smi -L` lists them: GPU-...)\n",
      why
  );
  return kUsage;
}

}  // namespace

int main(int count, char** words) {
  const char* gpu = nullptr;
  const char* library = "libcuda.so.1";
  for (int i = 1; i < count; ++i) {
    const bool has_value = i + 1 < count && words[i + 1][0] != '\0';
    if (std::strcmp(words[i], "--gpu") == 0 && has_value)
      gpu = words[++i];
    else if (std::strcmp(words[i], "--library") == 0 && has_value)  // for tests
      library = words[++i];
    else
      return say_usage((std::string("not understood: ") + words[i]).c_str());
  }
  if (gpu == nullptr) return say_usage("which GPU?");
  // By its UUID: an index may be another card after a reboot, and a list would be several.
  if (std::strncmp(gpu, "GPU-", 4) != 0 || std::strpbrk(gpu, ", ") != nullptr)
    return say_usage("a GPU is named by its whole UUID, as GPU-a72a6841-…");
  if (setenv("CUDA_VISIBLE_DEVICES", gpu, 1) != 0) return kNotScrubbed;

  const Clock::time_point begun = Clock::now();
  rn::CudaDriver driver(library);
  if (!driver.problem().empty() || !driver.take_context()) {
    std::fprintf(stderr, "reclaim-scrub: %s: %s\n", gpu, driver.problem().c_str());
    return kNoGpu;
  }
  const double context_ms = ms_since(begun);
  std::uint32_t seed = 0;
  if (getrandom(&seed, sizeof seed, 0) != sizeof seed) return kNotScrubbed;
  rn::Scrubbed done;
  std::string problem;
  if (!rn::scrub(driver, seed, done, problem)) {
    std::fprintf(stderr, "reclaim-scrub: %s is NOT scrubbed: %s\n", gpu, problem.c_str());
    return kNotScrubbed;
  }
  std::printf(
      "{\"overwritten_bytes\": %zu, \"left_bytes\": %zu, \"all_bytes\": %zu, \"pieces\": %zu, "
      "\"context_ms\": %.1f, \"all_ms\": %.1f}\n",
      done.overwritten_bytes,
      done.left_bytes,
      done.all_bytes,
      done.pieces,
      context_ms,
      ms_since(begun)
  );
  return std::fflush(stdout) == 0 ? 0 : kNotScrubbed;
}
