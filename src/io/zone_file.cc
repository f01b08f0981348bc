// SPDX-License-Identifier: Apache-2.0
#include "io/zone_file.h"

#include <string>

namespace rn::io {

namespace {

constexpr std::uint64_t kZoneBytesMax = 1u << 20;

std::int64_t big_endian(BlobView bytes, std::size_t at, std::size_t length) {
  std::uint64_t value = (bytes[at] & 0x80) != 0 ? ~std::uint64_t{0} : 0;
  for (std::size_t i = 0; i < length; ++i) value = value << 8 | bytes[at + i];
  return static_cast<std::int64_t>(value);
}

/// Sizes of a TZif block after its header. RFC 8536, section 3.
struct ZoneBlock {
  std::size_t begin = 0;
  std::size_t transitions = 0;
  std::size_t types = 0;
  std::size_t time_bytes = 0;
  std::size_t end = 0;
};

Result<ZoneBlock> read_block(BlobView file, std::size_t at, std::size_t time_bytes) {
  const auto corrupt = [] { return fail(ErrorCode::kCorrupt, "not a time zone file"); };
  if (file.size() < at + 44 || as_text(file.subspan(at, 4)) != "TZif") return corrupt();
  const auto count = [&](std::size_t i) {
    return static_cast<std::size_t>(big_endian(file, at + 20 + i * 4, 4) & 0xffffffff);
  };
  const std::size_t utc = count(0), standard = count(1), leap = count(2);
  ZoneBlock block{at + 44, count(3), count(4), time_bytes, 0};
  const std::size_t chars = count(5);
  for (const std::size_t n : {utc, standard, leap, block.transitions, block.types, chars}) {
    if (n > kZoneBytesMax) return corrupt();
  }
  block.end = block.begin + block.transitions * (time_bytes + 1) + block.types * 6 + chars +
              leap * (time_bytes + 4) + standard + utc;
  if (block.end > file.size() || block.types == 0) return corrupt();
  return block;
}

}  // namespace

Result<std::int32_t> utc_offset_s(
    FileSystem& fs, const std::string& zone, WallTime at, const std::string& zone_folder
) {
  if (zone == "UTC") return 0;
  if (!is_safe_relative_path(zone))
    return fail(ErrorCode::kNotFound, "there is no time zone \"" + zone + "\"");
  std::string path = join_path(zone_folder, zone);
  // Zones are often links to each other; only inside the zone folder are they followed.
  for (int links = 0; links < 4; ++links) {
    const auto target = fs.read_symlink(path);
    if (!target) break;
    path = target->starts_with('/') ? *target : join_path(parent_folder(path), *target);
  }
  const auto read = read_all(fs, path, kZoneBytesMax);
  if (!read) return fail(ErrorCode::kNotFound, "there is no time zone \"" + zone + "\"");
  const BlobView file(*read);
  RN_TRY(ZoneBlock block, read_block(file, 0, 4));
  if (file[4] >= '2') {
    RN_TRY(block, read_block(file, block.end, 8));
  }
  const std::int64_t second = to_ms(at) / 1000;
  const std::size_t indices = block.begin + block.transitions * block.time_bytes;
  std::size_t type = 0;
  for (std::size_t i = 0; i < block.transitions; ++i) {
    const std::size_t where = block.begin + i * block.time_bytes;
    if (big_endian(file, where, block.time_bytes) > second) break;
    type = file[indices + i];
  }
  if (type >= block.types) return fail(ErrorCode::kCorrupt, "not a time zone file");
  return static_cast<std::int32_t>(big_endian(file, indices + block.transitions + type * 6, 4));
}

}  // namespace rn::io
