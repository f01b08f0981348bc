// SPDX-License-Identifier: Apache-2.0
#include "evaluate/production_site.h"

#include <algorithm>

#include "base/assert.h"
#include "evaluate/production_node.h"

namespace rn::evaluate {

namespace {

/// Monday, 2 March 2026, 00:00 UTC: hours of the week are the setting's own.
constexpr std::int64_t kBegin_ms = 1'772'409'600'000;
/// Machines ran before.
constexpr Moment kBooted = seconds(1000);

/// Each pause between two ticks is so many times the one before.
constexpr int kRarer = 4;

/// What comes again and again, and leaves nothing behind that waits for a tick.
bool is_routine(const coordinator::Event& event) {
  if (const auto* said = std::get_if<coordinator::AgentMessage>(&event))
    return std::holds_alternative<wire::Heartbeat>(said->message) ||
           std::holds_alternative<wire::Transfers>(said->message);
  return std::holds_alternative<coordinator::Tick>(event) ||
         std::holds_alternative<coordinator::StillThere>(event);
}

JobSpec told_to_save(const SubmittedJob& job, const StateKind& kind) {
  JobSpec spec;
  spec.name = kind.name;
  spec.command = {"python", "train.py"};
  spec.resources.gpus = job.gpus;
  spec.resources.gpu_memory_mib = kind.gpu_memory_mib;
  spec.resources.disk_mib = static_cast<std::uint64_t>(3 * kind.bytes / (1 << 20)) + 2048;
  spec.checkpoint.paths = {"*.pt"};
  spec.checkpoint.signal = SaveSignal::kUsr1;
  spec.checkpoint.is_told = true;
  return spec;
}

}  // namespace

Now ProductionSite::now() const {
  const Moment at = world->now();
  return {Instant(kBooted + at), wall_from_ms(kBegin_ms + at.count() / 1'000'000)};
}

Digest ProductionSite::add_state(SavedState state) {
  states.push_back(state);
  Digest digest{};
  for (std::size_t i = 0, number = states.size(); i < 8; ++i, number >>= 8)
    digest[i] = static_cast<std::uint8_t>(number & 0xff);
  return digest;
}

const SavedState& ProductionSite::state_of(const Digest& manifest) const {
  std::size_t number = 0;
  for (std::size_t i = 8; i > 0; --i) number = number << 8 | manifest[i - 1];
  RN_ASSERT(number > 0 && number <= states.size(), "a manifest names a state that was saved");
  return states[number - 1];
}

// ---- ticks

void Pulse::quicken() {
  pause_ = shortest_;
  if (is_constant_ && entry_) return;
  no_later_than(agenda_.now() + shortest_);
}

void Pulse::rest(Moment longest) {
  pause_ = is_constant_ ? shortest_ : std::min(std::max(pause_ * kRarer, shortest_), longest);
  no_later_than(agenda_.now() + pause_);
}

void Pulse::no_later_than(Moment when) {
  if (!entry_ || when < due_) arrange(when);
}

void Pulse::stop() {
  if (entry_) agenda_.cancel(*entry_);
  entry_.reset();
}

void Pulse::arrange(Moment when) {
  stop();
  due_ = when;
  entry_ = agenda_.at(when, [this] {
    entry_.reset();
    beat_();
  });
}

// ---- the coordinator

CoordinatorSeat::CoordinatorSeat(ProductionSite& site, const coordinator::Config& config)
    : site_(site),
      config_(config),
      rng_(site.rng.next()),
      core_(config_, {crypto::random_key(site.rng), site.ticket_key}, rng_),
      pulse_(site.agenda(), site.cadence.is_ticking, site.cadence.tick, [this] {
        feed(coordinator::Tick{});
        pulse_.rest(site_.cadence.idle_tick);
      }) {}

void CoordinatorSeat::begin(coordinator::Snapshot snapshot) {
  obey(core_.restore(std::move(snapshot), site_.now()));
  pulse_.quicken();
}

void CoordinatorSeat::feed(const coordinator::Event& event) {
  ++site_.counts.coordinator_events;
  const Now now = site_.now();
  obey(core_.handle(event, now));
  if (!is_routine(event)) pulse_.quicken();
  // Deadlines of its own that lie before the next tick.
  const Instant wake = core_.wake_at(now);
  if (wake - now.boot < milliseconds(config_.tick_ms))
    pulse_.no_later_than(site_.world->now() + std::max(wake - now.boot, nanoseconds(1'000'000)));
}

void CoordinatorSeat::submit(JobNumber number) {
  const SubmittedJob& job = site_.world->job(number);
  JobSpec spec = site_.guests != nullptr ? site_.guests->spec(number)
                                         : told_to_save(job, site_.world->kind(number));
  const coordinator::RequestId request = next_request_++;
  requests_[request] = site_.submitted = number;
  feed(coordinator::ApiCommand{
      request,
      {UserId(job.user), LabId(job.lab), coordinator::Role::kUser},
      coordinator::SubmitJob{"job-" + std::to_string(number), std::move(spec)}});
}

coordinator::ConnectionId CoordinatorSeat::connect(NodeNumber node) {
  const coordinator::ConnectionId connection = next_connection_++;
  connections_[connection] = node;
  feed(coordinator::AgentConnected{
      connection, site_.nodes[node]->id(), site_.nodes[node]->certificate(), "simulated"});
  return connection;
}

void CoordinatorSeat::disconnect(coordinator::ConnectionId connection) {
  if (connections_.erase(connection) > 0)
    feed(coordinator::AgentDisconnected{connection, "closed"});
}

void CoordinatorSeat::obey(coordinator::Output output) {
  for (const auto& write : output.writes) {
    const auto* put = std::get_if<coordinator::PutGeneration>(&write);
    if (put == nullptr || put->row.is_collected) continue;
    const GenerationRef& ref = put->row.generation;
    site_.tell(
        {.what = Happening::What::kDurable,
         .job = site_.jobs.at(ref.job),
         .node = site_.by_id.at(put->row.source),
         .generation = ref.generation}
    );
  }
  if (site_.on_event) {
    for (const auto& write : output.writes) {
      if (const auto* event = std::get_if<coordinator::AppendEvent>(&write))
        site_.on_event(event->row);
    }
  }
  for (auto& effect : output.effects) carry_out(effect);
}

void CoordinatorSeat::carry_out(coordinator::Effect& effect) {
  Agenda& agenda = site_.agenda();
  if (auto* send = std::get_if<coordinator::SendToAgent>(&effect)) {
    const auto to = connections_.find(send->connection);
    if (to == connections_.end()) return;
    agenda.after(
        site_.message_takes(),
        [this,
         node = to->second,
         connection = send->connection,
         message = std::move(send->message)]() mutable {
          site_.nodes[node]->hear(connection, std::move(message));
        }
    );
  } else if (const auto* close = std::get_if<coordinator::CloseAgent>(&effect)) {
    const auto to = connections_.find(close->connection);
    if (to == connections_.end()) return;
    agenda.after(site_.message_takes(), [this, node = to->second, connection = close->connection] {
      site_.nodes[node]->hear_close(connection);
    });
    connections_.erase(to);
  } else if (const auto* reply = std::get_if<coordinator::Reply>(&effect)) {
    const auto request = requests_.extract(reply->request);
    RN_ASSERT(reply->answer.has_value(), "a job of the setting is one that can be submitted");
    if (const auto* submitted = std::get_if<coordinator::JobSubmitted>(&*reply->answer))
      site_.jobs[submitted->job.id] = request.mapped();
  } else if (const auto* append = std::get_if<coordinator::AppendLog>(&effect)) {
    agenda.after(
        site_.message_takes(),
        [this,
         stored =
             coordinator::LogStored{
                 append->job, append->epoch, append->offset + append->bytes.size()}] {
          feed(stored);
        }
    );
  } else if (const auto* check = std::get_if<coordinator::CheckOutputs>(&effect)) {
    agenda.after(
        site_.message_takes(),
        [this,
         checked = coordinator::OutputsChecked{check->job, check->epoch, check->listing, {}}] {
          feed(checked);
        }
    );
  }
}

}  // namespace rn::evaluate
