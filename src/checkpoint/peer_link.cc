// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/peer_link.h"

#include "base/log.h"
#include "checkpoint/manifest.h"

namespace rn::checkpoint {

namespace {

/// How long to look for the refusal of a peer that hung up while we were sending.
constexpr milliseconds kLastWordTimeout{500};
/// Between two looks whether the transfer is to stop.
constexpr milliseconds kTapPatience{100};
/// Well below DriveOptions::frame_timeout, which the holder has, too.
constexpr milliseconds kIdleMax = seconds(20);

Status send(io::FramedConnection& connection, const PeerFrame& frame, const DriveOptions& options) {
  return connection.send(static_cast<std::uint8_t>(frame.type), frame.body, options.frame_timeout);
}

void read_last_words(io::FramedConnection& connection, PeerEnd& end) {
  while (!end.is_finished()) {
    const auto frame = connection.receive(kLastWordTimeout);
    if (!frame) return;
    end.on_frame(static_cast<PeerFrameType>(frame->type), frame->body);
  }
}

/// A connection, and who was told of it.
class Connected {
 public:
  Connected(std::unique_ptr<io::FramedConnection> connection, std::function<void()> on_closing)
      : connection_(std::move(connection)), on_closing_(std::move(on_closing)) {}

  ~Connected() {
    if (connection_ && on_closing_) on_closing_();
  }

  Connected(Connected&& other) noexcept = default;
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;

  io::FramedConnection& operator*() const { return *connection_; }

 private:
  std::unique_ptr<io::FramedConnection> connection_;
  std::function<void()> on_closing_;
};

Result<Connected> connect(const PeerTarget& peer) {
  io::FramedClientConfig config;
  config.host = peer.host;
  config.port = peer.port;
  config.tls = peer.tls;
  config.tls.expected_peer = peer.expected_identity;
  config.connect_timeout = peer.connect_timeout;
  config.socket_mark = peer.socket_mark;
  RN_TRY(auto connection, io::FramedConnection::connect(config));
  if (peer.on_connected) peer.on_connected(*connection);
  return Connected(std::move(connection), peer.on_closing);
}

/// The end's own word if it came to one, else what happened to the connection.
template <class T>
Result<T> conclude(
    const PeerTarget& peer, const PeerEnd& end, const Result<T>& outcome, const Status& driven
) {
  if (end.is_finished()) return outcome;
  const Error error =
      driven ? Error{ErrorCode::kUnavailable, "the connection ended early", ""} : driven.error();
  return fail(error.with("peer " + peer.host + ":" + std::to_string(peer.port)));
}

Status may_go_on(const DriveOptions& options) {
  if (!options.should_stop || !options.should_stop()) return {};
  return fail(ErrorCode::kTimeout, "the transfer was told to stop");
}

Status send_all(io::FramedConnection& connection, PeerEnd& end, const DriveOptions& options) {
  while (!end.is_finished()) {
    RN_CHECK(may_go_on(options));  // before the next chunk is read, and counted as moved
    const auto frame = end.next();
    if (!frame) return {};
    const auto sent = send(connection, *frame, options);
    if (sent && options.on_progress) options.on_progress(end.bytes_left());
    if (sent) continue;
    read_last_words(connection, end);
    return sent;
  }
  return {};
}

/// Until the generation is released, the sender finished, or nothing came for long.
Status feed(
    io::FramedConnection& connection,
    StoreSender& sender,
    ChunkStore& store,
    ChunkTap& tap,
    const DriveOptions& options
) {
  for (milliseconds idle{0}; idle < kIdleMax;) {
    RN_CHECK(send_all(connection, sender, options));
    if (sender.is_finished()) return {};
    RN_CHECK(may_go_on(options));
    if (!sender.is_hungry()) {
      RN_TRY(const io::Frame frame, connection.receive(options.frame_timeout));
      sender.on_frame(static_cast<PeerFrameType>(frame.type), frame.body);
    } else if (auto chunk = tap.take(kTapPatience)) {
      sender.offer(*std::move(chunk));
      idle = milliseconds(0);
    } else if (const auto whole = tap.released()) {
      RN_TRY(const SignedManifest sealed, store.load_manifest(whole->job, whole->manifest));
      RN_TRY(Manifest parsed, parse_manifest(sealed.body));
      sender.release(sealed, std::move(parsed));
      return {};
    } else {
      idle += kTapPatience;
    }
  }
  return {};
}

class Closing {
 public:
  explicit Closing(ChunkTap& tap) : tap_(tap) {}

