// SPDX-License-Identifier: Apache-2.0
#include "agent/core.h"

#include <algorithm>
#include <utility>

#include "agent/core_state.h"
#include "agent/owner_words.h"
#include "arbiter/clocks.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/planted.h"

namespace rn::agent {

const char* engine_help(bool is_refused) {
  return is_refused ? "upgrade it, or start reclaim-warden without --engine-floor-strict if your "
                      "distribution repairs old versions; running guests go on meanwhile"
                    : "see why in the log of reclaim-warden (events engine.*), then `systemctl "
                      "restart reclaim-warden`; running guests go on meanwhile";
}

std::string engine_trouble(const NodeView& view) {
  if (!view.engine_refusal.empty())
    return "is refused (--engine-floor-strict): " + view.engine_refusal;
  const std::string span = std::to_string(view.engine_gone_s) + " s";
  if (!view.engine.empty()) return "has not answered for " + span;
  return view.engine_gone_s == 0 ? "has not answered yet"
                                 : "has not answered yet, " + span + " after the start";
}

const char* const kRoomHelp =
    "free space on the disk of the agent's state folder; 8 MiB are enough to go on";

namespace {

constexpr seconds kHelloPatience{5};     // how long a hello waits for the warden's state
constexpr seconds kWelcomePatience{15};  // how long a welcome may take
constexpr seconds kOrderPatience{10};    // with the warden, before the owner is told that it hangs

std::string key_of(const char* kind, const GuestName& name) {
  return std::string(kind) + "/" + name.job.str() + "/" + to_string(name.epoch);
}

/// "attempt/JOB/EPOCH" → name; nullopt if it is none.
std::optional<GuestName> name_in(const std::string& rest) {
  const std::size_t slash = rest.rfind('/');
  if (slash == std::string::npos || slash == 0) return std::nullopt;
  GuestName name{JobId(rest.substr(0, slash)), parse_epoch(rest.substr(slash + 1))};
  if (name.epoch.is_none()) return std::nullopt;
  return name;
}

/// A copy that is told its rate goes so at once, and so does its claim: no row stands behind that.
/// Such copies are measured already, so their start has left before.
bool is_only_rates(const Event& event, const Output& out) {
  const auto* const message = std::get_if<CoordinatorMessage>(&event);
  return message != nullptr && std::holds_alternative<wire::TransferRates>(message->message) &&
         out.writes.empty() &&
         std::all_of(out.effects.begin(), out.effects.end(), [](const Effect& effect) {
           const auto* const ask = std::get_if<AskWarden>(&effect);
           return std::holds_alternative<SetRate>(effect) ||
                  (ask != nullptr &&
                   std::holds_alternative<warden_wire::SetTransfers>(ask->request.request));
         });
}

/// No row stands behind it, and on a disk that hangs it would wait until it is too late.
bool is_from_afar(const Event& event) {
  const auto* const message = std::get_if<CoordinatorMessage>(&event);
  return message != nullptr && std::holds_alternative<wire::TakeBack>(message->message);
}

std::vector<std::string> troubles_with_age(
    const std::vector<warden_wire::Trouble>& troubles, Now now
) {
  std::vector<std::string> words;
  for (const warden_wire::Trouble& trouble : troubles) {
    const auto age =
        std::chrono::floor<std::chrono::minutes>(milliseconds(to_ms(now.wall) - trouble.wall_ms));
    words.push_back(std::to_string(age.count()) + " min ago: " + trouble.what);
  }
  return words;
}

}  // namespace

AttemptState state_of(Phase phase) {
  switch (phase) {
    case Phase::kLeased:
      return AttemptState::kLeased;
    case Phase::kFetching:
    case Phase::kLoading:
      return AttemptState::kFetching;
    case Phase::kMounting:
    case Phase::kRestoring:
    case Phase::kAdopting:
      return AttemptState::kPreparing;
    case Phase::kReady:
      return AttemptState::kReady;
    case Phase::kStarting:
      return AttemptState::kStarting;
    case Phase::kRunning:
      return AttemptState::kRunning;
    case Phase::kNoticed:
      return AttemptState::kNoticed;
    case Phase::kStopping:
    case Phase::kSaving:
      return AttemptState::kSaving;
    case Phase::kDraining:
    case Phase::kPublishing:
    case Phase::kClosing:
      return AttemptState::kDraining;
    case Phase::kEnded:
      return AttemptState::kEnded;
  }
  return AttemptState::kEnded;
}

bool has_guest(Phase phase) {
  return phase == Phase::kStarting || phase == Phase::kRunning || phase == Phase::kNoticed ||
         phase == Phase::kStopping;
}

Core::Core(CoreConfig config, Rng& rng) : state_(std::make_unique<State>(std::move(config), rng)) {}

Core::~Core() = default;

Status Core::restore(const std::vector<JournalRow>& rows) {
  return state_->restore(rows);
}

Output Core::handle(const Event& event, Now now) {
  return state_->handle(event, now);
}

bool Core::rests(Now now) const {
  return state_->rests(now);
}

NodeView Core::view(Now now) const {
  return state_->view(now);
}

std::vector<LinkedGuest> Core::linked_guests() const {
  return state_->linked_guests();
}

std::uint64_t Core::granted_bps() const {
  return state_->granted_bps();
}

std::vector<wire::AttemptReport> Core::reports(Now now) const {
  return state_->reports(now);
}

Core::State::State(CoreConfig config, Rng& rng)
    : config_(std::move(config)), rng_(rng), arbiter_(config_.lab, rng) {}

/// The boot clock began anew: old stamps mean nothing, and no process is left.
void Core::State::forget_old_boot(Attempt& a) const {
  if (a.row.boot_id == config_.boot_id) return;
  a.row.boot_id = config_.boot_id;
  a.row.leased_ns = a.row.stop.deadline_ns = a.row.stop.kill_ns = a.row.drain_since_ns = 0;
  a.row.started_ns = a.row.started_ns == 0 ? 0 : 1;  // it did run, at an unknown time
  for (GenerationRow& g : a.row.generations) g.ref.snapshot_boot_ns = 0;
  a.is_dirty = true;
}

Status Core::State::restore(const std::vector<JournalRow>& rows) {
  RN_ASSERT(!is_started_, "restore comes before the first event");
  std::map<GuestName, wire::Commit> commits;
  std::map<GuestName, AttemptRow> attempts;
  std::map<JobId, LeaseEpoch> epochs;
  for (const JournalRow& row : rows) {
    const std::size_t slash = row.key.find('/');
    const std::string kind = row.key.substr(0, slash);
    const std::string rest = slash == std::string::npos ? "" : row.key.substr(slash + 1);
    const auto context = [&](Error error) { return fail(error.with("journal row " + row.key)); };
    const auto name = name_in(rest);
    if ((kind == "commit" || kind == "attempt") && !name)
      return fail(ErrorCode::kCorrupt, "journal row " + row.key + ": names no attempt");
    if (kind == "commit") {
      auto commit = decode_commit_row(row.value);
      if (!commit) return context(commit.error());
      commits[*name] = *std::move(commit);
    } else if (kind == "attempt") {
      auto attempt = decode_attempt_row(row.value);
      if (!attempt) return context(attempt.error());
      attempts[*name] = *std::move(attempt);
    } else if (kind == "epoch") {
      const auto epoch = decode_epoch_row(row.value);
      if (!epoch) return context(epoch.error());
      epochs[JobId(rest)] = epoch->epoch;
    } else if (kind == "reclaim") {
      auto reclaim = decode_reclaim_row(row.value);
      if (!reclaim) return context(reclaim.error());
      reclaims_[ReclaimId(rest)] = *std::move(reclaim);
    } else if (kind == "node") {
      auto node = decode_node_row(row.value);
      if (!node) return context(node.error());
      node_ = *std::move(node);
    } else if (kind == "proposal") {
      auto proposal = decode_proposal_row(row.value);
      if (!proposal) return context(proposal.error());
      proposal_ = *std::move(proposal);
    }
  }
  for (const auto& [job, epoch] : epochs) arbiter_.note_epoch(job, epoch);
  for (auto& [name, row] : attempts) {
    const auto commit = commits.find(name);
    if (commit == commits.end())
      return fail(
          ErrorCode::kCorrupt, "journal row " + key_of("attempt", name) + ": its commit is missing"
      );
    Attempt a;
    a.name = name;
    a.commit = commit->second;
    a.row = std::move(row);
    forget_old_boot(a);
    note_broken_before(a);
    if (planted("agent.takes_half_a_restore") && a.row.phase == Phase::kRestoring)
      a.row.phase = Phase::kAdopting;
    a.is_seen_running = true;
    // Whether the warden heard of the newest one is not known.
    a.is_notice_due = a.row.phase == Phase::kRunning || a.row.phase == Phase::kNoticed;
    const bool has_gpus = !a.row.grant.gpus.empty();
    if (a.row.phase != Phase::kEnded || (has_gpus && !a.row.is_released))
      arbiter_.restore_lease(name.job, arbiter::Lease{name.epoch, a.row.grant, Instant{}});
    attempts_.emplace(name, std::move(a));
  }
  return {};
}

Output Core::State::handle(const Event& event, Now now) {
  now_ = now;
  out_ = {};
  if (wait_ && !std::holds_alternative<JournalGoesOn>(event)) {
    hear_in_wait(event);
  } else {
    std::visit([this](const auto& e) { on(e); }, event);
  }
  if (!wait_) {
    const bool is_order = is_from_afar(event);
    if (!is_order) drive();  // what else is due, the next tick finds
    out_.overtakes = is_order || is_only_rates(event, out_);
    return std::move(out_);
  }
  if (is_started_ && !is_left_) {
    refresh_conditions();
    maybe_hello();
    heartbeat();
  }
  RN_ASSERT(out_.writes.empty(), "nothing is written while the journal waits");
  out_.overtakes = true;
  return std::move(out_);
}

/// What the state calls for, and the rows that changed.
void Core::State::drive() {
  if (is_started_ && !is_left_) {
    refresh_conditions();
    const std::string before = taken_because();
    step_lending();
    step_gpus();
    if (taken_because() != before) refresh_conditions();  // the next probe is refused already
    // Recover first, then serve: nothing is driven before the warden's state was seen once.
    if (was_reconciled_) {
      plan_saves();
      choose_turn();
      for (auto& [name, a] : attempts_) {
        leave_where_unwanted(a);
        step(a);
      }
      step_evacuations();
    }
    std::vector<GuestName> over;
    for (const auto& [name, a] : attempts_) {
      const bool is_acked = a.row.events.empty() || a.row.is_fenced;
      if (a.row.phase == Phase::kEnded && a.row.is_released && is_acked) over.push_back(name);
    }
    for (const GuestName& name : over) forget(name);
    pump_works();
    step_transfers();
    maybe_hello();
    heartbeat();
    report_reclaims();
    step_leaving();
    step_proposal();
  }
  write_dirty();
}

void Core::State::write_dirty() {
  for (auto& [name, a] : attempts_) {
    if (a.is_new) out_.writes.push_back({key_of("commit", name), encode_row(a.commit)});
    if (a.is_dirty || a.is_new) out_.writes.push_back({key_of("attempt", name), encode_row(a.row)});
    a.is_new = a.is_dirty = false;
  }
  if (is_node_dirty_) write_node();
  if (std::exchange(is_proposal_dirty_, false))
    out_.writes.push_back(
        {"proposal", proposal_ ? std::optional(encode_row(*proposal_)) : std::nullopt}
    );
}

void Core::State::write_node() {
  out_.writes.push_back({"node", encode_row(node_)});
  is_node_dirty_ = false;
}

void Core::State::forget(const GuestName& name) {
  const auto found = attempts_.find(name);
  if (found == attempts_.end()) return;
  cancel_works(found->second, true);
  std::erase_if(asks_, [&](const auto& entry) { return entry.second.guest == name; });
  if (!found->second.is_new) {
    out_.writes.push_back({key_of("attempt", name), std::nullopt});
    out_.writes.push_back({key_of("commit", name), std::nullopt});
  }
  attempts_.erase(found);
  arbiter_.release(name.job, name.epoch);
  work_node(Task::kForget, name, ForgetAttempt{});
}

void Core::State::send(wire::Message message) {
  if (is_connected_) out_.effects.emplace_back(SendToCoordinator{std::move(message)});
}

wire::AttemptReport Core::State::report(const Attempt& a) const {
  wire::AttemptReport out;
  out.job = a.name.job;
  out.epoch = a.name.epoch;
  out.state = state_of(a.row.phase);
  if (a.row.phase == Phase::kEnded) out.end = a.row.end;
  out.exit_code = a.row.exit_code;
  out.detail = a.row.detail;
  if (!a.row.generations.empty()) {
    const GenerationRef& newest = a.row.generations.back().ref;
    out.safe_generation = newest.generation;
    out.step = newest.step;
    if (a.row.boot_id == config_.boot_id && newest.snapshot_boot_ns > 0 &&
        newest.snapshot_boot_ns <= to_ns(now_.boot))
      out.since_save_ms = (to_ns(now_.boot) - newest.snapshot_boot_ns) / 1'000'000;
  }
  out.save_trouble = a.upload_trouble.empty() ? a.save_trouble : a.upload_trouble;
  if (out.save_trouble.empty()) out.save_trouble = a.hook_trouble;
  if (out.save_trouble.empty()) out.save_trouble = a.copy_trouble;
  if (out.save_trouble.empty()) out.save_trouble = a.risk_trouble;
  out.saving = stay_words(a);
  if (const std::string saving = saving_words(a); !saving.empty())
    out.saving += (out.saving.empty() ? "" : "; ") + saving;
  out.gpus = a.row.grant.gpus;
  out.memory_peak_mib = a.memory_peak_mib;
  out.gpu_memory_peak_mib = a.gpu_memory_peak_mib;
  // While a driver that hangs stops the measuring, what stands still is the sample, not the guest.
  const bool is_measured =
      telemetry_at_ && now_.boot - *telemetry_at_ < nanoseconds(config_.telemetry_trusted);
  out.cpu_ms = is_measured ? a.cpu_ms : 0;
  out.is_visited = a.is_visited;
  out.waits_for = a.row.waits_for;
  out.checkpoints_found = a.row.checkpoints_found;
  out.links_broken = a.row.links_broken;
  return out;
}

std::vector<wire::AttemptReport> Core::State::reports(Now) const {
  std::vector<wire::AttemptReport> out;
  out.reserve(attempts_.size());
  for (const auto& [name, a] : attempts_) out.push_back(report(a));
  return out;
}

std::vector<wire::AttemptReport> Core::State::tellable_reports() const {
  if (wait_) return wait_->told;
  std::vector<wire::AttemptReport> out;
  for (const auto& [name, a] : attempts_) {
    if (!a.row.is_fenced) out.push_back(report(a));
  }
  return out;
}

// ---- events

void Core::State::on(const Started& e) {
  is_started_ = true;
  started_at_ = now_.boot;
  facts_ = e.facts;
  own_features_ = e.facts.features;
  offer_features();
  arbiter_.set_facts(facts_);
  take_contract(e.contract, e.utc_offset_s);
  for (auto& [name, a] : attempts_) {
    a.renewed_at = now_.boot;
    arbiter_.renew(name.job, name.epoch, now_.boot + milliseconds(a.commit.lease_ms));
    // Restored before a reboot, and not synced: there is nothing whole to start from.
    const bool is_restored = a.row.phase == Phase::kAdopting || a.row.phase == Phase::kReady ||
                             a.row.phase == Phase::kStarting;
    if (is_restored && a.row.leased_ns == 0)
      order_stop(
          a,
          StopOrder{
              AttemptEnd::kRefused, 0, "the machine went down before its guest was started", {}, 0}
      );
  }
}

void Core::State::on(const CoordinatorConnected&) {
  is_connected_ = true;
  is_hello_sent_ = is_welcome_ = false;
  heard_at_ = now_.boot;
  beats_.clear();
}

void Core::State::on(const CoordinatorDisconnected&) {
  is_connected_ = is_hello_sent_ = is_welcome_ = false;
  beats_.clear();
}

void Core::State::on(const CoordinatorMessage& e) {
  if (!is_connected_) return;
  heard_at_ = now_.boot;
  std::visit([this](const auto& m) { on_message(m); }, e.message);
}

/// A coordinator is told what there is only after the warden said it; a warden that does not answer
/// delays it by kHelloPatience, no longer.
void Core::State::maybe_hello() {
  if (!is_connected_ || is_hello_sent_) return;
  if (!was_reconciled_ && now_.boot - started_at_ < kHelloPatience) return;
  wire::Hello hello;
  hello.version = config_.version;
  hello.node = config_.node;
  hello.machine_id = config_.machine_id;
  hello.boot_id = config_.boot_id;
  hello.lab = config_.lab;
  hello.address = config_.address;
  hello.facts = facts_;
  hello.contract = contract_;
  hello.lending = arbiter_.lending(now_);
  hello.attempts = tellable_reports();
  for (const auto& [id, row] : reclaims_) {
    if (!wait_) hello.reclaims.push_back(row.record);
  }
  hello.highest_generation = node_.highest_generation;
  hello.wall_ms = to_ms(now_.wall);
  hello.box_key = config_.box_key;
  hello.verify_key = config_.verify_key;
  hello.contract_version = contract_version_;
  if (proposal_) hello.proposal = *proposal_;
  is_hello_sent_ = true;
  is_hello_outdated_ = false;
  heard_at_ = now_.boot;
  send(std::move(hello));
}

void Core::State::heartbeat() {
  if (!is_hello_sent_) return;
  const nanoseconds patience =
      is_welcome_ ? nanoseconds(heartbeat_every_ * lost_after_) : nanoseconds(kWelcomePatience);
  if (now_.boot - heard_at_ > patience) {
    log::warning("coordinator.silent", {{"for_ms", (now_.boot - heard_at_) / milliseconds(1)}});
    is_connected_ = is_hello_sent_ = is_welcome_ = false;
    out_.effects.emplace_back(CloseCoordinator{"no answer from the coordinator", 0, false});
    return;
  }
  // At once when the owner closes or opens the node: what was refused before is asked for again.
  const LendingState lending = arbiter_.lending(now_);
  const bool is_due = now_.boot - heartbeat_at_ >= heartbeat_every_ || lending != told_lending_;
  if (!is_welcome_ || !is_due) return;
  heartbeat_at_ = now_.boot;
  told_lending_ = lending;
  wire::Heartbeat beat;
  beat.seq = ++heartbeat_seq_;
  note_beat();
  beat.lending = lending;
  beat.telemetry = telemetry_;
  show_gpu_windows(beat.telemetry);
  beat.attempts = tellable_reports();
  beat.telemetry.guests = static_cast<std::uint32_t>(std::count_if(
      attempts_.begin(),
      attempts_.end(),
      [](const auto& x) { return has_guest(x.second.row.phase); }
  ));
  beat.wall_ms = to_ms(now_.wall);
  beat.closes_in_s = closes_in_s();
  send(std::move(beat));
}

void Core::State::send_node_update() {
  is_hello_outdated_ = is_hello_sent_ && !is_welcome_;
  if (!is_welcome_) return;
  send(wire::NodeUpdate{
      facts_, contract_, config_.address, contract_version_, proposal_.value_or(ContractProposal{})}
  );
}

void Core::State::on(const GenerationDetected& e) {
  const auto found = attempts_.find(e.guest);
  if (found == attempts_.end()) return;
  found->second.is_detected = true;
  found->second.detected_began = e.began.value_or(now_.boot);
  count_checkpoint(found->second, found->second.row.checkpoints_found + 1);
  tell_again(found->second);
}

namespace {

/// What its guest holds now, if that is more than before.
void note_memory(Attempt& a, const TelemetrySampled& e) {
  const auto held = e.guest_memory_mib.find(a.container);
  if (held != e.guest_memory_mib.end())
    a.memory_peak_mib = std::max(a.memory_peak_mib, held->second);
  // A GPU is lent to one guest at a time: what others do not hold is its own.
  std::uint64_t on_gpus = 0;
  for (const GpuTelemetry& gpu : e.telemetry.gpus) {
    const auto& own = a.row.grant.gpus;
    if (std::find(own.begin(), own.end(), gpu.index) == own.end()) continue;
    on_gpus += gpu.memory_used_mib - std::min(gpu.memory_used_mib, gpu.foreign_vram_mib);
  }
  a.gpu_memory_peak_mib = std::max(a.gpu_memory_peak_mib, on_gpus);
}

/// What its guest does: the time of processors that it took, and whether somebody is in it.
void note_use(Attempt& a, const TelemetrySampled& e) {
  const auto used = e.guest_cpu_ms.find(a.container);
  if (used != e.guest_cpu_ms.end()) a.cpu_ms = used->second;
  a.is_visited = e.visited.contains(a.name.job.str() + " " + to_string(a.name.epoch));
}

}  // namespace

void Core::State::on(const TelemetrySampled& e) {
  telemetry_ = e.telemetry;
  telemetry_at_ = now_.boot;
  idle_s_ = e.idle_s;
  utc_offset_s_ = e.utc_offset_s;
  for (auto& [name, a] : attempts_) {
    if (!has_guest(a.row.phase)) continue;
    note_memory(a, e);
    note_use(a, e);
  }
  note_gpus();
  note_health(e.signs);
}

void Core::State::on(const ContractChanged& e) {
  take_contract(e.contract, e.utc_offset_s);
  // Who reads "in force" reads the contract that is, too.
  send_node_update();
  settle_edit(e.edit);
}

void Core::State::on(const FactsChanged& e) {
  // What is known from the warden alone.
  const std::vector<std::string> images = facts_.images;
  const std::vector<std::string> data_sets = facts_.data_sets;
  const std::string engine_refusal = facts_.engine_refusal;
  facts_ = e.facts;
  facts_.images = images;
  facts_.data_sets = data_sets;
  facts_.engine_refusal = engine_refusal;
  own_features_ = e.facts.features;
  offer_features();
  tell_grant(warden_.transfers);
  arbiter_.set_facts(facts_);
  send_node_update();
}

void Core::State::on(const OwnerLeaves& e) {
  node_.is_leaving = true;
  node_.leave_reason = e.reason;
  is_node_dirty_ = true;
}

void Core::State::on(const Tick&) {
  arbiter_.expire(now_);
  time_out_asks();
  doubt_orders("its warden has not answered", kOrderPatience);
}

AttemptView Core::State::view_of(const Attempt& a, Now now) const {
  AttemptView v;
  v.report = report(a);
  v.user = a.commit.user;
  v.lab = a.commit.lab;
  v.job_number = a.commit.job_number;
  v.name = a.commit.spec.name;
  v.phase = to_string(a.row.phase);
  v.disk = a.row.disk;
  v.gpus = a.row.grant.gpus;
  v.cpu_milli = a.row.grant.cpu_milli;
  v.memory_mib = a.row.grant.memory_mib;
  v.durable_generation = a.row.restored.generation;
  for (const GenerationRow& g : a.row.generations) {
    if (g.is_committed) v.durable_generation = g.ref.generation;
  }
  v.lease_left_ms = (a.renewed_at + milliseconds(a.commit.lease_ms) - now.boot) / milliseconds(1);
  if (a.row.stop.deadline_ns > 0)
    v.deadline_left_ms = (a.row.stop.deadline_ns - to_ns(now.boot)) / 1'000'000;
  if (const auto left = stay_left(a, now.boot)) {
    v.deadline_left_ms = (a.put_off->order.deadline_ns - to_ns(now.boot)) / 1'000'000;
    v.stays_ms = *left / milliseconds(1);
  }
  return v;
}

NodeView Core::State::view(Now now) const {
  NodeView out;
  out.lending = arbiter_.lending(now);
  out.why = arbiter_.why(now);
  out.engine = warden_.engine;
  out.engine_refusal = warden_.engine_refusal;
  if (engine_gone_since_) {
    out.engine_gone_s = (now.boot - *engine_gone_since_) / seconds(1);
    // Said once: that a node does not lend for its engine is in these words too.
    out.why = (out.why == engine_words() ? "" : out.why + "; ") + "its container engine " +
              engine_trouble(out) + ": no guest can start, and jobs go elsewhere; next: " +
              engine_help(!out.engine_refusal.empty());
  }
  if (warden_.announced.deadline_ns > to_ns(now.boot)) {
    out.announced_in_ms = (warden_.announced.deadline_ns - to_ns(now.boot)) / 1'000'000;
    out.announced_because = warden_.announced.message;
  }
  if (wait_) {
    out.journal_waits_s = (now.boot - wait_->since) / seconds(1);
    if (out.why != room_words()) out.why += "; " + room_words();
    out.why += " (" + wait_->why + ", for " + std::to_string(out.journal_waits_s) +
               " s; what is shown of guests is from before)";
  }
  if (!is_welcome_ && !config_.expiry.empty()) out.why += "; " + config_.expiry;
  if (is_welcome_ && arbiter::are_clocks_apart(clock_offset_ms_))
    out.why += "; " + arbiter::clocks_words(contract_, clock_offset_ms_);
  if (!refusal_.empty()) out.why += "; the coordinator refuses this machine: " + refusal_;
  out.troubles = troubles_with_age(warden_.troubles, now);
  out.are_copies_bounded = has_edge();
  out.copies = copies_words() + slowed_words();
  out.is_coordinator_connected = is_welcome_;
  out.is_warden_connected = is_warden_connected_;
  out.clock_offset_ms = clock_offset_ms_;
  out.holds = static_cast<std::uint32_t>(arbiter_.holds(now));
  out.works_queued = queue_.size();
  out.works_running = works_.size() - std::min(works_.size(), queue_.size());
  out.contract = contract_;
  out.contract_version = contract_version_;
  for (const auto& paused : warden_.paused_gpus) out.paused_gpus.push_back(paused.gpu);
  if (proposal_ && to_ms(now.wall) < proposal_->until_wall_ms) out.proposal = *proposal_;
  out.facts = facts_;
  out.telemetry = telemetry_;
  show_gpu_windows(out.telemetry);
  for (const auto& [name, a] : attempts_) out.attempts.push_back(view_of(a, now));
  for (const auto& [id, row] : reclaims_) out.reclaims.push_back(row.record);
  std::stable_sort(
      out.reclaims.begin(),
      out.reclaims.end(),
      [](const ReclaimRecord& a, const ReclaimRecord& b) {
        return a.declared_wall_ms < b.declared_wall_ms;
      }
  );
  out.taking = taking_words(out.reclaims, out.attempts, now, utc_offset_s_);
  if (out.why.starts_with(arbiter::kTakenLater) && !out.taking.empty())
    out.why.replace(0, arbiter::kTakenLater.size(), out.taking);
  return out;
}

}  // namespace rn::agent
