// SPDX-License-Identifier: Apache-2.0
#pragma once

// The warden's narrow, fixed command set on its Unix socket (CBOR frames, docs/formats/wire.md).
// Two kinds of callers, told apart by SO_PEERCRED: the agent (its own uid) and the owner (root or
// the configured uids). The reclaim verbs of the owner also exist as a fixed-size binary frame on a
// second socket that needs no decoder (KillFrame), for the emergency path.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/job.h"
#include "model/node.h"
#include "model/reclaim.h"

namespace rn {

enum class GuestState : std::uint8_t { kUnknown, kDiskReady, kRunning, kExited, kRemoved };
RN_ENUM(GuestState, "unknown", "disk_ready", "running", "exited", "removed")

/// What a transfer's bytes travel for.
enum class TransferPurpose : std::uint8_t { kEvacuation, kCheckpoint, kPrefetch };
RN_ENUM(TransferPurpose, "evacuation", "checkpoint", "prefetch")

}  // namespace rn

namespace rn::warden_wire {

inline constexpr std::size_t kMaxFrameBytes = 1u << 20;

/// Names a guest everywhere: labels, folders, cgroups.
struct GuestName {
  JobId job;
  LeaseEpoch epoch;

  RN_FIELDS(GuestName, job, epoch)
  friend auto operator<=>(const GuestName&, const GuestName&) = default;
};

// ---- agent → warden
// ---------------------------------------------------------------------------------------------

/// Makes the attempt's own bounded disk (loop image) and mounts it; answers its folder. The agent
/// owns `work/` in it until AdoptDisk. Idempotent.
struct PrepareDisk {
  GuestName guest;
  std::uint64_t disk_mib = 2048;

  RN_FIELDS(PrepareDisk, guest, disk_mib)
};

/// Gives `work/` to the guest's mapped uid.
struct AdoptDisk {
  GuestName guest;

  RN_FIELDS(AdoptDisk, guest)
};

/// Unmounts and deletes. Refused while the guest runs.
struct ReleaseDisk {
  GuestName guest;

  RN_FIELDS(ReleaseDisk, guest)
};

/// Of what a guest prints so much is kept, and a line that says that there was more.
inline constexpr std::uint64_t kLogBytes = 16u << 20;
inline constexpr std::uint64_t kLogBytesMax = kLogBytes + 4096;

/// Bytes of a variable's name.
inline constexpr std::size_t kVariableNameMax = 128;

/// "NVIDIA_*", "LD_*" and the like, by which a job would change what starts it.
bool steers_runtime(std::string_view variable);

/// Why a guest cannot have its folder there: relative, over a system folder, with a blank, a comma,
/// a colon or a control character, or no plain path; empty = it can. Pure.
std::string_view why_no_work_folder(std::string_view folder);

/// Which member of a gang a guest is. Its address, and those of the others, follow from it
/// (gang_link.h).
struct GangMember {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;

  RN_FIELDS(GangMember, rank, size)
};

/// Starts the container with the strict profile (warden/profile.h). Nothing else of the engine can
/// be asked for.
struct StartGuest {
  GuestName guest;
  std::string image_digest;
  std::vector<std::string> command;
  std::map<std::string, std::string> env;  ///< names that steer the runtime are refused
  std::string work_dir = "/work";
  std::uint32_t cpu_milli = 1000;
  std::uint64_t memory_mib = 1024;
  std::uint32_t max_pids = 512;
  std::uint64_t log_limit_bytes = kLogBytes;
  std::vector<std::uint32_t> gpus;
  std::vector<NetworkAllow> network;
  std::vector<std::string> data;  ///< names of data sets; the warden alone knows their folders
  std::string tell_hook;  ///< lines for `/bin/sh -ec`, which its PID 1 runs when it is told; empty
                          ///< = none
  bool tell_api = false;  ///< its PID 1 serves /reclaim/api.sock
  /// Its network has addresses for the others, and its PID 1 what goes there; none: it is no
  /// member.
  std::optional<GangMember> gang = {};

