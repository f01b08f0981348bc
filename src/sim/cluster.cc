// SPDX-License-Identifier: Apache-2.0
#include "sim/cluster.h"

#include <algorithm>
#include <optional>

#include "model/codec.h"

namespace rn::sim {

namespace {

constexpr auto kImage = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

coordinator::Config config_of(const ClusterOptions& options) {
  coordinator::Config config;
  config.heartbeat_ms = options.heartbeat_ms;
  config.lease_ms = 3 * options.heartbeat_ms;
  config.min_residence_s = 60;
  config.home_settle_s = 15;
  config.drain_wait_ms = 60'000;
  return config;
}

}  // namespace

Cluster::Cluster(World& world, const ClusterOptions& options)
    : world_(world), options_(options), checkers_(world) {
  coordinator_ = std::make_unique<CoordinatorHost>(world, config_of(options));
  coordinator_->store().on_write = [this](const coordinator::Write& write) {
    checkers_.on_write(write);
  };
  site_.coordinator = coordinator_.get();
  site_.checkers = &checkers_;

  const Blob archive = {'i', 'm', 'a', 'g', 'e'};
  image_blob_ = crypto::sha256(archive);
  coordinator_->blobs()[image_blob_] = archive;
  Image image{"base", kImage, archive.size(), "", 1, UserId("operator"), {image_blob_}};
  const Status seeded = coordinator_->store().commit({coordinator::PutImage{image}});
  if (!seeded) world.violate("setup", seeded.error().describe());

  nodes_.reserve(options.compute_nodes + options.storage_nodes);
  for (std::uint32_t i = 0; i < options.compute_nodes; ++i) {
    // Unequal nodes, so that going home can pay.
    make_node(
        "node" + std::to_string(i),
        LabId("lab" + std::to_string(i % options.labs)),
        true,
        i % 2 == 0 ? 1000 : 500
    );
  }
  for (std::uint32_t i = 0; i < options.storage_nodes; ++i) {
    make_node("store" + std::to_string(i), LabId("storage" + std::to_string(i)), false, 0);
  }
}

Cluster::~Cluster() = default;

void Cluster::make_node(
    const std::string& name, const LabId& lab, bool lends, std::uint32_t cpu_milli
) {
  const NodeId id("n-" + world_.rng().hex(8));
  AgentHost::Identity identity{
      id,
      lab,
      "machine-" + name,
      crypto::make_signing_key(world_.rng()),
      crypto::make_box_key(world_.rng()),
      {}};
  identity.certificate = crypto::sha256(as_bytes("certificate of " + name));
  NodeFacts facts;
  facts.hostname = name;
  facts.failure_domain = name;
  facts.cpu_milli = 8000;
  facts.memory_mib = 32'000;
  facts.disk_mib = 500'000;
  facts.cgroup_version = "v2";
  facts.has_user_namespaces = true;
  Contract contract;
  contract.lends = lends;
  contract.guest_cpu_milli = cpu_milli;
  contract.notice_s = 60;

  coordinator::NodeRow row;
  row.node = id;
  row.lab = lab;
  row.machine_id = identity.machine_id;
  row.public_key = identity.certificate;
  row.joined_wall_ms = 1;
  row.state = NodeState::kLost;
  row.facts = facts;
  row.contract = contract;
  row.box_key = identity.box_key.public_key;
  row.verify_key = identity.verify_key.public_key;
  if (const Status done = coordinator_->store().commit({coordinator::PutNode{row}}); !done) {
    world_.violate("setup", done.error().describe());
  }
  const auto wall_error = milliseconds(static_cast<std::int64_t>(world_.rng().below(2000)) - 1000);
  Node node;
  node.name = name;
  node.machine = std::make_unique<Machine>(world_, name, world_.rng().next(), wall_error);
  node.warden = std::make_unique<WardenHost>(world_, *node.machine);
  node.agent = std::make_unique<AgentHost>(
      world_, site_, *node.machine, *node.warden, identity, facts, contract
  );
  nodes_.push_back(std::move(node));
  watch(nodes_.back());
}

void Cluster::watch(Node& node) {
  Machine* machine = node.machine.get();
  WardenHost* warden = node.warden.get();
  machine->on_start = [this, machine](const Machine::Container& c) {
    checkers_.on_guest_start(*machine, c);
  };
  machine->on_step = [this, machine, warden](const Machine::Container& c) {
    checkers_.on_guest_step(*machine, c, warden->is_node_taken());
  };
  warden->on_clear = [this, index = nodes_.size() - 1](
                         const warden::Clear& clear, nanoseconds left
                     ) { check_evacuation(nodes_[index], clear, left); };
}

void Cluster::start() {
  coordinator_->start();
  for (Node& node : nodes_) {
    node.warden->start();
    node.agent->start();
  }
  world_.queue().after(seconds(60), [this] { each_minute(); });
}

void Cluster::submit(const std::string& key, const Training& training) {
  jobs_[key] = {key, training, {}, 0};
  try_submit(key);
}

void Cluster::try_submit(const std::string& key) {
  SubmittedJob& job = jobs_[key];
  if (!job.id.empty()) return;
  ++job.tries;
  coordinator_->command(
      {UserId("student"), LabId("lab0"), coordinator::Role::kUser},
      coordinator::SubmitJob{key, job.training.spec()},
      [this, key](Result<coordinator::Answer> answer) {
        SubmittedJob& mine = jobs_[key];
        if (!answer) {
          world_.trace("user", "submit of " + key + " refused: " + answer.error().describe());
          return;
        }
        const auto* submitted = std::get_if<coordinator::JobSubmitted>(&*answer);
        if (submitted == nullptr) return;
        mine.id = submitted->job.id;
        checkers_.on_submit_acknowledged(key, mine.id);
        checkers_.check_acknowledged(coordinator_->store().jobs());
      }
  );
  world_.queue().after(seconds(5), [this, key] { try_submit(key); });
}

void Cluster::owner_takes(std::size_t node, ReclaimKind kind, std::uint32_t notice_s) {
  Node& mine = nodes_[node];
  world_.trace(mine.name, "owner takes the node back: " + std::string(to_string(kind)));
  mine.is_owner_using = true;
  if (kind == ReclaimKind::kEmergency) return mine.warden->emergency();
  warden_wire::DeclareReclaim declare;
  declare.kind = kind;
  declare.notice_s = notice_s;
  declare.in_s = notice_s;
  mine.warden->owner_asks(declare);
}

void Cluster::owner_releases(std::size_t node) {
  world_.trace(nodes_[node].name, "owner gives the node back");
  nodes_[node].is_owner_using = false;
  nodes_[node].warden->owner_asks(warden_wire::Release{});
}

void Cluster::lose_power(std::size_t node, nanoseconds back_after) {
  Node& mine = nodes_[node];
  constexpr auto kNever = std::chrono::hours(1'000'000);
  mine.agent->crash(kNever);
  mine.warden->crash(kNever);
  mine.machine->lose_power();
  world_.queue().after(back_after, [this, node] {
    nodes_[node].warden->start();
    nodes_[node].agent->start();
  });
}

void Cluster::kill_agent(std::size_t node, nanoseconds back_after) {
  nodes_[node].agent->crash(back_after);
}

void Cluster::kill_warden(std::size_t node, nanoseconds back_after) {
  nodes_[node].warden->crash(back_after);
}

void Cluster::kill_coordinator(nanoseconds back_after) {
  coordinator_->crash(back_after);
}

void Cluster::cut_link(std::size_t node) {
  world_.trace(nodes_[node].name, "link down");
  world_.network().cut(nodes_[node].name, "*");
  world_.network().cut("*", nodes_[node].name);
}

void Cluster::heal_link(std::size_t node) {
  world_.trace(nodes_[node].name, "link up");
  world_.network().heal(nodes_[node].name, "*");
  world_.network().heal("*", nodes_[node].name);
}

bool Cluster::run_until(TrueTime until) {
  while (!world_.is_violated() && world_.now() < until) {
    if (!world_.queue().step()) break;
  }
  return !world_.is_violated();
}

bool Cluster::run_to_the_end(nanoseconds limit) {
  world_.faults() = FaultPlan{};
  world_.network().set_faults(NetworkFaults{});
  world_.network().heal_all();
  site_.liars.clear();
  coordinator_->process().resume();
  coordinator_->start();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].warden->process().resume();
    nodes_[i].agent->process().resume();
    nodes_[i].warden->start();
    nodes_[i].agent->start();
    if (nodes_[i].is_owner_using) owner_releases(i);
  }
  const TrueTime deadline = world_.now() + limit;
  while (!world_.is_violated() && !are_all_finished() && world_.now() < deadline) {
    // A release that met a dying warden is repeated, as an owner would.
    run_until(std::min(deadline, world_.now() + seconds(30)));
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].warden->is_node_taken()) owner_releases(i);
    }
  }
  if (world_.is_violated()) return false;
  if (!are_all_finished()) {
    for (const auto& [key, job] : jobs_) {
      const auto why = coordinator_->core() == nullptr || job.id.empty()
                           ? Result<std::string>("not acknowledged")
                           : coordinator_->core()->why(job.id, coordinator_->clock().now());
      if (!is_terminal(state_of(key))) world_.trace("user", key + ": " + why.value_or("unknown"));
    }
    world_.violate("I13", "jobs have not ended although nothing fails any more");
    return false;
  }
  check_results();
  return !world_.is_violated();
}

