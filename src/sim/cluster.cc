// SPDX-License-Identifier: Apache-2.0
#include "sim/cluster.h"

#include <algorithm>
#include <optional>

#include "base/assert.h"
#include "model/codec.h"

namespace rn::sim {

namespace {

constexpr std::uint64_t kUplink_bps = 1'000'000'000;
constexpr auto kBuilding = "building";
constexpr auto kImage = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

void leave_owners_files(Machine& machine) {
  CrashFs& disk = machine.disk();
  const bool is_written =
      make_folders(disk, "/home/owner", 0755) && disk.sync_folder("/") &&
      disk.sync_folder("/home") &&
      write_durably(disk, Cluster::kOwnersFile, as_bytes(Cluster::kOwnersWords), 0600);
  RN_ASSERT(is_written, "a new disk takes files");
}

std::vector<Gpu> gpus_of(const std::string& node, std::uint32_t count) {
  std::vector<Gpu> gpus;
  for (std::uint32_t i = 0; i < count; ++i)
    gpus.push_back({i, node + "-gpu-" + std::to_string(i), "simulated", 16'000, "8.6", false});
  return gpus;
}

/// Some of the nodes share one line out of their building; all others hang at the root.
reclaim::Topology topology_of(const ClusterOptions& options) {
  const double out = static_cast<double>(options.line_bps) / 8;
  const double fast = static_cast<double>(kUplink_bps) / 8;
  reclaim::TopologyDeclaration declared;
  declared.switches = {{"campus", "", {}}, {kBuilding, "campus", {out, fast, 0}}};
  for (std::uint32_t i = 0; i < options.building; ++i)
    declared.nodes.push_back({"node" + std::to_string(i), kBuilding, {fast, fast, 0}});
  if (options.is_coordinator_inside)
    declared.nodes.push_back({"coordinator", kBuilding, {fast, fast, 0}});
  auto topology = reclaim::Topology::make(declared);
  RN_ASSERT(topology.has_value(), "a story's lines are possible ones");
  return *std::move(topology);
}

coordinator::Config config_of(const ClusterOptions& options) {
  coordinator::Config config;
  config.heartbeat_ms = options.heartbeat_ms;
  config.lease_ms = 3 * options.heartbeat_ms;
  config.min_residence_s = 60;
  config.home_settle_s = 15;
  config.drain_wait_ms = 60'000;
  if (options.building > 0) config.topology = topology_of(options);
  return config;
}

}  // namespace

Cluster::Cluster(World& world, const ClusterOptions& options)
    : world_(world),
      options_(options),
      checkers_(world),
      owners_(world),
      replay_(world),
      evacuations_(world),
      floor_(world),
      coordinator_(std::make_unique<CoordinatorHost>(world, config_of(options))),
      gang_checks_(world, coordinator_->store()) {
  coordinator_->store().on_write = [this](const coordinator::Write& write) {
    checkers_.on_write(write);
    replay_.on_write(write);
    evacuations_.on_write(write);
    gang_checks_.on_write(write);
  };
  coordinator_->store().on_committed = [this] {
    replay_.on_committed();
    evacuations_.on_committed();
    gang_checks_.on_committed();
  };
  coordinator_->on_effect =
      [this](const coordinator::Effect& effect, const NodeId& node, std::uint64_t log_bytes) {
        checkers_.on_effect(effect, node, coordinator_->store(), log_bytes);
        gang_checks_.on_effect(effect, coordinator_->process().life());
      };
  coordinator_->on_log = [this](const JobId& job, LeaseEpoch epoch, BlobView log) {
    checkers_.on_log_stored(job, epoch, log);
  };
  site_.coordinator = coordinator_.get();
  site_.checkers = &checkers_;
  site_.gangs = &gang_checks_;
  checkers_.needed_by_gang = [this](const JobId& job) { return gang_checks_.needed(job); };
  site_.output_bytes = options.output_mb * 1e6;
  site_.image_bytes = options.image_mb * 1e6;

  const Blob archive = {'i', 'm', 'a', 'g', 'e'};
  image_blob_ = crypto::sha256(archive);
  coordinator_->blobs()[image_blob_] = archive;
  Image image{"base", kImage, archive.size(), "", 1, UserId("operator"), {image_blob_}};
  const Status seeded = coordinator_->store().commit({coordinator::PutImage{image}});
  if (!seeded) world.violate("setup", seeded.error().describe());

  set_line(options.line_bps);
  world_.lines().set_weight(options.weight);
  for (std::uint32_t i = 0; i < options.building; ++i)
    world_.lines().put("node" + std::to_string(i), kBuilding);
  if (options.is_coordinator_inside) world_.lines().put(CoordinatorHost::kName, kBuilding);
  nodes_.reserve(options.compute_nodes + options.storage_nodes);
  for (std::uint32_t i = 0; i < options.compute_nodes; ++i) {
    // Unequal nodes, so that going home can pay.
    make_node(
        "node" + std::to_string(i),
        LabId("lab" + std::to_string(i % options.labs)),
        true,
        (i % 2 == 0 ? 1000 : 500) * std::max(1U, options.gpus),
        options.gpus
    );
    if (i < options.data_nodes) set_data(i, true);
  }
  for (std::uint32_t i = 0; i < options.storage_nodes; ++i) {
    make_node("store" + std::to_string(i), LabId("storage" + std::to_string(i)), false, 0, 0);
  }
}

Cluster::~Cluster() = default;

void Cluster::set_line(std::uint64_t bps) {
  world_.lines().set_rate(kBuilding, static_cast<double>(bps) / 8);
}

void Cluster::make_node(
    const std::string& name,
    const LabId& lab,
    bool lends,
    std::uint32_t cpu_milli,
    std::uint32_t gpus
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
  facts.uplink_bps = kUplink_bps;
  facts.gpus = gpus_of(name, gpus);
  facts.features = {kGangsFeature, kKeepsSetsFeature};
  Contract contract;
  contract.lends = lends;
  contract.guest_cpu_milli = cpu_milli;
  contract.notice_s = 60;
  contract.max_guests = options_.guests;
  contract.gangs = true;

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
  std::vector<coordinator::Write> joins{coordinator::PutNode{row}};
  coordinator::States nothing_told;
  coordinator::record_states(joins, nothing_told, row.joined_wall_ms);
  if (const Status done = coordinator_->store().commit(joins); !done) {
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
  checkers_.add_node(
      id,
      {name,
       lab,
       name,
       identity.verify_key.public_key,
       node.agent.get(),
       false,
       false,
       lends,
       cpu_milli,
       gpus}
  );
  leave_owners_files(*node.machine);
  nodes_.push_back(std::move(node));
  watch(nodes_.back());
}

void Cluster::watch(Node& node) {
  Machine* machine = node.machine.get();
  WardenHost* warden = node.warden.get();
  machine->join(floor_);
  using Container = Machine::Container;
  machine->on_create = [this, machine](const Container& c) {
    owners_.on_create(*machine, c);
    checkers_.on_guest_create(*machine, c);
    gang_checks_.on_create(*machine, c);
  };
  machine->on_start = [this, machine](const Container& c) {
    checkers_.on_guest_start(*machine, c);
    gang_checks_.on_start(c);
  };
  machine->on_step = [this, machine, warden, index = nodes_.size() - 1](const Container& c) {
    checkers_.on_guest_step(*machine, c);
    if (c.training.is_member()) gang_checks_.on_step(*machine, c, all_alive_for(nodes_[index]));
    owners_.on_step(
        *machine, c, warden->process().alive_for(), nodes_[index].agent->process().alive_for()
    );
  };
  machine->on_end = [this, machine, index = nodes_.size() - 1](const Container& c) {
    checkers_.on_guest_end(c);
    const Node& mine = nodes_[index];
    const bool is_taken =
        mine.is_owner_using || !mine.gpus_in_use.empty() || owners_.is_taken(mine.name);
    if (c.training.is_member()) gang_checks_.on_end(*machine, c, all_alive_for(mine), is_taken);
  };
  machine->on_log = [this](const Container& c, const std::string& line, bool is_whole) {
    checkers_.on_guest_log(c, line, is_whole);
  };
  warden->on_journal = [this, machine](const warden::Journal& journal) {
    owners_.on_journal(*machine, journal);
  };
  node.agent->on_kill = [this, index = nodes_.size() - 1] {
    owners_.on_carried_out(nodes_[index].name);
    nodes_[index].is_owner_using = true;
    owners_.on_emergency({nodes_[index].name, {}});
  };
  warden->on_clear = [this,
                      index = nodes_.size() - 1](const warden::Clear& clear, nanoseconds left) {
    owners_.on_clear(*nodes_[index].machine, clear);
    check_evacuation(nodes_[index], clear, left);
  };
}

void Cluster::start() {
  coordinator_->start();
  for (Node& node : nodes_) {
    node.warden->start();
    node.agent->start();
  }
  world_.queue().after(seconds(60), [this] { each_minute(); });
}

void Cluster::owner_takes(
    std::size_t node, ReclaimKind kind, std::uint32_t notice_s, std::optional<std::uint32_t> gpu
) {
  Node& mine = nodes_[node];
  const std::string what = gpu ? "GPU " + std::to_string(*gpu) : "the node";
  world_.trace(mine.name, "owner takes " + what + " back: " + std::string(to_string(kind)));
  if (gpu)
    mine.gpus_in_use.insert(*gpu);
  else
    mine.is_owner_using = true;
  owners_.on_wanted({mine.name, gpu});
  if (kind == ReclaimKind::kEmergency) {
    mine.warden->emergency(gpu);
    return owners_.on_emergency({mine.name, gpu});
  }
  warden_wire::DeclareReclaim declare;
  declare.kind = kind;
  declare.notice_s = notice_s;
  declare.in_s = notice_s;
  if (gpu) declare.gpus = {*gpu};
  mine.warden->owner_asks(declare, [this, &mine, gpu](const warden_wire::Answer& answer) {
    const bool is_using = gpu ? mine.gpus_in_use.contains(*gpu) : mine.is_owner_using;
    if (!answer.code.empty() || !is_using) return;
    const std::int64_t now_ns = to_ns(mine.machine->clock().now().boot);
    owners_.on_accepted({mine.name, gpu}, nanoseconds(answer.reclaim.deadline_ns - now_ns));
  });
}

void Cluster::owner_releases(std::size_t node, std::optional<std::uint32_t> gpu) {
  Node& mine = nodes_[node];
  const std::string what = gpu ? "GPU " + std::to_string(*gpu) : "the node";
  world_.trace(mine.name, "owner gives " + what + " back");
  warden_wire::Release release;
  if (gpu) {
    mine.gpus_in_use.erase(*gpu);
    release.gpus = {*gpu};
  } else {
    mine.is_owner_using = false;
    mine.gpus_in_use.clear();
  }
  if (mine.warden->process().is_up()) owners_.on_release({mine.name, gpu});
  mine.warden->owner_asks(release);
}

void Cluster::owner_computes(std::size_t node, std::uint32_t gpu, bool is_computing) {
  Node& mine = nodes_[node];
  world_.trace(
      mine.name,
      std::string("owner ") + (is_computing ? "computes" : "computes no more") + " on GPU " +
          std::to_string(gpu)
  );
  if (is_computing) owners_.on_wanted({mine.name, gpu});
  mine.agent->owner_computes(gpu, is_computing);
}

void Cluster::owner_orders(std::size_t node, ReclaimKind kind) {
  Node& mine = nodes_[node];
  const std::string name = "order-" + std::to_string(10'000 + ++orders_);
  world_.trace(mine.name, "owner orders it back: " + std::string(to_string(kind)));
  owners_.on_ordered(mine.name);
  const AgentHost::Identity& identity = mine.agent->identity();
  coordinator_->command(
      {UserId("owner"), identity.lab, coordinator::Role::kOwner},
      coordinator::OrderReclaim{identity.node, name, kind, {}, 0},
      [this, host = mine.name](const Result<coordinator::Answer>& answer) {
        world_.trace(
            host, answer ? "the order is accepted" : "no order: " + answer.error().describe()
        );
      }
  );
}

void Cluster::set_quota(std::uint32_t running) {
  coordinator::SetQuota command{.subject = "user:*"};
  command.request.running = running;
  coordinator_->command(
      {UserId("operator"), LabId("it"), coordinator::Role::kAdmin},
      std::move(command),
      [this](const Result<coordinator::Answer>& answer) {
        world_.trace(
            "operator", answer ? "the quota is set" : "no quota: " + answer.error().describe()
        );
      }
  );
}

std::string Cluster::order_of(std::size_t node) const {
  if (coordinator_->core() == nullptr) return "";
  const auto orders = coordinator_->core()->orders(nodes_[node].agent->identity().node);
  return orders.empty() ? "" : std::string(to_string(orders.front().state));
}

void Cluster::owner_edits(std::size_t node, bool lends) {
  Node& mine = nodes_[node];
  const AgentHost::Identity& identity = mine.agent->identity();
  if (coordinator_->core() == nullptr) return;
  const auto seen = coordinator_->core()->contract_of(identity.node);
  if (!seen) return;
  world_.trace(mine.name, lends ? "owner edits: it lends" : "owner edits: it lends nothing");
  if (!lends) owners_.on_wanted({mine.name, {}});
  coordinator::ProposeContract command;
  command.node = identity.node;
  command.edit = "edit-" + std::to_string(10'000 + ++orders_);
  command.from = seen->version;
  command.replaces = seen->proposal.id;
  command.contract = seen->contract;
  command.contract.lends = lends;
  coordinator_->command(
      {UserId("owner"), identity.lab, coordinator::Role::kOwner},
      std::move(command),
      [this, host = mine.name](const Result<coordinator::Answer>& answer) {
        world_.trace(host, answer ? "the edit is sent" : "no edit: " + answer.error().describe());
      }
  );
}

void Cluster::owner_settles(std::size_t node, bool is_accepted) {
  nodes_[node].agent->owner_settles(is_accepted);
}

std::string Cluster::edit_of(std::size_t node) const {
  if (coordinator_->core() == nullptr) return "";
  const auto edits = coordinator_->core()->edits(nodes_[node].agent->identity().node);
  return edits.empty() ? "" : std::string(to_string(edits.front().state));
}

void Cluster::fill_disk(std::size_t node, nanoseconds for_so_long) {
  checkers_.on_power_loss(*nodes_[node].machine);  // logs are given up in the end
  nodes_[node].machine->fill_disk(true);
  world_.queue().after(for_so_long, [this, node] { free_disk(nodes_[node]); });
}

void Cluster::free_disk(Node& node) {
  if (!node.machine->is_disk_full()) return;
  node.machine->fill_disk(false);
  // Its owner reads the warden's message and does what it says.
  if (node.warden->process().is_up()) node.warden->crash(seconds(1));
}

void Cluster::set_data(std::size_t node, bool is_there) {
  if (node < options_.data_nodes) nodes_[node].machine->set_data(kDataSet, is_there);
}

void Cluster::ask_as_a_rogue(std::size_t node) {
  Node& mine = nodes_[node];
  const std::uint64_t session = mine.warden->open_session([](const warden_wire::Reply&) {}, [] {});
  if (session == 0) return;
  world_.trace(mine.name, "a rogue asks the warden for a guest");
  const warden_wire::GuestName guest{JobId("j-rogue"), {1, 1}};
  warden_wire::StartGuest start;
  start.guest = guest;
  start.image_digest = kImage;
  start.command = {"mine"};
  start.env = Training{}.spec().env;
  const std::vector<warden_wire::Request> requests = {
      warden_wire::PrepareDisk{guest, 100},
      warden_wire::LoadImage{kImage, "/images/base", {}},
      warden_wire::AdoptDisk{guest},
      start};
  for (std::size_t i = 0; i < requests.size(); ++i) {
    world_.queue().after(
        seconds(static_cast<std::int64_t>(i)),
        [this, node, session, numbered = warden_wire::NumberedRequest{i + 1, requests[i]}] {
          // The order counts: it begins only on a machine that is taken, and goes on only there.
          if (owners_.is_taken(nodes_[node].name)) nodes_[node].warden->ask(session, numbered);
        }
    );
  }
}

void Cluster::set_liar(std::size_t node, bool is_liar) {
  const NodeId& id = nodes_[node].agent->identity().node;
  checkers_.set_liar(id, is_liar);
  if (is_liar)
    site_.liars.insert(id);
  else
    site_.liars.erase(id);
}

void Cluster::set_garbler(std::size_t node, bool is_garbler) {
  const NodeId& id = nodes_[node].agent->identity().node;
  if (is_garbler)
    site_.garblers.insert(id);
  else
    site_.garblers.erase(id);
}

void Cluster::set_hollow(std::size_t node) {
  const NodeId& id = nodes_[node].agent->identity().node;
  world_.trace(nodes_[node].name, "keeps nothing of what it signs for");
  checkers_.set_hollow(id);
  site_.hollow.insert(id);
}

bool Cluster::is_kept_beside(const Node& node, const JobId& job) {
  const auto& row = coordinator_->store().jobs().at(job).job;
  for (const GenerationRef& one : {row.durable, row.previous}) {
    if (one.generation == 0 || !node.agent->has_whole(job, one.manifest)) continue;
    const bool is_beside = std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& other) {
      const NodeId& id = other.agent->identity().node;
      return &other != &node && !site_.is_liar(id) && !site_.is_hollow(id) &&
             other.agent->has_whole(job, one.manifest);
    });
    if (!is_beside) return false;
  }
  return true;
}

bool Cluster::rot(std::size_t node, Rng& rng) {
  Node& mine = nodes_[node];
  std::vector<GenerationRef> here;
  for (const auto& [id, row] : coordinator_->store().jobs()) {
    if (is_terminal(row.job.state) || !is_kept_beside(mine, id)) continue;
    for (const GenerationRef& one : {row.job.durable, row.job.previous}) {
      if (one.generation > 0 && mine.agent->has_whole(id, one.manifest)) here.push_back(one);
    }
  }
  if (here.empty()) return false;
  const GenerationRef& one = here[rng.below(here.size())];
  if (!mine.agent->rot(one.job, one.manifest, rng)) return false;
  checkers_.on_rot(mine.agent->identity().node, one.job);
  return true;
}

void Cluster::lose_power(std::size_t node, nanoseconds back_after) {
  Node& mine = nodes_[node];
  constexpr auto kNever = std::chrono::hours(1'000'000);
  mine.agent->crash(kNever);
  mine.warden->crash(kNever);
  checkers_.on_power_loss(*mine.machine);
  mine.machine->lose_power();
  world_.queue().after(back_after, [this, node] {
    if (nodes_[node].is_gone) return;
    nodes_[node].machine->switch_on();
    nodes_[node].warden->start();
    nodes_[node].agent->start();
  });
}

void Cluster::leave(std::size_t node) {
  Node& mine = nodes_[node];
  mine.has_left = true;
  owners_.on_leave(mine.name);
  if (mine.agent->process().is_up()) return mine.agent->owner_leaves();
  world_.queue().after(seconds(5), [this, node] { leave(node); });
}

void Cluster::jump_clock(std::size_t node, nanoseconds by) {
  if (node < nodes_.size()) {
    nodes_[node].machine->clock().jump_wall(by);
    return owners_.on_clock_jump(nodes_[node].name);
  }
  checkers_.on_clock_jump();
  evacuations_.on_clock_jump();
  coordinator_->clock().jump_wall(by);
}

void Cluster::kill_agent(std::size_t node, nanoseconds back_after) {
  nodes_[node].agent->crash(back_after);
}

void Cluster::kill_warden(std::size_t node, nanoseconds back_after) {
  nodes_[node].warden->crash(back_after);
}

void Cluster::forget_warden(std::size_t node, nanoseconds back_after) {
  nodes_[node].warden->crash(back_after);
  nodes_[node].warden->lose_journal();
}

void Cluster::kill_coordinator(nanoseconds back_after) {
  coordinator_->crash(back_after);
}

void Cluster::back_up_coordinator() {
  coordinator_->back_up();
}

void Cluster::restore_coordinator(nanoseconds back_after) {
  coordinator_->restore_backup(back_after);
  checkers_.on_restore(coordinator_->store());
  replay_.on_restore(coordinator_->store());
  evacuations_.on_restore();
  gang_checks_.on_restore();
}

void Cluster::rewrite_history(std::size_t node, std::uint32_t departures, nanoseconds lent) {
  NodeHistory history;
  history.emergency = departures;
  history.exposure_s = static_cast<std::uint64_t>(lent / seconds(1));
  coordinator_->rewrite_history(nodes_[node].agent->identity().node, history);
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

void Cluster::lose_for_good(std::size_t node) {
  nodes_[node].is_gone = true;
  nodes_[node].agent->stop_for_good();
  lose_power(node, std::chrono::hours(1'000'000));
}

bool Cluster::run_to_the_end(nanoseconds limit) {
  world_.faults() = FaultPlan{};
  world_.network().set_faults(NetworkFaults{});
  world_.network().heal_all();
  coordinator_->fill_disk(false);
  coordinator_->process().resume();
  coordinator_->start();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    set_liar(i, false);
    set_garbler(i, false);
    if (nodes_[i].is_gone) continue;
    nodes_[i].machine->switch_on();
    nodes_[i].warden->slow_engine(nanoseconds(0));
    free_disk(nodes_[i]);
    set_data(i, true);
    nodes_[i].warden->process().resume();
    nodes_[i].agent->process().resume();
    nodes_[i].warden->start();
    nodes_[i].agent->start();
    if (nodes_[i].is_owner_using || !nodes_[i].gpus_in_use.empty()) owner_releases(i);
    nodes_[i].agent->owner_rests();
    open_windows(i);
  }
  checkers_.on_calm(coordinator_->process().life());
  const TrueTime deadline = world_.now() + limit;
  std::map<std::string, TrueTime> idle_since;
  while (!world_.is_violated() && !are_all_finished() && world_.now() < deadline) {
    // A release that met a dying warden is repeated, as an owner would.
    run_until(std::min(deadline, world_.now() + seconds(30)));
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].is_gone && is_taken(nodes_[i])) owner_releases(i);
    }
    check_idle(idle_since);
  }
  if (world_.is_violated()) return false;
  if (!are_all_finished()) {
    trace_unfinished();
    world_.violate("I13", "jobs have not ended although nothing fails any more");
    return false;
  }
  check_results();
  if (!world_.is_violated()) check_residue();
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

bool Cluster::is_held(const std::string& key) const {
  const auto mine = jobs_.find(key);
  if (mine == jobs_.end()) return false;
  const auto row = coordinator_->store().jobs().find(mine->second.id);
  return row != coordinator_->store().jobs().end() && row->second.is_held &&
         !is_terminal(row->second.job.state);
}

JobState Cluster::state_of(const std::string& key) const {
  const auto mine = jobs_.find(key);
  if (mine != jobs_.end() && mine->second.is_refused && mine->second.id.empty())
    return JobState::kCancelled;
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

std::string Cluster::destination_of(const std::string& key) const {
  const Job* row = job(key);
  if (row == nullptr || coordinator_->core() == nullptr) return "";
  const auto evacuation = coordinator_->core()->evacuation(row->id);
  if (!evacuation) return "";
  for (const Node& node : nodes_) {
    if (node.agent->identity().node.str() == evacuation->destination) return node.name;
  }
  return "";
}

nanoseconds Cluster::all_alive_for(const Node& node) {
  return std::min(
      {node.agent->process().alive_for(),
       node.warden->process().alive_for(),
       coordinator_->process().alive_for()}
  );
}

const coordinator::GangRow* Cluster::gang(const std::string& key) const {
  const auto mine = gangs_.find(key);
  if (mine == gangs_.end() || mine->second.id.empty()) return nullptr;
  const auto& rows = coordinator_->store().gangs();
  const auto row = rows.find(mine->second.id);
  return row == rows.end() ? nullptr : &row->second;
}

std::size_t Cluster::find_node(std::string_view name) const {
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
  checkers_.check_holders(coordinator_->store().jobs());
  check_gathering();
  for (const Node& node : nodes_)
    owners_.check_taken(*node.machine, node.warden->process().alive_for());
  world_.queue().after(seconds(60), [this] { each_minute(); });
}

}  // namespace rn::sim
