// SPDX-License-Identifier: Apache-2.0
#include "warden/server.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <sys/stat.h>

#include "base/log.h"

namespace rn::warden {

namespace {

/// The kill path's journal must not hold the cut longer than this (KillPathConfig).
constexpr std::size_t kQueue = 1024;
constexpr milliseconds kLease = seconds(2);  ///< after so long without us, guests are cut
constexpr milliseconds kRenewal{500};
constexpr milliseconds kSupervision = seconds(1);
/// The loop's timers stand still while the machine sleeps; the deadlines' clock does not.
constexpr seconds kTimerMax{5};
constexpr milliseconds kDataLook = seconds(5);
constexpr milliseconds kPushDelay{20};  ///< several changes of one moment are pushed once

std::string this_boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

std::uint64_t intents_in(const std::vector<KillRecord>& records) {
  return static_cast<std::uint64_t>(std::count_if(
      records.begin(), records.end(), [](const KillRecord& r) { return r.step != KillStep::kDone; }
  ));
}

/// None of a damaged one: what follows the damage may be of any order.
std::vector<KillRecord> read_orders(const std::string& path, bool& is_damaged) {
  auto records = read_kill_journal(path);
  is_damaged = !records;
  if (records) return *std::move(records);
  log::error(
      "warden.kill_journal_damaged",
      {{"why", records.error().describe()}, {"goes_to", damaged_kill_journal(path)}}
  );
  return {};
}

/// Takes the machine back for the owner, so it happens even when nothing can be recorded.
bool is_supremacy(const Effect& effect) {
  return std::holds_alternative<Clear>(effect) || std::holds_alternative<Kill>(effect);
}

}  // namespace

WardenServer::WardenServer(const ServerConfig& config, io::Loop& loop)
    : config_(config), loop_(loop) {}

WardenServer::~WardenServer() {
  for (auto& [id, client] : clients_) client.session->on_close({});
  kill_.reset();
}

Result<std::unique_ptr<WardenServer>> WardenServer::start(
    const ServerConfig& config, io::Loop& loop
) {
  std::unique_ptr<WardenServer> server(new WardenServer(config, loop));
  RN_CHECK(server->open());
  return server;
}

Status WardenServer::open() {
  RN_TRY(machine_, Machine::open(config_.machine, clock_));
  committer_ = std::make_unique<io::Workers>(loop_, 1, kQueue);
  slow_ = std::make_unique<io::Workers>(loop_, 3, kQueue);
  fast_ = std::make_unique<io::Workers>(loop_, 2, kQueue);
  clearer_ = std::make_unique<io::Workers>(loop_, 1, kQueue);
  engine_ = std::make_unique<io::Workers>(loop_, 1, kQueue);
  filters_ = std::make_unique<io::Workers>(loop_, 1, kQueue);
  edge_ = std::make_unique<io::Workers>(loop_, 1, kQueue);
  looker_ = std::make_unique<io::Workers>(loop_, 1, kQueue);
  RN_CHECK(recover(this_boot()));
  RN_CHECK(open_transfers());

  io::FramedUnixServerConfig socket;
  socket.path = config_.machine.run + "/warden.sock";
  socket.mode = 0666;  // told apart by SO_PEERCRED
  socket.allowed_uids = config_.owner_uids;
  socket.allowed_uids.push_back(0);
  socket.allowed_uids.push_back(config_.machine.agent_uid);
  socket.max_frame_bytes = warden_wire::kMaxFrameBytes;
  RN_TRY(server_, io::FramedUnixServer::start(loop_, socket, [this](auto session) {
           accept(std::move(session));
         }));
  loop_.run_every(kRenewal, [this] { renew_lease(); });
  loop_.run_every(kSupervision, [this] {
    supervise_engine();
    look_at_filters();
    look_at_transfers();
  });
  supervise_engine();
  if (!config_.machine.data_sets.empty()) {
    loop_.run_every(kDataLook, [this] { look_at_data(); });
    look_at_data();
  }
  return {};
}

/// A damaged one is put aside: guests that run are found by their labels, and what the owner may
/// have taken back is heeded by starting nothing new until they say so. The new one says that
/// before it takes the damaged one's place, so that a start which goes no further than this is no
/// new node at the next.
Result<Journal> WardenServer::read_journal(bool& is_damaged) {
  const std::string& path = machine_->paths().journal;
  RN_TRY(JournalFile file, JournalFile::open(path));
  auto journal = file.read();
  if (!journal && journal.error().code == ErrorCode::kCorrupt) {
    log::error("warden.journal_damaged", {{"put_aside_as", path + ".damaged"}});
    Journal first;
    first.is_paused = true;
    RN_TRY(JournalFile fresh, JournalFile::replace(path, path + ".damaged", first));
    journal_.emplace(std::move(fresh));
    is_damaged = true;
    return first;
  }
  // Of no boot, and paused: a start that put a damaged one aside went no further.
  is_damaged = journal && journal->boot_id.empty() && journal->is_paused;
  journal_.emplace(std::move(file));
  return journal;
}

/// The journal is gone, and only it: what the owner had said is in the copy. True then.
bool WardenServer::take_owners_copy(Journal& journal, bool is_damaged) {
  const std::string path = machine_->paths().journal + ".owner";
  auto kept = JournalFile::look(path);
  const bool is_lost = journal.boot_id.empty() && !is_damaged && kept && !kept->boot_id.empty();
  if (is_lost) {
    log::warning("warden.journal_removed", {{"copy", path}});
    journal = *std::move(kept);
  }
  auto copy = JournalFile::open(path);
  const Status usable = copy ? Status() : fail(copy.error());
  if (!usable) {
    log::warning("warden.no_owners_copy", {{"why", usable.error().describe()}});
    return is_lost;
  }
  // A damaged copy is written over: the journal says it all.
  if (const auto last = copy->read()) owners_written_ = *last;
  owners_copy_.emplace(std::move(*copy));
  return is_lost;
}

Status WardenServer::write_journal(const Journal& newest) {
  RN_CHECK(journal_->write(newest));
  Journal part = owners_part(newest);
  if (!owners_copy_ || part == owners_written_) return {};
  if (const Status written = owners_copy_->write(part); !written) {
    log::warning("warden.no_owners_copy", {{"why", written.error().describe()}});
    owners_copy_.reset();
    return {};
  }
  owners_written_ = std::move(part);
  return {};
}

SetGates WardenServer::found_gates(const std::vector<GuestRecord>& guests) {
  SetGates found;
  const auto state = machine_->gates().state();
  found.is_node_open = state && state->is_node_open;
  for (const GuestRecord& guest : guests) {
    const auto is_open =
        guest.slot < kSlots ? machine_->gates().is_open(guest.slot) : Result<bool>(false);
    if (is_open && *is_open) found.open_slots.push_back(guest.slot);
  }
  return found;
}

/// The core's first output. What a damaged kill journal may have said is heeded by it, and durable
/// before the file is put aside: a start that goes no further finds either at the next.
Output WardenServer::begin(CoreConfig config, Journal journal) {
  std::vector<std::string> damaged;
  if (config.is_kill_journal_damaged) damaged.push_back(machine_->paths().kill_journal);
  if (config.is_hand_journal_damaged) damaged.push_back(machine_->paths().hand_journal);
  config.found = found_gates(journal.guests);
  core_ = std::make_unique<WardenCore>(std::move(config), std::move(journal), rng_);
  Output first = core_->start(clock_.now());
  if (damaged.empty()) return first;
  // A journal that cannot be written starts nothing, and the damaged file says so at the next
  // start.
  const Status written = write_journal(core_->journal());
  for (const std::string& path : damaged) {
    const Status aside = written ? put_kill_journal_aside(path) : written;
    if (!aside) log::error("warden.kill_journal_stays", {{"why", aside.error().describe()}});
  }
  return first;
}

Status WardenServer::recover(const std::string& boot_id) {
  const MachinePaths& paths = machine_->paths();
  CoreConfig config{.boot_id = boot_id};
  RN_TRY(Journal journal, read_journal(config.is_journal_damaged));
  config.is_journal_lost = take_owners_copy(journal, config.is_journal_damaged);
  const auto killed = read_orders(paths.kill_journal, config.is_kill_journal_damaged);
  const auto by_hand = read_orders(paths.hand_journal, config.is_hand_journal_damaged);
  const Instant now = clock_.now().boot;
  auto emergencies = emergencies_of(killed, boot_id, now);
  if (journal.boot_id.empty()) {
    const auto gates = machine_->gates().state();
    const bool was_open = gates && gates->is_node_open;
    journal.emergencies_seen = emergencies_over(intents_in(killed), was_open);
    journal.hand_emergencies_seen = emergencies_over(intents_in(by_hand), was_open);
  }
  const std::uint64_t seen = journal.emergencies_seen;
  const auto guests = journal.guests;
  Output first = begin(std::move(config), std::move(journal));
  hand_seen_ = core_->journal().hand_emergencies_seen;

  RN_TRY(
      auto path,
      KillPath::open(
          Machine::kill_config(config_.machine, paths.kill_journal), clock_, emergency_gpus_.get()
      )
  );
  // The agent passes the owner's command on from the LAN (POST /v1/emergency with a certificate
  // that the owner named). One that lies could only end guests, which it may do anyway; giving the
  // machine back to guests is not among a KillFrame's commands.
  std::vector<std::uint32_t> may_kill = config_.owner_uids;
  may_kill.push_back(config_.machine.agent_uid);
  RN_TRY(
      kill_,
      KillService::start(
          config_.machine.run + "/kill.sock",
          std::move(may_kill),
          std::move(path),
          intents_in(killed),
          clock_,
          [this](EmergencyDone done) {
            loop_.post([this, done = std::move(done)] {
              orders_told_ = std::max(orders_told_, kill_->count().taken + 1);
              tell(done);
              ++kill_->count().taken;
              renew_lease();
            });
          }
      )
  );
  machine_->share_with(kill_->path(), kill_->gpus(), kill_->count());
  for (const GuestRecord& guest : guests) {
    if (guest.slot < kSlots && !guest.container.empty()) machine_->register_guest(guest, 0);
  }
  apply(std::move(first));
  for (EmergencyDone& event : emergencies) {
    if (event.sequence > seen) tell(event);
  }
  take_by_hand();
  return {};
}

/// A short hang, which no lease notices, is long enough for an order by hand: one that was not seen
/// then would be carried out at the next start, over a release that came later.
void WardenServer::look_for_by_hand() {
  struct stat there {};

  if (::stat(machine_->paths().hand_journal.c_str(), &there) != 0) return;
  const std::int64_t written_ns =
      std::int64_t{there.st_mtim.tv_sec} * 1'000'000'000 + there.st_mtim.tv_nsec;
  if (written_ns == hand_journal_ns_) return;
  hand_journal_ns_ = written_ns;
  take_by_hand();
}

void WardenServer::take_by_hand() {
  const auto records = read_kill_journal(machine_->paths().hand_journal);
  if (!records) {
    log::error("warden.hand_journal", {{"why", records.error().describe()}});
    // Before a search the gates are shut by this start, and say nothing of an order.
    if (core_->is_reconciled()) tell(HandJournalDamaged{found_gates(core_->journal().guests)});
    return;
  }
  const auto now = clock_.now();
  for (EmergencyDone& event : emergencies_of(*records, this_boot(), now.boot)) {
    if (event.sequence <= hand_seen_) continue;
    hand_seen_ = event.sequence;
    event.is_by_hand = true;
    tell(event);
  }
}

// ---- the core

void WardenServer::tell(const Event& event) {
  tell_of_order();
  apply(core_->handle(event, clock_.now()));
  if (kill_) kill_->note_release(core_->released_at());
}

/// What an order of the owner's ends must not be heard before the order.
void WardenServer::tell_of_order() {
  if (!kill_) return;
  const EmergencyCount& count = kill_->count();
  const std::uint64_t begun = count.begun;
  if (begun <= orders_told_) return;
  orders_told_ = begun;
  if (count.is_cut_only) return;
  apply(core_->handle(EmergencyBegun{count.gpu_mask, count.declared_ns}, clock_.now()));
}

void WardenServer::apply(Output output) {
  if (output.is_state_changed) push_state();
  outputs_.push_back(std::move(output));
  rearm_timer();
  pump();
}

void WardenServer::rearm_timer() {
  loop_.cancel(timer_);
  timer_ = {};
  const auto at = core_->wake_at();
  if (!at) return;
  const nanoseconds wait = std::min<nanoseconds>(*at - clock_.now().boot, kTimerMax);
  timer_ = loop_.run_after(wait, [this] { tell(Tick{}); });
}

void WardenServer::pump() {
  while (!is_committing_ && !outputs_.empty()) {
    const bool must_commit =
        !is_journal_lost_ && std::any_of(outputs_.begin(), outputs_.end(), [](const Output& o) {
          return o.journal.has_value();
        });
    if (must_commit) return commit_batch();
    Output next = std::move(outputs_.front());
    outputs_.pop_front();
    carry_out(std::move(next), !is_journal_lost_);
  }
}

/// Group commit: the newest journal holds what all waiting outputs want.
void WardenServer::commit_batch() {
  auto batch = std::make_shared<std::deque<Output>>(std::exchange(outputs_, {}));
  Journal newest;
  for (Output& output : *batch) {
    if (output.journal) newest = std::move(*output.journal);
  }
  is_committing_ = true;
  const Status begun = committer_->submit_for(
      [this, newest = std::move(newest)] { return write_journal(newest); },
      [this, batch](const Status& written) {
        is_committing_ = false;
        if (!written && !is_journal_lost_) {
          is_journal_lost_ = true;
          log::error("warden.journal_lost", {{"why", written.error().describe()}});
        }
        for (Output& output : *batch) carry_out(std::move(output), written.has_value());
        pump();
      }
  );
  if (begun) return;
  is_committing_ = false;
  is_journal_lost_ = true;
  for (Output& output : *batch) carry_out(std::move(output), false);
}

void WardenServer::carry_out(Output output, bool is_durable) {
  for (const Effect& effect : output.effects) {
    if (is_durable || is_supremacy(effect)) {
      std::visit([this](const auto& e) { perform(e); }, effect);
      continue;
    }
    if (const auto* closing = std::get_if<SetGates>(&effect); closing && !closing->is_node_open)
      perform(*closing);
    if (const auto* reply = std::get_if<SendAnswer>(&effect)) {
      SendAnswer refused = *reply;
      refused.answer.code = to_string(ErrorCode::kInternal);
      refused.answer.message = "the warden cannot write its journal";
      refused.answer.hint = "look at the disk of its state folder, then restart it";
      perform(refused);
    }
  }
}

// ---- clients

void WardenServer::accept(std::shared_ptr<io::FramedUnixSession> session) {
  const std::uint64_t id = next_client_++;
  const std::uint32_t uid = session->peer().uid;
  const bool is_owner =
      uid == 0 || std::find(config_.owner_uids.begin(), config_.owner_uids.end(), uid) !=
                      config_.owner_uids.end();
  session->on_frame([this, id](const io::Frame& frame) { receive(id, frame); });
  session->on_close([this, id] { clients_.erase(id); });
  clients_[id] = Client{std::move(session), is_owner, false};
}

void WardenServer::receive(std::uint64_t id, const io::Frame& frame) {
  const auto client = clients_.find(id);
  if (client == clients_.end()) return;
  auto request = warden_wire::decode_request(frame.body);
  if (!request) {
    warden_wire::Answer refused;
    refused.code = to_string(request.error().code);
    refused.message = request.error().message;
    return send(id, refused);
  }
  if (const auto* release = std::get_if<warden_wire::Release>(&request->request)) {
    look_for_by_hand();
    if (client->second.is_owner && release->gpus.empty()) allow_transfers();
  }
  if (auto* wanted = std::get_if<warden_wire::SetTransfers>(&request->request);
      wanted != nullptr && machine_->transfers() != nullptr)
    return set_transfers(id, request->number, std::move(*wanted));
  if (std::holds_alternative<warden_wire::Query>(request->request))
    client->second.is_watching = client->second.session->peer().uid == config_.machine.agent_uid;
  tell(Asked{Caller{id, request->number, client->second.is_owner}, std::move(request->request)});
}

void WardenServer::send(std::uint64_t id, const warden_wire::Reply& reply) {
  const auto client = clients_.find(id);
  if (client == clients_.end()) return;  // gone: it asks again when it is back
  const auto session = client->second.session;
  if (const Status sent = session->send(kWardenFrame, warden_wire::encode(reply)); !sent)
    log::warning("warden.client_lost", {{"why", sent.error().describe()}});
}

warden_wire::WardenState WardenServer::state() const {
  warden_wire::WardenState state = core_->state();
  state.data_sets = data_sets_;
  state.transfers = transfers_edge();
  state.features = machine_->features();
  for (auto& report : state.guests) {
    if (report.state != GuestState::kRunning) continue;
    for (const GuestRecord& record : core_->journal().guests) {
      if (record.guest == report.guest) report.pids = machine_->pids_of(record);
    }
  }
  for (const ReclaimRecord& reclaim : state.reclaims) {
    if (reclaim.phase != ReclaimPhase::kWedged) continue;
    for (const std::uint32_t gpu : reclaim.gpus) {
      GpuTelemetry telemetry;
      telemetry.index = gpu;
      telemetry.is_wedged = true;
      state.gpus.push_back(telemetry);
    }
  }
  return state;
}

void WardenServer::push_state() {
  if (is_push_due_) return;
  is_push_due_ = true;
  loop_.run_after(kPushDelay, [this] {
    is_push_due_ = false;
    // What is pushed must be durable: wait for the commit in hand.
    if (is_committing_ || !outputs_.empty()) return push_state();
    std::vector<std::uint64_t> watching;
    for (const auto& [id, client] : clients_) {
      if (client.is_watching) watching.push_back(id);
    }
    if (watching.empty()) return;
    const warden_wire::StateChanged news{state()};
    for (const std::uint64_t id : watching) send(id, news);
  });
}

// ---- the dead man's switch

void WardenServer::renew_lease() {
  if (!core_->is_reconciled()) return;
  traffic::CutSwitch& gates = machine_->gates();
  look_for_by_hand();
  tell_of_order();
  const Instant now = clock_.now().boot;
  if (is_lease_armed_) {
    const Status renewed = gates.renew_lease(now, now + kLease);
    if (renewed) return;
    // We slept past it: the owner may have acted by hand meanwhile. Look before opening again.
    log::warning("lease.lapsed", {{"why", renewed.error().describe()}});
    is_lease_armed_ = false;
    take_by_hand();
    is_found_ = false;
    return supervise_engine();
  }
  if (!is_found_ || kill_->count().is_pending()) return;
  if (const Status armed = gates.arm_lease(now + kLease); !armed) {
    log::error("lease.not_armed", {{"why", armed.error().describe()}});
    return;
  }
  is_lease_armed_ = true;
}

}  // namespace rn::warden