bool Cluster::are_all_finished() const {
  return std::all_of(jobs_.begin(), jobs_.end(), [this](const auto& entry) {
    return is_terminal(state_of(entry.first));
  });
}

const Job* Cluster::job(const std::string& key) const {
  const auto mine = jobs_.find(key);
  if (mine == jobs_.end() || mine->second.id.empty()) return nullptr;
  const auto& rows = coordinator_->store().jobs();
  const auto row = rows.find(mine->second.id);
  return row == rows.end() ? nullptr : &row->second.job;
}

JobState Cluster::state_of(const std::string& key) const {
  const Job* row = job(key);
  return row == nullptr ? JobState::kQueued : row->state;
}

std::string Cluster::node_of(const std::string& key) const {
  const Job* row = job(key);
  if (row == nullptr) return "";
  for (const Node& node : nodes_) {
    if (node.agent->identity().node == row->node) return node.name;
  }
  return "";
}

std::size_t Cluster::find_node(const std::string& name) const {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return node.name == name;
  });
  return static_cast<std::size_t>(found - nodes_.begin());
}

void Cluster::each_minute() {
  const std::uint64_t delivered = world_.network().delivered();
  checkers_.on_minute(delivered - messages_before_, nodes_.size(), jobs_.size());
  messages_before_ = delivered;
  checkers_.check_acknowledged(coordinator_->store().jobs());
  check_retention();
  world_.queue().after(seconds(60), [this] { each_minute(); });
}

