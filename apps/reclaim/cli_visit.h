// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli_client.h"

#include "base/bytes.h"
#include "base/error.h"
#include "io/loop.h"
#include "io/websocket.h"
#include "io/websocket_client.h"
#include "model/job.h"
#include "model/tunnel.h"
#include "model/visit.h"

namespace rn::cli {

/// For check(): a job's id or number, or a task of an array: "ARRAY/INDEX".
std::string task_word(const std::string& text);
/// The job of such a name, as it is now. kNotFound: the array has no such task that is not over.
Result<Job> job_of_word(const Client& client, const std::string& name);

/// The failure of a connection without its URL in front, which nobody who reads it has asked for.
Error without_url(const Error& error);

/// The user's end of a visit of a running guest (model/visit.h). Keeps itself alive until it is
/// over. Loop thread.
class Visit : public std::enable_shared_from_this<Visit> {
 public:
  /// Called until it is over, and after stop() no more.
  struct Events {
    std::function<void()> opened;  ///< what is wanted may be said
    /// kOutput or kErrors. False: not now; it comes again after resume().
    std::function<bool(visit::Frame frame, BlobView bytes)> said;
    std::function<void()> has_room;  ///< room() is more than nothing, as it may have been before
    /// Once: the exit code, or why there is none. kUnavailable: it broke, or could not begin.
    std::function<void(const Result<int>& code)> over;
  };

  Visit(io::Loop& loop, Events events) : loop_(loop), events_(std::move(events)) {}

  void start(const Client& client, const JobId& job);
  /// A frame that is not input; of at most kBodyMax.
  void say(visit::Frame frame, BlobView body);
  /// Bytes of input that may be said now.
  std::size_t room() const;
  /// At least one and at most room().
  void say_input(BlobView bytes);
  void resume();
  /// The guest's end sees that it broke.
  void stop();

 private:
  using VisitEnd = tunnel::End<tunnel::kWindowToUser>;
  enum class Taken : std::uint8_t { kFine, kLater, kBad };

  void connected(std::shared_ptr<io::WebSocket> socket);
  void hear(const Blob& packet);
  void lost(const std::string& words);
  void pump();
  void take_frames();
  Taken take(const visit::Cut& frame);
  void finish(int code);
  bool give_credit();
  void send_queued();
  bool send(BlobView packet);
  void break_off(const std::string& words);
  void fail_with(const Error& error);
  void close(const char* reason);

  io::Loop& loop_;
  Events events_;
  std::optional<io::WebSocketConnect> connecting_;
  std::shared_ptr<io::WebSocket> socket_;
  std::unique_ptr<VisitEnd> end_;  ///< once it is open
  std::deque<Blob> queue_;         ///< frames that wait for the tunnel's credit
  std::size_t sent_of_front_ = 0;
  std::uint32_t input_under_way_ = 0;
  bool is_over_ = false;
  bool is_pumping_ = false;
  bool is_cut_off_ = false;  ///< all that will come is here
};

}  // namespace rn::cli
