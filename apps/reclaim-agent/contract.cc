// SPDX-License-Identifier: Apache-2.0
// What waits for a word of somebody at the machine: a contract that was written elsewhere (ADR
// 0024).
#include <cstdio>
#include <iostream>
#include <string>

#include "commands.h"
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "agent/contract_file.h"
#include "agent/core_types.h"
#include "arbiter/contract_order.h"
#include "base/printable.h"
#include "io/real_clock.h"

namespace rn::agent {

namespace {

constexpr std::int64_t kHour_ms = 3'600'000;

Result<NodeView> view_with_proposal(const AgentConfig& config) {
  RN_TRY(const std::string body, ask_agent(config, "GET", "/v1/node"));
  RN_TRY(NodeView view, node_view_from_json(body));
  if (!view.proposal.id.empty()) return view;
  return fail(
      ErrorCode::kNotFound,
      "no change of the contract waits",
      "reclaim-agent contract show prints the one in force"
  );
}

/// As comments of a contract's file, so that what is printed is one.
void print_proposal(const NodeView& view) {
  const ContractProposal& waits = view.proposal;
  const std::int64_t now_ms = to_ms(io::RealClock().now().wall);
  std::printf(
      "# A change by %s, made elsewhere %lld h ago; it is forgotten in %lld h.\n",
      printable(waits.user.str()).c_str(),
      static_cast<long long>((now_ms - waits.came_wall_ms) / kHour_ms),
      static_cast<long long>((waits.until_wall_ms - now_ms) / kHour_ms)
  );
  if (waits.from != view.contract_version)
    std::printf(
        "# The contract was changed here since: what follows undoes that where they differ.\n"
    );
  for (const std::string& change : arbiter::changes(view.contract, waits.contract))
    std::printf("#   %s\n", printable(change).c_str());
  std::printf(
      "# It lends %u h of the week, and %u h now.\n",
      waits.contract.lends ? arbiter::lent_minutes(waits.contract) / 60 : 0,
      view.contract.lends ? arbiter::lent_minutes(view.contract) / 60 : 0
  );
  for (const std::string& more : arbiter::widenings(view.contract, waits.contract, view.facts))
    std::printf("# more than now: %s\n", printable(more).c_str());
}

bool is_confirmed() {
  std::fprintf(stderr, "put it in force? [y/N] ");
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

Status settle(const AgentConfig& config, const NodeView& view, const char* verb) {
  const nlohmann::json body = {{"id", view.proposal.id}, {"version", view.contract_version}};
  const auto answer = ask_agent(config, "POST", std::string("/v1/contract/") + verb, body.dump());
  if (!answer) return fail(answer.error());
  return {};
}

}  // namespace

int do_contract_pending(const AgentConfig& config) {
  const auto view = view_with_proposal(config);
  if (!view) return report(view.error());
  print_proposal(*view);
  std::printf("%s", printable_lines(to_yaml(view->proposal.contract)).c_str());
  return 0;
}

int do_contract_accept(const AgentConfig& config, bool is_sure) {
  const auto view = view_with_proposal(config);
  if (!view) return report(view.error());
  print_proposal(*view);
  std::fflush(stdout);
  if (!is_sure && (isatty(STDIN_FILENO) == 0 || !is_confirmed()))
    return report(Error{
        ErrorCode::kConflict,
        "not confirmed: nothing has changed",
        "answer yes on a terminal, or give --yes"});
  const Status settled = settle(config, *view, "accept");
  if (!settled) return report(settled.error());
  std::printf("the contract is in force\n");
  return 0;
}

int do_contract_reject(const AgentConfig& config) {
  const auto view = view_with_proposal(config);
  if (!view) return report(view.error());
  const Status settled = settle(config, *view, "reject");
  if (!settled) return report(settled.error());
  std::printf("the change by %s is gone\n", printable(view->proposal.user.str()).c_str());
  return 0;
}

}  // namespace rn::agent
