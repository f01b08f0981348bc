// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "coordinator/rows.h"
#include "reclaim/topology.h"

// The site's network in people's words: the YAML file of `serve --topology` (docs/topology.md).
namespace rn::coordinator {

/// kInvalid and kExhausted name the entry and what to do next.
Result<reclaim::Topology> parse_topology(const std::string& text);

/// What it declares, checked in the same way.
Result<reclaim::TopologyDeclaration> parse_topology_declaration(const std::string& text);

/// The same as parse_topology() of a file of at most 1 MiB; whatever is no readable regular file is
/// an error too. Blocking.
Result<reclaim::Topology> read_topology_file(const std::string& path);

/// "1gbit", "2.5gbit", "100mbit", "64kbit" in bytes per second. kInvalid.
Result<double> parse_line_rate(const std::string& text);

/// What a person should look at although the file is good: names that no node of the site has, and
/// nodes that it leaves out. One sentence each. `hostname` is that of the coordinator's machine.
std::vector<std::string> topology_warnings(
    const reclaim::Topology& topology,
    const std::vector<NodeRow>& nodes,
    const std::string& hostname = ""
);

}  // namespace rn::coordinator
