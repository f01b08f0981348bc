// SPDX-License-Identifier: Apache-2.0
#include "cli_forward.h"

#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "cli_print.h"
#include "cli_visit.h"

#include "base/printable.h"
#include "base/whole_number.h"
#include "io/close_when_sent.h"
#include "io/http.h"
#include "io/local_socket.h"
#include "io/websocket_client.h"
#include "model/tunnel.h"

namespace rn::cli {

namespace {

using tunnel::Kind;
using UserEnd = tunnel::End<tunnel::kWindowToUser>;

/// As many as a job may have at the coordinator: more would be refused there, after a handshake.
constexpr std::size_t kConnectionsAtOnce = 32;
constexpr auto kJobLook = seconds(2);
/// For a program here to take what came when the guest's side has ended.
constexpr auto kFlushLimit = seconds(60);
constexpr int kReadsAtOnce = 8;

/// One TCP connection of a program here, and its WebSocket. Keeps itself alive until it is over.
class Forwarded : public std::enable_shared_from_this<Forwarded> {
 public:
  /// Called once: no words if it ended in order.
  using Over = std::function<void(const std::string& words)>;

  Forwarded(io::Loop& loop, std::unique_ptr<io::LocalSocket> local, Over over)
      : loop_(loop), local_(std::move(local)), over_(std::move(over)) {}

  void start(io::WebSocketClientConfig config) {
    connecting_ = io::WebSocketConnect::start(
        loop_,
        std::move(config),
        [self = shared_from_this()](Result<std::shared_ptr<io::WebSocket>> socket) {
          self->connecting_.reset();
          if (!self->over_) return socket ? (*socket)->close("over") : void();
          if (!socket) return self->end(describe(socket.error()));
          self->connected(*std::move(socket));
        }
    );
  }

  /// Whatever it is doing, it ends now.
  void stop() { end("stopped"); }

 private:
  static std::string describe(const Error& error) {
    const Error said = without_url(error);
    return said.hint.empty() ? said.message : said.message + "; next: " + said.hint;
  }

  void connected(std::shared_ptr<io::WebSocket> socket) {
    socket_ = std::move(socket);
    socket_->on_message([self = shared_from_this()](const Blob& packet) { self->hear(packet); });
    socket_->on_close([self = shared_from_this()](const Error& error) { self->lost(error.message); }
    );
  }

  void hear(const Blob& packet) {
    if (!over_ || packet.empty()) return;
    const std::string words(as_text(BlobView(packet).subspan(1)));
    const auto kind = static_cast<Kind>(packet[0]);
    if (kind == Kind::kRefused || kind == Kind::kReset)
      return end(words.empty() ? "the connection broke" : words);
    if (!end_) {
      if (kind != Kind::kOpened) return end("the coordinator does not keep to the protocol");
      end_ = std::make_unique<UserEnd>();
      end_->begin(tunnel::kWindowToGuest);
      return pump();
    }
    if (end_->hear(packet.data(), packet.size()) != UserEnd::Heard::kFine)
      return end("the guest does not keep to the protocol");
    pump();
  }

  /// In order, if the guest's side has ended: what came of it still goes to the program here.
  void lost(const std::string& why) {
    if (!over_) return;
    if (!end_ || !end_->has_heard_end()) return end(why);
    is_cut_off_ = true;
    deadline_ = loop_.run_after(kFlushLimit, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->end("it was not read to its end");
    });
    pump();
  }

  /// Whatever can be done now in both directions.
  void pump() {
    if (!write_local()) return end("the program here has closed it");
    if (is_cut_off_) {
      if (end_->waiting_bytes() == 0) end(end_->has_sent_end() ? "" : "the connection broke");
      return;
    }
    std::uint8_t credit[UserEnd::kCreditPacket];
    if (const std::size_t size = end_->credit_packet(credit); size > 0) {
      if (!send(BlobView(credit, size))) return;
      end_->gave_credit();
    }
    if (!read_local()) return;
    if (end_->is_over()) end("");
  }