void Cluster::check_retention() {
  for (const auto& [id, row] : coordinator_->store().jobs()) {
    if (is_terminal(row.job.state) || row.job.durable.generation == 0) continue;
    const auto generation =
        coordinator_->store().generations().find({id, row.job.durable.generation});
    if (generation == coordinator_->store().generations().end()) continue;
    std::size_t holders = 0;
    bool all_up = true;
    for (const Receipt& receipt : generation->second.receipts) {
      AgentHost* holder = site_.agents.at(receipt.holder);
      all_up = all_up && holder->process().is_up();
      if (!holder->process().is_up()) continue;
      checkpoint::ChunkStore* store = holder->work().store();
      if (store != nullptr && store->verify(id, row.job.durable.manifest)) ++holders;
    }
    if (all_up) checkers_.on_retention(id, row.job.durable.generation, holders);
  }
}

/// Before the deadline a node is cleared only when the newest generation of each guest is
/// elsewhere.
void Cluster::check_evacuation(const Node& node, const warden::Clear& clear, nanoseconds left) {
  if (left <= nanoseconds(0) || !node.agent->process().is_up()) return;
  checkpoint::ChunkStore* mine = node.agent->work().store();
  if (mine == nullptr) return;
  for (const warden::GuestRecord& guest : clear.guests) {
    const auto row = coordinator_->store().jobs().find(guest.guest.job);
    const bool is_current = row != coordinator_->store().jobs().end() &&
                            row->second.job.epoch == guest.guest.epoch &&
                            !is_terminal(row->second.job.state);
    if (!is_current) continue;
    std::optional<GenerationRef> newest;
    for (const GenerationRef& one : mine->list(guest.guest.job)) {
      const bool is_newer = !newest || one.generation > newest->generation;
      if (one.epoch == guest.guest.epoch && is_newer) newest = one;
    }
    if (!newest) continue;
    const bool is_elsewhere = std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& other) {
      if (&other == &node || !other.agent->process().is_up()) return false;
      checkpoint::ChunkStore* store = other.agent->work().store();
      return store != nullptr && store->verify(newest->job, newest->manifest);
    });
    const bool are_all_up = std::all_of(nodes_.begin(), nodes_.end(), [](const Node& other) {
      return other.agent->process().is_up();
    });
    if (are_all_up) checkers_.on_early_clear(node.name, *newest, is_elsewhere, left);
  }
}

void Cluster::check_results() {
  for (const auto& [key, submitted] : jobs_) {
    const Job* row = job(key);
    if (row == nullptr || row->state != JobState::kSucceeded) {
      world_.violate("I1", key + " did not succeed: " + (row == nullptr ? "unknown" : row->reason));
      return;
    }
    const auto listing_blob = coordinator_->blobs().find(row->outputs);
    if (listing_blob == coordinator_->blobs().end())
      return world_.violate("I1", key + " has no outputs");
    const auto listing = from_cbor<Listing>(listing_blob->second);
    if (!listing || listing->files.size() != 1)
      return world_.violate("I6", key + " has other outputs than it wrote");
    checkers_.on_outputs(
        row->id, coordinator_->blobs().at(listing->files[0].blobs.at(0)), submitted.training
    );
  }
}

}  // namespace rn::sim
