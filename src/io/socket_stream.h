// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/role.hpp>
#include <sys/socket.h>

#include "io/channel.h"
#include "io/fd.h"

// Private to io, for its few files that see Asio: a Channel as an Asio stream. One class for plain
// and TLS, TCP and Unix sockets, so that Beast is compiled once; and without asio::ssl's 34 KiB of
// buffers a connection.
namespace rn::io {

class SocketStream {
 public:
  using executor_type = boost::asio::io_context::executor_type;
  using error_code = boost::system::error_code;
  using Descriptor = boost::asio::posix::basic_stream_descriptor<executor_type>;

  /// `channel` works on `fd`.
  SocketStream(boost::asio::io_context& context, Fd fd, Channel channel)
      : state_(std::make_unique<State>(context, std::move(fd), std::move(channel))) {}

  executor_type get_executor() { return state_->descriptor.get_executor(); }

  Channel& channel() { return state_->channel; }

  int fd() { return state_->descriptor.native_handle(); }

  /// Ends the connection at once; what waits on it completes with an error in a later turn.
  /// Repeatable.
  void close_now() { (void)::shutdown(fd(), SHUT_RDWR); }

  template <class Handler>
  void async_wait_writable(Handler&& handler) {
    state_->descriptor.async_wait(Descriptor::wait_write, std::forward<Handler>(handler));
  }

  template <class Handler>
  auto async_handshake(Handler&& handler) {
    return run(
        [](Channel& channel) { return channel.handshake(); }, std::forward<Handler>(handler)
    );
  }

  /// A failure other than the end (asio::error::eof) is told as connection_aborted;
  /// channel().error() says more.
  template <class Buffers, class Handler>
  auto async_read_some(const Buffers& buffers, Handler&& handler) {
    const boost::asio::mutable_buffer first = first_of<boost::asio::mutable_buffer>(buffers);
    return run(
        [first](Channel& channel) {
          if (first.size() == 0) return Channel::Step{};
          return channel.read({static_cast<std::uint8_t*>(first.data()), first.size()});
        },
        std::forward<Handler>(handler)
    );
  }

  template <class Buffers, class Handler>
  auto async_write_some(const Buffers& buffers, Handler&& handler) {
    const boost::asio::const_buffer first = first_of<boost::asio::const_buffer>(buffers);
    return run(
        [first](Channel& channel) {
          if (first.size() == 0) return Channel::Step{};
          return channel.write({static_cast<const std::uint8_t*>(first.data()), first.size()});
        },
        std::forward<Handler>(handler)
    );
  }

  /// Drops what arrives until the peer's end.
  template <class Handler>
  auto async_drain(Handler&& handler) {
    return run([](Channel& channel) { return channel.discard(); }, std::forward<Handler>(handler));
  }

 private:
  struct State {
    Descriptor descriptor;
    Channel channel;

    State(boost::asio::io_context& context, Fd fd, Channel stream)
        : descriptor(context.get_executor(), fd.release()), channel(std::move(stream)) {}
  };

  /// Steps the channel, waits for the descriptor, and completes never before the initiating
  /// function has returned.
  template <class Step>
  struct Operation {
    State* state = nullptr;
    Step step;
    bool was_waiting = false;
    bool is_over = false;
    error_code result{};
    std::size_t bytes = 0;

    template <class Self>
    void operator()(Self& self, error_code error = {}) {
      if (is_over) return self.complete(result, bytes);
      if (error) return self.complete(error, 0);
      const Channel::Step done = step(state->channel);
      if (done.want == Channel::Want::kReadable || done.want == Channel::Want::kWritable) {
        was_waiting = true;
        const auto kind =
            done.want == Channel::Want::kReadable ? Descriptor::wait_read : Descriptor::wait_write;
        state->descriptor.async_wait(kind, std::move(self));
        return;
      }
      bytes = done.bytes;
      if (done.want == Channel::Want::kEnd) result = boost::asio::error::eof;
      if (done.want == Channel::Want::kFailed) result = boost::asio::error::connection_aborted;
      if (was_waiting) return self.complete(result, bytes);
      is_over = true;
      boost::asio::post(state->descriptor.get_executor(), std::move(self));
    }
  };

  template <class Step, class Handler>
  auto run(Step step, Handler&& handler) {
    return boost::asio::async_compose<Handler, void(error_code, std::size_t)>(
        Operation<Step>{state_.get(), step}, handler, state_->descriptor
    );
  }

  template <class Buffer, class Buffers>
  static Buffer first_of(const Buffers& buffers) {
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto at = boost::asio::buffer_sequence_begin(buffers); at != end; ++at) {
      const Buffer buffer(*at);
      if (buffer.size() > 0) return buffer;
    }
    return {};
  }

  std::unique_ptr<State> state_;
};

// What Beast asks of a stream under a WebSocket.

inline void beast_close_socket(SocketStream& stream) {
  stream.close_now();
}

inline void teardown(
    boost::beast::role_type, SocketStream& stream, boost::system::error_code& error
) {
  stream.close_now();
  error = {};
}

template <class Handler>
void async_teardown(boost::beast::role_type, SocketStream& stream, Handler&& handler) {
  stream.channel().end_writing();
  stream.async_drain([handler = std::forward<Handler>(handler)](
                         boost::system::error_code, std::size_t
                     ) mutable { handler(boost::system::error_code()); });
}

}  // namespace rn::io
