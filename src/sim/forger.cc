// SPDX-License-Identifier: Apache-2.0
#include "sim/forger.h"

#include <algorithm>

#include "checkpoint/manifest.h"
#include "model/codec.h"
#include "model/signing.h"
#include "model/wire.h"
#include "sim/peer_port.h"

namespace rn::sim {

namespace {

/// Counts what an honest holder hands to a client that has no right to it.
class Thief final : public checkpoint::PeerEnd {
 public:
  Thief(World& world, std::string from, Ticket ticket, Digest manifest)
      : world_(world), from_(std::move(from)), ticket_(std::move(ticket)), manifest_(manifest) {}

  std::optional<checkpoint::PeerFrame> next() override {
    if (sent_ >= 3) return std::nullopt;
    ++sent_;
    if (sent_ == 1) return checkpoint::encode_hello({1, 1, ticket_});
    if (sent_ == 2)
      return checkpoint::encode_digests(
          checkpoint::PeerFrameType::kWantManifest, std::span(&manifest_, 1)
      );
    return checkpoint::encode_digests(checkpoint::PeerFrameType::kAsk, std::span(&manifest_, 1));
  }

  void on_frame(checkpoint::PeerFrameType type, BlobView) override {
    if (type != checkpoint::PeerFrameType::kRefused)
      world_.violate("I14", from_ + " answers a ticket that the coordinator did not give");
    is_finished_ = true;
  }

  bool is_finished() const override { return is_finished_; }

