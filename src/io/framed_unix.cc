// SPDX-License-Identifier: Apache-2.0
#include "io/framed_unix.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "io/errno_error.h"
#include "io/fd.h"
#include "io/net.h"
#include "io/socket_stream.h"

namespace rn::io {
namespace {

using error_code = boost::system::error_code;

constexpr std::size_t kReadBytes = 4096;

UnixPeer peer_of(int fd) {
  ucred raw{};
  socklen_t size = sizeof(raw);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &raw, &size) != 0) return UnixPeer{0, ~0U, ~0U};
  return UnixPeer{raw.pid, raw.uid, raw.gid};
}

Blob encode_frame(std::uint8_t type, BlobView body) {
  const auto header = encode_frame_header(type, static_cast<std::uint32_t>(body.size()));
  Blob bytes(header.size() + body.size());
  std::copy(body.begin(), body.end(), std::copy(header.begin(), header.end(), bytes.begin()));
  return bytes;
}

class UnixSession final : public FramedUnixSession,
                          public std::enable_shared_from_this<UnixSession> {
 public:
  UnixSession(Loop& loop, Fd fd, UnixPeer peer, const FramedUnixServerConfig& config)
      : loop_(loop),
        peer_(peer),
        max_frame_bytes_(config.max_frame_bytes),
        max_queued_bytes_(config.max_queued_bytes),
        decoder_(config.max_frame_bytes),
        stream_(make_stream(loop, std::move(fd))) {}

  void start() { read_next(); }

  void on_finished(std::function<void()> fn) { on_finished_ = std::move(fn); }

  Status send(std::uint8_t type, BlobView body) override {
    if (!is_open_) return fail(ErrorCode::kUnavailable, "the local client is gone");
    if (body.size() > max_frame_bytes_)
      return fail(ErrorCode::kInvalid, "the frame is over the limit");
    if (queued_bytes_ + body.size() > max_queued_bytes_) {
      close();
      return fail(ErrorCode::kExhausted, "the local client does not read its answers");
    }
    queue_.push_back(encode_frame(type, body));
    queued_bytes_ += queue_.back().size();
    if (!is_writing_) write_next();
    return {};
  }

  void close() override {
    if (!is_open_) return;
    is_open_ = false;
    stream_.close_now();
    loop_.post([self = shared_from_this()] { self->finish(); });
  }

  void on_frame(std::function<void(Frame)> fn) override { on_frame_ = std::move(fn); }

  void on_close(std::function<void()> fn) override { on_close_ = std::move(fn); }

  const UnixPeer& peer() const override { return peer_; }

 private:
  static SocketStream make_stream(Loop& loop, Fd fd) {
    const int raw = fd.get();
    return SocketStream(loop.context(), std::move(fd), Channel::plain(raw));
  }

  void read_next() {
    stream_.async_read_some(
        boost::asio::buffer(buffer_),
        [self = shared_from_this()](error_code error, std::size_t bytes) {
          if (error || !self->is_open_) return self->close();
          self->on_read(BlobView(self->buffer_.data(), bytes));
        }
    );
  }

  void on_read(BlobView bytes) {
    while (is_open_ && !bytes.empty()) {
      auto frame = decoder_.take(bytes);
      if (!frame) {
        log::warning("framed_unix.bad_frame", {{"why", frame.error().describe()}});
        return close();
      }
      const auto callback = on_frame_;  // a copy: it may replace itself
      if (*frame && callback) callback(std::move(**frame));
    }
    if (is_open_) read_next();
  }

  void write_next() {
    is_writing_ = true;
    const Blob& front = queue_.front();
    stream_.async_write_some(
        boost::asio::buffer(front.data() + offset_, front.size() - offset_),
        [self = shared_from_this()](error_code error, std::size_t bytes) {
          self->is_writing_ = false;
          if (error || !self->is_open_) return self->close();
          self->on_written(bytes);
        }
    );
  }

  void on_written(std::size_t bytes) {
    offset_ += bytes;
    if (offset_ == queue_.front().size()) {
      queued_bytes_ -= offset_;
      offset_ = 0;
      queue_.pop_front();
    }
    if (!queue_.empty()) write_next();
  }

  void finish() {
    on_frame_ = nullptr;
    const auto finished = std::exchange(on_finished_, nullptr);
    const auto closed = std::exchange(on_close_, nullptr);
    if (finished) finished();
    if (closed) closed();
  }

  Loop& loop_;
  const UnixPeer peer_;
  const std::size_t max_frame_bytes_;
  const std::size_t max_queued_bytes_;
  FrameDecoder decoder_;
  SocketStream stream_;
  std::array<std::uint8_t, kReadBytes> buffer_{};
  std::deque<Blob> queue_;  ///< the front one is being written
  std::size_t queued_bytes_ = 0;
  std::size_t offset_ = 0;  ///< written of the front
  bool is_writing_ = false;
  bool is_open_ = true;
  std::function<void(Frame)> on_frame_;
  std::function<void()> on_close_;
  std::function<void()> on_finished_;
};

}  // namespace

