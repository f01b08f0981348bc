// SPDX-License-Identifier: Apache-2.0
#include "sim/chains.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rn::sim {

namespace {

using Waits = std::vector<std::pair<std::string, AfterWhen>>;

/// Short: they run one after another.
Training draw_link(Rng& rng) {
  Training training;
  training.steps = static_cast<std::uint32_t>(60 + rng.below(240));
  training.save_every = static_cast<std::uint32_t>(10 + rng.below(30));
  training.step_ms = static_cast<std::uint32_t>(500 + rng.below(1000));
  training.saves_in_place = rng.below(2) == 0;
  training.handles_term = rng.below(2) == 0;
  return training;
}

AfterWhen draw_when(Rng& rng) {
  static constexpr AfterWhen kAll[] = {
      AfterWhen::kOk, AfterWhen::kFail, AfterWhen::kAny, AfterWhen::kStarted};
  return kAll[rng.below(4)];
}

SubmittedArray draw_array(Rng& rng, std::uint32_t tasks_least, Waits after) {
  SubmittedArray array{.training = draw_link(rng), .after = std::move(after)};
  array.tasks = tasks_least + static_cast<std::uint32_t>(rng.below(4));
  array.at_most = static_cast<std::uint32_t>(rng.below(4));  // 0: as many as there is room for
  return array;
}

nanoseconds share_of(nanoseconds length, double share) {
  return nanoseconds(static_cast<std::int64_t>(static_cast<double>(length.count()) * share));
}

struct Link {
  std::string key;
  Training training;
  Waits after;
};

}  // namespace

void submit_chains(Cluster& cluster, Rng& rng, nanoseconds length) {
  EventQueue& queue = cluster.world().queue();
  const TrueTime begin = cluster.world().now() + share_of(length, rng.unit() / 2);
  Link prepare{"prepare", draw_link(rng), {}};
  if (rng.below(4) == 0)
    prepare.training.fails_at_step =
        static_cast<std::uint32_t>(1 + rng.below(prepare.training.steps));
  SubmittedArray sweep =
      draw_array(rng, 3, {{"prepare", rng.below(2) == 0 ? AfterWhen::kOk : AfterWhen::kAny}});
  if (rng.below(3) == 0) {
    // Before its first save: a crash soon after a resume would be blamed on what was resumed.
    sweep.training.fails_at_step =
        static_cast<std::uint32_t>(1 + rng.below(sweep.training.save_every - 1));
    sweep.training.failing_task = static_cast<std::uint32_t>(rng.below(sweep.tasks));
  }
  std::vector<Link> links;
  links.push_back({"report", draw_link(rng), {{"sweep", AfterWhen::kOk}}});
  links.push_back({"mend", draw_link(rng), {{"sweep", AfterWhen::kFail}}});
  links.push_back(
      {"notes", draw_link(rng), {{"prepare", AfterWhen::kStarted}, {"report", AfterWhen::kAny}}}
  );
  links.push_back({"last", draw_link(rng), {{"notes", draw_when(rng)}, {"mend", draw_when(rng)}}});
  queue.at(begin, [&cluster, prepare, sweep, links] {
    cluster.submit(prepare.key, prepare.training);
    cluster.submit_array("sweep", sweep);
    for (const Link& link : links) cluster.submit(link.key, link.training, link.after);
  });

  const Link late{"late", draw_link(rng), {{"prepare", draw_when(rng)}}};
  queue.at(begin + share_of(length, rng.unit() / 2), [&cluster, late] {
    cluster.submit(late.key, late.training, late.after);
  });

  const SubmittedArray given_up = draw_array(rng, 2, {});
  const TrueTime submitted = begin + share_of(length, rng.unit() / 4);
  queue.at(submitted, [&cluster, given_up] { cluster.submit_array("given-up", given_up); });
  queue.at(submitted + share_of(length, rng.unit() / 4), [&cluster] {
    cluster.stop_array("given-up");
  });
}

}  // namespace rn::sim
