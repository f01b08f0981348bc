// SPDX-License-Identifier: Apache-2.0
#pragma once

// A file or a folder as bytes, one way, between a user's machine and a guest
// (docs/formats/visit.md). A name in it is one step and never a path, so whoever reads it goes down
// and up by one folder at a time and cannot be led elsewhere. Nothing here allocates or does I/O,
// and nothing else of ours is included: PID 1 compiles it, too.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rn::copy_stream {

/// First byte of an entry.
enum class Kind : std::uint8_t {
  kFile = 1,     ///< mode (two bytes), name; then its content in chunks
  kFolder = 2,   ///< mode, name; what follows lies in it
  kUp = 3,       ///< the folder is over
  kLeftOut = 4,  ///< name, and why it is not sent, in words
  kEnd = 5,      ///< all was sent
};

inline constexpr std::size_t kNameMax = 255;
inline constexpr std::size_t kWordsMax = 255;
inline constexpr int kDepthMax = 64;
/// A chunk: four bytes, its size, and as many of the content. In the place of a size:
inline constexpr std::uint32_t kChunksWhole = 0;            ///< the file is over
inline constexpr std::uint32_t kChunksBroken = 0xffffffff;  ///< it could not be read to its end
inline constexpr std::uint32_t kChunkMax = 1u << 20;
inline constexpr std::size_t kEntryMax = 4 + kNameMax + kWordsMax;

/// One step: no slash, no zero, and neither "." nor "..".
inline bool is_name(const char* name, std::size_t size) {
  if (size == 0 || size > kNameMax) return false;
  if (name[0] == '.' && (size == 1 || (size == 2 && name[1] == '.'))) return false;
  return std::memchr(name, '/', size) == nullptr && std::memchr(name, 0, size) == nullptr;
}

/// Fills `to` with a file's or folder's entry; its size. `name`: is_name().
inline std::size_t write_entry(
    std::uint8_t (&to)[kEntryMax], Kind kind, unsigned mode, const char* name, std::size_t size
) {
  to[0] = static_cast<std::uint8_t>(kind);
  to[1] = static_cast<std::uint8_t>(mode >> 8 & 0xff);
  to[2] = static_cast<std::uint8_t>(mode & 0xff);
  to[3] = static_cast<std::uint8_t>(size);
  std::memcpy(to + 4, name, size);
  return 4 + size;
}

/// The same for what is left out.
inline std::size_t write_left_out(
    std::uint8_t (&to)[kEntryMax], const char* name, std::size_t size, const char* why
) {
  const std::size_t whole = std::strlen(why);
  const std::size_t words = whole < kWordsMax ? whole : kWordsMax;
  to[0] = static_cast<std::uint8_t>(Kind::kLeftOut);
  to[1] = static_cast<std::uint8_t>(size);
  to[2] = static_cast<std::uint8_t>(words);
  std::memcpy(to + 3, name, size);
  std::memcpy(to + 3 + size, why, words);
  return 3 + size + words;
}

inline void write_chunk_head(std::uint8_t* to, std::uint32_t size) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::uint8_t>(size >> (24 - 8 * i));
}

/// Reads a stream whoever wrote it, in whatever pieces it comes. It begins with one file or folder,
/// each folder that was entered is left, no deeper than kDepthMax, and nothing follows the end.
class Reader {
 public:
  enum class Event : std::uint8_t {
    kMore,     ///< all that is there was used
    kFile,     ///< name(), mode(); its content comes
    kFolder,   ///< name(), mode(); it is entered
    kUp,       ///< it is left
    kLeftOut,  ///< name(), words()
    kBytes,    ///< bytes(), size() of the file's content
    kWhole,    ///< the file is over
    kBroken,   ///< it is over, and is not whole
    kEnd,      ///< all is over
    kBad,      ///< wrong() says what; nothing more counts then
  };

  /// The next thing in `left` bytes at `at`, which move on by what was used.
  Event next(const std::uint8_t*& at, std::size_t& left) {
    switch (state_) {
      case State::kEntry:
        return read_entry(at, left);
      case State::kChunkHead:
        return read_chunk_head(at, left);
      case State::kChunk:
        return read_chunk(at, left);
      case State::kOver:
        return left > 0 ? bad("something follows its end") : Event::kMore;
      case State::kBad:
        break;
    }
    return Event::kBad;
  }

  /// With a zero behind it; is_name().
  const char* name() const { return name_; }

  unsigned mode() const { return mode_; }  ///< 0 to 0777

  const char* words() const { return words_; }

  const std::uint8_t* bytes() const { return bytes_; }

  std::size_t size() const { return size_; }

  const char* wrong() const { return wrong_; }

