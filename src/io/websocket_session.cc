// SPDX-License-Identifier: Apache-2.0
#include "io/websocket_session.h"

#include <deque>
#include <utility>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket/stream.hpp>

#include "io/http_error.h"
#include "io/socket_stream.h"

namespace rn::io {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using error_code = boost::system::error_code;

constexpr std::size_t kKeptBufferBytes = 16 << 10;  ///< an idle connection keeps no more

class Session final : public WebSocketSession, public std::enable_shared_from_this<Session> {
 public:
  Session(Loop& loop, SocketStream stream, const WebSocketLimits& limits, WebSocketPeer peer)
      : loop_(loop), limits_(limits), peer_(std::move(peer)), stream_(std::move(stream)) {
    websocket::stream_base::timeout timeout{};
    timeout.handshake_timeout = limits_.handshake_timeout;
    timeout.idle_timeout = limits_.idle_timeout;
    timeout.keep_alive_pings = true;
    stream_.set_option(timeout);
    stream_.read_message_max(limits_.max_message_bytes);
    stream_.auto_fragment(false);
    stream_.binary(true);
  }

  void accept(const HttpRequest& request, const std::string& target, WebSocketReady ready) {
    http::request<http::string_body> upgrade{http::string_to_verb(request.method), target, 11};
    for (const auto& [name, value] : request.headers) upgrade.insert(name, value);
    stream_.async_accept(
        upgrade,
        [self = shared_from_this(), ready = std::move(ready)](error_code error) {
          self->on_ready(error, ready, {});
        }
    );
  }

  void handshake(
      const std::string& host, const std::string& target, HttpHeaders headers, WebSocketReady ready
  ) {
    stream_.set_option(websocket::stream_base::decorator([headers = std::move(headers
                                                          )](websocket::request_type& request) {
      for (const auto& [name, value] : headers) request.set(name, value);
    }));
    auto answer = std::make_shared<websocket::response_type>();
    stream_.async_handshake(
        *answer,
        host,
        target,
        [self = shared_from_this(), ready = std::move(ready), answer](error_code error) {
          self->on_ready(error, ready, answer);
        }
    );
  }

  Status send(Blob message) override {
    if (phase_ != Phase::kOpen)
      return fail(ErrorCode::kUnavailable, "the connection to " + peer_.remote + " is closed");
    if (queue_.size() >= limits_.max_queued_messages ||
        queued_bytes_ + message.size() > limits_.max_queued_bytes) {
      const Error full{ErrorCode::kExhausted, peer_.remote + " does not read what it is sent", {}};
      abandon(full);
      return fail(full);
    }
    queued_bytes_ += message.size();
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) write_next();
    return {};
  }

  void close(const std::string& reason) override {
    close_with(
        websocket::close_code::normal,
        reason,
        Error{ErrorCode::kUnavailable, "closed: " + reason, {}}
    );
  }

  void close_at_once() override {
    abandon(Error{ErrorCode::kUnavailable, "the server has ended", {}});
  }

  void on_message(std::function<void(Blob)> fn) override { on_message_ = std::move(fn); }

  void on_close(std::function<void(const Error&)> fn) override { on_close_ = std::move(fn); }

  void on_finished(std::function<void()> fn) override { on_finished_ = std::move(fn); }

  std::size_t queued_bytes() const override { return queued_bytes_; }

  bool is_open() const override { return phase_ == Phase::kOpen; }

  const std::optional<std::string>& peer_identity() const override { return peer_.identity; }

  const std::string& remote() const override { return peer_.remote; }

 private:
  enum class Phase { kOpening, kOpen, kClosing, kClosed };

  void on_ready(
      error_code error,
      const WebSocketReady& ready,
      const std::shared_ptr<websocket::response_type>& answer
  ) {
    if (error || end_) {
      const Error why = end_ ? *end_ : opening_error(error, answer);
      ready(fail(why));
      return finish(why);
    }
    phase_ = Phase::kOpen;
    ready(std::static_pointer_cast<WebSocketSession>(shared_from_this()));
    if (phase_ == Phase::kOpen) read_next();
  }

  Error opening_error(error_code error, const std::shared_ptr<websocket::response_type>& answer) {
    if (error == websocket::error::upgrade_declined && answer)
      return error_from_http(static_cast<int>(answer->result_int()), answer->body());
    return error_of(error);
  }

  Error error_of(error_code error) {
    if (error == beast::error::timeout)
      return Error{ErrorCode::kTimeout, "no sign of life from " + peer_.remote, {}};
    if (error == websocket::error::closed) {
      const auto& reason = stream_.reason();
      return Error{
          ErrorCode::kUnavailable,
          peer_.remote + " closed the connection: " + reason.reason.c_str(),
          {}};
    }
    if (error == websocket::error::message_too_big)
      return Error{ErrorCode::kExhausted, peer_.remote + " sent a message over the limit", {}};
    if (error == boost::asio::error::connection_aborted)
      return stream_.next_layer().channel().error().with(peer_.remote);
    if (error.category() == websocket::make_error_code(websocket::error::closed).category())
      return Error{
          ErrorCode::kInvalid, peer_.remote + " broke the protocol: " + error.message(), {}};
    return Error{ErrorCode::kUnavailable, "lost " + peer_.remote + ": " + error.message(), {}};
  }

