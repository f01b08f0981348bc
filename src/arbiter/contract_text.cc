// SPDX-License-Identifier: Apache-2.0
#include "arbiter/contract_text.h"

#include <nlohmann/json.hpp>

#include "arbiter/contract_rules.h"
#include "model/codec_detail.h"
#include "model/yaml.h"

namespace rn::arbiter {

namespace {

constexpr std::uint64_t kContractTextMax = 256u << 10;

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

}  // namespace

Result<Contract> read_contract(const std::string& text, const NodeFacts& facts) {
  if (text.size() > kContractTextMax)
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
  RN_CHECK(check_contract(*contract, facts));
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
  // So an agent that knows no such word reads the file of one that does.
  if (!contract.gangs) {
    document.erase("gangs");
    out += "# gangs: not set, no jobs on several machines; true takes part in them\n";
  }
  // Most machines have no such GPU.
  if (contract.gpu_windows.empty()) document.erase("gpu_windows");
  for (const Unset& field : kUnset) {
    if (!is_zero(document, field.name)) continue;
    document.erase(field.name);
    out += std::string("# ") + field.name + ": not set, " + field.what + "\n";
  }
  for (const auto& [key, value] : document.items()) out += key + ": " + value.dump() + "\n";
  return out;
}

}  // namespace rn::arbiter
