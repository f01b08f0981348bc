// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <deque>
#include <optional>
#include <utility>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <sys/socket.h>

#include "base/log.h"
#include "io/http_error.h"
#include "io/http_server_internal.h"
#include "io/net.h"
#include "io/socket_stream.h"
#include "io/taken_socket.h"

namespace rn::io {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using error_code = boost::system::error_code;

constexpr std::size_t kWatchBytes = 1024;          ///< read ahead while a request is handled
constexpr std::size_t kJoinedBodyBytes = 8 << 10;  ///< a shorter body shares its head's write
constexpr std::uint32_t kUnsentBytes = 1 << 20;    ///< in the kernel, of a connection that is paced
constexpr milliseconds kLinger = seconds(1);       ///< for the peer to read the last answer

class Connection;

std::string http_date(WallTime now) {
  const std::time_t whole = static_cast<std::time_t>(to_ms(now) / 1000);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  std::array<char, 64> text{};
  const std::size_t size =
      std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), size};
}

bool is_clean_header(const std::string& name, const std::string& value) {
  const auto breaks = [](char c) { return c == '\r' || c == '\n' || c == '\0'; };
  return std::none_of(name.begin(), name.end(), breaks) &&
         std::none_of(value.begin(), value.end(), breaks);
}

}  // namespace

/// Shared by the handles of one stream, which may outlive the connection. When the last one goes
/// away the stream is cut.
struct ResponseStream::State {
  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::weak_ptr<Connection> connection;
  std::function<void()> on_drained;
  std::function<void()> on_closed;
  bool is_open = true;
};

/// Shared by the handles of one request; the last one that goes away unused answers 500.
struct Responder::State {
  explicit State(std::weak_ptr<Connection> owner) : connection(std::move(owner)) {}

  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::weak_ptr<Connection> connection;
  bool is_used = false;
};

namespace {

class Connection final : public HttpConnection, public std::enable_shared_from_this<Connection> {
 public:
  Connection(
      std::shared_ptr<HttpServerCore> core,
      std::uint64_t id,
      Fd fd,
      Channel channel,
      bool is_refusing
  )
      : core_(std::move(core)),
        id_(id),
        is_refusing_(is_refusing),
        remote_(remote_of(fd.get())),
        buffer_(core_->config.max_header_bytes + 2 * kWatchBytes) {
    if (!core_->config.unix_path.empty()) peer_uid_ = peer_uid_of(fd.get());
    stream_.emplace(core_->loop.context(), std::move(fd), std::move(channel));
  }

  void start() override {
    set_deadline(core_->config.header_timeout);
    if (!stream_->channel().is_tls()) return await_request();
    stream_->async_handshake([self = shared_from_this()](error_code error, std::size_t) {
      if (self->phase_ == Phase::kClosed) return;
      if (error) return self->linger();
      self->identity_ = self->stream_->channel().peer_identity();
      self->key_ = self->stream_->channel().peer_key();
      self->await_request();
    });
  }

  void close() override {
    if (phase_ == Phase::kClosed) return;
    const auto keep = shared_from_this();
    phase_ = Phase::kClosed;
    core_->loop.cancel(deadline_);
    if (stream_) stream_->close_now();
    core_->connections.erase(id_);
    tell_stream_closed();
  }

  // --- for the handles

  bool is_open() const override { return phase_ != Phase::kClosed; }

  Status pace(std::uint64_t bytes_per_second) override {
    if (!core_->config.unix_path.empty())
      return fail(ErrorCode::kUnsupported, "a Unix socket is not paced");
    // Else a socket that was fast and is slow now would take nothing for longer than write_timeout.
    bound_unsent(stream_->fd(), kUnsentBytes);
    return stream_->channel().pace(bytes_per_second);
  }

  std::uint64_t bytes_waiting() override {
    return out_bytes_ + unacknowledged_bytes(stream_->fd());
  }

