// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "io/http.h"
#include "io/loop.h"
#include "io/taken_connection.h"
#include "io/websocket.h"
#include "model/tunnel.h"

namespace rn::coordinator {

/// The user's end of a tunnel that lies in this process: what Tunnels takes for a user's WebSocket.
/// Loop thread.
class LocalEnd final : public io::WebSocket, public std::enable_shared_from_this<LocalEnd> {
 public:
  explicit LocalEnd(io::Loop& loop) : loop_(loop) {}

  // --- of whoever holds this end

  /// `heard` gets each packet, never within a call of Tunnels.
  void listen(std::function<void(const Blob&)> heard);
  void say(const Blob& packet);
  /// Nothing is heard or said any more; an open tunnel breaks.
  void hang_up();

  // --- of Tunnels

  Status send(Blob message) override;
  void close(const std::string& reason) override;
  void on_message(std::function<void(Blob)> fn) override;
  void on_close(std::function<void(const Error&)> fn) override;
  std::size_t queued_bytes() const override;
  bool is_open() const override;
  const std::optional<std::string>& peer_identity() const override;
  const std::string& remote() const override;

 private:
  void deliver();

  io::Loop& loop_;
  std::function<void(const Blob&)> heard_;
  std::function<void(Blob)> said_;
  std::function<void(const Error&)> closed_;
  std::deque<Blob> waiting_;
  std::size_t waiting_bytes_ = 0;  ///< bounded by the tunnel's credit
  bool is_open_ = true;
};

/// One request of a browser on its way to a server in a guest, and the answer on its way back: the
/// heads rewritten, what follows passed on as it is, by the tunnel's credit in both directions. One
/// request a connection; a WebSocket is one, too. Loop thread.
class ProxiedRequest : public std::enable_shared_from_this<ProxiedRequest> {
 public:
  /// What the browser is told when the guest cannot be asked.
  using Absence = std::function<io::HttpResponse(const Error& why)>;

  ProxiedRequest(
      std::shared_ptr<io::TakenConnection> browser,
      std::shared_ptr<LocalEnd> tunnel,
      const io::HttpRequest& request,
      std::uint64_t job,
      Absence absence
  );

  /// `over` is called once, when nothing more of it happens, and not by stop(). Until then somebody
  /// keeps it.
  void start(std::function<void()> over);
  /// Whatever it is doing, it ends now.
  void stop();

 private:
  using UserEnd = tunnel::End<tunnel::kWindowToUser>;

  void hear(const Blob& packet);
  void pump();
  bool send_head();
  void read_browser();
  bool take_answer_head();
  void write_browser();
  void give_credit();
  void say(tunnel::Kind kind, BlobView bytes);
  /// The guest cannot be asked, or its answer is none.
  void refuse(const Error& why);
  /// Everything that came is with the browser.
  void finish();
  /// It broke: the browser sees that.
  void abort();
  void leave();

  std::shared_ptr<io::TakenConnection> browser_;
  std::shared_ptr<LocalEnd> tunnel_;
  const std::uint64_t job_;
  const bool is_upgrade_;
  const bool wants_continue_;  ///< the browser waits for a word before it sends its body
  Absence absence_;
  std::function<void()> over_;
  std::unique_ptr<UserEnd> end_;  ///< once it is open
  std::string to_guest_;          ///< of the request's head
  std::string to_browser_;        ///< of the answer's head, and before
  bool has_answer_head_ = false;
  bool is_reading_ = false;
  bool is_writing_ = false;
  bool is_over_ = false;
};

/// As it goes over a connection that ends after it.
std::string raw_text(const io::HttpResponse& response);

}  // namespace rn::coordinator
