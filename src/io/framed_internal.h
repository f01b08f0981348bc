// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/error.h"
#include "io/channel.h"
#include "io/fd.h"
#include "io/framed.h"
#include "io/net.h"

// Private to io: how client and server make a FramedConnection of a connected socket.
namespace rn::io {

/// Blocking. Errors as FramedConnection::connect.
Result<std::unique_ptr<FramedConnection>> finish_handshake(
    Fd fd, Channel channel, const Deadline& deadline, std::size_t max_frame_bytes
);

}  // namespace rn::io
