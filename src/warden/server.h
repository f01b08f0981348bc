// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/framed_unix.h"
#include "io/loop.h"
#include "io/real_clock.h"
#include "io/real_rng.h"
#include "io/workers.h"
#include "warden/core.h"
#include "warden/journal_file.h"
#include "warden/kill_service.h"
#include "warden/machine.h"

namespace rn::warden {

struct ServerConfig {
  MachineConfig machine;
  std::vector<std::uint32_t> owner_uids;  ///< beside root
  bool is_engine_floor_strict = false;    ///< versions below the floors are refused, not warned of
};

/// Type of every frame on warden.sock; the body says the rest.
inline constexpr std::uint8_t kWardenFrame = 1;

/// The daemon: sockets, the core on the loop, the machine on workers, the dead man's lease.
///
/// Output commit: an output's journal is durable before its effects begin, and effects begin in
/// order. When the journal cannot be written, only what takes the machine back for the owner is
/// still carried out, and everything else is refused.
class WardenServer {
 public:
  /// Recovers, then serves. `loop` outlives it. Blocking: before the loop runs.
  static Result<std::unique_ptr<WardenServer>> start(const ServerConfig& config, io::Loop& loop);
  ~WardenServer();
  WardenServer(const WardenServer&) = delete;
  WardenServer& operator=(const WardenServer&) = delete;

 private:
  struct Client {
    std::shared_ptr<io::FramedUnixSession> session;
    bool is_owner = false;
    bool is_watching = false;  ///< an agent that has asked once is told of changes
  };

  struct EndWatch {
    int pidfd = -1;
    io::WatchId watch;
  };

  WardenServer(const ServerConfig& config, io::Loop& loop);
  Status open();
  Status recover(const std::string& boot_id);
  Result<Journal> read_journal(bool& is_damaged);
  bool take_owners_copy(Journal& journal, bool is_damaged);
  Status write_journal(const Journal& newest);  ///< on the committer's thread, or before the loop
  SetGates found_gates(const std::vector<GuestRecord>& guests);
  Output begin(CoreConfig config, Journal journal);
  void take_by_hand();      ///< emergencies of `reclaim-warden kill` while this process hung
  void look_for_by_hand();  ///< the same, if their journal is another one than at the last look
  void tell_of_order();     ///< of the kill socket, which is still being carried out

  void accept(std::shared_ptr<io::FramedUnixSession> session);
  void receive(std::uint64_t id, const io::Frame& frame);
  void send(std::uint64_t id, const warden_wire::Reply& reply);
  warden_wire::WardenState state() const;
  void push_state();

  void tell(const Event& event);
  void apply(Output output);
  void pump();
  void commit_batch();
  void carry_out(Output output, bool is_durable);
  void rearm_timer();

  // One per effect.
  void perform(const SendAnswer& effect);
  void perform(const MakeDisk& effect);
  void perform(const AdoptDisk& effect);
  void perform(const DropDisk& effect);
  void perform(const Start& effect);
  void perform(const Go& effect);
  void perform(const Signal& effect);
  void perform(const Kill& effect);
  void perform(const Notify& effect);
  void perform(const Forget& effect);
  void perform(const RemoveStray& effect);
  void perform(const Import& effect);
  void perform(const Clear& effect);
  void perform(const SetGates& effect);
  void perform(const Watch& effect);

  template <class Work, class Then>
  void work(io::Workers& pool, Work work, Then then);

  void watch_end(const GuestRecord& record);
  void seen_end(const GuestRecord& record);
  void unwatch(const std::string& container);

  void renew_lease();
  void supervise_engine();
  void look_at_data();
  void engine_answered(const Result<EngineFacts>& facts);
  void search();
  void look_at_filters();

  // The agent's transfers, where they are bounded.
  Status open_transfers();
  void look_at_transfers();
  void record_transfers_cut();  ///< makes durable what the gate says
  void allow_transfers();
  warden_wire::TransfersEdge transfers_edge() const;
  void set_transfers(std::uint64_t client, std::uint64_t number, warden_wire::SetTransfers wanted);

  ServerConfig config_;
  io::Loop& loop_;
  io::RealClock clock_;
  io::RealRng rng_;
  std::unique_ptr<Machine> machine_;
  /// The kill socket's own: its looks wait behind nobody's.
  std::unique_ptr<GpuProcesses> emergency_gpus_ = nvml_when_asked();
  std::unique_ptr<KillService> kill_;
  std::optional<JournalFile> journal_;
  std::optional<JournalFile> owners_copy_;  ///< of owners_part(); nothing waits for its disk alone
  Journal owners_written_;
  std::unique_ptr<WardenCore> core_;

  std::deque<Output> outputs_;
  bool is_committing_ = false;
  bool is_journal_lost_ = false;
  io::TimerId timer_;
  bool is_push_due_ = false;

  std::map<std::uint64_t, Client> clients_;
  std::uint64_t next_client_ = 1;
  std::map<std::string, EndWatch> watches_;  ///< by container
  std::uint64_t hand_seen_ = 0;              ///< records of the hand journal taken in
  std::uint64_t orders_told_ = 0;     ///< of the kill socket's, how many the core has heard of
  std::int64_t hand_journal_ns_ = 0;  ///< when their journal was written, at the last look

  std::vector<std::string> data_sets_;  ///< there at the last look
  bool is_data_looked_at_ = false;      ///< a look is under way
  Instant data_asked_at_{};

  bool is_lease_armed_ = false;
  bool is_engine_up_ = false;
  std::string engine_refusal_;  ///< of the engine that answered last; empty = none
  bool is_engine_asked_ = false;
  bool is_searching_ = false;
  bool is_looking_ = false;  ///< at the guests' filters
  bool is_edge_looked_at_ = false;
  std::optional<TransfersCut> transfers_cut_;
  bool is_found_ = false;         ///< a search has succeeded since the engine came up
  std::uint64_t activity_ = 0;    ///< counts guests' effects begun and ended
  milliseconds engine_pause_{0};  ///< waits longer after each failure to start
  Instant engine_next_{};

  // Last: their destructors wait for work that uses the members above.
  std::unique_ptr<io::FramedUnixServer> server_;
  std::unique_ptr<io::Workers> committer_;  ///< one thread: the journal
  std::unique_ptr<io::Workers> slow_;       ///< engine and disks
  std::unique_ptr<io::Workers> fast_;       ///< kill, signal, notice: never behind the engine
  std::unique_ptr<io::Workers> clearer_;    ///< one thread: reclaims
  std::unique_ptr<io::Workers> engine_;     ///< one thread: supervision and searches
  std::unique_ptr<io::Workers> filters_;    ///< one thread: a start holds the wires for seconds
  std::unique_ptr<io::Workers> edge_;       ///< one thread: transfers
  std::unique_ptr<io::Workers> looker_;     ///< one thread: the owner's disks, which may hang
};

}  // namespace rn::warden
