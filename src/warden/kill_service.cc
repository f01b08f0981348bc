// SPDX-License-Identifier: Apache-2.0
#include "warden/kill_service.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "io/errno_error.h"
#include "io/precedence.h"
#include "io/read_text.h"

namespace rn::warden {

namespace {

using warden_wire::KillFrame;

constexpr int kClientLimitMs = 1000;  ///< a client that says nothing does not keep others waiting
constexpr int kStrangerLimitMs = 20;
constexpr int kGuardStepMs = 10;
constexpr milliseconds kGuardLimit = seconds(60);  ///< longer than an engine's start may take
constexpr milliseconds kLookLimit = seconds(1);

enum FrameStatus : std::uint32_t { kCleared, kClearing, kWedged, kRefused, kOver, kNotBounded };

bool is_order(const KillFrame& frame) {
  return frame.verb == KillFrame::kCutAndClear || frame.verb == KillFrame::kCutOnly;
}

bool is_about_transfers(const KillFrame& frame) {
  return frame.verb == KillFrame::kCutTransfers || frame.verb == KillFrame::kAllowTransfers;
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(ErrorCode::kInvalid, "the socket's path is too long: " + path);
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

bool carry_out(
    KillPath& kill, const SlotGpus& gpus, const Clock& clock, KillFrame& frame, EmergencyDone& done
) {
  KillOrder order;
  order.declared = clock.now().boot;
  done.ordered_ns = frame.declared_ns;
  if (frame.gpu_mask != 0) {
    order.scope.is_node = false;
    order.scope.gpus = frame.gpu_mask;
    for (std::size_t slot = 0; slot < gpus.size(); ++slot) {
      if ((gpus[slot].load() & frame.gpu_mask) != 0) order.scope.slots.set(slot);
    }
  }
  if (frame.verb == KillFrame::kStatus) {
    const Remains& seen = kill.look(order.scope, kLookLimit);
    frame.status = seen.is_empty() ? kCleared : kClearing;
    frame.processes = static_cast<std::uint32_t>(seen.total());
    return false;
  }
  if (!is_order(frame)) {
    frame.status = kRefused;
    return false;
  }
  const bool is_cut_only = frame.verb == KillFrame::kCutOnly;
  const KillReport& report = is_cut_only ? kill.cut(order) : kill.clear(order);
  frame.declared_ns = to_ns(report.declared);
  frame.cut_ns = report.is_passed_by ? 0 : to_ns(report.cut);
  frame.killed_ns = to_ns(report.killed);
  frame.cleared_ns = to_ns(report.cleared);
  frame.processes = report.processes;
  const bool is_done = is_cut_only ? report.is_cut() : report.is_cleared();
  frame.status = is_done ? kCleared : kWedged;

  done.gpu_mask = frame.gpu_mask;
  done.is_cut_only = is_cut_only;
  done.declared_ns = frame.declared_ns;
  done.cut_ns = to_ns(report.cut);  // the gates', which stay shut
  done.report.killed_ns = frame.killed_ns;
  done.report.cleared_ns = frame.cleared_ns;
  done.report.processes = report.processes;
  if (is_cut_only) return true;
  // From here on it may allocate: the guests are gone.
  done.report.remains = report.remains.describe();
  if (!report.is_cleared() && done.report.remains.empty())
    done.report.remains.push_back("not verified in time");
  if (done.report.killed_ns == 0) done.report.killed_ns = to_ns(clock.now().boot);
  return true;
}

void carry_out(TransfersCut& cut, const Clock& clock, KillFrame& frame) {
  const bool is_cut = frame.verb == KillFrame::kCutTransfers;
  if (frame.declared_ns == 0) frame.declared_ns = to_ns(clock.now().boot);
  const Status set = cut.set_gate(!is_cut);
  frame.status = set ? kCleared : kWedged;
  if (set && is_cut) frame.cut_ns = to_ns(clock.now().boot);
}

std::vector<EmergencyDone> emergencies_of(
    const std::vector<KillRecord>& records, const std::string& boot_id, Instant now
) {
  std::vector<EmergencyDone> events;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const KillRecord& intent = records[i];
    if (intent.step == KillStep::kDone) continue;
    EmergencyDone event;
    event.sequence = events.size() + 1;
    event.is_cut_only = intent.step == KillStep::kIntentCut;
    const bool is_this_boot =
        std::string(intent.boot_id.data(), strnlen(intent.boot_id.data(), intent.boot_id.size())) ==
        boot_id;
    event.declared_ns = is_this_boot ? intent.declared_boot_ns : to_ns(now);
    event.cut_ns = event.declared_ns;
    // Version 1 named guests, which may be gone by now: the whole node rather than nothing.
    if (intent.is_node == 0 && intent.version >= 2) event.gpu_mask = intent.gpus;
    for (std::size_t k = i + 1; k < records.size(); ++k) {
      if (records[k].step != KillStep::kDone ||
          records[k].declared_boot_ns != intent.declared_boot_ns)
        continue;
      event.report.processes = records[k].processes;
      if (records[k].cleared_boot_ns != 0) {
        event.report.cleared_ns = is_this_boot ? records[k].cleared_boot_ns : to_ns(now);
        event.report.killed_ns = event.report.cleared_ns;
      }
      break;
    }
    events.push_back(std::move(event));
  }
  return events;
}

ByHand by_hand(std::uint64_t gpu_mask, const Result<Journal>& journal) {
  ByHand order{gpu_mask, {}, {}};
  if (gpu_mask == 0) return order;
  if (!journal) {
    order.widened = journal.error().message;
  } else if (journal->boot_id.empty()) {
    order.widened = "the warden's journal is empty";
  }
  if (!order.widened.empty()) {
    order.gpu_mask = 0;
    return order;
  }
  for (const GuestRecord& guest : journal->guests) {
    if (guest.slot < kSlots && !guest.container.empty()) order.guests.push_back(guest);
  }
  return order;
}

std::uint64_t emergencies_over(std::uint64_t recorded, bool was_open) {
  return was_open || recorded == 0 ? recorded : recorded - 1;
}

KillService::KillService(
    std::string path,
    std::vector<std::uint32_t> uids,
    std::unique_ptr<KillPath> kill,
    std::uint64_t sequence,
    const Clock& clock,
    Done done
)
    : socket_path_(std::move(path)),
      owner_uids_(std::move(uids)),
      kill_(std::move(kill)),
      slot_gpus_(parent_folder(socket_path_) + "/" RN_CUT_SLOT_GPUS_FILE),
      sequence_(sequence),
      clock_(clock),
      done_(std::move(done)) {}

Result<std::unique_ptr<KillService>> KillService::start(
    const std::string& path,
    std::vector<std::uint32_t> owner_uids,
    std::unique_ptr<KillPath> kill,
    std::uint64_t first_sequence,
    const Clock& clock,
    Done done
) {
  RN_TRY(const sockaddr_un address, address_of(path));
  std::unique_ptr<KillService> service(new KillService(
      path, std::move(owner_uids), std::move(kill), first_sequence, clock, std::move(done)
  ));
  service->listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (service->listener_ < 0) return fail(io::error_from_errno(errno, "kill socket"));
  unlink(path.c_str());
  if (bind(service->listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), 0666) != 0 || listen(service->listener_, 16) != 0 ||
      pipe2(service->stop_, O_CLOEXEC) != 0)
    return fail(io::error_from_errno(errno, path));
  {
    // Its thread logs nothing, since standard error may hang.
    const io::Precedence asked;
    if (!asked.is_raised())
      log::warning(
          "warden.kill_socket_waits_for_a_processor", {{"why", std::strerror(asked.error())}}
      );
  }
  service->thread_ = std::thread([raw = service.get()] { raw->run(); });
  return service;
}

KillService::~KillService() {
  if (thread_.joinable()) {
    [[maybe_unused]] const ssize_t told = write(stop_[1], "x", 1);
    thread_.join();
  }
  for (const int fd : {listener_, stop_[0], stop_[1]}) {
    if (fd >= 0) close(fd);
  }
  if (listener_ >= 0) unlink(socket_path_.c_str());
}

void KillService::run() {
  pthread_setname_np(pthread_self(), "kill-socket");
  StandingPrecedence precedence(clock_);
  for (;;) {
    pollfd ready[2] = {{listener_, POLLIN, 0}, {stop_[0], POLLIN, 0}};
    const bool is_on_guard = clock_.now().boot < guards_until_;
    const int count = poll(ready, 2, is_on_guard ? kGuardStepMs : precedence.wait_ms());
    if (is_on_guard) stand_guard();
    if (count > 0 && ready[1].revents != 0) return;
    const int client = count > 0 ? accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC) : -1;
    if (client >= 0) {
      serve(client, precedence);
      close(client);
    }
    precedence.look();
  }
}

