// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests and benches: a node without a machine behind it. It joins, says hello, takes what it is
// asked to take, and tells the life of an attempt without running anything. Loop thread only,
// except where said.

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/crypto.h"
#include "io/http_client.h"
#include "io/loop.h"
#include "io/real_rng.h"
#include "io/websocket_client.h"
#include "model/api.h"
#include "model/codec.h"
#include "model/wire.h"

namespace rn::coordinator {

/// Key and certificate of a node that has joined.
struct LightIdentity {
  NodeId node;
  LabId lab;
  std::string machine_id;
  io::TlsConfig tls;
};

/// Redeems a token (blocking, any thread).
inline Result<LightIdentity> join_light_agent(
    const std::string& url, const std::string& token, const std::string& machine_id
) {
  LightIdentity identity;
  identity.machine_id = machine_id;
  RN_TRY(identity.tls.key_pem, io::make_private_key(io::KeyKind::kP256));
  api::JoinRequest request;
  request.token = token;
  request.machine_id = machine_id;
  request.hostname = "light-" + machine_id;
  RN_TRY(request.csr_pem, io::make_signing_request(identity.tls.key_pem, request.hostname));
  io::HttpCall call;
  call.method = "POST";
  call.url = url + "/v1/join";
  call.body = to_json(request);
  io::TlsConfig tls;
  tls.ca_fingerprint = token.substr(token.rfind('.') + 1);
  tls.expected_peer = "spiffe://reclaimnet/coordinator";
  call.tls = tls;
  RN_TRY(const auto reply, io::succeed(io::perform_blocking(call)));
  RN_TRY(const auto answer, from_json<api::JoinAnswer>(reply.body, Unknown::kLenient));
  identity.node = NodeId(answer.node_id);
  identity.lab = LabId(answer.lab);
  identity.tls.cert_pem = answer.certificate_pem;
  identity.tls.ca_pem = answer.ca_pem;
  identity.tls.expected_peer = "spiffe://reclaimnet/coordinator";
  return identity;
}

class LightAgent {
 public:
  struct Behaviour {
    std::string image_digest;  ///< present on the node
    std::uint32_t max_guests = 16;
    std::uint32_t cpu_milli = 64'000;
    std::uint32_t protocol = wire::kProtocol;
    std::string contract_version;
    std::string refuses;  ///< answers probes with this reason, once; then takes what comes
    milliseconds answers_after{0};    ///< to its first probe
    bool answers_twice = false;       ///< the same answer again, and then another hold
    bool vanishes = false;            ///< closes its connection when a commit comes, and stays away
    bool stays_before_start = false;  ///< fetches, as far as it tells
    bool finishes = false;            ///< tells log, outputs and success right after the start
    std::string log = "hello from the guest\n";
    Digest outputs{};  ///< listing, uploaded by whoever made this
    std::function<void()> on_welcome;
    std::function<void(const wire::Commit&)> on_commit;
    std::function<void(const wire::CancelHold&)> on_cancel;
    std::function<void(const wire::TransferRates&)> on_rates;
    std::function<void(const Error&)> on_close;
    std::function<void(const wire::Refused&)> on_refused;

    /// That it is refused, or loses its connection, goes to stderr.
    void tell_troubles() {
      on_refused = [](const wire::Refused& refused) {
        std::fprintf(stderr, "refused: %s\n", refused.message.c_str());
      };
      on_close = [](const Error& error) {
        std::fprintf(stderr, "closed: %s\n", error.describe().c_str());
      };
    }
  };

  LightAgent(io::Loop& loop, LightIdentity identity, Behaviour behaviour)
      : loop_(loop), identity_(std::move(identity)), behaviour_(std::move(behaviour)) {}

  ~LightAgent() { stop(); }

  LightAgent(const LightAgent&) = delete;
  LightAgent& operator=(const LightAgent&) = delete;