  std::uint64_t bytes_given() const override { return given_bytes_; }

  Loop& loop() { return core_->loop; }

  bool is_client_gone() const { return is_gone_ || phase_ == Phase::kClosed; }

  std::size_t queued_bytes() const { return out_bytes_; }

  bool has_credentials() const { return has_credentials_; }

  void respond(HttpResponse response) {
    if (phase_ != Phase::kHandling) return;
    const std::size_t size = response.body.size();
    std::string head = head_of(response, "Content-Length: " + std::to_string(size) + "\r\n");
    phase_ = Phase::kAnswering;
    is_ending_ = true;
    if (is_head_) response.body.clear();
    if (response.body.size() <= kJoinedBodyBytes) {
      enqueue(head + response.body);
    } else {
      enqueue(std::move(head));
      enqueue(std::move(response.body));
    }
  }

  std::shared_ptr<ResponseStream::State> begin_stream(HttpResponse head) {
    auto handle = std::make_shared<ResponseStream::State>();
    handle->connection = weak_from_this();
    if (phase_ != Phase::kHandling) {
      handle->is_open = false;
      return handle;
    }
    is_chunked_ = version_ >= 11;
    keeps_alive_ = keeps_alive_ && is_chunked_;
    phase_ = Phase::kAnswering;
    streaming_ = handle;
    enqueue(head_of(head, is_chunked_ ? "Transfer-Encoding: chunked\r\n" : ""));
    if (!head.body.empty()) (void)write_chunk(std::move(head.body));
    return handle;
  }

  Status write_chunk(std::string chunk) {
    if (chunk.empty() || is_head_) return {};
    if (out_bytes_ > 0 && out_bytes_ + chunk.size() > core_->config.max_stream_buffer_bytes)
      return fail(ErrorCode::kExhausted, "the client does not read fast enough");
    if (!is_chunked_) {
      enqueue(std::move(chunk));
      return {};
    }
    std::array<char, 24> size{};
    (void)std::snprintf(size.data(), size.size(), "%zx\r\n", chunk.size());
    enqueue(std::string(size.data()) + chunk + "\r\n");
    return {};
  }

  void finish_stream() {
    if (phase_ != Phase::kAnswering) return;
    streaming_.reset();
    is_ending_ = true;
    if (is_chunked_ && !is_head_) return enqueue("0\r\n\r\n");
    if (!is_writing_) after_answer();
  }

 private:
  enum class Phase { kOpening, kWaiting, kReading, kHandling, kAnswering, kLingering, kClosed };

  static std::optional<std::uint32_t> peer_uid_of(int fd) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
    return peer.uid;
  }

  // --- deadlines: one at a time