  /// False: it broke.
  bool write_local() {
    while (end_->waiting_bytes() > 0) {
      const auto put = local_->write(BlobView(end_->waiting(), end_->waiting_bytes()));
      if (!put) return false;
      if (*put == 0) {
        local_->when_writable([self = shared_from_this()] { self->pump_again(); });
        return true;
      }
      end_->wrote(*put);
    }
    if (end_->must_shut()) {
      local_->end_writing();
      end_->shut();
    }
    return true;
  }

  /// False: it is over.
  bool read_local() {
    for (int i = 0; i < kReadsAtOnce; ++i) {
      const std::size_t most = end_->may_send();
      if (most == 0) return true;
      Blob packet(most + 1, static_cast<std::uint8_t>(Kind::kData));
      const auto read = local_->read(std::span(packet).subspan(1));
      if (!read) {
        end("the program here has closed it");
        return false;
      }
      if (read->is_end) {
        end_->sent_end();
        return send(Blob{static_cast<std::uint8_t>(Kind::kEnd)});
      }
      if (read->bytes == 0) break;
      packet.resize(read->bytes + 1);
      end_->sent(read->bytes);
      if (!send(packet)) return false;
    }
    local_->when_readable([self = shared_from_this()] { self->pump_again(); });
    return true;
  }

  void pump_again() {
    if (over_) pump();
  }

  /// False: it broke, and is over.
  bool send(BlobView packet) {
    const Status sent = socket_->send(Blob(packet.begin(), packet.end()));
    if (!sent) end(sent.error().message);
    return sent.has_value();
  }

  /// `words`: why it broke; none: it ended in order.
  void end(const std::string& words) {
    const Over over = std::exchange(over_, nullptr);
    if (!over) return;
    loop_.cancel(deadline_);
    if (connecting_) connecting_->cancel();
    if (!words.empty()) {
      local_->reset();
      if (socket_) (void)socket_->send(Blob{static_cast<std::uint8_t>(Kind::kReset)});
    }
    if (socket_) io::close_when_sent(loop_, std::exchange(socket_, nullptr), "over");
    // Not from within the socket's own call.
    loop_.post([local = std::shared_ptr<io::LocalSocket>(std::move(local_))] {});
    over(words);
  }

  io::Loop& loop_;
  std::unique_ptr<io::LocalSocket> local_;
  Over over_;  ///< empty once it is over
  std::optional<io::WebSocketConnect> connecting_;
  std::shared_ptr<io::WebSocket> socket_;
  std::unique_ptr<UserEnd> end_;  ///< once it is open
  bool is_cut_off_ = false;
  io::TimerId deadline_;
};

/// A command's life: the listener, its connections, and looks at the job.
class Forward {
 public:
  Forward(const Client& client, Job job, ForwardPorts ports)
      : client_(client), job_(std::move(job)), ports_(ports), calls_(loop_) {}

  int run(const ForwardOptions& options) {
    auto listener = io::LocalListener::start(
        loop_,
        ports_.local,
        [this](std::unique_ptr<io::LocalSocket> local) { accept(std::move(local)); }
    );
    if (!listener) {
      Error error = listener.error();
      error.hint = "choose another one: reclaim forward " + options.job +
                   " LOCAL:" + std::to_string(ports_.remote) + "; 0 takes a free one";
      return complain(error);
    }
    const std::uint16_t port = (*listener)->port();
    std::printf(
        "127.0.0.1:%u goes to port %u of job %llu\n",
        unsigned{port},
        unsigned{ports_.remote},
        static_cast<unsigned long long>(job_.number)
    );
    std::fflush(stdout);
    tell_state();
    const Status handled = loop_.on_signal({SIGINT, SIGTERM}, [this](int) { loop_.stop(); });
    if (!handled) return complain(handled.error());
    loop_.run_every(kJobLook, [this] { look(); });
    if (options.listening) options.listening(port, [this] { loop_.stop(); });
    loop_.run();
    listener->reset();
    const auto open = connections_;
    for (const auto& [id, one] : open) one->stop();
    loop_.poll();  // what is reset is closed by then
    return 0;
  }

