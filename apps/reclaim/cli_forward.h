// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli_client.h"

#include "base/error.h"

namespace rn::cli {

/// "8888": both the same; "9000:8888": LOCAL:PORT; "0:8888": a free one here.
struct ForwardPorts {
  std::uint16_t local = 0;
  std::uint16_t remote = 0;
};

/// kInvalid says what is wrong with it.
Result<ForwardPorts> parse_ports(const std::string& text);

struct ForwardOptions {
  std::string job;
  std::string ports;
  /// Called with the port that is listened on, and with what ends it; for tests. It also ends by
  /// Ctrl-C.
  std::function<void(std::uint16_t port, std::function<void()> stop)> listening;
};

/// Listens on 127.0.0.1 and connects each connection to the port inside the job's guest, wherever
/// that is, until Ctrl-C or the job's end. What cannot be connected is reset, with a line on
/// standard error. Answers the exit code.
int forward(const Client& client, const ForwardOptions& options);

}  // namespace rn::cli