  RN_FIELDS(
      StartGuest,
      guest,
      image_digest,
      command,
      env,
      work_dir,
      cpu_milli,
      memory_mib,
      max_pids,
      log_limit_bytes,
      gpus,
      network,
      data,
      tell_hook,
      tell_api,
      gang
  )
};

/// Sends the save signal to exactly those processes of the guest that catch it (SigCgt); kAuto
/// tries USR1, USR2 and TERM by the specification's order. Answers how many were signalled: 0 = the
/// guest has no handler.
struct SignalGuest {
  GuestName guest;
  SaveSignal signal = SaveSignal::kAuto;

  RN_FIELDS(SignalGuest, guest, signal)
};

/// Bytes of TellGuest's `file`, and of StartGuest's `tell_hook`.
inline constexpr std::size_t kTellFileMax = 255;
inline constexpr std::size_t kTellHookMax = 4096;

/// Tells the guest to save by a new file in its work folder, with one line of JSON that says why
/// and until when, or by a word to its PID 1, which has a hook or an API for it. Nothing is
/// followed or replaced: answers `signalled` 1, or 0 if something with that name lies there
/// already, or the word before still stands.
struct TellGuest {
  GuestName guest;
  std::string file;  ///< relative to the work folder; empty: see is_for_init
  std::string reason;
  std::int64_t deadline_wall_ms = 0;  ///< 0 = it may stay
  std::uint32_t grace_s = 0;
  bool is_for_init = false;  ///< for its PID 1; a warden that does not know it finds no file's name

  RN_FIELDS(TellGuest, guest, file, reason, deadline_wall_ms, grace_s, is_for_init)
};

struct KillGuest {
  GuestName guest;

  RN_FIELDS(KillGuest, guest)
};

/// Writes the notice file into the guest's folder (atomic rename), or removes it when
/// deadline_wall_ms is 0.
struct WriteNotice {
  GuestName guest;
  std::int64_t deadline_wall_ms = 0;
  std::uint32_t grace_s = 0;
  std::string reason;

  RN_FIELDS(WriteNotice, guest, deadline_wall_ms, grace_s, reason)
};

/// Forgets a guest that has exited: removes its container.
struct RemoveGuest {
  GuestName guest;

  RN_FIELDS(RemoveGuest, guest)
};

/// Verifies the archive's SHA-256 against the digest and gives it to the engine. A saved image's
/// layers are compared with `layers`; without these the archive is a root file system. Idempotent.
struct LoadImage {
  std::string digest;
  std::string archive_path;  ///< inside the agent's state folder
  std::vector<Digest> layers;

  RN_FIELDS(LoadImage, digest, archive_path, layers)
};

struct Query {
  RN_FIELDS(Query)
};

/// The agent has moved what there was to move: the warden need not wait for the deadline.
struct EvacuationDone {
  ReclaimId reclaim;
  std::vector<GuestName> guests;

  RN_FIELDS(EvacuationDone, reclaim, guests)
};

/// What the node's contract takes back by itself, without a word of the owner's: the end of a
/// lending window, the idle rule, leaving, `lends: false`. Always the whole node, one at a time: a
/// new one replaces one that is not declared yet; of a declared one only the deadline can change,
/// to an earlier one. At `declare_ns` it becomes a reclaim of the announced kind, and from then on
/// the warden needs nobody: at the deadline it cuts, kills and looks, whatever became of the agent.
/// Harmless to repeat. Times are the boot clock's nanoseconds.
///
/// `deadline_ns` 0 takes it back: what is not declared is forgotten, and what is declared is
/// returned, unless guests are being cleared or are still seen (kUnavailable). Reclaims of the
/// owner's are never touched.
struct Announce {
  std::int64_t declare_ns = 0;
  std::int64_t deadline_ns = 0;  ///< at most a week ahead
  std::string message;           ///< to the guests: why

