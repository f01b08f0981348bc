// SPDX-License-Identifier: Apache-2.0
#include "cli_contract.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "cli_commands.h"
#include "cli_print.h"
#include <unistd.h>

#include "arbiter/contract_order.h"
#include "arbiter/contract_text.h"
#include "base/printable.h"
#include "io/http.h"
#include "io/real_fs.h"
#include "io/real_rng.h"
#include "io/subprocess.h"

namespace rn::cli {

namespace {

constexpr std::uint64_t kContractFileMax = 256u << 10;
constexpr auto kEditLookEvery = std::chrono::milliseconds(200);
/// The edit's own time, its answer's, and some for a busy coordinator.
constexpr std::chrono::seconds kEditTakes{30};
constexpr const char* kContractByHand = "on the machine itself: reclaim-agent contract set FILE";

std::string path_of(const api::NodeInfo& node, const char* rest = "") {
  return "/v1/nodes/" + io::percent_encode(node.id.str()) + rest;
}

std::string shown_name(const api::NodeInfo& node) {
  return printable(node.lab.str() + "/" + node.facts.hostname);
}

Result<api::NodeInfo> node_called(const Client& client, const std::string& name) {
  RN_TRY(const auto list, client.get_as<api::NodeList>("/v1/nodes"));
  return find_node(list, name);
}

/// Its version is told to its owners and to administrators, who are refused when they send one.
Status check_editable(const api::NodeInfo& node) {
  if (!node.contract_version.empty()) return {};
  return fail(
      ErrorCode::kDenied,
      "the contract of " + node.lab.str() + "/" + node.facts.hostname +
          " is edited by the owners of lab " + node.lab.str() +
          " alone, and by them only if its agent takes that",
      kContractByHand
  );
}

Result<api::NodeInfo> editable_node(const Client& client, const std::string& name) {
  RN_TRY(auto node, node_called(client, name));
  RN_CHECK(check_editable(node));
  return node;
}

Result<Contract> contract_in(const std::string& text, const api::NodeInfo& node) {
  auto contract = arbiter::read_contract(text, node.facts);
  if (contract) return contract;
  return fail(contract.error().hinting("correct it, and send it again"));
}

Result<std::string> contract_file_text(const std::string& file) {
  io::RealFileSystem fs;
  const auto bytes = read_named(fs, file, kContractFileMax);
  if (!bytes) return fail(bytes.error().hinting("name a readable contract file"));
  return std::string(as_text(*bytes));
}

Result<api::ContractPreview> preview_for(
    const Client& client, const api::NodeInfo& node, const Contract& contract
) {
  api::ContractEditRequest request;
  request.contract = contract;
  return client.send_as<api::ContractPreview>(
      "POST", path_of(node, "/contract/check"), to_json(request)
  );
}

void print_lines(std::FILE* out, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::fprintf(out, "%s\n", printable(line).c_str());
}

/// Until the machine has said something, or its time is over.
Result<ContractEdit> follow_edit(
    const Client& client, const api::NodeInfo& node, ContractEdit edit
) {
  const auto until = std::chrono::steady_clock::now() + kEditTakes;
  while (edit.state == EditState::kSent && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kEditLookEvery);
    const auto now = client.get_as<api::NodeInfo>(path_of(node));
    if (!now && !is_retryable(now.error().code)) return fail(now.error());
    if (!now) continue;
    for (const ContractEdit& one : now->edits)
      if (one.id == edit.id) edit = one;
  }
  return edit;
}

/// Asks if somebody is to be asked, sends it, and says what became of it.
int send_contract(
    const Client& client,
    const api::NodeInfo& node,
    const Contract& contract,
    const ContractOptions& options
) {
  const auto preview = preview_for(client, node, contract);
  if (!preview) return complain(preview.error());
  if (!preview->problems.empty())
    return complain(Error{ErrorCode::kInvalid, preview->problems.front(), "correct it"});
  if (!options.is_json) print_lines(stderr, preview_lines(*preview));
  if (preview->changes.empty() && !node.proposal) {
    std::fprintf(stderr, "%s: nothing is changed\n", shown_name(node).c_str());
    return 0;
  }
  if (options.confirms && !options.confirms("Change the contract of " + shown_name(node) + " so? "))
    return complain(Error{
        ErrorCode::kConflict, "not confirmed: nothing has changed", "answer yes, or give --yes"});
  api::ContractEditRequest request;
  io::RealRng rng;
  request.edit = rng.hex(12);
  request.from = node.contract_version;
  if (options.replaces && node.proposal) request.replaces = node.proposal->id;
  request.contract = contract;
  const auto sent =
      client.send_as<ContractEdit>("POST", path_of(node, "/contract"), to_json(request));
  if (!sent) {
    Error refused = sent.error();
    if (refused.code == ErrorCode::kConflict && node.proposal && !options.replaces)
      refused.hint = "reclaim contract diff NODE shows it, and --replace takes its place";
    return complain(refused);
  }
  const auto edit = follow_edit(client, node, *sent);
  if (!edit) return complain(edit.error());
  if (options.is_json) print_json(to_json(*edit));
  const Status ended = end_of_edit(*edit).value_or(fail(
      ErrorCode::kTimeout, "the machine has not answered yet", "look again: reclaim contract get"
  ));
  if (!ended) return complain(ended.error());
  if (!options.is_json) std::printf("%s\n", printable(edit->message).c_str());
  return 0;
}

/// A file of its own that ends with the object, unless it is kept.
class Draft {
 public:
  static Result<Draft> make(const std::string& text) {
    std::string path = std::filesystem::temp_directory_path().string() + "/contract-XXXXXX.yaml";
    const int fd = mkstemps(path.data(), 5);
    if (fd < 0)
      return fail(ErrorCode::kInternal, "no file can be made in " + path, "set TMPDIR to a folder");
    Draft draft(path);
    const bool is_written =
        write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(fd);
    if (!is_written)
      return fail(ErrorCode::kExhausted, path + " could not be written", "make room");
    return Result<Draft>(std::move(draft));
  }

