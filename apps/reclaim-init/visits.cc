// SPDX-License-Identifier: Apache-2.0
#include "visits.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rn::init {

namespace {

using tunnel::Kind;
using visit::Frame;

constexpr std::int64_t kRequestMs = 15'000;
constexpr std::int64_t kKillMs = 5000;  ///< from SIGHUP to SIGKILL
constexpr std::int64_t kKillAgainMs = 1000;
/// For the user's side to close when all was said.
constexpr std::int64_t kCloseMs = 60'000;
/// A terminal's last output comes through the kernel a moment later than its writer's end.
constexpr std::int64_t kDrainMs = 1000;
/// What is read after a command's end: others may write there for ever.
constexpr std::size_t kAfterEndMax = 1u << 20;
constexpr int kHeardAtOnce = 16;
constexpr int kReadAtOnce = 4;
constexpr std::uint8_t kEndOfInput = 4;  ///< Ctrl-D, as a terminal's reader sees an end
constexpr int kPolledOfOne = 4;

bool is_not_now() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

void close_one(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

bool is_passed_on(int signal) {
  for (const int one : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
    if (signal == one) return true;
  }
  return false;
}

}  // namespace

Visits::Visit Visits::places_[kPlaces];

void Visits::take(int packets, std::int64_t now) {
  Visit* place = nullptr;
  for (Visit& one : places_) {
    if (one.phase == Phase::kFree) place = &one;
  }
  if (place == nullptr) {
    constexpr char kBusy[] =
        "\x03"
        "eight commands of `reclaim exec` and `reclaim cp` run there already";
    static_assert(static_cast<char>(Kind::kRefused) == kBusy[0] && kPlaces == 8);
    send(packets, kBusy, sizeof kBusy - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(packets);
    return;
  }
  Visit& one = *place;
  one.phase = Phase::kAsked;
  one.has_terminal = one.is_copy = one.has_child = one.has_input_ended = one.has_said_over = false;
  one.code = 0;
  one.packets = packets;
  one.input = one.output = one.errors = -1;
  one.child = 0;
  one.until = now + kRequestMs;
  one.drained_by = 0;
  one.after_end = one.input_from = one.input_to = one.held = 0;
  one.taken = 0;
  one.end.begin(tunnel::kWindowToUser);
  const auto word = static_cast<std::uint8_t>(Kind::kOpened);
  bool is_full = false;
  if (!say(one, &word, 1, is_full) || is_full) end(one);
}

/// Of a descriptor without events to wait for, -1: its errors would wake us for ever.
void Visits::fill(pollfd* out) const {
  for (int i = 0; i < kPlaces; ++i) {
    const Visit& one = places_[i];
    pollfd* const four = out + kPolledOfOne * i;
    for (int k = 0; k < kPolledOfOne; ++k) four[k] = {-1, 0, 0};
    if (one.phase == Phase::kFree) continue;
    if (one.packets >= 0)
      four[0] = {one.packets, static_cast<short>(has_word(one) ? POLLIN | POLLOUT : POLLIN), 0};
    if (one.input >= 0 && one.input_to > one.input_from) four[1] = {one.input, POLLOUT, 0};
    if (!may_read(one)) continue;
    if (one.output >= 0) four[2] = {one.output, POLLIN, 0};
    if (one.errors >= 0) four[3] = {one.errors, POLLIN, 0};
  }
}

/// Something that waits only for room at the agent.
bool Visits::has_word(const Visit& one) {
  std::uint8_t credit[End::kCreditPacket];
  if (one.held > 0 || one.end.credit_packet(credit) > 0) return true;
  if (one.phase != Phase::kTelling || one.end.has_sent_end()) return false;
  return one.has_said_over || one.end.may_send() > visit::kHeadBytes + 4;
}

/// More of what the child says.
bool Visits::may_read(const Visit& one) {
  return one.phase == Phase::kRunning && one.held == 0 &&
         one.end.may_send() > visit::kHeadBytes + 4;
}

void Visits::step(const pollfd* ready, std::int64_t now) {
  for (int i = 0; i < kPlaces; ++i) serve(places_[i], ready[kPolledOfOne * i].revents != 0, now);
}

std::int64_t Visits::wakes_at() const {
  std::int64_t first = -1;
  for (const Visit& one : places_) {
    if (one.phase == Phase::kFree) continue;
    for (const std::int64_t at : {one.until, one.drained_by}) {
      if (at != 0 && (first < 0 || at < first)) first = at;
    }
  }
  return first;
}

void Visits::on_ended(pid_t pid, int status, std::int64_t now) {
  for (Visit& one : places_) {
    if (one.phase == Phase::kFree || !one.has_child || one.child != pid) continue;
    one.has_child = false;
    one.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (one.has_terminal) one.drained_by = now + kDrainMs;
    if (one.phase != Phase::kDying) continue;
    signal_session(pid, SIGKILL);  // what it has left behind
    end(one);
  }
}

void Visits::serve(Visit& one, bool is_heard, std::int64_t now) {
  if (one.phase == Phase::kFree) return;
  if (is_heard && one.packets >= 0 && !hear(one, now)) return;
  if (one.phase == Phase::kDying) {
    if (now < one.until) return;
    one.until = now + kKillAgainMs;
    return signal_session(one.child, SIGKILL);
  }
  if (!pump(one, now)) return lose_user(one, now);
  if (one.end.has_sent_end() && one.until == 0) one.until = now + kCloseMs;
  if (one.phase == Phase::kTelling && one.end.has_sent_end() && one.end.has_heard_end())
    return end(one);
  if (one.until != 0 && now >= one.until) lose_user(one, now);
}

// ---- from the user

bool Visits::hear(Visit& one, std::int64_t now) {
  static std::uint8_t packet[tunnel::kPacketMax + 1];
  for (int round = 0; round < kHeardAtOnce; ++round) {
    const ssize_t got = recv(one.packets, packet, sizeof packet, MSG_DONTWAIT);
    if (got < 0 && is_not_now()) return true;
    const bool is_fine =
        got > 0 && one.end.hear(packet, static_cast<std::size_t>(got)) == End::Heard::kFine &&
        (one.phase == Phase::kTelling || !one.end.has_heard_end()) && obey_frames(one);
    if (is_fine) continue;
    lose_user(one, now);
    return false;
  }
  return true;
}

/// False: it does not keep to the rules.
bool Visits::obey_frames(Visit& one) {
  visit::Cut frame{};
  while (one.end.waiting_bytes() > 0) {
    switch (visit::cut(one.end.waiting(), one.end.waiting_bytes(), frame)) {
      case visit::Cutting::kMore:
        return true;
      case visit::Cutting::kBad:
        return false;
      case visit::Cutting::kWhole:
        break;
    }
    if (!obey(one, frame)) return false;
    one.end.wrote(frame.used);
  }
  return true;
}

bool Visits::obey(Visit& one, const visit::Cut& frame) {
  if (frame.frame == Frame::kAlive) return frame.size == 0;
  if (one.phase == Phase::kTelling) return true;  // sent before it heard of the end
  if (one.phase == Phase::kAsked) return begin_child(one, frame);
  switch (frame.frame) {
    case Frame::kInput:
      return take_input(one, frame);
    case Frame::kInputEnd:
      if (frame.size != 0 || one.has_input_ended) return false;
      one.has_input_ended = true;
      return true;
    case Frame::kSize: {
      if (frame.size != 4) return false;
      winsize window{};
      window.ws_row = visit::read_u16(frame.body);
      window.ws_col = visit::read_u16(frame.body + 2);
      if (one.has_terminal && one.output >= 0) ioctl(one.output, TIOCSWINSZ, &window);
      return true;
    }
    case Frame::kSignal:
      if (frame.size != 1 || !is_passed_on(frame.body[0])) return false;
      // It is not reaped yet, so the number is its own.
      if (one.has_child) kill(-one.child, frame.body[0]);
      return true;
    default:
      return false;
  }
}

bool Visits::begin_child(Visit& one, const visit::Cut& frame) {
  static visit::Run command;
  static char path[visit::kPathMax + 1];
  switch (frame.frame) {
    case Frame::kRun:
      if (!visit::read_run(frame.body, frame.size, command)) return false;
      run(one, command);
      return true;
    case Frame::kSend:
    case Frame::kTake:
      if (!visit::read_path(frame.body, frame.size, path)) return false;
      copy(one, frame.frame == Frame::kSend, path);
      return true;
    default:
      return false;
  }
}

void Visits::run(Visit& one, const visit::Run& command) {
  VisitChild child;
  if (!start_command(command, mask_, child))
    return cannot(one, command.has_terminal ? "no terminal or process" : "no process", errno);
  one.has_terminal = command.has_terminal;
  one.has_input_ended = !command.has_input;
  adopt(one, child);
}

void Visits::copy(Visit& one, bool is_sent, const char* path) {
  VisitChild child;
  if (!start_copy(is_sent, path, mask_, child)) return cannot(one, "no process", errno);
  one.is_copy = true;
  one.has_input_ended = is_sent;
  adopt(one, child);
}

void Visits::adopt(Visit& one, const VisitChild& child) {
  one.child = child.pid;
  one.input = child.input;
  one.output = child.output;
  one.errors = child.errors;
  one.has_child = true;
  one.phase = Phase::kRunning;
  one.until = 0;
}

bool Visits::take_input(Visit& one, const visit::Cut& frame) {
  const std::size_t waiting = one.input_to - one.input_from;
  if (frame.size == 0 || one.has_input_ended || waiting + frame.size > visit::kInputWindow)
    return false;
  if (one.input < 0) {  // nobody reads it any more
    one.taken += static_cast<std::uint32_t>(frame.size);
    return true;
  }
  if (one.input_to + frame.size > visit::kInputWindow) {
    memmove(one.input_bytes, one.input_bytes + one.input_from, waiting);
    one.input_from = 0;
    one.input_to = waiting;
  }
  memcpy(one.input_bytes + one.input_to, frame.body, frame.size);
  one.input_to += frame.size;
  return true;
}

// ---- from the child

bool Visits::pump(Visit& one, std::int64_t now) {
  bool is_full = false;
  std::uint8_t credit[End::kCreditPacket];
  if (const std::size_t size = one.end.credit_packet(credit); size > 0) {
    if (!say(one, credit, size, is_full)) return false;
    if (!is_full) one.end.gave_credit();
  }
  if (!flush(one)) return false;
  if (one.phase == Phase::kAsked) return true;
  if (one.phase == Phase::kTelling) return tell_over(one);
  write_input(one);
  const bool has_all_taken = one.taken > 0 && one.input_to == one.input_from;
  const bool is_worth_it = has_all_taken || one.taken >= visit::kInputWindow / 4;
  if (is_worth_it && may_read(one)) {
    std::uint8_t taken[4];
    tunnel::write_u32(taken, one.taken);
    one.taken = 0;
    hold(one, Frame::kTaken, taken, sizeof taken);
    if (!flush(one)) return false;
  }
  if (one.drained_by != 0 && now >= one.drained_by) close_one(one.output);
  if (!read_output(one, one.output, Frame::kOutput)) return false;
  if (!read_output(one, one.errors, Frame::kErrors)) return false;
  if (one.has_child || one.output >= 0 || one.errors >= 0) return true;
  close_one(one.input);
  one.drained_by = 0;
  one.phase = Phase::kTelling;  // for as long as its user takes to read what came before
  return tell_over(one);
}

void Visits::write_input(Visit& one) {
  while (one.input >= 0 && one.input_to > one.input_from) {
    const ssize_t put =
        write(one.input, one.input_bytes + one.input_from, one.input_to - one.input_from);
    if (put < 0 && is_not_now()) return;
    if (put <= 0) {
      one.taken += static_cast<std::uint32_t>(one.input_to - one.input_from);
      one.input_from = one.input_to = 0;
      close_one(one.input);
      return;
    }
    one.taken += static_cast<std::uint32_t>(put);
    one.input_from += static_cast<std::size_t>(put);
  }
  if (one.input_from == one.input_to) one.input_from = one.input_to = 0;
  if (one.has_input_ended && one.input_to == 0) end_input(one);
}

void Visits::end_input(Visit& one) {
  if (one.input < 0) return;
  if (one.has_terminal) (void)!write(one.input, &kEndOfInput, 1);
  close_one(one.input);
}

/// False: the agent is gone.
bool Visits::read_output(Visit& one, int& from, visit::Frame frame) {
  for (int round = 0; round < kReadAtOnce && from >= 0 && may_read(one); ++round) {
    const std::size_t room = one.end.may_send() - visit::kHeadBytes;
    const std::size_t most = room < visit::kBodyMax ? room : visit::kBodyMax;
    const ssize_t got = read(from, one.packet + 1 + visit::kHeadBytes, most);
    if (got < 0 && is_not_now()) {
      // A pipe has nothing more of a child that has ended; a terminal may, for a moment.
      if (!one.has_child && !one.has_terminal) close_one(from);
      return true;
    }
    if (got <= 0) {
      close_one(from);
      return true;
    }
    hold(one, frame, nullptr, static_cast<std::size_t>(got));
    if (!one.has_child) one.after_end += static_cast<std::size_t>(got);
    if (one.after_end > kAfterEndMax) close_one(from);
    if (!flush(one)) return false;
  }
  return true;
}

/// The code, and then the tunnel's own end. False: the agent is gone.
bool Visits::tell_over(Visit& one) {
  if (one.held > 0) return true;
  if (!one.has_said_over) {
    if (one.end.may_send() <= visit::kHeadBytes + 4) return true;
    const auto code = static_cast<std::uint8_t>(one.code);
    hold(one, Frame::kOver, &code, 1);
    one.has_said_over = true;
    if (!flush(one)) return false;
  }
  if (one.held > 0 || one.end.has_sent_end()) return true;
  const auto word = static_cast<std::uint8_t>(Kind::kEnd);
  bool is_full = false;
  if (!say(one, &word, 1, is_full)) return false;
  if (!is_full) one.end.sent_end();
  return true;
}

// ---- to the agent

/// Makes the next packet; its body is there already where `body` is a null pointer.
void Visits::hold(Visit& one, visit::Frame frame, const void* body, std::size_t size) {
  one.packet[0] = static_cast<std::uint8_t>(Kind::kData);
  visit::write_head(one.packet + 1, frame, size);
  if (body != nullptr) memcpy(one.packet + 1 + visit::kHeadBytes, body, size);
  one.held = 1 + visit::kHeadBytes + size;
  one.end.sent(visit::kHeadBytes + size);
}

/// False: the agent is gone.
bool Visits::flush(Visit& one) {
  if (one.held == 0) return true;
  bool is_full = false;
  if (!say(one, one.packet, one.held, is_full)) return false;
  if (!is_full) one.held = 0;
  return true;
}

void Visits::cannot(Visit& one, const char* what, int error) {
  char words[200];
  const int size =
      snprintf(words, sizeof words, "it cannot begin in the guest (%s): %s", what, strerror(error));
  const bool is_whole = size > 0 && static_cast<std::size_t>(size) < sizeof words;
  hold(one, Frame::kCannot, words, is_whole ? static_cast<std::size_t>(size) : sizeof words - 1);
  one.has_said_over = true;
  one.phase = Phase::kTelling;  // its deadline is that of the request
}

/// False: the agent is gone. Full: it was not said, and may be said later.
bool Visits::say(Visit& one, const std::uint8_t* packet, std::size_t size, bool& is_full) {
  const ssize_t put = send(one.packets, packet, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  is_full = put < 0 && is_not_now();
  return put >= 0 || is_full;
}

// ---- ends

/// A copy ends by itself when nobody sends or takes; a command is told, as by a terminal that is
/// gone.
void Visits::lose_user(Visit& one, std::int64_t now) {
  close_one(one.packets);
  close_child(one);
  if (!one.has_child) return end(one);
  one.phase = Phase::kDying;
  one.drained_by = 0;
  one.until = now + kKillMs;
  if (one.is_copy) return;
  signal_session(one.child, SIGHUP);
  signal_session(one.child, SIGCONT);
}

void Visits::close_child(Visit& one) {
  close_one(one.input);
  close_one(one.output);
  close_one(one.errors);
}

void Visits::end(Visit& one) {
  close_one(one.packets);
  close_child(one);
  one.phase = Phase::kFree;
}

}  // namespace rn::init
