// SPDX-License-Identifier: Apache-2.0
// Frames of the peer data port against each end. Input: which end (1 byte), then frames: type (1),
// length (2), body.

#include <algorithm>

#include "base/assert.h"
#include "base/fs_crash.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "checkpoint/transfer.h"
#include "model/signing.h"

namespace {

using namespace rn::checkpoint;  // NOLINT(google-build-using-namespace): a program of its own

constexpr std::size_t kQuota = 1 << 20;

struct World {
  rn::ManualClock clock;
  rn::CrashFs fs{clock, 1};
  rn::crypto::SigningKey key = rn::crypto::signing_key_from_seed({});
  std::unique_ptr<ChunkStore> store;

  World() {
    StoreOptions options;
    options.root = "/s";
    options.quota_bytes = kQuota;
    options.reserve_free_bytes = 0;
    store = ChunkStore::open(fs, clock, options).value();
  }

  rn::Ticket ticket(rn::TicketAction action) {
    rn::Ticket out;
    out.job = rn::JobId("j-0123456789abcdef");
    out.epoch = {1, 1};
    out.from = rn::NodeId("n-1");
    out.to = rn::NodeId("n-2");
    out.action = action;
    out.expiry_wall_ms = to_ms(clock.now().wall);
    out.max_bytes = kQuota;
    return rn::signed_ticket(out, key);
  }
};

void drain(PeerEnd& end) {
  for (int i = 0; i < 10'000 && end.next(); ++i) {
  }
}

void feed(PeerEnd& end, rn::BlobView input) {
  drain(end);
  while (input.size() >= 3) {
    const auto type = static_cast<PeerFrameType>(input[0]);
    const std::size_t length =
        std::min<std::size_t>(input.size() - 3, input[1] | std::size_t{input[2]} << 8);
    end.on_frame(type, input.subspan(3, length));
    drain(end);
    input = input.subspan(3 + length);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool kIsQuiet = (rn::log::set_level(rn::log::Level::kError), true);
  if (size == 0 || !kIsQuiet) return 0;
  World world;
  const rn::BlobView frames(data + 1, size - 1);
  const PeerServerDeps deps{
      *world.store,
      world.store.get(),
      world.clock,
      rn::NodeId("n-2"),
      "room",
      world.key,
      world.key.public_key,
      rn::seconds(300),
      {},
      {},
      {}};
  const rn::Digest wanted = rn::crypto::sha256(rn::as_bytes("wanted"));
  if (data[0] % 4 == 0) {
    PeerServer server(deps, rn::NodeId("n-1"));
    feed(server, frames);
  } else if (data[0] % 4 == 1) {
    PeerServer server(deps, rn::NodeId("n-1"));
    const auto action = data[0] / 4 % 2 == 0 ? rn::TicketAction::kStore : rn::TicketAction::kFetch;
    const PeerFrame hello =
        encode_hello({kPeerProtocol, kPeerProtocolOldest, world.ticket(action)});
    server.on_frame(hello.type, hello.body);
    feed(server, frames);
  } else if (data[0] % 4 == 2) {
    Fetcher fetcher(*world.store, {world.ticket(rn::TicketAction::kFetch), {}, {wanted}});
    feed(fetcher, frames);
    RN_ASSERT(world.store->usage().chunks <= 1, "only what was asked for is kept");
  } else {
    Fetcher fetcher(*world.store, {world.ticket(rn::TicketAction::kFetch), wanted, {}});
    feed(fetcher, frames);
    RN_ASSERT(world.store->jobs().empty(), "nobody makes a manifest with a given hash");
  }
  RN_ASSERT(world.store->usage().bytes <= kQuota, "the quota holds");
  return 0;
}