  RN_FIELDS(Announce, declare_ns, deadline_ns, message)
};

/// The same of one GPU: its owner computes on it, from now on, or its own window will end. One for
/// each GPU at a time; declared it can only come earlier, before that the newest counts. It
/// declares nothing where an open reclaim takes the GPU by then. `deadline_ns` 0 takes it back, as
/// Announce's does. A warden that does not know it refuses it; an older one declares it at once.
struct AnnounceGpu {
  std::uint32_t gpu = 0;
  std::int64_t deadline_ns = 0;  ///< at most a week ahead
  std::string message;           ///< to the guests: why
  std::int64_t declare_ns = 0;   ///< 0 = at once, and forgotten where it is taken by then

  RN_FIELDS(AnnounceGpu, gpu, deadline_ns, message, declare_ns)
};

/// Claimed at a time.
inline constexpr std::size_t kMaxTransfers = 1024;

/// One transfer on its way, by its TCP connection.
struct Transfer {
  std::uint64_t id = 0;  ///< the agent's, unique at a time
  std::string local;     ///< this machine's end: "192.0.2.1:4711", "[2001:db8::1]:4711"
  std::string remote;
  TransferPurpose purpose = TransferPurpose::kCheckpoint;
  std::uint64_t bytes_per_s = 0;  ///< payload; 0 = no bound of its own
  bool is_cut = false;

  RN_FIELDS(Transfer, id, local, remote, purpose, bytes_per_s, is_cut)
};

/// All transfers that the agent has under way, and what each may send. It can only narrow what the
/// owner granted (`serve --transfers`): every rate counts beside theirs. Harmless to repeat; what
/// is not named is unclaimed from then on. Answered with the counters.
struct SetTransfers {
  std::vector<Transfer> transfers;           ///< at most kMaxTransfers
  std::uint64_t unclaimed_bytes_per_s = 0;   ///< the agent's other traffic; 0 = what is granted
  std::uint64_t evacuation_bytes_per_s = 0;  ///< of the class; 0 = what is granted
  std::uint64_t checkpoint_bytes_per_s = 0;
  std::uint64_t prefetch_bytes_per_s = 0;
  /// Connections that no gate cuts: to the coordinator's port, from the LAN REST's; 0 = none.
  std::uint32_t coordinator_port = 7443;
  std::uint32_t rest_port = 7444;

  RN_FIELDS(
      SetTransfers,
      transfers,
      unclaimed_bytes_per_s,
      evacuation_bytes_per_s,
      checkpoint_bytes_per_s,
      prefetch_bytes_per_s,
      coordinator_port,
      rest_port
  )
};

// ---- owner → warden
// ---------------------------------------------------------------------------------------------

struct DeclareReclaim {
  ReclaimKind kind = ReclaimKind::kNotice;
  std::vector<std::uint32_t> gpus;  ///< empty = whole node
  std::uint32_t in_s = 0;           ///< kAnnounced: deadline from now
  std::uint32_t notice_s = 60;      ///< kNotice: the contract's, filled in by the caller
  std::string message;

  RN_FIELDS(DeclareReclaim, kind, gpus, in_s, notice_s, message)
};

/// The owner gives the node (or these GPUs) back to lending.
struct Release {
  std::vector<std::uint32_t> gpus;

  RN_FIELDS(Release, gpus)
};

/// Takes no new guests; running ones stay (pause), until told otherwise or for so long (snooze).
struct Pause {
  std::uint32_t for_s = 0;          ///< 0 = until Resume
  std::vector<std::uint32_t> gpus;  ///< these alone; empty = the whole node

  RN_FIELDS(Pause, for_s, gpus)
};

struct Resume {
  std::vector<std::uint32_t> gpus;  ///< these alone; empty = the node, and each GPU of it

  RN_FIELDS(Resume, gpus)
};

// ---- warden → callers
// -------------------------------------------------------------------------------------------

struct GuestReport {
  GuestName guest;
  GuestState state = GuestState::kUnknown;
  std::int32_t exit_code = 0;
  bool is_oom_killed = false;
  bool is_vanished = false;  ///< it ran and nobody saw its end (power loss, engine lost it):
                             ///< exit_code says nothing
  bool is_cut = false;
  std::string disk;  ///< mounted folder: `work/`, `reclaim/log`, `reclaim/exit`
  std::int64_t started_boot_ns = 0;
  std::vector<std::uint32_t> gpus;
  std::uint32_t pids = 0;
  std::string container;  ///< the engine's id, which names its control group; an older warden says
                          ///< none