  void set_deadline(milliseconds after) {
    core_->loop.cancel(deadline_);
    deadline_ = core_->loop.run_after(after, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->on_deadline();
    });
  }

  void clear_deadline() {
    core_->loop.cancel(deadline_);
    deadline_ = TimerId{};
  }

  void on_deadline() {
    if (phase_ == Phase::kReading && !is_writing_) {
      refuse(408, Error{ErrorCode::kTimeout, "the request came too slowly", "send it again"});
    } else {
      close();
    }
  }

  // --- reading a request

  /// Between requests: waits for the first byte.
  void await_request() {
    if (core_->is_stopped) return close();
    const bool is_first = phase_ == Phase::kOpening;
    phase_ = Phase::kWaiting;
    if (buffer_.size() > 0) return read_header();
    if (!is_first) set_deadline(core_->config.idle_timeout);
    watch_peer();
  }

  /// One read ahead: notices the client's end while its request is handled, and the next request's
  /// beginning.
  void watch_peer() {
    if (is_reading_ || buffer_.size() > 0) return;
    is_reading_ = true;
    stream_->async_read_some(
        buffer_.prepare(kWatchBytes),
        [self = shared_from_this()](error_code error, std::size_t bytes) {
          self->is_reading_ = false;
          self->buffer_.commit(bytes);
          self->on_peer(error);
        }
    );
  }

  void on_peer(error_code error) {
    if (phase_ == Phase::kClosed) return;
    if (phase_ == Phase::kLingering) return error ? close() : drain();
    if (!error) return phase_ == Phase::kWaiting ? read_header() : void();
    // A short answer may still reach a client that ended only its own direction.
    const bool is_half_open = error == boost::asio::error::eof && streaming_.expired();
    if (!is_half_open || phase_ == Phase::kWaiting) return close();
    is_gone_ = true;
    keeps_alive_ = false;
  }

  void read_header() {
    phase_ = Phase::kReading;
    set_deadline(core_->config.header_timeout);
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(core_->config.max_header_bytes));
    parser_->body_limit(boost::none);
    http::async_read_header(
        *stream_,
        buffer_,
        *parser_,
        [self = shared_from_this()](error_code error, std::size_t) { self->on_header(error); }
    );
  }

  void on_header(error_code error) {
    if (phase_ != Phase::kReading) return;
    if (error) return on_bad_request(error);
    const auto& message = parser_->get();
    version_ = message.version();
    keeps_alive_ = parser_->keep_alive();
    is_head_ = message.method() == http::verb::head;
    has_credentials_ = identity_ || peer_uid_ || !message[http::field::authorization].empty();
    if (is_refusing_) {
      return refuse(
          503, Error{ErrorCode::kUnavailable, "too many connections", "try again in a moment"}
      );
    }
    const Status target = take_target();
    if (!target) return refuse(400, target.error());
    if (core_->wants && core_->wants(request_)) return give_away();
    if (beast::websocket::is_upgrade(message)) {
      const auto route = core_->routes.find(request_.path);
      if (route != core_->routes.end()) return upgrade(route->second);
    }
    begin_body();
  }

  Status take_target() {
    const auto& message = parser_->get();
    request_ = HttpRequest{};
    request_.method = std::string(message.method_string());
    target_ = std::string(message.target());
    const std::string_view target = target_;
    const std::size_t mark = std::min(target.find('?'), target.size());
    if (target.empty() || target.front() != '/')
      return fail(ErrorCode::kInvalid, "the request's target must begin with '/'");
    RN_TRY(request_.path, percent_decode(target.substr(0, mark)));
    request_.query = mark < target.size() ? target.substr(mark + 1) : std::string_view();
    for (const auto& field : message)
      request_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    request_.peer_identity = identity_;
    request_.peer_key = key_;
    request_.peer_uid = peer_uid_;
    request_.remote = remote_;
    request_.target = target_;
    return {};
  }

  void begin_body() {
    const auto& config = core_->config;
    body_limit_ = config.body_limit ? config.body_limit(request_.path) : config.max_body_bytes;
    const auto announced = parser_->content_length();
    if (announced && *announced > body_limit_) return refuse_body();
    parser_->body_limit(body_limit_);
    parser_->eager(true);
    if (announced.value_or(0) > kWatchBytes || parser_->chunked())
      buffer_.reserve(buffer_.max_size());
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue") && version_ >= 11)
      enqueue("HTTP/1.1 100 Continue\r\n\r\n");
    read_body();
  }

  void read_body() {
    if (parser_->is_done()) return dispatch();
    set_deadline(core_->config.body_timeout);
    http::async_read_some(
        *stream_,
        buffer_,
        *parser_,
        [self = shared_from_this()](error_code error, std::size_t) {
          if (self->phase_ != Phase::kReading) return;
          if (error) return self->on_bad_request(error);
          self->read_body();
        }
    );
  }

  void refuse_body() {
    refuse(
        413,
        Error{
            ErrorCode::kInvalid,
            "the body is longer than the " + std::to_string(body_limit_) + " bytes allowed for " +
                request_.path,
            "send less at once"}
    );
  }

  void on_bad_request(error_code error) {
    if (error == http::error::body_limit) return refuse_body();
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      const std::string limit = std::to_string(core_->config.max_header_bytes);
      return refuse(
          431, Error{ErrorCode::kInvalid, "the header is longer than " + limit + " bytes", {}}
      );
    }
    const bool is_syntax =
        error.category() == http::make_error_code(http::error::bad_method).category();
    if (!is_syntax || error == http::error::end_of_stream || error == http::error::partial_message)
      return close();
    refuse(400, Error{ErrorCode::kInvalid, "this is not HTTP: " + error.message(), {}});
  }

  /// Answers and closes, whatever of the request is still to come.
  void refuse(int status, const Error& error) {
    HttpResponse response = error_response(error);
    response.status = status;
    keeps_alive_ = false;
    phase_ = Phase::kHandling;
    respond(std::move(response));
  }

  void dispatch() {
    clear_deadline();
    request_.body = std::move(parser_->get().body());
    parser_.reset();
    phase_ = Phase::kHandling;
    if (buffer_.size() == 0) buffer_.shrink_to_fit();
    watch_peer();
    core_->handler(
        std::move(request_), Responder(std::make_shared<Responder::State>(weak_from_this()))
    );
  }

  void upgrade(const HttpServerCore::Route& route) {
    const Status admitted = route.admit ? route.admit(request_) : Status();
    if (!admitted) {
      keeps_alive_ = false;
      phase_ = Phase::kHandling;
      return respond(error_response(admitted.error(), HttpErrorContext{has_credentials_, false}));
    }
    if (buffer_.size() > 0)
      return refuse(400, Error{ErrorCode::kInvalid, "data before the upgrade was accepted", {}});
    clear_deadline();
    const auto self = shared_from_this();
    phase_ = Phase::kClosed;
    parser_.reset();
    core_->connections.erase(id_);
    const auto core = core_;
    const std::uint64_t id = id_;
    const auto session = accept_websocket(
        core->loop,
        *std::exchange(stream_, std::nullopt),
        request_,
        target_,
        core->config.websocket,
        WebSocketPeer{identity_, remote_},
        [core,
         request = request_,
         opened = route.opened](Result<std::shared_ptr<WebSocketSession>> ready) {
          if (ready && !core->is_stopped) opened(request, std::move(*ready));
        }
    );
    core->websockets[id] = session;
    session->on_finished([core, id] { core->websockets.erase(id); });
  }

  /// What was read beyond the head is the first that its taker reads.
  void give_away() {
    clear_deadline();
    const auto self = shared_from_this();
    phase_ = Phase::kClosed;
    parser_.reset();
    core_->connections.erase(id_);
    const auto core = core_;
    const std::uint64_t id = id_;
    Blob ahead(buffer_.size());
    boost::asio::buffer_copy(boost::asio::buffer(ahead), buffer_.data());
    const auto taken = std::make_shared<TakenSocket>(
        core->loop,
        *std::exchange(stream_, std::nullopt),
        std::move(ahead),
        core->config.write_timeout,
        [core, id] { core->given_away.erase(id); }
    );
    core->given_away[id] = taken;
    core->taken(std::move(request_), taken);
  }

  // --- writing

  std::string head_of(const HttpResponse& response, const std::string& framing) const {
    const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
    std::string head = version_ >= 11 ? "HTTP/1.1 " : "HTTP/1.0 ";
    head += std::to_string(response.status) + " " + std::string(reason) + "\r\n";
    head += "Date: " + http_date(core_->loop.now().wall) + "\r\n";
    for (const auto& [name, value] : response.headers) {
      if (is_clean_header(name, value)) head += name + ": " + value + "\r\n";
    }
    if (response.status != 204 && response.status != 304) head += framing;
    if (!keeps_alive_) head += "Connection: close\r\n";
    if (keeps_alive_ && version_ < 11) head += "Connection: keep-alive\r\n";
    return head + "\r\n";
  }

  void enqueue(std::string bytes) {
    if (bytes.empty() || phase_ == Phase::kClosed) return;
    out_bytes_ += bytes.size();
    given_bytes_ += bytes.size();
    out_.push_back(std::move(bytes));
    if (!is_writing_) write_next();
  }

  void write_next() {
    is_writing_ = true;
    if (phase_ == Phase::kAnswering) set_deadline(core_->config.write_timeout);
    const std::string& front = out_.front();
    stream_->async_write_some(
        boost::asio::buffer(front.data() + out_offset_, front.size() - out_offset_),
        [self = shared_from_this()](error_code error, std::size_t bytes) {
          self->is_writing_ = false;
          self->on_written(error, bytes);
        }
    );
  }

  void on_written(error_code error, std::size_t bytes) {
    if (phase_ == Phase::kClosed) return;
    if (error) return close();
    out_bytes_ -= bytes;
    out_offset_ += bytes;
    if (out_offset_ == out_.front().size()) {
      out_.pop_front();
      out_offset_ = 0;
    }
    if (!out_.empty()) return write_next();
    if (phase_ != Phase::kAnswering) return;  // it was "100 Continue"
    clear_deadline();
    if (is_ending_) return after_answer();
    const auto stream = streaming_.lock();
    const auto drained = stream ? stream->on_drained : nullptr;
    if (drained) drained();
  }

  void after_answer() {
    is_ending_ = false;
    is_chunked_ = false;
    if (!keeps_alive_ || core_->is_stopped) return linger();
    await_request();
  }

  /// Lets the peer read our last words: closing at once would destroy them if data of the peer is
  /// still unread.
  void linger() {
    phase_ = Phase::kLingering;
    stream_->channel().end_writing();
    set_deadline(kLinger);
    if (!is_reading_) drain();  // otherwise the watch's end is the peer's
  }

  void drain() {
    stream_->async_drain([self = shared_from_this()](error_code, std::size_t) { self->close(); });
  }

  void tell_stream_closed() {
    const auto stream = std::exchange(streaming_, {}).lock();
    if (!stream) return;
    stream->is_open = false;
    stream->on_drained = nullptr;
    if (const auto closed = std::exchange(stream->on_closed, nullptr)) closed();
  }

  const std::shared_ptr<HttpServerCore> core_;
  const std::uint64_t id_;
  const bool is_refusing_;
  const std::string remote_;
  std::optional<SocketStream> stream_;  ///< gone after an upgrade
  std::optional<std::string> identity_;
  std::optional<Digest> key_;
  std::optional<std::uint32_t> peer_uid_;

  Phase phase_ = Phase::kOpening;
  TimerId deadline_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  bool is_reading_ = false;  ///< watch_peer's read is under way
  bool is_gone_ = false;

  // The request that is being answered.
  HttpRequest request_;
  std::string target_;
  std::size_t body_limit_ = 0;
  unsigned version_ = 11;
  bool keeps_alive_ = false;
  bool is_head_ = false;
  bool has_credentials_ = false;

  std::deque<std::string> out_;
  std::size_t out_offset_ = 0;  ///< written of the front
  std::size_t out_bytes_ = 0;   ///< not yet written of all
  std::uint64_t given_bytes_ = 0;
  bool is_writing_ = false;
  bool is_ending_ = false;  ///< the answer is over when out_ is empty
  bool is_chunked_ = false;
  std::weak_ptr<ResponseStream::State> streaming_;
};

}  // namespace

