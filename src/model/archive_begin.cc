// SPDX-License-Identifier: Apache-2.0
#include "model/archive_begin.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

namespace rn {

namespace {

/// A tar of before POSIX has no magic; its header's sum says so. POSIX.1-1988: eight octal digits
/// at 148, themselves summed as blanks.
bool is_old_tar(std::string_view header) {
  constexpr std::size_t kSum = 148, kDigits = 8;
  if (header.size() < kArchiveBegin || header[0] == 0) return false;
  unsigned long sum = 0;
  for (std::size_t i = 0; i < kArchiveBegin; ++i)
    sum += i - kSum < kDigits ? ' ' : static_cast<unsigned char>(header[i]);
  return std::strtoul(std::string(header.substr(kSum, kDigits)).c_str(), nullptr, 8) == sum;
}

}  // namespace

bool may_be_archive(BlobView bytes) {
  const std::string_view begin = as_text(bytes);
  constexpr std::size_t kMagic = 257;  // POSIX.1-1988, header of a tar
  if (begin.size() >= kMagic + 5 && begin.substr(kMagic, 5) == "ustar") return true;
  if (is_old_tar(begin)) return true;
  constexpr std::array<std::string_view, 4> kCompressed = {
      "\x1f\x8b",
      "BZh",
      "\xfd"
      "7zXZ",
      "\x28\xb5\x2f\xfd"};
  return std::any_of(kCompressed.begin(), kCompressed.end(), [&](std::string_view magic) {
    return begin.starts_with(magic);
  });
}

}  // namespace rn
