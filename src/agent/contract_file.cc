// SPDX-License-Identifier: Apache-2.0
#include "agent/contract_file.h"

#include <nlohmann/json.hpp>

#include "arbiter/contract_rules.h"
#include "io/real_fs.h"
#include "model/codec_detail.h"
#include "model/yaml.h"

namespace rn::agent {

namespace {

constexpr std::uint64_t kContractBytesMax = 256u << 10;
constexpr std::uint64_t kZoneBytesMax = 1u << 20;

constexpr std::string_view kFirstLine =
    "# Contract of this node. A field without a line has its default. reclaim-agent contract set "
    "FILE puts a changed one in force.\n";
/// Of files in which no window had the line `windows: []`.
constexpr std::string_view kFirstLineWithWindows =
    "# Contract of this node. A field without a line of its own has its default. reclaim-agent "
    "contract set FILE puts a changed one in force.\n";
/// Of files in which every field had a line: there 0 and [] stood for all.
constexpr std::string_view kOlderFirstLine =
    "# Contract of this node. reclaim-agent contract set FILE puts a changed one in force.\n";

/// Fields in which 0 in the model is no amount but the default.
struct Unset {
  const char* name;
  const char* what;  ///< without a line of its own
  const char* zero;  ///< what its 0 would lend
};

constexpr Unset kUnset[] = {
    {"guest_cpu_milli", "all cores", "no core"},
    {"guest_cpu_each_milli", "no bound", "no core"},
    {"guest_memory_mib", "three quarters of the memory", "no memory"},
};

bool is_zero(const nlohmann::json& document, const char* name) {
  const auto found = document.find(name);
  return found != document.end() && found->is_number_integer() && *found == 0;
}

/// What the file says, as the model has it: an empty list of GPUs is none, and no amount is 0.
Status take_what_is_said(nlohmann::json& document, std::string_view text) {
  const bool is_older = text.starts_with(kOlderFirstLine);
  if (document.contains("lends_gpus"))
    return fail(
        ErrorCode::kInvalid, "lends_gpus: no such field", "write `gpus: []` to lend no GPU"
    );
  for (const Unset& field : kUnset) {
    if (!is_zero(document, field.name)) continue;
    document.erase(field.name);
    if (is_older) continue;
    return fail(
        ErrorCode::kInvalid,
        std::string(field.name) + ": 0 lends " + field.zero + ", and no guest runs without",
        std::string("leave the line out for ") + field.what +
            ", or write `lends: false` to run nothing"
    );
  }
  const auto windows = document.find("windows");
  if (windows != document.end() && windows->is_array() && windows->empty() && !is_older &&
      !text.starts_with(kFirstLineWithWindows))
    return fail(
        ErrorCode::kInvalid,
        "windows: the list is empty, and says neither when to lend nor that nothing is lent",
        "leave the line out to lend at any time, or write `lends: false`"
    );
  const auto gpus = document.find("gpus");
  if (gpus != document.end() && gpus->is_array() && gpus->empty())
    document["lends_gpus"] = is_older;
  return {};
}

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

Result<Contract> parse_contract(
    const std::string& text, const NodeFacts& facts, const std::string& zone_folder
) {
  if (text.size() > kContractBytesMax)
    return fail(ErrorCode::kExhausted, "the contract is longer than 256 KiB");
  const char* hint =
      "correct it; `reclaim-agent contract show` prints a good one with all fields, and "
      "`reclaim-agent contract check FILE` checks one without using it";
  auto document = parse_yaml(text);
  if (!document) return fail(document.error().with("contract").hinting(hint));
  if (!document->is_object())
    return fail(ErrorCode::kInvalid, "contract: it has no lines of the form `key: value`", hint);
  const Status said = take_what_is_said(*document, text);
  if (!said) return fail(said.error().with("contract"));
  auto contract = from_document<Contract>(*document, Unknown::kStrict);
  if (!contract) return fail(contract.error().with("contract").hinting(hint));
  RN_CHECK(arbiter::check_contract(*contract, facts));
  io::RealFileSystem fs;
  const auto offset = utc_offset_s(fs, contract->time_zone, wall_from_ms(0), zone_folder);
  if (!offset)
    return fail(
        offset.error()
            .with("contract: time_zone")
            .hinting("write UTC or a name like Europe/Berlin; apt install tzdata brings the names")
    );
  return contract;
}

Result<Contract> load_contract(
    FileSystem& fs, const std::string& path, const NodeFacts& facts, const std::string& zone_folder
) {
  const auto bytes = read_named(fs, path, kContractBytesMax);
  if (!bytes) return fail(bytes.error().with("the contract").hinting("name a readable file"));
  auto contract = parse_contract(std::string(as_text(*bytes)), facts, zone_folder);
  if (!contract) return fail(contract.error().with(path));
  return contract;
}

std::string to_yaml(const Contract& contract) {
  // JSON is YAML; one field a line is easier to edit.
  std::string out(kFirstLine);
  nlohmann::json document = to_document(contract);
  document.erase("lends_gpus");
  if (contract.lends_gpus && contract.gpus.empty()) {
    document.erase("gpus");
    out += "# gpus: not set, all are lent; [] lends none\n";
  }
  if (contract.windows.empty()) {
    document.erase("windows");
    out += "# windows: not set, it is lent at any time\n";
  }
  for (const Unset& field : kUnset) {
    if (!is_zero(document, field.name)) continue;
    document.erase(field.name);
    out += std::string("# ") + field.name + ": not set, " + field.what + "\n";
  }
  for (const auto& [key, value] : document.items()) out += key + ": " + value.dump() + "\n";
  return out;
}

Status store_contract(FileSystem& fs, const std::string& path, const Contract& contract) {
  return write_durably(fs, path, as_bytes(to_yaml(contract)), 0644);
}

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

}  // namespace rn::agent
