// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <boost/system/error_code.hpp>

#include "base/bytes.h"
#include "base/time.h"
#include "io/loop.h"
#include "io/socket_stream.h"
#include "io/taken_connection.h"

// Private to io: a TakenConnection on a SocketStream.
namespace rn::io {

class TakenSocket final : public TakenConnection, public std::enable_shared_from_this<TakenSocket> {
 public:
  /// `ahead`: bytes of the peer that were read already. `gone` is called once, when it is closed.
  TakenSocket(
      Loop& loop,
      SocketStream stream,
      Blob ahead,
      milliseconds write_timeout,
      std::function<void()> gone
  );
  ~TakenSocket() override;
  TakenSocket(const TakenSocket&) = delete;
  TakenSocket& operator=(const TakenSocket&) = delete;

  void read(std::size_t most, std::function<void(Result<Blob>)> done) override;
  void write(Blob bytes, std::function<void(Status)> done) override;
  void finish() override;
  void close() override;
  bool is_open() const override;

 private:
  void on_read(boost::system::error_code error, std::size_t bytes);
  void give_ahead(std::size_t most);
  void write_next();
  void on_written(boost::system::error_code error, std::size_t bytes);
  void fail_write(const Error& error);
  void drain();
  void set_deadline(milliseconds after, std::function<void(TakenSocket&)> what);

  Loop& loop_;
  SocketStream stream_;
  Blob ahead_;
  milliseconds write_timeout_;
  std::function<void()> gone_;
  TimerId deadline_;  ///< of a write, or of the end
  Blob in_;
  std::function<void(Result<Blob>)> read_done_;  ///< set while a read is under way
  bool is_reading_ = false;                      ///< on the stream
  Blob out_;
  std::size_t out_offset_ = 0;
  std::function<void(Status)> write_done_;  ///< set while a write is under way
  bool is_finishing_ = false;
  bool is_closed_ = false;
};

}  // namespace rn::io
