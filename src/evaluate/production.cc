// SPDX-License-Identifier: Apache-2.0
#include "evaluate/production.h"

#include "base/assert.h"
#include "evaluate/production_node.h"
#include "evaluate/production_site.h"

namespace rn::evaluate {

Cadence Cadence::daemons() {
  return {.is_ticking = true};
}

Cadence Cadence::skipping() {
  Cadence cadence;
  cadence.heartbeat_ms = 60'000;
  cadence.idle_tick = seconds(60);
  cadence.guests_tick = seconds(20);
  cadence.evacuation_tick = milliseconds(500);
  cadence.sample = seconds(300);
  cadence.measures_always = false;
  cadence.lets_rest = true;
  return cadence;
}

struct Production::Impl {
  explicit Impl(Options options_in) : options(std::move(options_in)) {}

  Options options;
  ProductionSite site;
};

Production::Production(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Production::~Production() = default;

std::string Production::name() const {
  return impl_->options.name;
}

void Production::begin(World& world) {
  ProductionSite& site = impl_->site;
  const Options& options = impl_->options;
  site.world = &world;
  site.cadence = options.cadence;
  site.on_event = options.on_event;
  site.rates = options.study.rates;
  site.plans_saves_together = options.plans_saves_together;
  site.machine = options.machine;
  site.guests = options.guests;
  site.on_happened = options.on_happened;
  site.rng = SeededRng(options.seed);
  site.ticket_key = crypto::make_signing_key(site.rng);
  coordinator::Config config;
  config.heartbeat_ms = options.cadence.heartbeat_ms;
  config.lost_after = options.cadence.lost_after;
  config.migrates_back = options.migrates_back;
  config.idle_after_s = 0;  // its GPUs are not simulated
  config.study = options.study;
  const auto id_of = [&site](const auto& given) {
    return [&site, given](const JobId& job) {
      const auto number = site.jobs.find(job);
      const auto node = given(number == site.jobs.end() ? site.submitted : number->second);
      return node ? site.nodes[*node]->id() : NodeId();
    };
  };
  if (options.given_destination) config.study.given_destination = id_of(options.given_destination);
  if (options.given_holder) config.study.given_holder = id_of(options.given_holder);
  if (!options.copies_ahead) config.precopy_mib_per_hour = 0;
  if (options.knows_topology) {
    auto topology = reclaim::Topology::make(world.campus().topology);
    RN_ASSERT(topology.has_value(), "the world has checked it");
    config.topology = *std::move(topology);
  }
  site.coordinator = std::make_unique<CoordinatorSeat>(site, config);
  coordinator::Snapshot snapshot;
  Image image;
  image.name = "base";
  image.digest = kImage;
  image.bytes = 1;
  image.added_wall_ms = 1;
  snapshot.images.push_back(std::move(image));
  for (NodeNumber i = 0; i < world.campus().nodes.size(); ++i) {
    site.nodes.push_back(std::make_unique<NodeSeat>(site, i));
    site.by_id[site.nodes[i]->id()] = i;
    snapshot.nodes.push_back(site.nodes[i]->row());
  }
  site.coordinator->begin(std::move(snapshot));
  for (const auto& node : site.nodes) node->power_on();
}

void Production::on_submit(JobNumber job) {
  impl_->site.coordinator->submit(job);
}

void Production::on_lent(NodeNumber node) {
  NodeSeat& seat = *impl_->site.nodes[node];
  if (!seat.is_on()) seat.power_on();
  seat.warden().release();
}

void Production::on_declared(NodeNumber node, ReclaimKind kind, Moment deadline) {
  NodeSeat& seat = *impl_->site.nodes[node];
  seat.expect_owner(deadline + seconds(2));
  seat.warden().declare(kind, deadline);
}

/// At a deadline the warden has done it by itself.
void Production::on_taken(NodeNumber node, ReclaimKind kind) {
  if (kind == ReclaimKind::kEmergency) impl_->site.nodes[node]->warden().emergency();
}

void Production::on_gone(NodeNumber node) {
  impl_->site.nodes[node]->power_off();
  for (const auto& other : impl_->site.nodes) {
    if (other->is_on()) other->peer_is_silent(node);
  }
}

void Production::on_finished(RunNumber run) {
  ProductionSite& site = impl_->site;
  const auto found = site.runs.find(run);
  if (found != site.runs.end()) site.nodes[found->second]->warden().on_finished(run);
}

double Production::copied_from(NodeNumber node) const {
  return impl_->site.nodes[node]->copied_bytes();
}

Production::Counts Production::counts() const {
  Counts counts = impl_->site.counts;
  counts.metrics = impl_->site.coordinator->metrics();
  return counts;
}

}  // namespace rn::evaluate
