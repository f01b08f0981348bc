// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include <stdlib.h>

#include "base/assert.h"

namespace rn {

/// For tests: a fresh folder below `parent` (the system's temporary folder); removed with all it
/// holds at the end. Blocking.
class ScratchFolder {
 public:
  explicit ScratchFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()
  ) {
    // The letters are what mkdtemp replaces.
    path_ = (parent / ("rn-test-" + std::string(6, 'X'))).string();
    RN_ASSERT(::mkdtemp(path_.data()) != nullptr, "a temporary folder can be made");
  }

  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace rn
