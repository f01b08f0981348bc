// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/ids.h"
#include "checkpoint/chunk_feed.h"
#include "checkpoint/transfer.h"
#include "io/framed.h"

// The blocking adapters between transfer.h and the framed TLS connections of io. They run on worker
// threads.

namespace rn::checkpoint {

/// The node in an identity such as "spiffe://site/node/n-0123456789abcdef"; empty if it names none.
NodeId node_of_identity(const std::string& identity);

struct DriveOptions {
  milliseconds frame_timeout = seconds(60);  ///< for each frame, each way
  /// Asked between frames; true ends the drive with kTimeout (the owner said no, a deadline passed,
  /// another one has its turn). The chunk under way is sent to its end: the other side keeps it,
  /// and the next run does not send it again.
  std::function<bool()> should_stop;
  /// Told between frames: what the end has still to send, if it knows (PeerEnd::bytes_left).
  std::function<void(std::optional<std::uint64_t>)> on_progress;
};

/// Moves frames between one end and the connection until the end is finished. kUnavailable or
/// kTimeout if the connection breaks or stalls; a refusal that the other side sent before it hung
/// up is still read, so end.outcome() says why.
Status drive(io::FramedConnection& connection, PeerEnd& end, const DriveOptions& options);

struct PeerTarget {
  std::string host;
  std::uint16_t port = 0;
  std::string expected_identity;  ///< of the peer's certificate
  io::TlsConfig tls;              ///< own certificate and the site's CA
  milliseconds connect_timeout = seconds(10);
  std::uint32_t socket_mark = 0;
  /// Called once when connected, before the first frame: pacing, and a way to shut the connection
  /// down from outside.
  std::function<void(io::FramedConnection&)> on_connected;
  /// Called once for each of these, before that connection is destroyed.
  std::function<void()> on_closing;
  DriveOptions drive;
};

/// Stores a generation of the own store at a peer: StoreSender over a new connection. Errors: of
/// the connection, or the sender's. Retrying is always safe and cheap. `stats`, if given, is filled
/// also on error.
Result<Receipt> send_generation(
    const PeerTarget& peer,
    ChunkStore& store,
    const Ticket& ticket,
    const JobId& job,
    const Digest& manifest,
    TransferStats* stats = nullptr
);

/// Stores a generation that is still being captured: connects when the first chunk is in `tap`,
/// sends what comes, and the rest and the manifest when it is released. Where nothing comes for
/// long, the connection is given up meanwhile. Errors as send_generation; kTimeout also if the tap
/// is not released and `drive.should_stop` says so. The tap is closed when this returns.
Result<Receipt> send_ahead(
    const PeerTarget& peer,
    ChunkStore& store,
    const Ticket& ticket,
    ChunkTap& tap,
    TransferStats* stats = nullptr
);

/// Fetches from a peer into the own store: Fetcher over a new connection.
Result<Fetched> fetch_from(
    const PeerTarget& peer, ChunkStore& store, FetchRequest request, TransferStats* stats = nullptr
);

/// Serves one accepted connection to its end; the handler of an io::FramedServer. Answers what
/// happened, for the log. `first`: a frame that the caller has received already.
TransferStats serve_peer(
    io::FramedConnection& connection,
    const PeerServerDeps& deps,
    const DriveOptions& options,
    const io::Frame* first = nullptr
);

}  // namespace rn::checkpoint
