// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli_browser.h"
#include "cli_client.h"

namespace rn::cli {

// One function per command; each prints, and answers the exit code.

struct LoginOptions {
  std::string url;
  std::string token;
  std::string ca_fingerprint;
  bool is_by_browser =
      false;  ///< on this machine; else by an address and a code, where there is that
  BrowserOptions browser;
};

int login(const LoginOptions& options);
int whoami(const Client& client, bool is_json);

struct PsOptions {
  bool all = false;
  bool is_json = false;
  std::uint32_t limit = 50;
};

int ps(const Client& client, const PsOptions& options);

int why(const Client& client, const std::string& job, bool is_json);

struct StopOptions {
  std::vector<std::string> jobs;
  bool saves_first = false;
  std::uint32_t deadline_s = 60;
  std::string reason;
};

int stop_jobs(const Client& client, const StopOptions& options);
int nodes(const Client& client, bool is_json);

/// How many guests a node has; of one that is away what it said last, or "-" for none.
std::string guests_of(const api::NodeInfo& node);
/// What copies from the node may send, as far as its owner bounds it, and what its agent warns of:
/// indented lines, each with its end; empty = nothing is said.
std::string words_of_facts(const NodeFacts& facts);
/// A line for each GPU that is sick.
std::string words_of_gpus(const NodeTelemetry& telemetry);
/// By id; or by hostname, if only one node that is not revoked has it. kNotFound, kConflict.
Result<api::NodeInfo> find_node(const api::NodeList& list, const std::string& name);
/// How likely the node's owner takes it back soon, and from what that is known. By id or hostname.
int node_hazard(const Client& client, const std::string& node, bool is_json);

struct RevokeNodeOptions {
  std::string node;  ///< id or hostname
  bool is_json = false;
  /// Shown what will happen; false leaves everything as it is. Empty: nobody is asked.
  std::function<bool(const std::string& question)> confirms;
};

int revoke_node(const Client& client, const RevokeNodeOptions& options);
int show_job(const Client& client, const std::string& job, bool is_json);
/// "JOB:path" to a folder or file.
int copy(const Client& client, const std::string& from, const std::string& to);

struct EventsOptions {
  std::string job;
  std::string node;
  std::string kind;
  std::uint32_t limit = 100;
  bool is_json = false;
};

int events(const Client& client, const EventsOptions& options);
int add_image_command(
    const Client& client,
    const std::string& name,
    const std::string& archive,
    const std::string& base
);

struct SaveImageOptions {
  std::string name;  ///< or digest
  std::string path;
  bool is_forced = false;  ///< a regular file that is there is replaced
};

/// The archive as it was listed, for a build on top of it.
int save_image(const Client& client, const SaveImageOptions& options);
int list_images(const Client& client, bool is_json);
int remove_image(const Client& client, const std::string& name);
int create_token(const Client& client, const api::TokenRequest& request, bool is_json);
int list_tokens(const Client& client, bool is_json);
int revoke_token(const Client& client, const std::string& id);

}  // namespace rn::cli