std::shared_ptr<HttpConnection> make_http_connection(
    std::shared_ptr<HttpServerCore> core, std::uint64_t id, Fd fd, Channel channel, bool is_refusing
) {
  return std::make_shared<Connection>(
      std::move(core), id, std::move(fd), std::move(channel), is_refusing
  );
}

Responder::State::~State() {
  const auto owner = connection.lock();
  if (is_used || !owner || owner->is_client_gone()) return;
  log::error("http.unanswered");
  owner->loop().post([connection = connection] {
    const auto alive = connection.lock();
    if (alive)
      alive->respond(error_response(Error{ErrorCode::kInternal, "no answer was given", {}}));
  });
}

void Responder::send(HttpResponse response) const {
  if (state_->is_used) return log::error("http.answered_twice");
  state_->is_used = true;
  if (const auto connection = state_->connection.lock()) connection->respond(std::move(response));
}

void Responder::send_error(const Error& error) const {
  const auto connection = state_->connection.lock();
  const bool has_credentials = connection && connection->has_credentials();
  send(error_response(error, HttpErrorContext{has_credentials, false}));
}

ResponseStream Responder::stream(HttpResponse head) const {
  const auto connection = state_->is_used ? nullptr : state_->connection.lock();
  if (state_->is_used) log::error("http.answered_twice");
  state_->is_used = true;
  if (connection) return ResponseStream(connection->begin_stream(std::move(head)));
  auto closed = std::make_shared<ResponseStream::State>();
  closed->is_open = false;
  return ResponseStream(std::move(closed));
}

