// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is said in the stream of a visit (docs/formats/visit.md): a tunnel into a guest at whose far
// end PID 1 itself answers. It runs one command for the user, or sends or takes one file or folder.
// Nothing here allocates, and nothing of ours but the tunnel is included: PID 1 compiles it, too.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "model/tunnel.h"

namespace rn::visit {

/// First byte of a frame, and what its body is.
enum class Frame : std::uint8_t {
  // to the guest: one of the first three, once and first
  kRun = 1,       ///< a command: see Run
  kSend = 2,      ///< send this path, by a copy stream in kOutput; the path
  kTake = 3,      ///< take a copy stream from kInput to this path; the path
  kInput = 4,     ///< bytes for its standard input, at least one
  kInputEnd = 5,  ///< no more of them; nothing
  kSize = 6,      ///< the terminal's: rows and columns, two bytes each
  kSignal = 7,    ///< to the command's process group; one byte, its number
  kAlive = 8,     ///< says nothing, so that a quiet visit is not taken for a dead one; nothing
  // from the guest
  kOutput = 16,  ///< bytes of its standard output, or of its terminal; at least one
  kErrors = 17,  ///< bytes of its standard error; at least one
  kTaken = 18,   ///< four bytes: so many bytes of input have gone to it
  kOver = 19,    ///< it has ended, and all output was said; one byte, its exit code. The last frame
  kCannot = 20,  ///< it was not begun, and why, in words; the last frame
};

inline constexpr std::size_t kHeadBytes = 3;  ///< the frame, and two bytes: the body's size
/// One packet of a tunnel has room for any frame.
inline constexpr std::size_t kFrameMax = tunnel::kDataMax;
inline constexpr std::size_t kBodyMax = kFrameMax - kHeadBytes;
/// Input that may be under way before kTaken comes. Beside the tunnel's own credit, so that a
/// command that reads nothing does not hold up a signal to it.
inline constexpr std::uint32_t kInputWindow = 32u << 10;
inline constexpr int kWordsMax = 512;  ///< of a command
inline constexpr std::size_t kPathMax = 4095;

/// A frame that stands at the front of what came.
struct Cut {
  Frame frame;
  const std::uint8_t* body;
  std::size_t size;  ///< of the body
  std::size_t used;  ///< with its head
};

enum class Cutting : std::uint8_t { kMore, kWhole, kBad };

inline std::uint16_t read_u16(const std::uint8_t* from) {
  return static_cast<std::uint16_t>(from[0] << 8 | from[1]);
}

inline void write_u16(std::uint8_t* to, std::size_t value) {
  to[0] = static_cast<std::uint8_t>(value >> 8);
  to[1] = static_cast<std::uint8_t>(value & 0xff);
}

/// kMore: it is not whole yet. kBad: it is longer than any frame; nothing more counts then.
inline Cutting cut(const std::uint8_t* bytes, std::size_t size, Cut& out) {
  if (size < kHeadBytes) return Cutting::kMore;
  const std::size_t body = read_u16(bytes + 1);
  if (body > kBodyMax) return Cutting::kBad;
  if (size < kHeadBytes + body) return Cutting::kMore;
  out.frame = static_cast<Frame>(bytes[0]);
  out.body = bytes + kHeadBytes;
  out.size = body;
  out.used = kHeadBytes + body;
  return Cutting::kWhole;
}

inline void write_head(std::uint8_t* to, Frame frame, std::size_t body) {
  to[0] = static_cast<std::uint8_t>(frame);
  write_u16(to + 1, body);
}

/// A command. Its body: a byte of flags (1: a terminal, 2: it gets input), rows, columns (two bytes
/// each), the value of TERM, then the words, each with a zero behind it.
struct Run {
  static constexpr std::size_t kFixed = 5;
  static constexpr std::uint8_t kTerminal = 1;
  static constexpr std::uint8_t kInput = 2;

  bool has_terminal;
  bool has_input;
  std::uint16_t rows;
  std::uint16_t columns;
  const char* terminal;              ///< TERM; empty: as the guest has it
  const char* words[kWordsMax + 1];  ///< in the body; a null pointer is the last
};

/// False: it is none.
inline bool read_run(const std::uint8_t* body, std::size_t size, Run& out) {
  if (size <= Run::kFixed || body[size - 1] != 0) return false;
  if ((body[0] & ~(Run::kTerminal | Run::kInput)) != 0) return false;
  out.has_terminal = (body[0] & Run::kTerminal) != 0;
  out.has_input = (body[0] & Run::kInput) != 0;
  out.rows = read_u16(body + 1);
  out.columns = read_u16(body + 3);
  out.terminal = nullptr;
  int count = 0;
  for (std::size_t at = Run::kFixed; at < size;) {
    const char* const word = reinterpret_cast<const char*>(body) + at;
    at += std::strlen(word) + 1;  // the last byte of all is a zero
    if (out.terminal == nullptr) {
      out.terminal = word;
      continue;
    }
    if (count == kWordsMax) return false;
    out.words[count++] = word;
  }
  out.words[count] = nullptr;
  return count > 0 && out.words[0][0] != '\0';
}

/// A path of the guest's, with a zero behind it in `out`. False: it is none.
inline bool read_path(const std::uint8_t* body, std::size_t size, char (&out)[kPathMax + 1]) {
  if (size == 0 || size > kPathMax || std::memchr(body, 0, size) != nullptr) return false;
  std::memcpy(out, body, size);
  out[size] = '\0';
  return true;
}

}  // namespace rn::visit