  ~Closing() { tap_.close(); }

  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  ChunkTap& tap_;
};

}  // namespace

NodeId node_of_identity(const std::string& identity) {
  constexpr std::string_view kScheme = "spiffe://";
  constexpr std::string_view kRole = "/node/";
  if (!identity.starts_with(kScheme)) return {};
  const auto site_end = identity.find('/', kScheme.size());
  if (site_end == std::string::npos || identity.compare(site_end, kRole.size(), kRole) != 0)
    return {};
  const std::string node = identity.substr(site_end + kRole.size());
  return node.find('/') == std::string::npos ? NodeId(node) : NodeId();
}

Status drive(io::FramedConnection& connection, PeerEnd& end, const DriveOptions& options) {
  while (true) {
    RN_CHECK(send_all(connection, end, options));
    if (end.is_finished()) return {};
    RN_CHECK(may_go_on(options));
    RN_TRY(const io::Frame frame, connection.receive(options.frame_timeout));
    end.on_frame(static_cast<PeerFrameType>(frame.type), frame.body);
  }
}

Result<Receipt> send_generation(
    const PeerTarget& peer,
    ChunkStore& store,
    const Ticket& ticket,
    const JobId& job,
    const Digest& manifest,
    TransferStats* stats
) {
  RN_TRY(SignedManifest sealed, store.load_manifest(job, manifest));
  RN_TRY(Manifest parsed, parse_manifest(sealed.body));
  RN_TRY(const Connected connection, connect(peer));
  StoreSender sender(store, ticket, std::move(sealed), std::move(parsed));
  const auto driven = drive(*connection, sender, peer.drive);
  if (stats != nullptr) *stats = sender.stats();
  return conclude(peer, sender, sender.outcome(), driven);
}

Result<Receipt> send_ahead(
    const PeerTarget& peer,
    ChunkStore& store,
    const Ticket& ticket,
    ChunkTap& tap,
    TransferStats* stats
) {
  const Closing closing(tap);
  while (!tap.wait(kTapPatience)) RN_CHECK(may_go_on(peer.drive));
  StoreSender sender(store, ticket);
  Status driven;
  if (!tap.released()) {
    RN_TRY(const Connected connection, connect(peer));
    driven = feed(*connection, sender, store, tap, peer.drive);
    if (driven && sender.is_released()) driven = drive(*connection, sender, peer.drive);
    if (stats != nullptr) *stats = sender.stats();
    if (!driven || sender.is_finished()) return conclude(peer, sender, sender.outcome(), driven);
    tap.close();
  }
  while (!tap.released()) {
    RN_CHECK(may_go_on(peer.drive));
    (void)tap.wait(kTapPatience);
  }
  const GenerationRef whole = *tap.released();
  return send_generation(peer, store, ticket, whole.job, whole.manifest, stats);
}

Result<Fetched> fetch_from(
    const PeerTarget& peer, ChunkStore& store, FetchRequest request, TransferStats* stats
) {
  RN_TRY(const Connected connection, connect(peer));
  Fetcher fetcher(store, std::move(request));
  const auto driven = drive(*connection, fetcher, peer.drive);
  if (stats != nullptr) *stats = fetcher.stats();
  return conclude(peer, fetcher, fetcher.outcome(), driven);
}

TransferStats serve_peer(
    io::FramedConnection& connection,
    const PeerServerDeps& deps,
    const DriveOptions& options,
    const io::Frame* first
) {
  const NodeId peer = node_of_identity(connection.peer_identity().value_or(""));
  PeerServer server(deps, peer);
  if (first != nullptr) server.on_frame(static_cast<PeerFrameType>(first->type), first->body);
  const auto driven = drive(connection, server, options);
  const bool has_hung_up = !driven && driven.error().code == ErrorCode::kUnavailable;
  if (!driven && !has_hung_up)
    log::info("peer.broken", {{"peer", peer.str()}, {"why", driven.error().describe()}});
  return server.stats();
}

}  // namespace rn::checkpoint
