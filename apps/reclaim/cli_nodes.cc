// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>

#include "cli_commands.h"
#include "cli_print.h"

#include "base/printable.h"
#include "io/http.h"
#include "model/codec_detail.h"
#include "reclaim/hazard_state.h"

namespace rn::cli {

namespace {

/// Taken back for good: what it was, and which jobs had to go.
struct Revoked {
  NodeId node;
  std::string host;
  LabId lab;
  std::vector<JobId> displaced;  ///< as far as the caller may see them
  bool was_revoked = false;      ///< before: nothing has changed

  RN_FIELDS(Revoked, node, host, lab, displaced, was_revoked)
};

std::string name_of(const api::NodeInfo& node) {
  return node.id.str() + " (" + (node.facts.hostname.empty() ? "" : node.facts.hostname + ", ") +
         "lab " + node.lab.str() + ")";
}

std::string jobs_words(const std::vector<JobId>& jobs) {
  if (jobs.empty()) return "no job that you may see runs there";
  std::string ids;
  for (const JobId& id : jobs) ids += (ids.empty() ? "" : ", ") + id.str();
  return "jobs there: " + ids +
         "; each starts again elsewhere, with the files of its newest durable generation if it has "
         "one";
}

std::string question_for(const api::NodeInfo& node) {
  return "take node " + name_of(node) + " out for good?\n  " + jobs_words(node.jobs) +
         "\n  what it reports is taken no more, and the copies that it holds are used no more\n"
         "  a guest that runs there ends when the machine has not heard of the site for its orphan "
         "limit; its owner ends it at once with: reclaim-agent reclaim --now\n";
}

int print(const Revoked& revoked, const std::string& name, const std::string& url, bool is_json) {
  if (is_json) {
    print_json(to_json(revoked));
    return 0;
  }
  std::printf("%s is revoked%s\n", printable(name).c_str(), revoked.was_revoked ? " already" : "");
  if (revoked.was_revoked) return 0;
  std::fprintf(
      stderr,
      "%s\n  to let it in again, on it: reclaim-agent join %s --token T --again (T: reclaim token "
      "create --lab %s)\n",
      printable(jobs_words(revoked.displaced)).c_str(),
      url.c_str(),
      printable(revoked.lab.str()).c_str()
  );
  return 0;
}

}  // namespace

Result<api::NodeInfo> find_node(const api::NodeList& list, const std::string& name) {
  std::vector<const api::NodeInfo*> found;
  for (const api::NodeInfo& node : list.nodes) {
    if (node.id.str() == name) return node;
    if (node.facts.hostname == name && !node.is_revoked) found.push_back(&node);
  }
  if (found.empty())
    return fail(ErrorCode::kNotFound, "no node '" + name + "'", "'reclaim nodes' lists them");
  if (found.size() == 1) return *found.front();
  std::string ids;
  for (const api::NodeInfo* node : found) ids += (ids.empty() ? "" : ", ") + node->id.str();
  return fail(
      ErrorCode::kConflict,
      std::to_string(found.size()) + " nodes are called '" + name + "': " + ids,
      "name one by its id"
  );
}

std::string words_of_facts(const NodeFacts& facts) {
  std::string text;
  if (facts.are_transfers_cut) {
    text += "  copies: none goes out or comes in, its owner has cut them\n";
  } else if (facts.transfers_bps > 0) {
    std::array<char, 96> line{};
    std::snprintf(
        line.data(),
        line.size(),
        "  copies: its owner lets them send %.1f Mbit/s together\n",
        static_cast<double>(facts.transfers_bps) / 1e6
    );
    text += line.data();
  }
  for (const std::string& warning : facts.warnings)
    text += "  warning: " + printable(warning) + "\n";
  return text;
}

std::string words_of_gpus(const NodeTelemetry& telemetry) {
  std::string text;
  for (const GpuTelemetry& gpu : telemetry.gpus) {
    if (gpu.is_outside_window)
      text += "  GPU " + std::to_string(gpu.index) + " is outside its own lending windows\n";
    if (gpu.closes_in_s != 0)
      text += "  GPU " + std::to_string(gpu.index) + " is lent for " +
              std::to_string((gpu.closes_in_s + 59) / 60) + " min more, by its own windows\n";
    if (gpu.sickness.empty()) continue;
    text += "  GPU " + std::to_string(gpu.index) + " is sick: " + printable(gpu.sickness) + "\n";
  }
  return text;
}

int node_hazard(const Client& client, const std::string& name, bool is_json) {
  const auto list = client.get_as<api::NodeList>("/v1/nodes");
  if (!list) return complain(list.error());
  const auto node = find_node(*list, name);
  if (!node) return complain(node.error());
  const auto why = client.get_as<reclaim::HazardExplanation>(
      "/v1/nodes/" + io::percent_encode(node->id.str()) + "/hazard"
  );
  if (!why) return complain(why.error());
  if (is_json) {
    std::printf("%s\n", to_json(*why).c_str());
  } else {
    std::fputs(reclaim::describe(*why).c_str(), stdout);
    std::fputs(words_of_facts(node->facts).c_str(), stdout);
    std::fputs(words_of_gpus(node->telemetry).c_str(), stdout);
  }
  return 0;
}

int revoke_node(const Client& client, const RevokeNodeOptions& options) {
  const auto list = client.get_as<api::NodeList>("/v1/nodes");
  if (!list) return complain(list.error());
  const auto node = find_node(*list, options.node);
  if (!node) return complain(node.error());
  Revoked revoked{node->id, node->facts.hostname, node->lab, node->jobs, node->is_revoked};
  if (revoked.was_revoked) revoked.displaced.clear();
  if (!revoked.was_revoked && options.confirms && !options.confirms(question_for(*node)))
    return complain(Error{
        ErrorCode::kConflict, "not confirmed: nothing has changed", "answer yes, or give --yes"});
  if (!revoked.was_revoked) {
    const auto done = client.send(
        "POST", "/v1/nodes/" + io::percent_encode(node->id.str()) + "/revoke", std::string()
    );
    if (!done) return complain(done.error());
  }
  return print(revoked, name_of(*node), client.login().url, options.is_json);
}

}  // namespace rn::cli
