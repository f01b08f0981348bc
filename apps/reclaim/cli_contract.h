// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli_client.h"

#include "base/error.h"
#include "model/api.h"
#include "model/contract_edit.h"

namespace rn::cli {

struct ContractOptions {
  std::string node;  ///< id or hostname
  std::string file;
  bool replaces = false;  ///< what waits at the machine
  bool is_json = false;
  /// Asks a person before anything is sent; empty: nobody is asked.
  std::function<bool(const std::string& question)> confirms;
};

/// Prints the contract in force, as its file would be. Answers the exit status, as all of these.
int contract_get(const Client& client, const ContractOptions& options);
/// Sends the contract in the file, and says what became of it.
int contract_set(const Client& client, const ContractOptions& options);
/// The same with the one in force, in the caller's editor.
int contract_edit(const Client& client, const ContractOptions& options);
/// What waits at the machine, or with a file what that would mean.
int contract_diff(const Client& client, const ContractOptions& options);

/// What an edit would do, a line each.
std::vector<std::string> preview_lines(const api::ContractPreview& preview);

/// How it ended, nullopt while it goes on. Good: in force, or pending. Errors have what to do:
/// kConflict (another contract is in force, or the machine refuses it), kUnavailable (late: nothing
/// was done), kTimeout (told, and what it did is not known).
std::optional<Status> end_of_edit(const ContractEdit& edit);

}  // namespace rn::cli