  void connect(const std::string& agent_url) {
    io::WebSocketClientConfig config;
    config.url = agent_url;
    config.tls = identity_.tls;
    config.limits.max_message_bytes = wire::kMaxMessageBytes;
    config.connect_timeout = seconds(60);
    connect_.emplace(io::WebSocketConnect::start(
        loop_,
        std::move(config),
        [this](Result<std::shared_ptr<io::WebSocket>> socket) {
          if (!socket) {
            if (behaviour_.on_close) behaviour_.on_close(socket.error());
            return;
          }
          opened(*std::move(socket));
        }
    ));
  }

  void stop() {
    if (connect_) connect_->cancel();
    loop_.cancel(heartbeat_);
    if (socket_) {
      socket_->on_message([](const Blob&) {});
      socket_->on_close([](const Error&) {});
      socket_->close("bye");
      socket_.reset();
    }
  }

  void send(const wire::Message& message) {
    if (socket_) (void)socket_->send(wire::encode(message));
  }

  /// Of all attempts that it has.
  void tell_noticed() {
    for (auto& [key, report] : reports_) {
      report.state = AttemptState::kNoticed;
      tell(report);
    }
  }

  const LightIdentity& identity() const { return identity_; }

  std::uint64_t heartbeats() const { return beats_; }

 private:
  void opened(std::shared_ptr<io::WebSocket> socket) {
    socket_ = std::move(socket);
    socket_->on_message([this](const Blob& bytes) {
      const auto message = wire::decode(bytes);
      if (message) std::visit([this](const auto& m) { take(m); }, *message);
    });
    socket_->on_close([this](const Error& error) {
      loop_.cancel(heartbeat_);
      socket_.reset();
      if (behaviour_.on_close) behaviour_.on_close(error);
    });
    wire::Hello hello;
    hello.protocol = behaviour_.protocol;
    hello.oldest_protocol = std::max(wire::kOldestProtocol, behaviour_.protocol);
    hello.version = "light";
    hello.node = identity_.node;
    hello.lab = identity_.lab;
    hello.machine_id = identity_.machine_id;
    hello.boot_id = "boot";
    hello.facts.hostname = "light-" + identity_.machine_id;
    hello.facts.failure_domain = identity_.machine_id;
    hello.facts.cpu_milli = behaviour_.cpu_milli;
    hello.facts.memory_mib = 256 << 10;
    hello.facts.disk_mib = 1 << 20;
    if (!behaviour_.image_digest.empty()) hello.facts.images = {behaviour_.image_digest};
    hello.contract.max_guests = behaviour_.max_guests;
    hello.contract_version = behaviour_.contract_version;
    hello.wall_ms = to_ms(loop_.now().wall);
    hello.verify_key = crypto::sha256(as_bytes(identity_.machine_id));
    hello.box_key = crypto::box_key_from_secret(hello.verify_key).public_key;
    send(hello);
  }

  template <class T>
  void take(const T&) {}

  void take(const wire::Welcome& welcome) {
    heartbeat_ = loop_.run_every(milliseconds(welcome.heartbeat_ms), [this] { beat(); });
    if (behaviour_.on_welcome) behaviour_.on_welcome();
  }

  void take(const wire::Refused& refused) {
    if (behaviour_.on_refused) behaviour_.on_refused(refused);
  }

  void take(const wire::CancelHold& cancel) {
    if (behaviour_.on_cancel) behaviour_.on_cancel(cancel);
  }

  void take(const wire::TransferRates& rates) {
    if (behaviour_.on_rates) behaviour_.on_rates(rates);
  }

