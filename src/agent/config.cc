// SPDX-License-Identifier: Apache-2.0
#include "agent/config.h"

#include <nlohmann/json.hpp>

#include "io/real_fs.h"
#include "model/codec_detail.h"
#include "model/yaml.h"

namespace rn::agent {

Result<AgentConfig> parse_config(const std::string& text) {
  RN_TRY(const nlohmann::json document, parse_yaml(text));
  RN_TRY(AgentConfig config, from_document<AgentConfig>(document, Unknown::kStrict));
  for (Gpu& gpu : config.gpus) gpu.is_static = true;
  if (config.telemetry_ms < 100)
    return fail(ErrorCode::kInvalid, "telemetry_ms: below 100 the agent would measure itself");
  return config;
}

Result<AgentConfig> load_config(const std::string& path) {
  io::RealFileSystem fs;
  RN_TRY(const Blob bytes, read_all(fs, path, 1u << 20));
  auto config = parse_config(std::string(as_text(bytes)));
  if (!config)
    return fail(config.error().with(path).hinting(
        "correct the file; reclaim-agent serve --help lists the fields"
    ));
  return config;
}

}  // namespace rn::agent
