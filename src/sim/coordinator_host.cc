// SPDX-License-Identifier: Apache-2.0
#include "sim/coordinator_host.h"

#include "base/planted.h"
#include "model/codec.h"
#include "model/wire.h"

namespace rn::sim {

namespace {
constexpr auto kCommitTime = std::chrono::microseconds(800);  ///< one fsync
constexpr auto kLogSyncTime = milliseconds(3);
constexpr auto kServedLook = milliseconds(250);
constexpr auto kServedSilence = seconds(2);
constexpr double kServedAtLeast = 125'000;  ///< bytes/s
constexpr double kServedAtMost = 1.25e9;    ///< where nothing is said

std::string point_of(const coordinator::Effect& effect) {
  // Orders come in stories alone, so that no run of faults would pass a point of their own.
  const auto* const told = std::get_if<coordinator::SendToAgent>(&effect);
  // That all of a gang have saved is said too seldom for one.
  if (told != nullptr && (std::holds_alternative<wire::TakeBack>(told->message) ||
                          std::holds_alternative<wire::EditContract>(told->message) ||
                          std::holds_alternative<wire::GangSaved>(told->message)))
    return "coordinator.send.stop_attempt";
  if (const auto* send = std::get_if<coordinator::SendToAgent>(&effect))
    return "coordinator.send." + std::string(wire::name_of(send->message));
  if (std::holds_alternative<coordinator::CloseAgent>(effect)) return "coordinator.close";
  if (std::holds_alternative<coordinator::Reply>(effect)) return "coordinator.reply";
  if (std::holds_alternative<coordinator::AppendLog>(effect)) return "coordinator.append_log";
  return "coordinator.check_outputs";
}

}  // namespace

CoordinatorHost::CoordinatorHost(World& world, coordinator::Config config)
    : world_(world),
      config_(std::move(config)),
      process_(world, kName),
      clock_(world, nanoseconds(0)) {
  keys_.wrapping_key = crypto::random_key(world.rng());
  keys_.ticket_key = crypto::make_signing_key(world.rng());
}

CoordinatorHost::~CoordinatorHost() = default;

bool CoordinatorHost::dies_at(std::string_view point) {
  if (!world_.crashes_at(point, process_.name())) return false;
  crash(milliseconds(200 + static_cast<std::int64_t>(world_.rng().below(20'000))));
  return true;
}

void CoordinatorHost::start() {
  if (process_.is_up()) return;
  process_.begin_life();
  clock_.reboot();
  world_.trace(kName, "starts");
  rng_ = std::make_unique<SeededRng>(world_.rng().next());
  core_ = std::make_unique<coordinator::Core>(config_, keys_, *rng_);
  obey(core_->restore(store_.load(), clock_.now()));
  process_.later(milliseconds(config_.tick_ms), [this] { tick(); });
}

void CoordinatorHost::crash(nanoseconds restart_after) {
  if (!process_.is_up()) return;
  world_.trace(kName, "dies");
  process_.end_life();
  world_.network().drop_host(kName);
  core_.reset();
  pending_.clear();
  is_committing_ = false;
  connections_.clear();
  requests_.clear();
  while (!served_.empty()) forget_served(NodeId(served_.begin()->first));
  is_looking_ = false;
  world_.queue().after(restart_after, [this] { start(); });
}

void CoordinatorHost::restore_backup(nanoseconds restart_after) {
  if (!backup_) return;
  crash(restart_after);
  world_.trace(kName, "finds an older database");
  store_.restore(*backup_);
}

void CoordinatorHost::rewrite_history(const NodeId& node, const NodeHistory& history) {
  crash(seconds(1));
  store_.rewrite_history(node, history);
}

void CoordinatorHost::tick() {
  feed(coordinator::Tick{});
  process_.later(milliseconds(config_.tick_ms), [this] { tick(); });
}

Network::Endpoint CoordinatorHost::accept(
    Network::ConnectionId connection,
    const NodeId& node,
    const Digest& public_key,
    const std::string& host
) {
  if (!process_.is_up()) {
    world_.queue().after(nanoseconds(1), [this, connection] {
      world_.network().close(connection, kName);
    });
    return {};
  }
  connections_[connection] = node;
  process_.run([=, this] {
    feed(coordinator::AgentConnected{connection, node, public_key, host});
  });
  Network::Endpoint endpoint;
  endpoint.on_message = [this, connection](Blob bytes) {
    process_.run([this, connection, bytes = std::move(bytes)] {
      if (!connections_.contains(connection)) return;
      const auto message = wire::decode(bytes);
      if (message)
        feed(coordinator::AgentMessage{connection, *message});
      else
        world_.violate("wire", "the coordinator cannot decode: " + message.error().describe());
    });
  };
  endpoint.on_close = [this, connection, life = process_.life()] {
    if (life != process_.life()) return;
    process_.run([this, connection] {
      if (connections_.erase(connection) > 0)
        feed(coordinator::AgentDisconnected{connection, "closed"});
    });
  };
  return endpoint;
}

void CoordinatorHost::command(
    coordinator::Caller caller,
    coordinator::Command command,
    std::function<void(Result<coordinator::Answer>)> on_answer
) {
  process_.run([this,
                caller = std::move(caller),
                command = std::move(command),
                on_answer = std::move(on_answer)] {
    const coordinator::RequestId id = next_request_++;
    requests_[id] = on_answer;
    feed(coordinator::ApiCommand{id, caller, command});
  });
}

void CoordinatorHost::feed(const coordinator::Event& event) {
  if (core_ == nullptr) return;
  obey(core_->handle(event, clock_.now()));
}

void CoordinatorHost::obey(coordinator::Output output) {
  if (output.writes.empty() && output.effects.empty()) return;
  pending_.push_back(std::move(output));
  if (!is_committing_) begin_commit();
}

void CoordinatorHost::begin_commit() {
  is_committing_ = true;
  // NOTE: outputs that arrive while a commit runs go into the next one: group commit.
  auto batch = std::make_shared<std::vector<coordinator::Output>>(std::move(pending_));
  pending_.clear();
  bool writes = false;
  for (const auto& output : *batch) writes = writes || !output.writes.empty();
  process_.later(writes ? nanoseconds(kCommitTime) : nanoseconds(0), [this, batch] {
    finish_commit(std::move(*batch));
  });
}

bool CoordinatorHost::commit(const std::vector<coordinator::Output>& batch) {
  std::vector<coordinator::Write> writes;
  for (const auto& output : batch)
    writes.insert(writes.end(), output.writes.begin(), output.writes.end());
  if (writes.empty()) return true;
  if (dies_at("coordinator.before_commit")) return false;
  if (is_disk_full_) {
    world_.trace(kName, "cannot commit: its disk is full");
    crash(seconds(5));
    return false;
  }
  if (const Status done = store_.commit(writes); !done) {
    world_.violate("I3", "a conditional write failed: " + done.error().describe());
    return false;
  }
  return !dies_at("coordinator.after_commit");
}

bool CoordinatorHost::carry_out(const std::vector<coordinator::Output>& batch) {
  for (const auto& output : batch) {
    for (const auto& effect : output.effects) {
      // Nothing is lost with a rate: what is served ends with the process.
      const bool is_rate = std::holds_alternative<coordinator::PaceBlobs>(effect);
      if (!is_rate && dies_at(point_of(effect))) return false;
      carry_out_one(effect);
    }
  }
  return true;
}

void CoordinatorHost::finish_commit(std::vector<coordinator::Output> batch) {
  // The planted order lets a reply leave before its row is durable.
  const bool early = planted("coordinator.effects_before_commit");
  if (early && !carry_out(batch)) return;
  if (!commit(batch)) return;
  if (!early && !carry_out(batch)) return;
  is_committing_ = false;
  if (!pending_.empty()) begin_commit();
}

void CoordinatorHost::show(const coordinator::Effect& effect) {
  NodeId node;
  std::uint64_t log_bytes = 0;
  if (const auto* send = std::get_if<coordinator::SendToAgent>(&effect)) {
    if (const auto at = connections_.find(send->connection); at != connections_.end())
      node = at->second;
    if (const auto* ack = std::get_if<wire::LogAck>(&send->message)) {
      const auto log = logs_.find({ack->job, ack->epoch});
      if (log != logs_.end()) log_bytes = log->second.size();
    }
  }
  on_effect(effect, node, log_bytes);
}

void CoordinatorHost::carry_out_one(const coordinator::Effect& effect) {
  if (on_effect) show(effect);
  if (const auto* send = std::get_if<coordinator::SendToAgent>(&effect)) {
    world_.trace(
        kName,
        "-> " + connections_[send->connection].str() + " " +
            std::string(wire::name_of(send->message))
    );
    world_.network().send(send->connection, kName, wire::encode(send->message));
  } else if (const auto* close = std::get_if<coordinator::CloseAgent>(&effect)) {
    world_.trace(kName, "closes " + connections_[close->connection].str() + ": " + close->reason);
    connections_.erase(close->connection);
    world_.network().close(close->connection, kName);
  } else if (const auto* reply = std::get_if<coordinator::Reply>(&effect)) {
    const auto found = requests_.find(reply->request);
    if (found == requests_.end()) return;
    const auto answer = std::move(found->second);
    requests_.erase(found);
    answer(reply->answer);
  } else if (const auto* append = std::get_if<coordinator::AppendLog>(&effect)) {
    append_log(*append);
  } else if (const auto* check = std::get_if<coordinator::CheckOutputs>(&effect)) {
    check_outputs(*check);
  } else if (const auto* pace = std::get_if<coordinator::PaceBlobs>(&effect)) {
    const auto found = served_.find(pace->node);
    if (found == served_.end()) return;
    const double rate = static_cast<double>(pace->rate_bps) / 8;
    world_.lines().pace(
        found->second.sender, pace->rate_bps == 0 ? kServedAtMost : std::max(rate, kServedAtLeast)
    );
  }
}

Result<double> CoordinatorHost::serve(
    const NodeId& node, const std::string& host, const Digest& blob, double bytes
) {
  if (!process_.is_up() || process_.is_paused())
    return fail(ErrorCode::kUnavailable, "the coordinator does not answer");
  Lines& lines = world_.lines();
  const auto [at, is_new] = served_.try_emplace(node);
  Served& served = at->second;
  if (is_new) {
    served = {blob, bytes, 0, world_.now(), lines.begin(kName, host)};
    lines.pace(served.sender, kServedAtLeast);
    if (!std::exchange(is_looking_, true))
      process_.later(nanoseconds(0), [this] { look_at_served(); });
    return bytes;
  }
  const double span_s = std::chrono::duration<double>(world_.now() - served.at).count();
  const double carried = std::min(lines.rate_of(served.sender) * span_s, served.left);
  served.at = world_.now();
  served.left -= carried;
  served.sent += carried;
  if (served.left >= 1) return served.left;
  forget_served(node);
  return 0;
}

void CoordinatorHost::forget_served(const NodeId& node) {
  const auto found = served_.find(node);
  world_.lines().end(found->second.sender);
  served_.erase(found);
}

/// As the shell does it. Who does not look any more is gone.
void CoordinatorHost::look_at_served() {
  coordinator::BlobsSent sent;
  for (auto at = served_.begin(); at != served_.end();) {
    const auto& [node, served] = *at++;
    if (world_.now() - served.at > kServedSilence) {
      forget_served(NodeId(node));
      continue;
    }
    sent.nodes.push_back(
        {node,
         {served.blob},
         static_cast<std::uint64_t>(served.left),
         static_cast<std::uint64_t>(served.sent)}
    );
  }
  is_looking_ = !sent.nodes.empty();
  feed(sent);
  if (is_looking_) process_.later(kServedLook, [this] { look_at_served(); });
}

void CoordinatorHost::append_log(const coordinator::AppendLog& append) {
  process_.later(kLogSyncTime, [this, append] {
    if (dies_at("coordinator.before_log_sync")) return;
    Blob& log = logs_[{append.job, append.epoch}];
    if (append.offset <= log.size() && append.offset + append.bytes.size() > log.size()) {
      const auto skip = static_cast<std::ptrdiff_t>(log.size() - append.offset);
      log.insert(log.end(), append.bytes.begin() + skip, append.bytes.end());
    }
    if (on_log) on_log(append.job, append.epoch, log);
    feed(coordinator::LogStored{append.job, append.epoch, log.size()});
  });
}

void CoordinatorHost::check_outputs(const coordinator::CheckOutputs& check) {
  process_.later(kLogSyncTime, [this, check] {
    Status status;
    const auto found = blobs_.find(check.listing);
    if (found == blobs_.end()) {
      status = fail(ErrorCode::kNotFound, "the listing is not in the blob store");
    } else if (const auto listing = from_cbor<Listing>(found->second); listing) {
      for (const auto& file : listing->files) {
        for (const Digest& blob : file.blobs) {
          if (!blobs_.contains(blob))
            status = fail(ErrorCode::kNotFound, file.path + " is not in the blob store");
        }
      }
    } else {
      status = fail(listing.error());
    }
    feed(coordinator::OutputsChecked{check.job, check.epoch, check.listing, status});
  });
}

}  // namespace rn::sim
