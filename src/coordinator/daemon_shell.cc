// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon_shell.h"

#include <utility>

#include "base/log.h"
#include "coordinator/daemon_listing.h"
#include "model/wire.h"

namespace rn::coordinator {

namespace {

/// Commands are refused while so many outputs wait for the disk.
constexpr std::size_t kMaxPendingForCommands = 2'000;
/// Agents are cut off beyond it; they reconnect and repeat what was not acknowledged.
constexpr std::size_t kMaxPendingForAgents = 50'000;
constexpr milliseconds kBlobsLook{250};

}  // namespace

Shell::Shell(const Deps& deps, const Config& config, const SiteKeys& keys)
    : deps_(deps), core_(config, keys, deps.rng), ticks_at_(Instant::max()) {
  auto committed = [this, alive = is_alive_](std::uint64_t through, const Status& status) {
    deps_.loop.post([this, alive, through, status] {
      if (!*alive) return;
      if (!status) {
        die(status.error().with("committing to the database"));
      } else {
        durable_through(through);
      }
    });
  };
  writer_ = std::make_unique<StoreWriter>(deps_.store, std::move(committed));
}

Shell::~Shell() {
  deps_.loop.cancel(ticker_);
  deps_.loop.cancel(blobs_look_);
  // NOTE: the writer's thread posts only to the loop; what it posts after this sees is_alive_.
  *is_alive_ = false;
  writer_.reset();
}

Now Shell::now() const {
  return deps_.loop.now();
}

Status Shell::restore() {
  RN_TRY(auto snapshot, deps_.store.load());
  take(core_.restore(std::move(snapshot), now()));
  schedule_tick();
  return {};
}

void Shell::schedule_tick() {
  const Now at = now();
  const Instant wanted = core_.wake_at(at);
  if (wanted >= ticks_at_) return;
  deps_.loop.cancel(ticker_);
  ticks_at_ = wanted;
  ticker_ = deps_.loop.run_after(wanted - at.boot, [this] {
    ticks_at_ = Instant::max();
    handle(deps_.utc_offset_s ? Tick{deps_.utc_offset_s()} : Tick{});
  });
}

void Shell::command(
    const Caller& caller, Command command, std::function<void(Result<Answer>)> done
) {
  if (is_dead_ || pending_.size() > kMaxPendingForCommands) {
    done(fail(
        ErrorCode::kUnavailable,
        "the coordinator waits for its disk",
        "repeat the command in a few seconds"
    ));
    return;
  }
  const RequestId request = next_request_++;
  requests_.emplace(request, std::move(done));
  handle(ApiCommand{request, caller, std::move(command)});
}

void Shell::when_durable(std::function<void()> fn) {
  if (pending_.empty() && durable_batch_ == last_batch_) return fn();
  pending_.push_back({last_batch_, {}, std::move(fn)});
}

void Shell::check_writable(std::function<void(Status)> done) {
  writer_->check([this, alive = is_alive_, done = std::move(done)](Status status) {
    deps_.loop.post([alive, done, status = std::move(status)] {
      if (*alive) done(status);
    });
  });
}

// ---- events

void Shell::handle(const Event& event) {
  if (is_dead_) return;
  take(core_.handle(event, now()));
  schedule_tick();
}

void Shell::take(Output output) {
  bool has_events = false;
  for (const Write& write : output.writes) {
    has_events = has_events || std::holds_alternative<AppendEvent>(write);
    if (const auto* put = std::get_if<PutJob>(&write)) {
      changed_jobs_.push_back(put->row.job.id);
    }
    if (on_write_) on_write_(write);
  }
  if (!output.writes.empty()) last_batch_ = writer_->submit(std::move(output.writes));
  auto changed = std::exchange(changed_jobs_, {});
  std::function<void()> tell;
  has_events = has_events && !event_watches_.empty();
  if ((!changed.empty() && !watches_.empty()) || has_events) {
    tell = [this, changed = std::move(changed), has_events] {
      for (const JobId& job : changed) notify(job);
      if (has_events) notify_of_events();
    };
  }
  if (output.effects.empty() && !tell) return;
  if (pending_.empty() && durable_batch_ == last_batch_) {
    carry_out(std::move(output.effects));
    if (tell) tell();
    return;
  }
  pending_.push_back({last_batch_, std::move(output.effects), std::move(tell)});
}

void Shell::durable_through(std::uint64_t batch) {
  durable_batch_ = batch;
  while (!pending_.empty() && pending_.front().batch <= durable_batch_) {
    Pending next = std::move(pending_.front());
    pending_.pop_front();
    carry_out(std::move(next.effects));
    if (next.fn) next.fn();
  }
}

void Shell::die(const Error& error) {
  if (is_dead_) return;
  is_dead_ = true;
  deps_.fatal(error);
}

// ---- effects

void Shell::carry_out(std::vector<Effect> effects) {
  for (Effect& effect : effects) std::visit([this](auto& one) { carry_out(one); }, effect);
}

void Shell::carry_out(SendToAgent& effect) {
  const auto found = connections_.find(effect.connection);
  if (found == connections_.end()) return;
  (void)found->second->send(wire::encode(effect.message));  // a failure closes it: on_close tells
}

void Shell::carry_out(CloseAgent& effect) {
  const auto found = connections_.find(effect.connection);
  if (found == connections_.end()) return;
  const auto socket = found->second;
  // NOTE: close() drops what is queued, and the last message says why: give it a moment to leave.
  deps_.loop.run_after(
      milliseconds(socket->queued_bytes() == 0 ? 0 : 200),
      [socket, reason = effect.reason] { socket->close(reason.substr(0, 120)); }
  );
}

void Shell::carry_out(Reply& effect) {
  const auto found = requests_.find(effect.request);
  if (found == requests_.end()) return;
  const auto done = std::move(found->second);
  requests_.erase(found);
  done(std::move(effect.answer));
}

void Shell::carry_out(AppendLog& effect) {
  auto done = [this, alive = is_alive_, job = effect.job, epoch = effect.epoch](
                  const Result<std::uint64_t>& next_offset
              ) {
    deps_.loop.post([this, alive, job, epoch, next_offset] {
      if (!*alive) return;
      if (next_offset) {
        handle(LogStored{job, epoch, *next_offset});
        notify(job);
        return;
      }
      ++log_errors_;
      log::error(
          "log.append_failed", {{"job", job.str()}, {"why", next_offset.error().describe()}}
      );
      // A full disk may get room again, and the agent repeats; a failed fsync condemns the file.
      if (next_offset.error().code == ErrorCode::kInternal)
        die(next_offset.error().with("appending to the log of " + job.str()));
    });
  };
  const Status queued = deps_.logs.append(
      effect.job,
      effect.epoch,
      effect.offset,
      std::move(effect.bytes),
      std::move(done),
      to_ms(now().wall)
  );
  if (!queued)
    log::warning("log.shed", {{"job", effect.job.str()}, {"why", queued.error().message}});
}

void Shell::carry_out(CheckOutputs& effect) {
  OutputsChecked checked{effect.job, effect.epoch, effect.listing, {}};
  const auto submitted = deps_.workers.submit_for(
      [&blobs = deps_.blobs, listing = effect.listing]() -> Status {
        RN_CHECK(read_listing(blobs, listing));
        return {};
      },
      [this, alive = is_alive_, checked](Status status) mutable {
        if (!*alive) return;
        checked.status = std::move(status);
        handle(checked);
      }
  );
  if (!submitted) {
    // The agent repeats PublishOutputs until it is answered.
    log::warning(
        "outputs.check_shed", {{"job", effect.job.str()}, {"why", submitted.error().message}}
    );
  }
}

// ---- blobs that nodes fetch

void Shell::blob_asked(const NodeId& node, const Digest& blob, const io::SendingSide& side) {
  if (served_blobs_.ask(node, blob, side, now().boot)) look_at_blobs();
}

void Shell::look_at_blobs() {
  deps_.loop.cancel(blobs_look_);
  BlobsSent sent{served_blobs_.look(now().boot)};
  const bool is_last = sent.nodes.empty();
  handle(std::move(sent));
  if (!is_last) blobs_look_ = deps_.loop.run_after(kBlobsLook, [this] { look_at_blobs(); });
}

void Shell::carry_out(PaceBlobs& effect) {
  served_blobs_.pace(effect.node, effect.rate_bps, now().boot);
}

// ---- agents

void Shell::adopt_agent(
    const NodeId& node, const Digest& public_key, std::shared_ptr<io::WebSocket> socket
) {
  const ConnectionId connection = next_connection_++;
  connections_.emplace(connection, socket);
  socket->on_message([this, alive = is_alive_, connection](const Blob& bytes) {
    if (*alive) receive(connection, bytes);
  });
  socket->on_close([this, alive = is_alive_, connection](const Error& error) {
    if (!*alive) return;
    connections_.erase(connection);
    handle(AgentDisconnected{connection, error.message});
  });
  handle(AgentConnected{connection, node, public_key, socket->remote()});
}

void Shell::receive(ConnectionId connection, const Blob& bytes) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  if (pending_.size() > kMaxPendingForAgents) {
    found->second->close("the coordinator is overloaded: reconnect");
    return;
  }
  auto message = wire::decode(bytes);
  if (!message) {
    if (message.error().code == ErrorCode::kUnsupported) {
      log::debug("wire.skipped", {{"why", message.error().message}});
      return;
    }
    log::warning(
        "wire.refused", {{"remote", found->second->remote()}, {"why", message.error().message}}
    );
    found->second->close("malformed message");
    return;
  }
  handle(AgentMessage{connection, *std::move(message)});
}

// ---- watches

JobWatchId Shell::watch_job(const JobId& job, std::function<void()> fn) {
  const JobWatchId id{next_watch_++};
  watches_[job].emplace(id.value, std::move(fn));
  return id;
}

void Shell::unwatch_job(const JobId& job, JobWatchId watch) {
  const auto found = watches_.find(job);
  if (found == watches_.end()) return;
  found->second.erase(watch.value);
  if (found->second.empty()) watches_.erase(found);
}

EventWatchId Shell::watch_events(std::function<void()> fn) {
  const EventWatchId id{next_watch_++};
  event_watches_.emplace(id.value, std::move(fn));
  return id;
}

void Shell::unwatch_events(EventWatchId watch) {
  event_watches_.erase(watch.value);
}

void Shell::notify_of_events() {
  const auto watchers = event_watches_;  // a watcher may unwatch
  for (const auto& [id, fn] : watchers) fn();
}

void Shell::notify(const JobId& job) {
  const auto found = watches_.find(job);
  if (found == watches_.end()) return;
  const auto watchers = found->second;  // a watcher may unwatch
  for (const auto& [id, fn] : watchers) fn();
}

}  // namespace rn::coordinator
