// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "coordinator/core_types.h"
#include "io/http_server.h"

namespace rn::coordinator {

/// What nodes fetch from our blobs over their HTTP connections, between the server, which sends,
/// and the core, which says how fast: several connections of one node have one rate together. Loop
/// thread only.
class ServedBlobs {
 public:
  /// A node asks for a blob by this connection, which is paced at once. True if it fetched nothing
  /// before: the core is to be told.
  bool ask(const NodeId& node, const Digest& blob, const io::SendingSide& side, Instant now);

  /// What is under way. What is over is forgotten, and its connections are paced no more.
  std::vector<BlobsToNode> look(Instant now);

  /// Of all of the node's connections together; 0 = no limit. Nothing if it fetches nothing.
  void pace(const NodeId& node, std::uint64_t rate_bps, Instant now);

 private:
  struct Connection {
    io::SendingSide side;
    Instant asked_at;
    std::uint64_t given_first = 0;   ///< before the first blob
    std::uint64_t given_before = 0;  ///< before the newest one's answer
    std::uint64_t sent = 0;          ///< of blobs, at the last look
    std::uint64_t paced_bps = 0;     ///< 0 = not

    /// Asked for and not there yet.
    std::uint64_t waiting() const;
    bool is_busy(Instant now) const;
  };

  struct Node {
    std::vector<Connection> connections;
    std::vector<Digest> asked;
    std::uint64_t rate_bps = 0;
    std::uint64_t sent_before = 0;  ///< by connections that are gone
  };

  static void share(Node& node, Instant now);

  std::map<NodeId, Node> nodes_;
};

}  // namespace rn::coordinator
