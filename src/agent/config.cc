// SPDX-License-Identifier: Apache-2.0
#include "agent/config.h"

#include <filesystem>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/peers.h"
#include "io/real_fs.h"
#include "io/url.h"
#include "model/codec_detail.h"
#include "model/data_sets.h"
#include "model/uplink_rate.h"
#include "model/yaml.h"

namespace rn::agent {

namespace {

constexpr std::uint32_t kNoSaveAfterMaxS = 7 * 86'400;

}  // namespace

Result<AgentConfig> parse_config(const std::string& text) {
  RN_TRY(nlohmann::json document, parse_yaml(text));
  if (!document.is_object())
    return fail(ErrorCode::kInvalid, "it has no lines of the form `key: value`");
  const bool has_none = document.contains("gpus") && document["gpus"] == 0;
  if (has_none) document["gpus"] = nlohmann::json::array();
  RN_TRY(AgentConfig config, from_document<AgentConfig>(document, Unknown::kStrict));
  if (has_none) config.nvml_library.clear();
  for (Gpu& gpu : config.gpus) gpu.is_static = true;
  RN_CHECK(check_config(config));
  return config;
}

namespace {

Status check_address(const std::string& key, const HostPort& address) {
  if (key.starts_with("listen") && !io::is_ip_address(address.host))
    return fail(
        ErrorCode::kInvalid,
        key + ": \"" + address.host + "\" is no address of this machine",
        "0.0.0.0 listens on all, [::] on those of IPv6 too"
    );
  if (!io::is_host_name(address.host))
    return fail(
        ErrorCode::kInvalid,
        key + ": \"" + address.host + "\" is neither a name nor an address",
        "name what others dial, as node1.example.org:7445 or [fd00::7]:7445"
    );
  if (key.starts_with("advertise") && address.port == 0)
    return fail(ErrorCode::kInvalid, key + ": nobody can dial port 0", "name the port");
  return {};
}

}  // namespace

Status check_config(const AgentConfig& config) {
  if (config.telemetry_ms < 100)
    return fail(ErrorCode::kInvalid, "telemetry_ms: below 100 the agent would measure itself");
  if (config.no_save_after_s == 0 || config.no_save_after_s > kNoSaveAfterMaxS)
    return fail(
        ErrorCode::kInvalid,
        "no_save_after_s: " + std::to_string(config.no_save_after_s) + " is not from 1 to " +
            std::to_string(kNoSaveAfterMaxS) + " (a week)",
        "write seconds; leave the line out for 600"
    );
  if (config.uplink_bps != 0 && !is_uplink_rate(config.uplink_bps))
    return fail(
        ErrorCode::kInvalid,
        "uplink_bps: " + std::to_string(config.uplink_bps) + " bits a second is no line's speed",
        "write it in bits a second, 1000000 (1 Mbit/s) to 1000000000000 (1 Tbit/s); leave the line "
        "out if it is not known"
    );
  std::set<std::uint32_t> indices;
  for (const Gpu& gpu : config.gpus) {
    const std::string index = "gpus: index " + std::to_string(gpu.index);
    if (gpu.index >= kMaxGpus)
      return fail(ErrorCode::kInvalid, index + " is above 63", "number them from 0 to 63");
    if (!indices.insert(gpu.index).second)
      return fail(ErrorCode::kInvalid, index + " is there twice", "give each GPU its own");
  }
  RN_CHECK(check_data_sets(config.data_sets, kMaxDataSetsOfNode, "data_sets"));
  const std::vector<std::pair<std::string, std::string>> addresses = {
      {"listen_peer", config.listen_peer},
      {"listen_api", config.listen_api},
      {"advertise_peer", config.advertise_peer},
      {"advertise_api", config.advertise_api}};
  for (const auto& [key, text] : addresses) {
    if (text.empty()) continue;
    const auto address = parse_host_port(text);
    if (!address) return fail(address.error().with(key));
    RN_CHECK(check_address(key, *address));
  }
  const std::vector<std::pair<std::string, std::string>> folders = {
      {"state", config.state}, {"run", config.run}};
  for (const auto& [key, path] : folders) {
    // Empty, it would make /agent and /warden of the machine's root, and leaving removes them.
    if (path.empty()) return fail(ErrorCode::kInvalid, key + ": is empty", "name a folder");
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored))
      return fail(ErrorCode::kInvalid, key + ": " + path + " is no folder", "name a folder");
  }
  return {};
}

Result<AgentConfig> load_config(const std::string& path) {
  io::RealFileSystem fs;
  const auto bytes = read_named(fs, path, 1u << 20);
  if (!bytes)
    return fail(bytes.error()
                    .with("the configuration file")
                    .hinting(
                        bytes.error().code == ErrorCode::kDenied
                            ? "make it readable for the user that runs the agent"
                            : "name a file that is there with --config"
                    ));
  auto config = parse_config(std::string(as_text(*bytes)));
  if (!config)
    return fail(config.error().with(path).hinting(
        "correct the file; docs/lending.md says which fields there are"
    ));
  return config;
}

}  // namespace rn::agent