bool Responder::is_client_gone() const {
  const auto connection = state_->connection.lock();
  return !connection || connection->is_client_gone();
}

SendingSide Responder::sending_side() const {
  return SendingSide(state_->connection);
}

bool SendingSide::is_open() const {
  const auto connection = connection_.lock();
  return connection && connection->is_open();
}

bool SendingSide::is_same(const SendingSide& other) const {
  return !connection_.owner_before(other.connection_) &&
         !other.connection_.owner_before(connection_);
}

Status SendingSide::pace(std::uint64_t bytes_per_second) const {
  const auto connection = connection_.lock();
  if (!connection || !connection->is_open())
    return fail(ErrorCode::kUnavailable, "the client is gone");
  return connection->pace(bytes_per_second);
}

std::uint64_t SendingSide::bytes_waiting() const {
  const auto connection = connection_.lock();
  return connection && connection->is_open() ? connection->bytes_waiting() : 0;
}

std::uint64_t SendingSide::bytes_given() const {
  const auto connection = connection_.lock();
  return connection ? connection->bytes_given() : 0;
}

ResponseStream::State::~State() {
  const auto owner = connection.lock();
  if (!is_open || !owner) return;
  owner->loop().post([connection = connection] {
    if (const auto alive = connection.lock()) alive->close();
  });
}

