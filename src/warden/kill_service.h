// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "model/warden.h"
#include "warden/core_types.h"
#include "warden/kill_journal.h"
#include "warden/kill_path.h"
#include "warden/kill_precedence.h"
#include "warden/machine.h"
#include "warden/slot_gpus.h"
#include "warden/transfer_bounds.h"

namespace rn::warden {

/// The owner's emergency socket: one KillFrame in, one out, on a thread of its own with a kill path
/// made beforehand. It works while the daemon's loop is stuck. What it did is told to `done` from
/// its thread, before the owner is answered: `done` must not wait for the loop. Where the kernel
/// allows, that thread has precedence over everybody's from its start on, within a budget
/// (kill_precedence.h).
class KillService {
 public:
  using Done = std::function<void(EmergencyDone)>;

  /// `clock` and `gpus` outlive it. `first_sequence` is the number of intents in the journal.
  static Result<std::unique_ptr<KillService>> start(
      const std::string& path,
      std::vector<std::uint32_t> owner_uids,
      std::unique_ptr<KillPath> kill,
      std::uint64_t first_sequence,
      const Clock& clock,
      Done done
  );
  ~KillService();
  KillService(const KillService&) = delete;
  KillService& operator=(const KillService&) = delete;

  SharedKillPath& path() { return kill_; }

  SlotGpus& gpus() { return slot_gpus_.masks(); }

  EmergencyCount& count() { return count_; }

  /// The whole node was given to guests again at this time: orders that were given before it, and
  /// have waited in the socket of a process that hung, are over. Thread-safe.
  void note_release(Instant at) { released_ns_ = to_ns(at); }

  /// From now on orders about the agent's transfers are carried out by `cut`, and told from this
  /// object's thread to `told`, which must not wait. Before that they are answered as not bounded.
  /// `agent_uid` may cut and may not let go on.
  void share_transfers(TransfersCut cut, std::uint32_t agent_uid, std::function<void()> told);

 private:
  KillService(
      std::string path,
      std::vector<std::uint32_t> uids,
      std::unique_ptr<KillPath> kill,
      std::uint64_t sequence,
      const Clock& clock,
      Done done
  );
  void run();
  void serve(int client, StandingPrecedence& precedence);
  void stand_guard();
  void order_transfers(warden_wire::KillFrame& frame, std::uint32_t uid);

  struct Transfers {
    TransfersCut cut;
    std::uint32_t agent_uid = 0;
    std::function<void()> told;
  };

  std::string socket_path_;
  std::vector<std::uint32_t> owner_uids_;
  SharedKillPath kill_;
  SlotGpusFile slot_gpus_;
  EmergencyCount count_;
  std::uint64_t sequence_;
  Instant guards_until_{};  ///< its thread only
  std::atomic<std::int64_t> released_ns_ = 0;
  std::mutex transfers_mutex_;
  std::optional<Transfers> transfers_;  ///< guarded by transfers_mutex_
  const Clock& clock_;
  Done done_;
  int listener_ = -1;
  int stop_[2] = {-1, -1};
  std::thread thread_;
};

/// Does to `kill` what the frame says; answers it filled in, and into `done` what the core must
/// know (its sequence is left 0; false: nothing, it was a question).
bool carry_out(
    KillPath& kill,
    const SlotGpus& gpus,
    const Clock& clock,
    warden_wire::KillFrame& frame,
    EmergencyDone& done
);

/// Does what the frame says to the transfers' gate and fills it in: one map write.
void carry_out(TransfersCut& cut, const Clock& clock, warden_wire::KillFrame& frame);

/// What the kill journal says, as the core wants it: one event per intent, numbered from 1, with
/// what was done as far as it is known. Times of another boot are `now`.
std::vector<EmergencyDone> emergencies_of(
    const std::vector<KillRecord>& records, const std::string& boot_id, Instant now
);

/// What an order for single GPUs means when it is carried out without the daemon.
struct ByHand {
  std::uint64_t gpu_mask = 0;       ///< 0 = the whole node
  std::vector<GuestRecord> guests;  ///< as the journal says, with their GPUs; of a whole node none
  std::string widened;  ///< why the order became one for the whole node; empty if it did not
};

/// Which guest has which GPU is in the warden's journal alone. Where that says nothing, the order
/// becomes one for the whole node: the owner's GPU is free then, and guests that need not have gone
/// have their copies. Pure.
ByHand by_hand(std::uint64_t gpu_mask, const Result<Journal>& journal);

/// How many of the recorded emergencies are over when the journal that said so was lost. What the
/// owner took back whole shuts the node's gate until they release it, so behind one that was open
/// before this start none is left; behind a shut one the last may be. Pure.
std::uint64_t emergencies_over(std::uint64_t recorded, bool was_open);

/// Asks the daemon's kill socket. kUnavailable: nobody listens; kTimeout: no answer within `limit`,
/// or at once and without having asked: the daemon is stopped. A stopped one is known by who
/// listens, and where so many wait already that nobody can connect by `pid_file`, in which the
/// daemon wrote its process id; without one, such a daemon is waited for.
Result<warden_wire::KillFrame> ask_kill_socket(
    const std::string& path,
    const warden_wire::KillFrame& frame,
    milliseconds limit,
    const std::string& pid_file = {}
);

}  // namespace rn::warden