 private:
  World& world_;
  std::string from_;
  Ticket ticket_;
  Digest manifest_;
  int sent_ = 0;
  bool is_finished_ = false;
};

wire::AttemptEvent event_of(
    const coordinator::AttemptRow& row, AttemptState state, AttemptEnd end, std::uint64_t seq
) {
  wire::AttemptEvent event;
  event.report.job = row.attempt.job;
  event.report.epoch = row.attempt.epoch;
  event.report.state = state;
  event.report.end = end;
  event.seq = seq;
  return event;
}

}  // namespace

const std::vector<std::string>& Forger::kinds() {
  static const std::vector<std::string> kKinds = {
      "generation",
      "stale",
      "event",
      "outputs",
      "log",
      "lease",
      "tickets",
      "transfers",
      "reclaim",
      "beat",
      "hello",
      "store",
      "fetch"};
  return kKinds;
}

std::vector<const coordinator::AttemptRow*> Forger::attempts(
    const std::function<bool(const coordinator::AttemptRow&)>& is_wanted
) {
  std::vector<const coordinator::AttemptRow*> out;
  for (const auto& [key, row] : cluster_.coordinator().store().attempts()) {
    if (is_wanted(row)) out.push_back(&row);
  }
  return out;
}

const coordinator::AttemptRow* Forger::any(
    const std::function<bool(const coordinator::AttemptRow&)>& is_wanted
) {
  const auto found = attempts(is_wanted);
  return found.empty() ? nullptr : found[rng_.below(found.size())];
}

const coordinator::AttemptRow* Forger::foreign_attempt(std::size_t node) {
  const NodeId& self = cluster_.nodes()[node].agent->identity().node;
  return any([&](const coordinator::AttemptRow& row) {
    return row.attempt.node != self && row.attempt.state != AttemptState::kEnded;
  });
}

const coordinator::AttemptRow* Forger::past_attempt(std::size_t node) {
  const NodeId& self = cluster_.nodes()[node].agent->identity().node;
  return any([&](const coordinator::AttemptRow& row) {
    const Job& job = cluster_.coordinator().store().jobs().at(row.attempt.job).job;
    return row.attempt.node == self && row.attempt.epoch < job.epoch && !is_terminal(job.state);
  });
}

bool Forger::forge(std::size_t node, const std::string& kind) {
  if (!cluster_.nodes()[node].agent->process().is_up()) return false;
  if (kind == "generation") return forge_generation(node);
  if (kind == "stale") return forge_from_the_past(node);
  if (kind == "hello") return forge_hello(node);
  if (kind == kOfItself) return forge_of_itself(node);
  if (kind == "store" || kind == "fetch") return forge_transfer(node, kind == "store");
  return forge_about_others(node, kind);
}

GenerationRef Forger::invented_generation(const Job& job, LeaseEpoch epoch) {
  GenerationRef ref = job.durable;
  ref.job = job.id;
  ref.epoch = epoch;
  ref.generation = job.durable.generation + 1;
  rng_.fill(ref.manifest);
  return ref;
}

/// By every node of the site: with their keys if they are all in the plot, else all signed with the
/// only key that this node has.
std::vector<Receipt> Forger::receipts_of_all(
    std::size_t node, const GenerationRef& generation, bool are_friends
) {
  std::vector<Receipt> receipts;
  for (const Node& other : cluster_.nodes()) {
    Receipt receipt{
        generation.job,
        generation.epoch,
        generation.generation,
        generation.manifest,
        other.agent->identity().node,
        other.name,
        1,
        {}};
    const Node& signer = are_friends ? other : cluster_.nodes()[node];
    receipts.push_back(signed_receipt(receipt, signer.agent->identity().verify_key));
  }
  return receipts;
}

/// Three lies about generations: an invented one of another's job; an invented one of an own job;
/// a true one of an own job that nobody else holds, with too few receipts or with used ones.
bool Forger::forge_generation(std::size_t node) {
  AgentHost& agent = *cluster_.nodes()[node].agent;
  const auto& store = cluster_.coordinator().store();
  const std::uint64_t which = rng_.below(3);
  const coordinator::AttemptRow* row =
      which == 0 ? foreign_attempt(node) : any([&](const coordinator::AttemptRow& one) {
        return one.attempt.node == agent.identity().node &&
               one.attempt.epoch == store.jobs().at(one.attempt.job).job.epoch &&
               one.attempt.state != AttemptState::kEnded;
      });
  if (row == nullptr) return false;
  const Job& job = store.jobs().at(row->attempt.job).job;
  wire::CommitGeneration message;
  message.generation = invented_generation(job, row->attempt.epoch);
  message.receipts = receipts_of_all(node, message.generation, which == 0);
  if (which == 2) {
    // What is safe here and nowhere else: a copy of it would have to exist to count.
    std::vector<GenerationRef> own = agent.work().store()->list(job.id);
    std::erase_if(own, [&](const GenerationRef& ref) {
      return ref.epoch != row->attempt.epoch || ref.generation <= job.durable.generation;
    });
    if (!own.empty()) message.generation = own.back();
    message.receipts.clear();
    const auto durable = store.generations().find({job.id, job.durable.generation});
    if (durable != store.generations().end()) message.receipts = durable->second.receipts;
    if (rng_.below(2) == 0) message.receipts.clear();
  }
  return agent.forge(message);
}

/// A fenced attempt goes on talking: true generations with true receipts, ends, outputs, logs.
bool Forger::forge_from_the_past(std::size_t node) {
  AgentHost& agent = *cluster_.nodes()[node].agent;
  const coordinator::AttemptRow* row = past_attempt(node);
  if (row == nullptr) return false;
  const auto& store = cluster_.coordinator().store();
  const Job& job = store.jobs().at(row->attempt.job).job;
  switch (rng_.below(5)) {
    case 0:
    case 1: {
      wire::CommitGeneration message;
      message.generation = invented_generation(job, row->attempt.epoch);
      for (const GenerationRef& ref : agent.work().store()->list(job.id)) {
        if (ref.epoch == row->attempt.epoch) message.generation = ref;
      }
      // Neither its number nor its receipts must be what refuses it.
      message.generation.generation =
          std::max(message.generation.generation, job.durable.generation + 1);
      message.receipts = receipts_of_all(node, message.generation, true);
      return agent.forge(message);
    }
    case 2:
      return agent.forge(
          event_of(*row, AttemptState::kEnded, AttemptEnd::kSucceeded, row->last_seq + 1)
      );
    case 3:
      return agent.forge(
          event_of(*row, AttemptState::kRunning, AttemptEnd::kNone, row->last_seq + 1)
      );
    default: {
      return agent.forge(wire::PublishOutputs{job.id, row->attempt.epoch, empty_listing()});
    }
  }
}

/// In the coordinator's blobs, so that nothing but whose it is speaks against it.
Digest Forger::empty_listing() {
  const Blob encoded = to_cbor(Listing{});
  const Digest listing = crypto::sha256(encoded);
  cluster_.coordinator().blobs()[listing] = encoded;
  return listing;
}

/// Sizes, deadlines and speeds that cannot be, of another's job and of the own ones.
bool Forger::forge_transfers(AgentHost& agent, const coordinator::AttemptRow& row) {
  wire::TransferReport report;
  report.id = rng_.below(3);
  report.job = row.attempt.job;
  report.epoch = row.attempt.epoch;
  report.peer = row.attempt.node;
  report.kind = TransferKind::kEvacuation;
  report.bytes_left = rng_.below(2) == 0 ? ~std::uint64_t{0} : 1;
  report.deadline_ms = rng_.below(2) == 0 ? 1 : ~std::uint32_t{0};
  report.sent_bps = ~std::uint64_t{0};
  wire::Transfers message;
  message.foreign_bps = ~std::uint64_t{0};
  message.transfers.assign(rng_.below(2) == 0 ? 1 : 1000, report);
  // Of its own attempts, too: what it says of these counts, and harms no other.
  for (const coordinator::AttemptRow* own : attempts([&](const coordinator::AttemptRow& one) {
         return one.attempt.node == agent.identity().node &&
                one.attempt.state != AttemptState::kEnded;
       })) {
    report.job = own->attempt.job;
    report.epoch = own->attempt.epoch;
    for (const auto& [peer, host] : cluster_.site().agents) {
      report.peer = peer;
      message.transfers.push_back(report);
    }
  }
  // That everybody restores from here: the other's job and every attempt there is.
  wire::FetchReport fetch;
  fetch.bytes_left = report.bytes_left;
  fetch.is_size_known = rng_.below(2) == 0;
  fetch.sent_bps = ~std::uint64_t{0};
  for (const coordinator::AttemptRow* any : attempts([](const coordinator::AttemptRow& one) {
         return one.attempt.state != AttemptState::kEnded;
       })) {
    fetch.id = rng_.below(3);
    fetch.job = any->attempt.job;
    fetch.epoch = any->attempt.epoch;
    fetch.peer = any->attempt.node;
    message.fetches.push_back(fetch);
  }
  return agent.forge(message);
}

/// More than there is, and less: whatever it draws to it or keeps away, others' rows and jobs stay
/// as they are. Between the lies its agent says how it is.
bool Forger::forge_of_itself(std::size_t node) {
  AgentHost& agent = *cluster_.nodes()[node].agent;
  const auto& store = cluster_.coordinator().store();
  const std::uint64_t most = ~std::uint64_t{0};
  cluster_.site().checkers->set_braggart(agent.identity().node);
  if (rng_.below(2) == 0) {
    const auto& row = store.nodes().at(agent.identity().node);
    wire::NodeUpdate update{row.facts, row.contract, row.address};
    const std::size_t other =
        (node + 1 + rng_.below(cluster_.nodes().size() - 1)) % cluster_.nodes().size();
    update.facts.hostname = cluster_.nodes()[other].name;
    update.facts.cpu_milli = 4'000'000'000;
    update.facts.memory_mib = update.facts.disk_mib = most >> rng_.below(24);
    update.facts.uplink_bps = update.facts.transfers_bps = most - rng_.below(2);
    update.facts.data_sets = {kDataSet};
    update.facts.gpus.assign(kMaxGpus, {0, "", "of none", most, "99.9", false});
    update.contract.guest_cpu_milli = 4'000'000'000;
    update.contract.max_guests = 1'000'000;
    update.contract.notice_s = ~std::uint32_t{0};
    update.contract.uplink_bps_normal = update.contract.uplink_bps_evacuation = rng_.below(2);
    return agent.forge(update);
  }
  wire::Heartbeat beat;
  beat.seq = most;
  beat.lending = LendingState::kOpen;
  beat.closes_in_s = rng_.below(2) == 0 ? 0 : ~std::uint32_t{0};
  beat.wall_ms = rng_.below(2) == 0 ? INT64_MIN : INT64_MAX;
  beat.telemetry.cpu_percent = beat.telemetry.guests = beat.telemetry.logins = ~std::uint32_t{0};
  beat.telemetry.disk_free_mib = most;
  for (const coordinator::AttemptRow* row :
       attempts([](const auto& one) { return one.attempt.state != AttemptState::kEnded; }))
    beat.attempts.push_back(event_of(*row, AttemptState::kRunning, AttemptEnd::kNone, 1).report);
  return agent.forge(beat);
}

bool Forger::forge_about_others(std::size_t node, const std::string& kind) {
  AgentHost& agent = *cluster_.nodes()[node].agent;
  const coordinator::AttemptRow* row = foreign_attempt(node);
  if (row == nullptr) return false;
  const JobId& job = row->attempt.job;
  const LeaseEpoch epoch = row->attempt.epoch;
  if (kind == "event") {
    const bool is_end = rng_.below(2) == 0;
    return agent.forge(event_of(
        *row,
        is_end ? AttemptState::kEnded : AttemptState::kRunning,
        is_end ? AttemptEnd::kSucceeded : AttemptEnd::kNone,
        row->last_seq + 1
    ));
  }
  if (kind == "outputs") {
    return agent.forge(wire::PublishOutputs{job, epoch, empty_listing()});
  }
  if (kind == "log") {
    const BlobView words = as_bytes("all is lost\n");
    const auto log = cluster_.coordinator().logs().find({job, epoch});
    const std::uint64_t offset =
        log == cluster_.coordinator().logs().end() ? 0 : log->second.size();
    return agent.forge(wire::LogAppend{job, epoch, offset, Blob(words.begin(), words.end())});
  }
  if (kind == "lease") {
    wire::CommitReply reply;
    reply.job = job;
    reply.epoch = epoch;
    reply.is_granted = rng_.below(2) == 0;
    reply.reason = "forged";
    return agent.forge(reply);
  }
  if (kind == "tickets") {
    const auto action = rng_.below(2) == 0 ? TicketAction::kFetch : TicketAction::kStore;
    return agent.forge(wire::GrantRequest{job, epoch, action, {}});
  }
  if (kind == "transfers") return forge_transfers(agent, *row);
  if (kind == "reclaim") {
    ReclaimRecord record;
    record.id = ReclaimId("r-forged");
    record.node = row->attempt.node;
    record.phase = ReclaimPhase::kCleared;
    record.kind = ReclaimKind::kEmergency;
    return agent.forge(wire::ReclaimReport{record});
  }
  wire::Heartbeat beat;
  beat.lending = LendingState::kOpen;
  beat.attempts.push_back(event_of(*row, AttemptState::kRunning, AttemptEnd::kNone, 1).report);
  return agent.forge(beat);
}

/// A new connection with this node's certificate that says it is another node, or a copy of this
/// one on another machine. It must not be welcomed.
bool Forger::forge_hello(std::size_t node) {
  Network& network = cluster_.world().network();
  const AgentHost& agent = *cluster_.nodes()[node].agent;
  const AgentHost& other = *cluster_.nodes()[(node + 1) % cluster_.nodes().size()].agent;
  wire::Hello hello;
  const bool is_clone = rng_.below(2) == 0;
  hello.node = is_clone ? agent.identity().node : other.identity().node;
  hello.machine_id = is_clone ? "machine-copy" : other.identity().machine_id;
  hello.boot_id = "forged";
  hello.lab = other.identity().lab;
  Network::Endpoint endpoint;
  endpoint.on_message = [&world = cluster_.world()](const Blob& bytes) {
    const auto message = wire::decode(bytes);
    if (message && std::holds_alternative<wire::Welcome>(*message))
      world.violate("I15", "a forged hello was welcomed");
  };
  const Network::ConnectionId id = network.next_id();
  CoordinatorHost& coordinator = cluster_.coordinator();
  network.connect(
      "forger-" + agent.identity().node.str(),
      CoordinatorHost::kName,
      endpoint,
      [&coordinator, &agent](Network::ConnectionId accepted) {
        return coordinator.accept(
            accepted, agent.identity().node, agent.identity().certificate, "forger"
        );
      },
      [&network, id, hello, from = "forger-" + agent.identity().node.str()] {
        network.send(id, from, wire::encode(hello));
      }
  );
  return true;
}

/// Goes to an honest holder with a ticket of its own making, or with one that is another's.
bool Forger::forge_transfer(std::size_t node, bool is_store) {
  AgentHost& agent = *cluster_.nodes()[node].agent;
  const auto& generations = cluster_.coordinator().store().generations();
  if (generations.empty()) return false;
  auto at = generations.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(rng_.below(generations.size())));
  if (at->second.receipts.empty()) return false;
  const NodeId& holder = at->second.receipts.front().holder;
  if (holder == agent.identity().node || cluster_.site().is_liar(holder)) return false;
  Ticket ticket;
  ticket.job = at->second.generation.job;
  ticket.epoch = {0xffffff, 0xffffff};
  ticket.from = agent.identity().node;
  ticket.to = holder;
  ticket.action = is_store ? TicketAction::kStore : TicketAction::kFetch;
  ticket.expiry_wall_ms = 1LL << 60;
  ticket.max_bytes = 1ULL << 40;
  ticket = signed_ticket(ticket, agent.identity().verify_key);
  AgentHost& there = *cluster_.site().agents.at(holder);
  const auto thief = std::make_shared<Thief>(
      cluster_.world(), there.process().name(), ticket, at->second.generation.manifest
  );
  (void)agent.peers().run(there, thief, [](const Status&) {});
  return true;
}

}  // namespace rn::sim