struct FramedUnixServer::State : std::enable_shared_from_this<FramedUnixServer::State> {
  State(Loop& owner, FramedUnixServerConfig settings, Opened callback)
      : loop(owner), config(std::move(settings)), opened(std::move(callback)) {}

  Loop& loop;
  FramedUnixServerConfig config;
  Opened opened;
  Fd listener;
  WatchId watch;
  std::uint64_t next_id = 1;
  std::map<std::uint64_t, std::shared_ptr<UnixSession>> sessions;

  bool is_allowed(const UnixPeer& peer) const {
    const auto& uids = config.allowed_uids;
    if (uids.empty()) return peer.uid == 0 || peer.uid == geteuid();
    return std::find(uids.begin(), uids.end(), peer.uid) != uids.end();
  }

  void accept_one() {
    Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    const UnixPeer peer = peer_of(fd.get());
    if (!is_allowed(peer)) {
      log::warning("framed_unix.denied", {{"uid", peer.uid}, {"pid", peer.pid}});
      return;
    }
    if (sessions.size() >= config.max_connections) {
      log::warning("framed_unix.full", {{"uid", peer.uid}, {"pid", peer.pid}});
      return;
    }
    const std::uint64_t id = next_id++;
    const auto session = std::make_shared<UnixSession>(loop, std::move(fd), peer, config);
    sessions[id] = session;
    session->on_finished([weak = weak_from_this(), id] {
      if (const auto self = weak.lock()) self->sessions.erase(id);
    });
    opened(session);
    session->start();
  }
};

FramedUnixServer::FramedUnixServer(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<FramedUnixServer>> FramedUnixServer::start(
    Loop& loop, FramedUnixServerConfig config, Opened opened
) {
  auto state = std::make_shared<State>(loop, std::move(config), std::move(opened));
  RN_TRY(state->listener, listen_unix(state->config.path, state->config.mode));
  RN_TRY(state->watch, loop.watch_readable(state->listener.get(), [raw = state.get()] {
    raw->accept_one();
  }));
  return std::unique_ptr<FramedUnixServer>(new FramedUnixServer(std::move(state)));
}

FramedUnixServer::~FramedUnixServer() {
  state_->loop.unwatch(state_->watch);
  for (const auto& [id, session] : state_->sessions) session->close();
  (void)unlink(state_->config.path.c_str());
}

std::size_t FramedUnixServer::connections() const {
  return state_->sessions.size();
}

struct FramedUnixClient::State {
  State(Fd socket, std::size_t max) : fd(std::move(socket)), max_frame_bytes(max), decoder(max) {}

  Fd fd;
  std::size_t max_frame_bytes;
  FrameDecoder decoder;
  std::array<std::uint8_t, kReadBytes> buffer{};
  BlobView unread;
};

FramedUnixClient::FramedUnixClient(std::unique_ptr<State> state) : state_(std::move(state)) {}

FramedUnixClient::~FramedUnixClient() = default;

Result<std::unique_ptr<FramedUnixClient>> FramedUnixClient::connect(
    const std::string& path, std::size_t max_frame_bytes
) {
  RN_TRY(Fd fd, connect_unix(path));
  auto state = std::make_unique<State>(std::move(fd), max_frame_bytes);
  return std::unique_ptr<FramedUnixClient>(new FramedUnixClient(std::move(state)));
}

Status FramedUnixClient::send(std::uint8_t type, BlobView body, milliseconds timeout) {
  if (body.size() > state_->max_frame_bytes)
    return fail(ErrorCode::kInvalid, "the frame is over the limit");
  const Deadline deadline(timeout);
  const Blob bytes = encode_frame(type, body);
  Channel channel = Channel::plain(state_->fd.get());
  BlobView left = bytes;
  while (!left.empty()) {
    const Channel::Step step = channel.write(left);
    if (step.want == Channel::Want::kFailed) return fail(channel.error());
    if (step.want == Channel::Want::kDone) left = left.subspan(step.bytes);
    if (step.want == Channel::Want::kWritable && !wait_for(state_->fd.get(), POLLOUT, deadline))
      return fail(ErrorCode::kTimeout, "the local server takes no more data");
  }
  return {};
}

Result<Frame> FramedUnixClient::receive(milliseconds timeout) {
  const Deadline deadline(timeout);
  Channel channel = Channel::plain(state_->fd.get());
  for (;;) {
    RN_TRY(auto frame, state_->decoder.take(state_->unread));
    if (frame) return std::move(*frame);
    const Channel::Step step = channel.read(state_->buffer);
    if (step.want == Channel::Want::kFailed) return fail(channel.error());
    if (step.want == Channel::Want::kEnd)
      return fail(ErrorCode::kUnavailable, "the local server closed the connection");
    if (step.want == Channel::Want::kDone)
      state_->unread = BlobView(state_->buffer.data(), step.bytes);
    if (step.want == Channel::Want::kReadable && !wait_for(state_->fd.get(), POLLIN, deadline))
      return fail(ErrorCode::kTimeout, "no answer from the local server in time");
  }
}

UnixPeer FramedUnixClient::peer() const {
  return peer_of(state_->fd.get());
}

int FramedUnixClient::fd() const {
  return state_->fd.get();
}

}  // namespace rn::io
