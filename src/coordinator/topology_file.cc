// SPDX-License-Identifier: Apache-2.0
#include "coordinator/topology_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "coordinator/transfer_links.h"
#include "io/real_fs.h"
#include "model/codec_detail.h"
#include "model/yaml.h"

namespace rn::coordinator {

namespace {

constexpr std::uint64_t kTopologyBytesMax = 1u << 20;
constexpr std::size_t kTopologyNameMax = 128;
constexpr const char* kTopologyHelp =
    "correct the file; docs/topology.md has an example, and `reclaim-coordinator check-topology "
    "FILE` checks one without using it";

struct FileLink {
  std::string name;
  std::optional<std::string> parent;
  std::optional<std::string> rate;
  std::optional<std::string> up;
  std::optional<std::string> down;
  std::optional<double> latency_ms;
  std::optional<std::string> background;

  RN_FIELDS(FileLink, name, parent, rate, up, down, latency_ms, background)
};

struct FileTopologyNode {
  std::string name;
  std::string at;
  std::optional<std::string> rate;
  std::optional<std::string> up;
  std::optional<std::string> down;
  std::optional<double> latency_ms;
  std::optional<std::string> background;

  RN_FIELDS(FileTopologyNode, name, at, rate, up, down, latency_ms, background)
};

struct FileTopology {
  std::optional<std::uint32_t> version;
  std::vector<FileLink> links;
  std::vector<FileTopologyNode> nodes;