  void take(const wire::Probe& probe) {
    wire::ProbeReply reply;
    reply.probe = probe.probe;
    reply.job = probe.job;
    reply.reason = std::exchange(behaviour_.refuses, "");
    if (!reply.reason.empty()) return send(reply);
    reply.hold = HoldId(identity_.node.str() + "-h" + std::to_string(++holds_));
    reply.ttl_ms = probe.hold_ms;
    reply.cpu_milli = probe.resources.cpu_milli;
    reply.has_image = true;
    const milliseconds wait = std::exchange(behaviour_.answers_after, milliseconds(0));
    if (wait > milliseconds(0)) {
      loop_.run_after(wait, [this, reply] { send(reply); });
      return;
    }
    send(reply);
    if (!behaviour_.answers_twice) return;
    send(reply);
    reply.hold = HoldId(identity_.node.str() + "-h" + std::to_string(++holds_));
    send(reply);
  }

  void take(const wire::Commit& commit) {
    if (!taken_.emplace(commit.job, commit.epoch).second) return;
    if (behaviour_.vanishes) {
      if (behaviour_.on_commit) behaviour_.on_commit(commit);
      loop_.post([this] { stop(); });  // not from within the connection's own call
      return;
    }
    wire::CommitReply reply;
    reply.hold = commit.hold;
    reply.job = commit.job;
    reply.epoch = commit.epoch;
    reply.is_granted = true;
    reply.lease_ms = commit.lease_ms;
    send(reply);
    if (behaviour_.on_commit) behaviour_.on_commit(commit);
    wire::AttemptReport& report = reports_[{commit.job, commit.epoch}];
    report.job = commit.job;
    report.epoch = commit.epoch;
    report.state = behaviour_.stays_before_start ? AttemptState::kFetching : AttemptState::kRunning;
    tell(report);
    if (!behaviour_.finishes) return;
    wire::LogAppend log{commit.job, commit.epoch, 0, {}};
    const BlobView text = as_bytes(behaviour_.log);
    log.bytes.assign(text.begin(), text.end());
    send(log);
    if (behaviour_.outputs == Digest{}) return end(commit.job, commit.epoch);
    send(wire::PublishOutputs{commit.job, commit.epoch, behaviour_.outputs});
    end(commit.job, commit.epoch);
  }

  void take(const wire::StopAttempt& stop) {
    const auto found = reports_.find({stop.job, stop.epoch});
    if (found == reports_.end()) return;
    found->second.end = stop.end;
    found->second.state = AttemptState::kEnded;
    tell(found->second);
    reports_.erase(found);
  }

  void end(const JobId& job, LeaseEpoch epoch) {
    const auto found = reports_.find({job, epoch});
    if (found == reports_.end()) return;
    found->second.state = AttemptState::kEnded;
    found->second.end = AttemptEnd::kSucceeded;
    tell(found->second);
    reports_.erase(found);
  }

  void tell(const wire::AttemptReport& report) {
    wire::AttemptEvent event;
    event.report = report;
    event.seq = ++seqs_[{report.job, report.epoch}];
    event.at_boot_ns = to_ns(loop_.now().boot);
    event.at_wall_ms = to_ms(loop_.now().wall);
    send(event);
  }

  void beat() {
    wire::Heartbeat heartbeat;
    heartbeat.seq = ++beats_;
    heartbeat.telemetry.cpu_percent = 10;
    heartbeat.telemetry.memory_used_mib = 1024;
    heartbeat.telemetry.disk_free_mib = 1 << 19;
    heartbeat.telemetry.guests = static_cast<std::uint32_t>(reports_.size());
    for (const auto& [key, report] : reports_) heartbeat.attempts.push_back(report);
    heartbeat.wall_ms = to_ms(loop_.now().wall);
    send(heartbeat);
  }

  using Key = std::pair<JobId, LeaseEpoch>;

  io::Loop& loop_;
  LightIdentity identity_;
  Behaviour behaviour_;
  std::optional<io::WebSocketConnect> connect_;
  std::shared_ptr<io::WebSocket> socket_;
  io::TimerId heartbeat_;
  std::set<Key> taken_;
  std::map<Key, wire::AttemptReport> reports_;
  std::map<Key, std::uint64_t> seqs_;
  std::uint64_t holds_ = 0;
  std::uint64_t beats_ = 0;
};

}  // namespace rn::coordinator