  void read_next() {
    stream_.async_read(buffer_, [self = shared_from_this()](error_code error, std::size_t) {
      self->on_read(error);
    });
  }

  void on_read(error_code error) {
    if (error) return finish(error_of(error));
    if (!stream_.got_binary()) {
      close_with(
          websocket::close_code::unknown_data,
          "binary messages only",
          Error{ErrorCode::kInvalid, peer_.remote + " sent a text message", {}}
      );
      return;
    }
    const auto* data = static_cast<const std::uint8_t*>(buffer_.data().data());
    Blob message(data, data + buffer_.size());
    buffer_.consume(buffer_.size());
    if (buffer_.capacity() > kKeptBufferBytes) buffer_.shrink_to_fit();
    // A copy: the callback may replace itself.
    const auto callback = phase_ == Phase::kOpen ? on_message_ : nullptr;
    if (callback) callback(std::move(message));
    if (phase_ == Phase::kOpen) read_next();
  }

  void write_next() {
    is_writing_ = true;
    stream_.async_write(
        boost::asio::buffer(queue_.front()),
        [self = shared_from_this()](error_code error, std::size_t) { self->on_written(error); }
    );
  }

  void on_written(error_code error) {
    is_writing_ = false;
    if (error) return phase_ == Phase::kOpen ? abandon(error_of(error)) : void();
    queued_bytes_ -= queue_.front().size();
    queue_.pop_front();
    if (phase_ == Phase::kOpen && !queue_.empty()) write_next();
  }

  void close_with(websocket::close_code code, const std::string& reason, Error end) {
    if (phase_ != Phase::kOpen) return;
    phase_ = Phase::kClosing;
    end_ = std::move(end);
    while (queue_.size() > (is_writing_ ? 1U : 0U)) {
      queued_bytes_ -= queue_.back().size();
      queue_.pop_back();
    }
    const websocket::close_reason told(code, reason.substr(0, 120));
    stream_.async_close(told, [self = shared_from_this()](error_code error) {
      self->finish(self->error_of(error));
    });
    // A peer that does not read would hold the closing frame back for ever.
    force_ = loop_.run_after(limits_.handshake_timeout, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->stream_.next_layer().close_now();
    });
  }

  /// The read that is always waiting fails in a later turn, and finishes with `why`.
  void abandon(Error why) {
    if (phase_ == Phase::kClosed) return;
    if (!end_) end_ = std::move(why);
    if (phase_ == Phase::kOpen) phase_ = Phase::kClosing;
    stream_.next_layer().close_now();
    loop_.post([self = shared_from_this()] { self->finish(*self->end_); });
  }

  void finish(const Error& error) {
    if (phase_ == Phase::kClosed) return;
    const bool was_opening = phase_ == Phase::kOpening;
    phase_ = Phase::kClosed;
    loop_.cancel(force_);
    stream_.next_layer().close_now();
    on_message_ = nullptr;
    const auto finished = std::exchange(on_finished_, nullptr);
    const auto callback = std::exchange(on_close_, nullptr);
    if (finished) finished();
    if (callback && !was_opening) callback(end_ ? *end_ : error);
  }

  Loop& loop_;
  const WebSocketLimits limits_;
  const WebSocketPeer peer_;
  Phase phase_ = Phase::kOpening;
  websocket::stream<SocketStream, false> stream_;
  beast::flat_buffer buffer_;
  std::deque<Blob> queue_;  ///< the front one is being written
  std::size_t queued_bytes_ = 0;
  bool is_writing_ = false;
  std::optional<Error> end_;  ///< why we end it; stronger than what the stream then says
  TimerId force_;
  std::function<void(Blob)> on_message_;
  std::function<void(const Error&)> on_close_;
  std::function<void()> on_finished_;
};

}  // namespace

std::shared_ptr<WebSocketSession> accept_websocket(
    Loop& loop,
    SocketStream stream,
    const HttpRequest& request,
    const std::string& target,
    const WebSocketLimits& limits,
    WebSocketPeer peer,
    WebSocketReady ready
) {
  auto session = std::make_shared<Session>(loop, std::move(stream), limits, std::move(peer));
  session->accept(request, target, std::move(ready));
  return session;
}

std::shared_ptr<WebSocketSession> request_websocket(
    Loop& loop,
    SocketStream stream,
    const std::string& host,
    const std::string& target,
    const HttpHeaders& headers,
    const WebSocketLimits& limits,
    WebSocketPeer peer,
    WebSocketReady ready
) {
  auto session = std::make_shared<Session>(loop, std::move(stream), limits, std::move(peer));
  session->handshake(host, target, headers, std::move(ready));
  return session;
}

}  // namespace rn::io
