// SPDX-License-Identifier: Apache-2.0
#include "io/framed.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "io/errno_error.h"
#include "io/framed_internal.h"
#include "io/net.h"

namespace rn::io {
namespace {

constexpr std::size_t kRecordBytes = 16 << 10;

using Want = Channel::Want;

}  // namespace

std::array<std::uint8_t, kFrameHeaderBytes> encode_frame_header(
    std::uint8_t type, std::uint32_t body_bytes
) {
  return {
      static_cast<std::uint8_t>(body_bytes),
      static_cast<std::uint8_t>(body_bytes >> 8),
      static_cast<std::uint8_t>(body_bytes >> 16),
      static_cast<std::uint8_t>(body_bytes >> 24),
      type};
}

Result<std::optional<Frame>> FrameDecoder::take(BlobView& in) {
  while (header_have_ < kFrameHeaderBytes) {
    if (in.empty()) return std::nullopt;
    header_[header_have_++] = in.front();
    in = in.subspan(1);
    if (header_have_ < kFrameHeaderBytes) continue;
    body_need_ = std::size_t{header_[0]} | std::size_t{header_[1]} << 8 |
                 std::size_t{header_[2]} << 16 | std::size_t{header_[3]} << 24;
    if (body_need_ > max_) {
      return fail(
          ErrorCode::kInvalid,
          "a frame of " + std::to_string(body_need_) + " bytes is over the limit of " +
              std::to_string(max_)
      );
    }
    frame_.type = header_[4];
    // Address space only: the kernel gives pages as bytes arrive.
    frame_.body.reserve(body_need_);
  }
  const std::size_t more = std::min(body_need_ - frame_.body.size(), in.size());
  frame_.body.insert(frame_.body.end(), in.begin(), in.begin() + static_cast<std::ptrdiff_t>(more));
  in = in.subspan(more);
  if (frame_.body.size() < body_need_) return std::nullopt;
  header_have_ = 0;
  return std::exchange(frame_, Frame{});
}

struct FramedConnection::State {
  State(Fd socket, Channel stream, std::size_t max)
      : fd(std::move(socket)), channel(std::move(stream)), max_frame_bytes(max), decoder(max) {}

  Fd fd;
  std::mutex channel_mutex;  ///< guards channel; never held while waiting
  Channel channel;
  std::mutex send_mutex;  ///< keeps frames whole; taken before channel_mutex
  std::size_t max_frame_bytes;
  std::optional<std::string> identity;
  std::string remote;
  std::string local;
  std::atomic<bool> is_shut{false};
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> received{0};

  // The receiver's own.
  FrameDecoder decoder;
  Blob buffer = Blob(kRecordBytes);
  BlobView unread;

  Error closed() const {
    return Error{ErrorCode::kUnavailable, "the connection to " + remote + " is closed", {}};
  }

  /// Turns an unfinished step into a wait. False: the deadline is over.
  bool await(Want want, const Deadline& deadline) const {
    return wait_for(fd.get(), want == Want::kReadable ? POLLIN : POLLOUT, deadline);
  }

  Status write_all(BlobView bytes, const Deadline& deadline) {
    while (!bytes.empty()) {
      Channel::Step step;
      {
        const std::lock_guard lock(channel_mutex);
        step = channel.write(bytes);
        if (step.want == Want::kFailed)
          return fail(is_shut ? closed() : channel.error().with("sending to " + remote));
      }
      if (step.want == Want::kEnd) return fail(closed());
      if (step.want == Want::kDone) {
        sent += step.bytes;
        bytes = bytes.subspan(step.bytes);
      } else if (!await(step.want, deadline)) {
        return fail(ErrorCode::kTimeout, remote + " takes no more data");
      }
    }
    return {};
  }