 private:
  void accept(std::unique_ptr<io::LocalSocket> local) {
    const std::uint64_t id = next_++;
    if (connections_.size() >= kConnectionsAtOnce) {
      tell("thirty-two connections are open already");
      return local->reset();
    }
    const auto one =
        std::make_shared<Forwarded>(loop_, std::move(local), [this, id](const std::string& words) {
          connections_.erase(id);
          if (words.empty()) said_.clear();
          if (!words.empty() && words != "stopped") tell(words);
        });
    connections_[id] = one;
    const io::HttpCall call = client_.call("GET", "");
    io::WebSocketClientConfig config;
    config.url = "wss" + client_.login().url.substr(5) +
                 "/v1/forward?job=" + io::percent_encode(job_.id.str()) +
                 "&port=" + std::to_string(ports_.remote);
    config.tls = *call.tls;
    config.headers = call.headers;
    config.limits.max_message_bytes = tunnel::kPacketMax;
    one->start(std::move(config));
  }

  /// A browser tries often: the same words are said once, until a connection has gone well.
  void tell(const std::string& words) {
    if (!said_.insert(words).second) return;
    if (said_.size() > kConnectionsAtOnce) said_.clear();
    std::fprintf(stderr, "connection reset: %s\n", printable(words).c_str());
  }

  void tell_state() const {
    if (job_.state == JobState::kRunning || job_.state == JobState::kNoticed) return;
    std::fprintf(
        stderr,
        "job %llu does not run yet: connections are reset until it does\n",
        static_cast<unsigned long long>(job_.number)
    );
  }

  /// Nothing that it fails at ends the command: the coordinator may be away for a while.
  void look() {
    if (calls_.active() > 0) return;
    calls_.perform(
        client_.call("GET", "/v1/jobs/" + io::percent_encode(job_.id.str())),
        [this](Result<io::HttpReply> reply) {
          const auto answer = io::succeed(std::move(reply));
          if (!answer) return;
          const auto job = from_json<Job>(answer->body, Unknown::kLenient);
          if (!job || !is_terminal(job->state)) return;
          std::fprintf(
              stderr,
              "job %llu is over: %s\n",
              static_cast<unsigned long long>(job->number),
              std::string(to_string(job->state)).c_str()
          );
          loop_.stop();
        }
    );
  }

  const Client& client_;
  const Job job_;
  const ForwardPorts ports_;
  io::Loop loop_;
  io::HttpClient calls_;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, std::shared_ptr<Forwarded>> connections_;
  std::set<std::string> said_;
};

}  // namespace

Result<ForwardPorts> parse_ports(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string remote = colon == std::string::npos ? text : text.substr(colon + 1);
  const std::string local = colon == std::string::npos ? text : text.substr(0, colon);
  const auto port_in = [&](const std::string& word, std::uint16_t least) {
    return whole_number<std::uint16_t>(word, least, 65'535).map_error([&](const Error& error) {
      return error.with("'" + text + "' is no [LOCAL:]PORT").hinting("for example 8888 or 9000:80");
    });
  };
  ForwardPorts ports;
  RN_TRY(ports.remote, port_in(remote, 1));
  const bool may_choose = colon != std::string::npos;
  RN_TRY(ports.local, port_in(local, static_cast<std::uint16_t>(may_choose ? 0 : 1)));
  return ports;
}

int forward(const Client& client, const ForwardOptions& options) {
  const auto ports = parse_ports(options.ports);
  if (!ports) return complain(ports.error());
  auto job = client.get_as<Job>("/v1/jobs/" + io::percent_encode(options.job));
  if (!job) return complain(job.error());
  if (is_terminal(job->state))
    return complain(Error{
        ErrorCode::kConflict,
        "job " + std::to_string(job->number) + " is over: " + std::string(to_string(job->state)),
        "only a job that runs has ports; 'reclaim ps' lists them"});
  return Forward(client, *std::move(job), *ports).run(options);
}

}  // namespace rn::cli
