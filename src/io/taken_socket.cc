// SPDX-License-Identifier: Apache-2.0
#include "io/taken_socket.h"

#include <algorithm>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include "base/assert.h"

namespace rn::io {

namespace {

constexpr milliseconds kTakenLinger = seconds(1);  ///< for the peer to read the last bytes

Error taken_is_lost() {
  return Error{ErrorCode::kUnavailable, "the connection is lost", {}};
}

}  // namespace

TakenSocket::TakenSocket(
    Loop& loop,
    SocketStream stream,
    Blob ahead,
    milliseconds write_timeout,
    std::function<void()> gone
)
    : loop_(loop),
      stream_(std::move(stream)),
      ahead_(std::move(ahead)),
      write_timeout_(write_timeout),
      gone_(std::move(gone)) {}

TakenSocket::~TakenSocket() {
  close();
}

void TakenSocket::read(std::size_t most, std::function<void(Result<Blob>)> done) {
  RN_ASSERT(!read_done_ && most > 0, "one read at a time, of something");
  if (is_closed_ || is_finishing_) return;
  read_done_ = std::move(done);
  if (!ahead_.empty()) {
    loop_.post([self = shared_from_this(), most] { self->give_ahead(most); });
    return;
  }
  in_.resize(most);
  is_reading_ = true;
  stream_.async_read_some(
      boost::asio::buffer(in_),
      [self = shared_from_this()](boost::system::error_code error, std::size_t bytes) {
        self->on_read(error, bytes);
      }
  );
}

void TakenSocket::give_ahead(std::size_t most) {
  const auto done = std::exchange(read_done_, nullptr);
  if (is_closed_ || is_finishing_ || !done) return;
  const auto end = ahead_.begin() + static_cast<std::ptrdiff_t>(std::min(most, ahead_.size()));
  Blob piece(ahead_.begin(), end);
  ahead_.erase(ahead_.begin(), end);
  done(std::move(piece));
}

void TakenSocket::on_read(boost::system::error_code error, std::size_t bytes) {
  is_reading_ = false;
  const auto done = std::exchange(read_done_, nullptr);
  if (is_closed_) return;
  if (is_finishing_) return error ? close() : drain();
  if (!done) return;
  if (error && error != boost::asio::error::eof) return done(fail(taken_is_lost()));
  in_.resize(error ? 0 : bytes);
  done(std::exchange(in_, Blob()));
}

void TakenSocket::write(Blob bytes, std::function<void(Status)> done) {
  RN_ASSERT(!write_done_ && !bytes.empty(), "one write at a time, of something");
  if (is_closed_ || is_finishing_) return;
  out_ = std::move(bytes);
  out_offset_ = 0;
  write_done_ = std::move(done);
  write_next();
}

void TakenSocket::write_next() {
  set_deadline(write_timeout_, [](TakenSocket& self) {
    self.fail_write(Error{ErrorCode::kTimeout, "the peer takes nothing", {}});
  });
  stream_.async_write_some(
      boost::asio::buffer(out_.data() + out_offset_, out_.size() - out_offset_),
      [self = shared_from_this()](boost::system::error_code error, std::size_t bytes) {
        self->on_written(error, bytes);
      }
  );
}

void TakenSocket::on_written(boost::system::error_code error, std::size_t bytes) {
  if (is_closed_ || !write_done_) return;
  if (error) return fail_write(taken_is_lost());
  out_offset_ += bytes;
  if (out_offset_ < out_.size()) return write_next();
  loop_.cancel(deadline_);
  out_.clear();
  const auto done = std::exchange(write_done_, nullptr);
  done(Status());
}

/// A write that is under way goes on in the kernel: the connection is of no use any more.
void TakenSocket::fail_write(const Error& error) {
  const auto done = std::exchange(write_done_, nullptr);
  const auto self = weak_from_this().lock();
  close();
  if (done) done(fail(error));
}

void TakenSocket::finish() {
  if (is_closed_ || is_finishing_) return;
  is_finishing_ = true;
  read_done_ = nullptr;
  write_done_ = nullptr;
  stream_.channel().end_writing();
  set_deadline(kTakenLinger, [](TakenSocket& self) { self.close(); });
  if (!is_reading_) drain();
}

void TakenSocket::drain() {
  stream_.async_drain([self = shared_from_this()](boost::system::error_code, std::size_t) {
    self->close();
  });
}

void TakenSocket::close() {
  if (std::exchange(is_closed_, true)) return;
  loop_.cancel(deadline_);
  stream_.close_now();
  // They may own who closes it.
  const auto reading = std::exchange(read_done_, nullptr);
  const auto writing = std::exchange(write_done_, nullptr);
  if (const auto gone = std::exchange(gone_, nullptr)) gone();
}

bool TakenSocket::is_open() const {
  return !is_closed_ && !is_finishing_;
}

void TakenSocket::set_deadline(milliseconds after, std::function<void(TakenSocket&)> what) {
  loop_.cancel(deadline_);
  deadline_ = loop_.run_after(after, [weak = weak_from_this(), what = std::move(what)] {
    if (const auto self = weak.lock()) what(*self);
  });
}

}  // namespace rn::io