  Status read_some(const Deadline& deadline) {
    for (;;) {
      Channel::Step step;
      {
        const std::lock_guard lock(channel_mutex);
        step = channel.read(buffer);
        if (step.want == Want::kFailed)
          return fail(is_shut ? closed() : channel.error().with("receiving from " + remote));
      }
      if (step.want == Want::kEnd) return fail(closed());
      if (step.want == Want::kDone) {
        unread = BlobView(buffer.data(), step.bytes);
        return {};
      }
      if (!await(step.want, deadline)) return fail(ErrorCode::kTimeout, "no data from " + remote);
    }
  }
};

Result<std::unique_ptr<FramedConnection>> finish_handshake(
    Fd fd, Channel channel, const Deadline& deadline, std::size_t max_frame_bytes
) {
  const std::string remote = remote_of(fd.get());
  for (;;) {
    const Channel::Step step = channel.handshake();
    if (step.want == Want::kDone) break;
    if (step.want == Want::kFailed || step.want == Want::kEnd)
      return fail(channel.error().with("connecting to " + remote));
    const short events = step.want == Want::kReadable ? POLLIN : POLLOUT;
    if (!wait_for(fd.get(), events, deadline))
      return fail(ErrorCode::kTimeout, "no TLS handshake with " + remote + " in time");
  }
  auto identity = channel.peer_identity();
  auto state =
      std::make_unique<FramedConnection::State>(std::move(fd), std::move(channel), max_frame_bytes);
  state->identity = std::move(identity);
  state->remote = remote;
  state->local = local_of(state->fd.get());
  return std::make_unique<FramedConnection>(std::move(state));
}

Result<std::unique_ptr<FramedConnection>> FramedConnection::connect(const FramedClientConfig& config
) {
  (void)std::signal(SIGPIPE, SIG_IGN);  // NOLINT(concurrency-mt-unsafe): idempotent
  const Deadline deadline(config.connect_timeout);
  RN_TRY(const SslContext context, make_client_context(config.tls, config.host));
  RN_TRY(Fd fd, connect_tcp(config.host, config.port, deadline, config.socket_mark));
  RN_TRY(Channel channel, Channel::tls_client(fd.get(), context, config.host));
  return finish_handshake(std::move(fd), std::move(channel), deadline, config.max_frame_bytes);
}

FramedConnection::FramedConnection(std::unique_ptr<State> state) : state_(std::move(state)) {}

FramedConnection::~FramedConnection() {
  shut_down();
}

Status FramedConnection::send(std::uint8_t type, BlobView body, milliseconds timeout) {
  if (body.size() > state_->max_frame_bytes)
    return fail(ErrorCode::kInvalid, "the frame is over the limit");
  const Deadline deadline(timeout);
  const auto header = encode_frame_header(type, static_cast<std::uint32_t>(body.size()));
  // The header shares its TLS record, and its packet, with the beginning of the body.
  std::array<std::uint8_t, kRecordBytes> first{};
  const std::size_t with_header = std::min(body.size(), first.size() - header.size());
  std::copy(header.begin(), header.end(), first.begin());
  std::copy_n(body.begin(), with_header, first.begin() + header.size());

  const std::lock_guard lock(state_->send_mutex);
  RN_CHECK(state_->write_all(BlobView(first.data(), header.size() + with_header), deadline));
  RN_CHECK(state_->write_all(body.subspan(with_header), deadline));
  return {};
}

Result<Frame> FramedConnection::receive(milliseconds timeout) {
  const Deadline deadline(timeout);
  for (;;) {
    RN_TRY(auto frame, state_->decoder.take(state_->unread));
    if (frame) {
      state_->received += kFrameHeaderBytes + frame->body.size();
      return std::move(*frame);
    }
    RN_CHECK(state_->read_some(deadline));
  }
}

void FramedConnection::shut_down() {
  if (state_->is_shut.exchange(true)) return;
  {
    const std::lock_guard lock(state_->channel_mutex);
    state_->channel.end_writing();
  }
  (void)shutdown(state_->fd.get(), SHUT_RDWR);
}

void FramedConnection::abort() {
  state_->is_shut = true;
  const std::lock_guard lock(state_->channel_mutex);
  const int fd = state_->fd.get();
  const linger now{1, 0};
  (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  // The kernel drops its queue and says so at once, also while others hold the descriptor.
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  (void)::connect(fd, &nobody, sizeof(nobody));
  (void)shutdown(fd, SHUT_RDWR);
}

void FramedConnection::bound_unsent(std::uint32_t bytes) {
  io::bound_unsent(state_->fd.get(), bytes);
}

Status FramedConnection::set_pacing_rate(std::uint64_t bytes_per_second) {
  const std::lock_guard lock(state_->channel_mutex);
  return state_->channel.pace(bytes_per_second);
}

std::uint64_t FramedConnection::bytes_sent() const {
  return state_->sent;
}

std::uint64_t FramedConnection::bytes_received() const {
  return state_->received;
}

std::uint64_t FramedConnection::unacknowledged_bytes() const {
  return io::unacknowledged_bytes(state_->fd.get());
}

RoundTrip FramedConnection::round_trip() const {
  return look_at_tcp(state_->fd.get()).round_trip;
}

const std::optional<std::string>& FramedConnection::peer_identity() const {
  return state_->identity;
}

const std::string& FramedConnection::remote() const {
  return state_->remote;
}

const std::string& FramedConnection::local() const {
  return state_->local;
}

}  // namespace rn::io