  Draft(Draft&& other) noexcept : path_(std::exchange(other.path_, "")) {}

  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  Draft& operator=(Draft&&) = delete;

  ~Draft() {
    if (!path_.empty()) unlink(path_.c_str());
  }

  const std::string& path() const { return path_; }

  /// What a person wrote is not thrown away.
  void keep() {
    std::fprintf(stderr, "  what you wrote is kept in %s\n", path_.c_str());
    path_.clear();
  }

 private:
  explicit Draft(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

/// As git does it: by a shell, so that the variable may have arguments.
Status run_editor(const std::string& path) {
  const char* editor = std::getenv("VISUAL");
  if (editor == nullptr || *editor == '\0') editor = std::getenv("EDITOR");
  if (editor == nullptr || *editor == '\0') editor = "vi";
  io::SpawnOptions options;
  options.argv = {"/bin/sh", "-c", std::string(editor) + " \"$@\"", editor, path};
  options.fds = {{0, 0}, {1, 1}, {2, 2}};
  options.new_session = false;
  RN_TRY(auto child, io::Subprocess::spawn(options));
  RN_TRY(const io::ExitStatus status, child.wait(std::chrono::hours(24)));
  if (status.is_success()) return {};
  return fail(
      ErrorCode::kInternal,
      std::string("the editor '") + editor + "' has failed",
      "set EDITOR to one that works, or use `reclaim contract set NODE FILE`"
  );
}

}  // namespace

std::vector<std::string> preview_lines(const api::ContractPreview& preview) {
  std::vector<std::string> lines;
  for (const std::string& problem : preview.problems) lines.push_back("not possible: " + problem);
  if (!preview.problems.empty()) return lines;
  for (const std::string& change : preview.changes) lines.push_back("  " + change);
  if (preview.lent_minutes_before != preview.lent_minutes_after)
    lines.push_back(
        "it lends " + std::to_string(preview.lent_minutes_after / 60) + " h of the week, and " +
        std::to_string(preview.lent_minutes_before / 60) + " h now"
    );
  for (const api::ContractGuest& guest : preview.guests) lines.push_back(guest.message);
  for (const std::string& note : preview.notes) lines.push_back(note);
  if (preview.changes.empty()) return lines;
  if (preview.narrows) {
    lines.emplace_back("it takes effect at once");
    return lines;
  }
  lines.emplace_back("it waits until somebody at the machine says reclaim-agent contract accept:");
  for (const std::string& reason : preview.widens) lines.push_back("  " + reason);
  return lines;
}

std::optional<Status> end_of_edit(const ContractEdit& edit) {
  switch (edit.state) {
    case EditState::kSent:
      return std::nullopt;
    case EditState::kInForce:
    case EditState::kPending:
      return Status();
    case EditState::kConflict:
    case EditState::kRefused:
    case EditState::kRejected:
    case EditState::kReplaced:
      return Status(fail(ErrorCode::kConflict, edit.message, "look at it: reclaim contract get"));
    case EditState::kLate:
    case EditState::kExpired:
      return Status(fail(ErrorCode::kUnavailable, edit.message, kContractByHand));
    case EditState::kUnanswered:
      return Status(fail(ErrorCode::kTimeout, edit.message, "look again: reclaim contract get NODE")
      );
  }
  return std::nullopt;
}

int contract_get(const Client& client, const ContractOptions& options) {
  const auto node = node_called(client, options.node);
  if (!node) return complain(node.error());
  if (options.is_json) {
    print_json(to_json(*node));
    return 0;
  }
  std::printf("%s", printable_lines(arbiter::to_yaml(node->contract)).c_str());
  if (node->proposal)
    std::fprintf(
        stderr,
        "  a change by %s waits for somebody at the machine: reclaim contract diff %s\n",
        printable(node->proposal->user.str()).c_str(),
        printable(options.node).c_str()
    );
  return 0;
}

int contract_set(const Client& client, const ContractOptions& options) {
  const auto text = contract_file_text(options.file);
  if (!text) return complain(text.error());
  const auto node = editable_node(client, options.node);
  if (!node) return complain(node.error());
  const auto contract = contract_in(*text, *node);
  if (!contract) return complain(contract.error().with(options.file));
  return send_contract(client, *node, *contract, options);
}

int contract_edit(const Client& client, const ContractOptions& options) {
  const auto node = editable_node(client, options.node);
  if (!node) return complain(node.error());
  // Who is refused hears it before they have written anything: an administrator is told the
  // version, and may not edit.
  const auto unchanged = preview_for(client, *node, node->contract);
  if (!unchanged) return complain(unchanged.error());
  const std::string before = arbiter::to_yaml(node->contract);
  auto draft = Draft::make(before);
  if (!draft) return complain(draft.error());
  if (const Status edited = run_editor(draft->path()); !edited) return complain(edited.error());
  const auto text = contract_file_text(draft->path());
  if (!text) return complain(text.error());
  if (*text == before) {
    std::fprintf(stderr, "%s: nothing is changed\n", shown_name(*node).c_str());
    return 0;
  }
  const auto contract = contract_in(*text, *node);
  const int status =
      contract ? send_contract(client, *node, *contract, options) : complain(contract.error());
  if (status != 0) draft->keep();
  return status;
}

int contract_diff(const Client& client, const ContractOptions& options) {
  const auto node = editable_node(client, options.node);
  if (!node) return complain(node.error());
  Contract wanted = node->proposal ? node->proposal->contract : node->contract;
  if (!options.file.empty()) {
    const auto text = contract_file_text(options.file);
    if (!text) return complain(text.error());
    auto contract = contract_in(*text, *node);
    if (!contract) return complain(contract.error().with(options.file));
    wanted = *std::move(contract);
  } else if (!node->proposal) {
    std::fprintf(stderr, "%s: no change of its contract waits\n", shown_name(*node).c_str());
    return 0;
  }
  const auto preview = preview_for(client, *node, wanted);
  if (!preview) return complain(preview.error());
  if (options.is_json) {
    print_json(to_json(*preview));
  } else {
    print_lines(stdout, preview_lines(*preview));
  }
  return 0;
}

}  // namespace rn::cli
