// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "base/bytes.h"
#include "base/places_fixture.h"

namespace rn::checkpoint {

/// The bytes of tests/golden/NAME. With RN_UPDATE_GOLDEN set, `fresh` is written there first: a new
/// version of a format gets a new file that way; the files of released versions are never
/// rewritten.
inline Blob golden(const std::string& name, BlobView fresh) {
  const std::string path = std::string(places::kGolden) + "/" + name;
  if (std::getenv("RN_UPDATE_GOLDEN") != nullptr) {
    std::ofstream out(path, std::ios::binary);
    out << as_text(fresh);
  }
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  return Blob(text.begin(), text.end());
}

}  // namespace rn::checkpoint
