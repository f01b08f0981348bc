// SPDX-License-Identifier: Apache-2.0
// Replays a folder of inputs through a fuzz target, then a fixed number of seeded mutations of
// each: what a build without libFuzzer can check on every run.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr int kMutationsPerInput = 2000;

void mutate(rn::Blob& input, rn::Rng& rng) {
  const std::uint64_t edits = 1 + rng.below(8);
  for (std::uint64_t i = 0; i < edits; ++i) {
    const std::uint64_t kind = rng.below(4);
    if (input.empty() || kind == 0) {
      input.insert(
          input.begin() + static_cast<std::ptrdiff_t>(rng.below(input.size() + 1)),
          static_cast<std::uint8_t>(rng.next())
      );
    } else if (kind == 1) {
      input.erase(input.begin() + static_cast<std::ptrdiff_t>(rng.below(input.size())));
    } else if (kind == 2) {
      input[rng.below(input.size())] ^= static_cast<std::uint8_t>(1U << rng.below(8));
    } else {
      input.resize(rng.below(input.size() + 1));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
    return 2;
  }
  rn::SeededRng rng(1);
  std::size_t inputs = 0;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const rn::Blob input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    LLVMFuzzerTestOneInput(input.data(), input.size());
    for (int i = 0; i < kMutationsPerInput; ++i) {
      rn::Blob changed = input;
      mutate(changed, rng);
      LLVMFuzzerTestOneInput(changed.data(), changed.size());
    }
    ++inputs;
  }
  std::printf("replayed %zu inputs and %zu mutations\n", inputs, inputs * kMutationsPerInput);
  return inputs > 0 ? 0 : 1;
}