  RN_FIELDS(FileTopology, version, links, nodes)
};

Status check_name(const char* list, std::size_t at, const std::string& name) {
  const bool is_plain =
      name.size() <= kTopologyNameMax &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
  if (is_plain && !name.empty()) return {};
  return fail(
      ErrorCode::kInvalid,
      std::string(list) + "[" + std::to_string(at) + "]: " +
          (name.empty() ? "it has no name" : "its name is no plain word of at most 128 characters"),
      "give it a `name:` without blanks"
  );
}

template <class Entry>
Result<reclaim::TopologyLine> line_of(const std::string& who, const Entry& entry) {
  reclaim::TopologyLine line;
  const auto read = [&](const char* field, const std::optional<std::string>& text, double& out
                    ) -> Status {
    if (!text) return {};
    const auto rate = parse_line_rate(*text);
    if (!rate) return fail(rate.error().with(who + ": " + field));
    out = *rate;
    return {};
  };
  RN_CHECK(read("rate", entry.rate, line.up));
  line.down = line.up;
  RN_CHECK(read("up", entry.up, line.up));
  RN_CHECK(read("down", entry.down, line.down));
  RN_CHECK(read("background", entry.background, line.background));
  line.latency_s = entry.latency_ms.value_or(0) / 1000;
  if (line.up > 0 && line.down > 0) return line;
  return fail(
      ErrorCode::kInvalid,
      who + ": the rate of its line is missing",
      "write `rate: 1gbit`, or `up:` and `down:` where they differ"
  );
}

Status read_links(const FileTopology& file, reclaim::TopologyDeclaration& out) {
  for (std::size_t i = 0; i < file.links.size(); ++i) {
    const FileLink& link = file.links[i];
    RN_CHECK(check_name("links", i, link.name));
    const std::string who = "links: '" + link.name + "'";
    const bool is_root = !link.parent || link.parent->empty();
    const bool has_line = link.rate || link.up || link.down || link.latency_ms || link.background;
    if (is_root && has_line)
      return fail(
          ErrorCode::kInvalid,
          who + " has a line and no parent: to what does the line lead?",
          "add `parent:`, or remove the rate if it is the root"
      );
    reclaim::TopologyLine line;
    if (!is_root) {
      RN_TRY(line, line_of(who, link));
    }
    out.switches.push_back({link.name, link.parent.value_or(""), line});
  }
  return {};
}

Result<reclaim::TopologyDeclaration> declaration_of(const FileTopology& file) {
  if (file.version != 1)
    return fail(
        ErrorCode::kInvalid,
        file.version ? "version " + std::to_string(*file.version) + " is not known"
                     : "it has no version",
        "write `version: 1`"
    );
  reclaim::TopologyDeclaration out;
  RN_CHECK(read_links(file, out));
  for (std::size_t i = 0; i < file.nodes.size(); ++i) {
    const FileTopologyNode& node = file.nodes[i];
    RN_CHECK(check_name("nodes", i, node.name));
    RN_TRY(const auto line, line_of("nodes: '" + node.name + "'", node));
    out.nodes.push_back({node.name, node.at, line});
  }
  return out;
}

}  // namespace

Result<double> parse_line_rate(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string unit(code == std::errc() ? rest : end, end);
  const double factor = unit == "kbit" ? 1e3 : unit == "mbit" ? 1e6 : unit == "gbit" ? 1e9 : 0;
  const double rate = number * factor / 8;
  if (code == std::errc() && rate >= reclaim::kLeastLineRate && rate <= reclaim::kMostLineRate)
    return rate;
  return fail(
      ErrorCode::kInvalid,
      "'" + text + "' is no rate of a line",
      "write a number from 1kbit to 1000gbit with its unit: kbit, mbit or gbit"
  );
}

Result<reclaim::TopologyDeclaration> parse_topology_declaration(const std::string& text) {
  if (text.size() > kTopologyBytesMax)
    return fail(ErrorCode::kExhausted, "it is longer than 1 MiB", kTopologyHelp);
  const auto document = parse_yaml(text);
  if (!document) return fail(document.error().hinting(kTopologyHelp));
  const auto file = from_document<FileTopology>(*document, Unknown::kStrict);
  if (!file)
    return fail(
        file.error().hinting("rates are words such as 1gbit; docs/topology.md has an example")
    );
  auto declared = declaration_of(*file);
  if (!declared) return fail(declared.error().hinting(kTopologyHelp));
  if (const auto made = reclaim::Topology::make(*declared); !made)
    return fail(made.error().hinting(kTopologyHelp));
  return declared;
}

Result<reclaim::Topology> parse_topology(const std::string& text) {
  RN_TRY(const auto declared, parse_topology_declaration(text));
  return reclaim::Topology::make(declared);
}

Result<reclaim::Topology> read_topology_file(const std::string& path) {
  io::RealFileSystem fs;
  std::error_code ignored;
  const std::string whole = std::filesystem::absolute(path, ignored).string();
  const auto bytes = read_named(fs, whole, kTopologyBytesMax);
  if (!bytes)
    return fail(bytes.error().with("the topology").hinting("name a readable file of at most 1 MiB")
    );
  auto topology = parse_topology(std::string(as_text(*bytes)));
  if (!topology) return fail(topology.error().with("topology " + path));
  return topology;
}

std::vector<std::string> topology_warnings(
    const reclaim::Topology& topology,
    const std::vector<NodeRow>& nodes,
    const std::string& hostname
) {
  std::vector<std::size_t> named(topology.nodes().size());
  std::vector<std::string> out;
  for (const NodeRow& node : nodes) {
    if (node.state == NodeState::kLeft || node.is_revoked) continue;
    const auto place = topology.find(node.node.str(), node.facts.hostname);
    if (place) {
      ++named[*place];
      continue;
    }
    out.push_back(
        "node " + node.node.str() + " (" + node.facts.hostname +
        ") is not declared: only its own uplink_bps counts, as a line to the root"
    );
  }
  for (std::size_t place = 0; place < named.size(); ++place) {
    const std::string& name = topology.nodes()[place];
    const bool is_ours = topology.find(kCoordinatorPlace, hostname) == place;
    if (named[place] == 0 && !is_ours)
      out.push_back("'" + name + "' is no node of this site (yet): its line is never used");
    if (named[place] > 1)
      out.push_back(
          std::to_string(named[place]) + " nodes are called '" + name +
          "' and count as one line: declare them by their ids"
      );
  }
  return out;
}

}  // namespace rn::coordinator