  RN_FIELDS(
      GuestReport,
      guest,
      state,
      exit_code,
      is_oom_killed,
      is_vanished,
      is_cut,
      disk,
      started_boot_ns,
      gpus,
      pids,
      container
  )
};

/// The agent's Announce as the warden holds it; a deadline of 0 and no reclaim = none.
struct Announced {
  std::int64_t declare_ns = 0;
  std::int64_t deadline_ns = 0;
  std::string message;
  ReclaimId reclaim;  ///< empty = not declared yet; else it is open

  RN_FIELDS(Announced, declare_ns, deadline_ns, message, reclaim)
};

/// A GPU that the agent announced, and the open reclaim that it has become; the rest is of one that
/// is not declared yet.
struct AnnouncedGpu {
  std::uint32_t gpu = 0;
  ReclaimId reclaim;  ///< empty = not declared yet
  std::int64_t declare_ns = 0;
  std::int64_t deadline_ns = 0;
  std::string message = {};

  RN_FIELDS(AnnouncedGpu, gpu, reclaim, declare_ns, deadline_ns, message)
};

/// What stands at the uplink against the agent's transfers.
struct TransfersEdge {
  bool is_there = false;          ///< packets of transfers are counted, bounded and can be cut
  bool is_cut = false;            ///< by the owner: no transfer sends
  std::string interface;          ///< as the owner named it; empty: of the default routes
  std::uint64_t bytes_per_s = 0;  ///< granted to all together, payload; 0 = no bound
  std::string refusal;            ///< why it is not there although the owner asked for it

  RN_FIELDS(TransfersEdge, is_there, is_cut, interface, bytes_per_s, refusal)
};

/// What somebody else did to a guest, and what the warden did about it: one sentence for the owner.
struct Trouble {
  std::int64_t wall_ms = 0;
  std::string what;

  RN_FIELDS(Trouble, wall_ms, what)
};

/// A GPU that is given to no new guest; the one that has it keeps it.
struct PausedGpu {
  std::uint32_t gpu = 0;
  std::int64_t until_boot_ns = 0;  ///< 0 = until Resume; this boot only
  std::int64_t until_wall_ms = 0;  ///< the same for people and after a reboot

  RN_FIELDS(PausedGpu, gpu, until_boot_ns, until_wall_ms)
};

/// The answer to Query, and pushed to the agent whenever something in it changed.
struct WardenState {
  std::vector<GuestReport> guests;
  std::vector<ReclaimRecord> reclaims;  ///< all that are not returned, and the last returned ones
  std::vector<std::string> images;      ///< digests in the engine
  std::vector<std::string> data_sets;   ///< names of those whose folders are there now; sorted
  bool is_paused = false;
  std::int64_t paused_until_wall_ms = 0;
  std::vector<PausedGpu> paused_gpus;
  std::string engine;
  std::string engine_refusal;  ///< why the warden does not use an engine that answers
  bool is_engine_up = false;
  std::vector<GpuTelemetry> gpus;
  Announced announced;
  /// The machine has not been searched since the warden's start: guests that are not listed may
  /// run.
  bool is_recovering = false;
  std::vector<Trouble> troubles;  ///< the last ones since the warden's start
  TransfersEdge transfers;
  std::vector<AnnouncedGpu> announced_gpus;
  std::vector<std::string> features = {};  ///< as NodeFacts::features; of an older warden none

  RN_FIELDS(
      WardenState,
      guests,
      reclaims,
      images,
      data_sets,
      is_paused,
      paused_until_wall_ms,
      paused_gpus,
      engine,
      engine_refusal,
      is_engine_up,
      gpus,
      announced,
      is_recovering,
      troubles,
      transfers,
      announced_gpus,
      features
  )
};

/// What a transfer has sent since it was claimed.
struct TransferCount {
  std::uint64_t id = 0;
  std::uint64_t passed_bytes = 0;  ///< payload
  std::uint64_t marked_packets = 0;
  std::uint64_t dropped_packets = 0;  ///< over its grant
  std::uint64_t cut_packets = 0;

