// SPDX-License-Identifier: Apache-2.0
#include "agent/contract_file.h"

#include <utility>

#include "io/real_fs.h"

namespace rn::agent {

namespace {

constexpr std::uint64_t kContractBytesMax = 256u << 10;

}  // namespace

Status check_zone(const Contract& contract, const std::string& zone_folder) {
  io::RealFileSystem fs;
  const auto offset = utc_offset_s(fs, contract.time_zone, wall_from_ms(0), zone_folder);
  if (offset) return {};
  Error error =
      offset.error()
          .with("contract: time_zone")
          .hinting("write UTC or a name like Europe/Berlin; apt install tzdata brings the names");
  // A contract that is not there lends by the default: one with a wrong zone must not.
  error.code = ErrorCode::kInvalid;
  return fail(std::move(error));
}

Result<Contract> parse_contract(
    const std::string& text, const NodeFacts& facts, const std::string& zone_folder
) {
  RN_TRY(auto contract, arbiter::read_contract(text, facts));
  RN_CHECK(check_zone(contract, zone_folder));
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

Status store_contract(FileSystem& fs, const std::string& path, const Contract& contract) {
  return write_durably(fs, path, as_bytes(to_yaml(contract)), 0644);
}

}  // namespace rn::agent
