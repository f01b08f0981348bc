// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace rn::io {

/// In which pieces a paced connection is given to the kernel. Where a round trip takes less than 4
/// ms, TCP sends 64 KiB at once whatever its pace (net.ipv4.tcp_tso_rtt_log, the whole machine's),
/// waits after that for as long as they are to take, 26 ms at 20 Mbit/s, and looks at its rate as
/// seldom. It does not join what ends a record (MSG_EOR) with what follows: so a record of what two
/// milliseconds are to carry is all that leaves at once, on this one connection. Pure.
class SendBursts {
 public:
  /// Of what is given from now on. `segment`: payload of the connection's packets, 0 if unknown.
  /// Rate 0: not paced.
  void set(std::uint64_t bytes_per_second, std::uint32_t segment);

  /// What to give of so many bytes, and with which flags of send(2).
  struct Piece {
    std::size_t bytes = 0;
    int flags = 0;
  };

  Piece next(std::size_t offered) const;  ///< `offered` and what is answered are not 0
  void sent(std::size_t bytes);           ///< what the kernel has taken of it

 private:
  std::size_t most_ = 0;   ///< of a burst; 0 = as TCP likes
  std::size_t begun_ = 0;  ///< of the burst that goes on
};

}  // namespace rn::io