  RN_FIELDS(TransferCount, id, passed_bytes, marked_packets, dropped_packets, cut_packets)
};

struct TransferCounts {
  std::vector<TransferCount> transfers;
  TransferCount unclaimed;
  bool is_cut = false;  ///< by the owner: no transfer sends

  RN_FIELDS(TransferCounts, transfers, unclaimed, is_cut)
};

/// Answer to every request, in order of completion.
struct Answer {
  std::uint64_t request = 0;
  std::string code;  ///< empty = done; else an ErrorCode's word
  std::string message;
  std::string hint;
  std::string disk;             ///< of PrepareDisk
  std::uint32_t signalled = 0;  ///< of SignalGuest and TellGuest
  ReclaimRecord reclaim;        ///< of DeclareReclaim and Release
  WardenState state;            ///< of Query
  TransferCounts transfers;     ///< of SetTransfers

  RN_FIELDS(Answer, request, code, message, hint, disk, signalled, reclaim, state, transfers)
};

struct StateChanged {
  WardenState state;

  RN_FIELDS(StateChanged, state)
};

using Request = std::variant<
    PrepareDisk,
    AdoptDisk,
    ReleaseDisk,
    StartGuest,
    SignalGuest,
    KillGuest,
    WriteNotice,
    RemoveGuest,
    LoadImage,
    Query,
    EvacuationDone,
    DeclareReclaim,
    Release,
    Pause,
    Resume,
    Announce,
    SetTransfers,
    TellGuest,
    AnnounceGpu>;

/// True for the verbs that only the owner may use: an agent may take back, and never give back.
bool is_owner_only(const Request& request);

struct NumberedRequest {
  std::uint64_t number = 0;
  Request request;

  friend bool operator==(const NumberedRequest&, const NumberedRequest&) = default;
};

using Reply = std::variant<Answer, StateChanged>;

Blob encode(const NumberedRequest& request);
Result<NumberedRequest> decode_request(BlobView bytes);
Blob encode(const Reply& reply);
Result<Reply> decode_reply(BlobView bytes);

/// The emergency verbs without a decoder: one packet on the second socket, answered by one
/// KillFrame with `status`.
struct KillFrame {
  static constexpr std::uint32_t kMagic = 0x314b4e52;  ///< "RNK1"

  enum Verb : std::uint32_t {
    kCutAndClear = 1,
    kCutOnly = 2,
    kStatus = 3,
    kCutTransfers = 4,    ///< the agent's transfers, none of them is ended
    kAllowTransfers = 5,  ///< they go on; never by the agent's word
  };

  std::uint32_t magic = kMagic;
  std::uint32_t verb = kStatus;
  std::uint64_t gpu_mask = 0;    ///< bit per GPU index; 0 = whole node
  std::int64_t declared_ns = 0;  ///< of an order: when it was given; 0 = when it is read
  std::int64_t cut_ns = 0;
  std::int64_t killed_ns = 0;
  std::int64_t cleared_ns = 0;
  std::uint32_t processes = 0;
  /// 0 = cleared, 1 = still clearing, 2 = wedged, 3 = refused, 4 = nothing done: a release of the
  /// whole node was given after `declared_ns` of the order, 5 = transfers are not bounded here
  std::uint32_t status = 0;
};

static_assert(sizeof(KillFrame) == 56);

/// KillFrame's bits for these GPUs: none set for an index that no node has. Pure.
std::uint64_t mask_of(const std::vector<std::uint32_t>& gpus);
/// kInvalid, naming the index, when one of them is kMaxGpus or more: no bit would stand for it.
/// Pure.
Status check_gpus(const std::vector<std::uint32_t>& gpus);

}  // namespace rn::warden_wire
