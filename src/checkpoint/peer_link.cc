// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/peer_link.h"

#include "base/log.h"
#include "checkpoint/manifest.h"

namespace rn::checkpoint {

namespace {

/// How long to look for the refusal of a peer that hung up while we were sending.
constexpr milliseconds kLastWordTimeout{500};

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

Result<std::unique_ptr<io::FramedConnection>> connect(const PeerTarget& peer) {
  io::FramedClientConfig config;
  config.host = peer.host;
  config.port = peer.port;
  config.tls = peer.tls;
  config.tls.expected_peer = peer.expected_identity;
  config.connect_timeout = peer.connect_timeout;
  config.socket_mark = peer.socket_mark;
  RN_TRY(auto connection, io::FramedConnection::connect(config));
  if (peer.on_connected) peer.on_connected(*connection);
  return connection;
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
    while (const auto frame = end.next()) {
      if (options.should_stop && options.should_stop())
        return fail(ErrorCode::kTimeout, "the transfer was told to stop");
      const auto sent = send(connection, *frame, options);
      if (!sent) {
        read_last_words(connection, end);
        return sent;
      }
    }
    if (end.is_finished()) return {};
    if (options.should_stop && options.should_stop())
      return fail(ErrorCode::kTimeout, "the transfer was told to stop");
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
  RN_TRY(const auto connection, connect(peer));
  StoreSender sender(store, ticket, std::move(sealed), std::move(parsed));
  const auto driven = drive(*connection, sender, peer.drive);
  if (stats != nullptr) *stats = sender.stats();
  return conclude(peer, sender, sender.outcome(), driven);
}

Result<Fetched> fetch_from(
    const PeerTarget& peer, ChunkStore& store, FetchRequest request, TransferStats* stats
) {
  RN_TRY(const auto connection, connect(peer));
  Fetcher fetcher(store, std::move(request));
  const auto driven = drive(*connection, fetcher, peer.drive);
  if (stats != nullptr) *stats = fetcher.stats();
  return conclude(peer, fetcher, fetcher.outcome(), driven);
}

TransferStats serve_peer(
    io::FramedConnection& connection, const PeerServerDeps& deps, const DriveOptions& options
) {
  const NodeId peer = node_of_identity(connection.peer_identity().value_or(""));
  PeerServer server(deps, peer);
  const auto driven = drive(connection, server, options);
  const bool has_hung_up = !driven && driven.error().code == ErrorCode::kUnavailable;
  if (!driven && !has_hung_up)
    log::info("peer.broken", {{"peer", peer.str()}, {"why", driven.error().describe()}});
  return server.stats();
}

}  // namespace rn::checkpoint
