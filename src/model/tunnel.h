// SPDX-License-Identifier: Apache-2.0
#pragma once

// The packets of a tunnel (docs/formats/tunnel.md): one TCP connection from a user's machine to a
// port inside a guest, or one visit there. Its ends are `reclaim` and the guest's PID 1; what lies
// between passes packets on. Nothing here allocates, and nothing of ours is included: PID 1
// compiles it, too.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rn::tunnel {

/// First byte of a packet, and what may follow it.
enum class Kind : std::uint8_t {
  kOpen = 1,     ///< to the guest, once and first: the port, two bytes
  kOpened = 2,   ///< from the guest: connected; nothing
  kRefused = 3,  ///< from the guest's side: not connected, and why, in words; the last packet
  kData = 4,     ///< bytes of the stream, at least one
  kCredit = 5,   ///< four bytes: so much more may be sent
  kEnd = 6,      ///< no more data comes; nothing
  kReset = 7,    ///< it broke, and why, in words or in none; the last packet
  kEnter = 8,    ///< in place of kOpen: a visit of the guest's PID 1 (model/visit.h); nothing
  kAccept = 9,  ///< in place of kOpen: a link that the guest may begin (model/gang_link.h); nothing
  kDial = 10,   ///< from the guest, first after kAccept: the rank, a byte, and the port, two
  kFrom = 11,   ///< in place of kOpen: a link to the port, two bytes, from the rank, a byte
};

/// Bytes of the stream in one packet, and of the packet.
inline constexpr std::size_t kDataMax = 16u << 10;
inline constexpr std::size_t kPacketMax = kDataMax + 1;
/// Bytes of words in a packet.
inline constexpr std::size_t kWordsMax = 400;
/// A packet of data costs its bytes and this, so that small ones are bounded, too.
inline constexpr std::uint32_t kPacketCost = 1024;
/// What may be under way to a guest, and from it, before credit comes back.
inline constexpr std::uint32_t kWindowToGuest = 64u << 10;
inline constexpr std::uint32_t kWindowToUser = 256u << 10;

inline constexpr char kSocketName[] = "tunnel.sock";  ///< in the guest's folder /reclaim

constexpr std::uint32_t cost_of(std::size_t bytes) {
  return static_cast<std::uint32_t>(bytes) + kPacketCost;
}

inline std::uint32_t read_u32(const std::uint8_t* from) {
  return std::uint32_t{from[0]} << 24 | std::uint32_t{from[1]} << 16 | std::uint32_t{from[2]} << 8 |
         std::uint32_t{from[3]};
}

inline void write_u32(std::uint8_t* to, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
}

/// One end of an open tunnel, between a stream's socket and packets: what may be sent, what waits
/// to be written, what both sides have ended. `kWindow`: of what comes. No I/O. Of use after
/// begin(); without a constructor, so that memory for many of them is touched only when it is used.
template <std::uint32_t kWindow>
class End {
 public:
  enum class Heard : std::uint8_t { kFine, kReset, kBroken };

  static constexpr std::size_t kCreditPacket = 5;

  /// `window`: of what goes to the other end.
  void begin(std::uint32_t window) {
    window_ = may_send_ = window;
    granted_ = kWindow;
    due_ = 0;
    from_ = to_ = 0;
    sent_end_ = heard_end_ = has_shut_ = false;
  }

  /// A packet from the other end. kBroken: it does not keep to the rules; nothing more counts then.
  Heard hear(const std::uint8_t* packet, std::size_t size) {
    if (size == 0 || size > kPacketMax) return Heard::kBroken;
    switch (static_cast<Kind>(packet[0])) {
      case Kind::kData:
        return take(packet + 1, size - 1) ? Heard::kFine : Heard::kBroken;
      case Kind::kCredit:
        return size == kCreditPacket && add_credit(read_u32(packet + 1)) ? Heard::kFine
                                                                         : Heard::kBroken;
      case Kind::kEnd:
        if (heard_end_ || size != 1) return Heard::kBroken;
        heard_end_ = true;
        return Heard::kFine;
      case Kind::kReset:
        return Heard::kReset;
      case Kind::kOpen:
      case Kind::kOpened:
      case Kind::kRefused:
      case Kind::kEnter:
      case Kind::kAccept:
      case Kind::kDial:
      case Kind::kFrom:
        break;
    }
    return Heard::kBroken;
  }

  /// Bytes that may be read from the socket now and sent as one packet; 0 = wait for credit, or it
  /// has ended.
  std::size_t may_send() const {
    if (sent_end_ || may_send_ <= kPacketCost) return 0;
    const std::size_t most = may_send_ - kPacketCost;
    return most < kDataMax ? most : kDataMax;
  }

  /// `bytes` ≤ may_send() went as one packet.
  void sent(std::size_t bytes) { may_send_ -= cost_of(bytes); }

  /// The socket's end was read and said.
  void sent_end() { sent_end_ = true; }

  bool has_sent_end() const { return sent_end_; }

  bool has_heard_end() const { return heard_end_; }

  /// What is to be written to the socket.
  const std::uint8_t* waiting() const { return bytes_ + from_; }

  std::size_t waiting_bytes() const { return to_ - from_; }

  void wrote(std::size_t bytes) {
    from_ += static_cast<std::uint32_t>(bytes);
    due_ += static_cast<std::uint32_t>(bytes);
    if (from_ == to_) from_ = to_ = 0;
  }

  /// All that came is written and no more comes: the socket's writing side is to be shut, once.
  bool must_shut() const { return heard_end_ && waiting_bytes() == 0 && !has_shut_; }

  void shut() { has_shut_ = true; }

  /// Fills `packet` with the credit to give back, if it is enough to be worth one; its size, or 0.
  /// It counts as given only by gave_credit().
  std::size_t credit_packet(std::uint8_t (&packet)[kCreditPacket]) const {
    if (heard_end_ || due_ < kWindow / 4) return 0;
    packet[0] = static_cast<std::uint8_t>(Kind::kCredit);
    write_u32(packet + 1, due_);
    return kCreditPacket;
  }

  void gave_credit() {
    granted_ += due_;
    due_ = 0;
  }

  /// Both directions have ended, and what came is written.
  bool is_over() const { return sent_end_ && has_shut_; }

 private:
  bool take(const std::uint8_t* data, std::size_t size) {
    if (size == 0 || heard_end_ || cost_of(size) > granted_) return false;
    granted_ -= cost_of(size);
    due_ += kPacketCost;  // the packet itself is gone
    if (to_ + size > kWindow) {
      std::memmove(bytes_, bytes_ + from_, to_ - from_);
      to_ -= from_;
      from_ = 0;
    }
    std::memcpy(bytes_ + to_, data, size);
    to_ += static_cast<std::uint32_t>(size);
    return true;
  }

  bool add_credit(std::uint32_t credit) {
    if (credit > window_ - may_send_) return false;
    may_send_ += credit;
    return true;
  }

  std::uint32_t window_;
  std::uint32_t may_send_;
  std::uint32_t granted_;  ///< what the other end may still send
  std::uint32_t due_;      ///< what it may send again, and has not been told
  std::uint32_t from_;     ///< what waits, in bytes_
  std::uint32_t to_;
  bool sent_end_;
  bool heard_end_;
  bool has_shut_;
  std::uint8_t bytes_[kWindow];
};

}  // namespace rn::tunnel
