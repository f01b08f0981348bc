// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/time.h"
#include "io/loop.h"
#include "io/websocket.h"

namespace rn::io {

/// Closes `socket` when what it has queued has left, or after `limit`: close() alone would drop the
/// last words. Loop thread.
void close_when_sent(
    Loop& loop,
    std::shared_ptr<WebSocket> socket,
    std::string reason,
    milliseconds limit = seconds(5)
);

}  // namespace rn::io