/// An engine that was starting a container when the node was cleared brings up its init later. It
/// can neither fork nor pass its gate; it goes at once all the same, and does not wait for the
/// engine.
void KillService::stand_guard() {
  if (!kill_.use([](KillPath& kill) { return kill.kill_latecomers(); })) guards_until_ = {};
}

void KillService::serve(int client, StandingPrecedence& precedence) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  // By SO_PEERCRED: anybody may connect, only the owner is heard. A stranger's frame is taken off
  // the socket all the same, since an answer to a peer with unread bytes comes after a reset.
  const bool is_owner =
      peer.uid == 0 ||
      std::find(owner_uids_.begin(), owner_uids_.end(), peer.uid) != owner_uids_.end();
  pollfd ready{client, POLLIN, 0};
  const bool has_said = poll(&ready, 1, is_owner ? kClientLimitMs : kStrangerLimitMs) == 1;
  KillFrame frame;
  const bool has_frame =
      has_said && recv(client, &frame, sizeof frame, MSG_DONTWAIT) == sizeof frame;
  if (is_owner && !has_frame) return;
  EmergencyDone done;
  bool is_deed = false;
  if (!is_owner || frame.magic != KillFrame::kMagic) {
    frame = KillFrame{};
    frame.status = kRefused;
  } else if (is_about_transfers(frame)) {
    order_transfers(frame, peer.uid);
  } else if (is_order(frame) && frame.declared_ns != 0 && frame.declared_ns < released_ns_) {
    frame.status = kOver;
  } else {
    if (is_order(frame)) {
      count_.is_cut_only = frame.verb == KillFrame::kCutOnly;
      count_.gpu_mask = frame.gpu_mask;
      count_.declared_ns = to_ns(clock_.now().boot);
      ++count_.begun;
    } else {
      precedence.lower();  // a question looks through all of /proc
    }
    is_deed =
        kill_.use([&](KillPath& kill) { return carry_out(kill, gpus(), clock_, frame, done); });
  }
  if (is_deed && !done.is_cut_only && done.gpu_mask == 0)
    guards_until_ = clock_.now().boot + kGuardLimit;
  // Before the answer: who has it and asks the daemon next is not told the state before the deed.
  if (is_deed) {
    done.sequence = ++sequence_;
    done_(std::move(done));
  }
  send(client, &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void KillService::share_transfers(
    TransfersCut cut, std::uint32_t agent_uid, std::function<void()> told
) {
  const std::lock_guard lock(transfers_mutex_);
  transfers_.emplace(Transfers{std::move(cut), agent_uid, std::move(told)});
}

void KillService::order_transfers(KillFrame& frame, std::uint32_t uid) {
  const std::lock_guard lock(transfers_mutex_);
  if (!transfers_) {
    frame.status = kNotBounded;
  } else if (frame.verb == KillFrame::kAllowTransfers && uid == transfers_->agent_uid) {
    frame.status = kRefused;
  } else {
    carry_out(transfers_->cut, clock_, frame);
    transfers_->told();
  }
}

namespace {

/// Of a process that is stopped or traced no answer comes, however long one waits. Read from
/// /proc/PID/stat: "PID (NAME) STATE …".
bool is_stopped(pid_t pid) {
  const std::string stat = io::read_text("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = stat.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return false;
  const char state = stat[name_end + 2];
  return state == 'T' || state == 't';
}

/// 0, or errno.
int connects(int fd, const sockaddr_un& address) {
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

bool has_stopped_listener(int fd) {
  ucred listener{};
  socklen_t size = sizeof listener;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &size) == 0 && listener.pid > 0 &&
         is_stopped(listener.pid);
}

bool names_stopped_process(const std::string& pid_file) {
  const pid_t pid = pid_file.empty() ? 0 : std::atoi(io::read_text(pid_file).c_str());
  return pid > 0 && is_stopped(pid);
}

}  // namespace

Result<KillFrame> ask_kill_socket(
    const std::string& path, const KillFrame& frame, milliseconds limit, const std::string& pid_file
) {
  RN_TRY(const sockaddr_un address, address_of(path));
  const io::Precedence precedence;  // of root alone; it sleeps until the answer comes
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail(io::error_from_errno(errno, "kill socket"));
  KillFrame answer;
  Status status;
  const auto give_up = std::chrono::steady_clock::now() + limit;
  int error = connects(fd, address);
  // So many wait before us that the kernel takes no more: a flood, through which an order comes.
  bool hears_nobody = false;
  while (error == EAGAIN && std::chrono::steady_clock::now() < give_up) {
    hears_nobody = names_stopped_process(pid_file);
    if (hears_nobody) break;
    poll(nullptr, 0, 1);
    error = connects(fd, address);
  }
  hears_nobody = hears_nobody || (error == 0 && has_stopped_listener(fd));
  if (hears_nobody) {
    status = fail(ErrorCode::kTimeout, "the warden is stopped");
  } else if (error == EAGAIN) {
    status = fail(ErrorCode::kTimeout, "too many others ask the warden");
  } else if (error != 0) {
    status = fail(ErrorCode::kUnavailable, "nobody listens at " + path);
  } else {
    // Who is refused unheard has the answer before it sends, and then perhaps nobody to send to.
    [[maybe_unused]] const ssize_t sent = send(fd, &frame, sizeof frame, MSG_NOSIGNAL);
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(limit.count())) != 1) {
      status = fail(ErrorCode::kTimeout, "the warden does not answer");
    } else {
      ssize_t got = recv(fd, &answer, sizeof answer, 0);
      if (got < 0 && errno == ECONNRESET) got = recv(fd, &answer, sizeof answer, 0);  // told once
      if (got != sizeof answer) status = fail(ErrorCode::kUnavailable, "the warden hung up");
    }
  }
  close(fd);
  if (!status) return fail(status.error());
  return answer;
}

}  // namespace rn::warden