Status ResponseStream::write(std::string chunk) {
  const auto connection = state_->is_open ? state_->connection.lock() : nullptr;
  if (!connection) return fail(ErrorCode::kUnavailable, "the client is gone");
  return connection->write_chunk(std::move(chunk));
}

void ResponseStream::finish() {
  if (!std::exchange(state_->is_open, false)) return;
  // The callbacks may own this handle: they die after it was used.
  const auto drained = std::exchange(state_->on_drained, nullptr);
  const auto closed = std::exchange(state_->on_closed, nullptr);
  if (const auto connection = state_->connection.lock()) connection->finish_stream();
}

void ResponseStream::abort() {
  if (!state_->is_open) return;
  const auto drained = std::exchange(state_->on_drained, nullptr);
  const auto closed = std::exchange(state_->on_closed, nullptr);
  state_->is_open = false;
  if (const auto connection = state_->connection.lock()) connection->close();
}

void ResponseStream::on_drained(std::function<void()> fn) {
  if (state_->is_open) state_->on_drained = std::move(fn);
}

void ResponseStream::on_closed(std::function<void()> fn) {
  if (state_->is_open) state_->on_closed = std::move(fn);
}

std::size_t ResponseStream::queued_bytes() const {
  const auto connection = state_->is_open ? state_->connection.lock() : nullptr;
  return connection ? connection->queued_bytes() : 0;
}

bool ResponseStream::is_open() const {
  return state_->is_open;
}

}  // namespace rn::io