  bool is_over() const { return state_ == State::kOver; }

 private:
  enum class State : std::uint8_t { kEntry, kChunkHead, kChunk, kOver, kBad };

  Event bad(const char* wrong) {
    wrong_ = wrong;
    state_ = State::kBad;
    return Event::kBad;
  }

  /// Whether head_ has as many bytes.
  bool gather(const std::uint8_t*& at, std::size_t& left, std::size_t wanted) {
    const std::size_t missing = wanted > have_ ? wanted - have_ : 0;
    const std::size_t size = missing < left ? missing : left;
    if (size > 0) std::memcpy(head_ + have_, at, size);
    have_ += size;
    at += size;
    left -= size;
    return have_ >= wanted;
  }

  Event read_entry(const std::uint8_t*& at, std::size_t& left) {
    if (!gather(at, left, 1)) return Event::kMore;
    const auto kind = static_cast<Kind>(head_[0]);
    std::size_t fixed = 1;
    if (kind == Kind::kFile || kind == Kind::kFolder) fixed = 4;
    if (kind == Kind::kLeftOut) fixed = 3;
    if (!gather(at, left, fixed)) return Event::kMore;
    const bool is_left_out = kind == Kind::kLeftOut;
    const std::size_t name = fixed > 1 ? std::size_t{head_[is_left_out ? 1 : 3]} : 0;
    const std::size_t words = is_left_out ? std::size_t{head_[2]} : 0;
    if (!gather(at, left, fixed + name + words)) return Event::kMore;
    have_ = 0;
    const char* const text = reinterpret_cast<const char*>(head_) + fixed;
    if (fixed > 1) {
      if (!is_name(text, name)) return bad("a name in it is none");
      std::memcpy(name_, text, name);
      name_[name] = '\0';
      std::memcpy(words_, text + name, words);
      words_[words] = '\0';
    }
    return enter(kind);
  }

  Event enter(Kind kind) {
    const bool is_first = !has_begun_;
    const bool is_inside = depth_ > 0;
    switch (kind) {
      case Kind::kFile:
      case Kind::kFolder:
        if (!is_first && !is_inside) return bad("more than one thing is in it");
        has_begun_ = true;
        mode_ = (unsigned{head_[1]} << 8 | head_[2]) & 0777;
        if (kind == Kind::kFile) {
          state_ = State::kChunkHead;
          return Event::kFile;
        }
        if (depth_ == kDepthMax) return bad("its folders are too deep");
        ++depth_;
        return Event::kFolder;
      case Kind::kUp:
        if (!is_inside) return bad("a folder is left that was not entered");
        --depth_;
        return Event::kUp;
      case Kind::kLeftOut:
        return is_inside ? Event::kLeftOut : bad("something is left out of nothing");
      case Kind::kEnd:
        if (is_first || is_inside) return bad("it ends too soon");
        state_ = State::kOver;
        return Event::kEnd;
    }
    return bad("something of an unknown kind is in it");
  }

  Event read_chunk_head(const std::uint8_t*& at, std::size_t& left) {
    if (!gather(at, left, 4)) return Event::kMore;
    have_ = 0;
    chunk_ = std::uint32_t{head_[0]} << 24 | std::uint32_t{head_[1]} << 16 |
             std::uint32_t{head_[2]} << 8 | std::uint32_t{head_[3]};
    if (chunk_ == kChunksWhole || chunk_ == kChunksBroken) {
      state_ = State::kEntry;
      return chunk_ == kChunksWhole ? Event::kWhole : Event::kBroken;
    }
    if (chunk_ > kChunkMax) return bad("a piece of a file is too long");
    state_ = State::kChunk;
    return read_chunk(at, left);
  }

  Event read_chunk(const std::uint8_t*& at, std::size_t& left) {
    if (left == 0) return Event::kMore;
    bytes_ = at;
    size_ = chunk_ < left ? chunk_ : left;
    at += size_;
    left -= size_;
    chunk_ -= static_cast<std::uint32_t>(size_);
    if (chunk_ == 0) state_ = State::kChunkHead;
    return Event::kBytes;
  }

  State state_ = State::kEntry;
  bool has_begun_ = false;
  int depth_ = 0;
  unsigned mode_ = 0;
  std::uint32_t chunk_ = 0;  ///< what is left of it
  std::size_t have_ = 0;     ///< in head_
  const std::uint8_t* bytes_ = nullptr;
  std::size_t size_ = 0;
  const char* wrong_ = "";
  std::uint8_t head_[kEntryMax] = {};
  char name_[kNameMax + 1] = "";
  char words_[kWordsMax + 1] = "";
};

}  // namespace rn::copy_stream
