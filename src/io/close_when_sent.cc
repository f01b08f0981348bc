// SPDX-License-Identifier: Apache-2.0
#include "io/close_when_sent.h"

#include <utility>

namespace rn::io {

namespace {

constexpr milliseconds kQueueLook{10};

}  // namespace

void close_when_sent(
    Loop& loop, std::shared_ptr<WebSocket> socket, std::string reason, milliseconds limit
) {
  if (!socket->is_open()) return;
  if (socket->queued_bytes() == 0 || limit <= milliseconds(0)) return socket->close(reason);
  loop.run_after(
      kQueueLook,
      [&loop, socket = std::move(socket), reason = std::move(reason), limit]() mutable {
        close_when_sent(loop, std::move(socket), std::move(reason), limit - kQueueLook);
      }
  );
}

}  // namespace rn::io
