// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "commands.h"

#include "agent/core_types.h"
#include "agent/identity.h"
#include "agent/leaving.h"
#include "base/fs.h"
#include "base/printable.h"
#include "io/patiently.h"
#include "io/real_clock.h"
#include "io/real_fs.h"

namespace rn::agent {

namespace {

constexpr milliseconds kLook = seconds(1);
constexpr seconds kBetweenWords{10};            ///< said again what it waits for
constexpr milliseconds kRemoval = seconds(10);  ///< for an agent that is ending by itself

constexpr const char* kGivingUp =
    "run leave again to wait longer; if the site is gone for good: systemctl stop reclaim-agent "
    "reclaim-warden, then reclaim-warden leave and reclaim-agent leave --purge, which give up what "
    "is not yet elsewhere";

/// Until the agent's process has ended; says every now and then what it waits for.
Status wait_for_end(const AgentConfig& config, const ServingProcess& agent, seconds limit) {
  const io::RealClock clock{};
  const Instant end = clock.now().boot + limit;
  Instant next_words = clock.now().boot + kBetweenWords;
  std::string waits_for = "the agent";
  while (!agent.ends_within(kLook)) {
    const Instant now = clock.now().boot;
    const bool is_over = now >= end;
    if (is_over || now >= next_words) {
      const auto body = ask_agent(config, "GET", "/v1/node");
      const auto view = body ? node_view_from_json(*body) : fail(body.error());
      // NOTE: an agent that is ending has closed its socket already.
      waits_for = view ? leaving_waits_for(*view) : "the agent's end: " + view.error().message;
      if (!is_over) std::fprintf(stderr, "still waiting for %s\n", printable(waits_for).c_str());
      next_words = clock.now().boot + kBetweenWords;
    }
    if (is_over)
      return fail(
          ErrorCode::kTimeout,
          "the node has not left within " + std::to_string(limit.count()) + " s; it waits for " +
              waits_for,
          kGivingUp
      );
  }
  return {};
}

/// For after the files are gone; the identity may not be whole.
std::string untold_words(FileSystem& fs, const AgentConfig& config) {
  const auto machine = machine_id(fs, config.machine_id_file);
  const auto identity = load_identity(fs, config.identity_folder(), machine.value_or(""));
  if (identity) return untold_coordinator(identity->coordinator_url, identity->node);
  return untold_coordinator("of its site", NodeId("this machine"));
}

/// Removes the agent's files. `untold`: what is said of a coordinator that does not know.
int forget(FileSystem& fs, const AgentConfig& config, bool is_joined, const std::string& untold) {
  const auto there = fs.stat(config.folder());
  const bool was_there = there || there.error().code != ErrorCode::kNotFound;
  const Status removed = io::patiently(kRemoval, [&] { return purge(fs, config); });
  if (!removed && removed.error().code == ErrorCode::kConflict) return report(removed.error());
  if (!removed)
    return report(removed.error().hinting(
        removed.error().code == ErrorCode::kDenied ? "run it as root"
                                                   : "see that no reclaim-agent runs; leave again"
    ));
  const std::string purged = purged_words(config.folder(), was_there, is_joined);
  std::printf("%s\n", printable(purged).c_str());
  if (!untold.empty()) std::fprintf(stderr, "%s\n", printable_lines(untold).c_str());
  return 0;
}

/// Said before anything is done. Nothing waits for it, nor fails by it.
void say_what_is_held(FileSystem& fs, const AgentConfig& config, bool purges) {
  const auto held = checkpoint::measure_store(fs, config.store_folder());
  const std::string words =
      held ? held_words(*held, purges)
           : "what it holds of others cannot be told: " + held.error().describe();
  if (!words.empty()) std::printf("%s\n", printable(words).c_str());
  std::fflush(stdout);
}

}  // namespace

int do_leave(
    const AgentConfig& config, bool purges, const std::string& reason, std::uint32_t wait_s
) {
  io::RealFileSystem fs;
  const std::string identity = config.identity_folder();
  const bool is_joined = fs.stat(join_path(identity, "identity.json")).has_value();
  const bool had_left = has_left(fs, identity);
  const std::string untold = untold_words(fs, config);           // afterwards nobody knows
  const auto agent = ServingProcess::of(config.control_path());  // afterwards it may be gone
  say_what_is_held(fs, config, purges);
  const auto asked = ask_agent(config, "POST", "/v1/leave", reason);
  if (!asked && is_joined && asked.error().code != ErrorCode::kUnavailable)
    return report(asked.error());
  if (asked) {
    if (!agent) return report(Error(agent.error()).with("the agent's socket"));
    std::fprintf(stderr, "guests save and leave; waiting for at most %u s ...\n", wait_s);
    const Status ended = wait_for_end(config, *agent, seconds(wait_s));
    if (!ended) return report(ended.error());
  }
  const bool was_served = asked || (agent && is_joined);
  const LeavingEnd end = leaving_end(has_left(fs, identity), was_served);
  if (end == LeavingEnd::kDied) return report(died_while_leaving());
  if (end == LeavingEnd::kLeft) {
    const bool is_news = !had_left || was_served;
    std::printf("%s\n", is_news ? "the node has left" : "the node had left already");
  } else if (!purges) {
    return report(Error(asked.error()).with("nothing has changed, the coordinator was not told"));
  }
  if (!purges) return 0;
  const bool is_untold = is_joined && end == LeavingEnd::kNoAgent;
  return forget(fs, config, is_joined, is_untold ? untold : "");
}

}  // namespace rn::agent
