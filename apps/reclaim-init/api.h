// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "word.h"
#include <poll.h>

namespace rn::init {

/// HTTP/1.1 at the Unix socket /reclaim/api.sock, for a guest that asks whether a save is due:
///
///   GET /v1/notice               the word as JSON, or 204 if none stands
///   GET /v1/notice?wait=SECONDS  the same, as soon as one stands, at most so much later (60)
///   POST /v1/saved               takes the word away, so that the guest can be told again
///
/// And code for spot instances finds the answers to its own questions (metadata.h) at a port of
/// 127.0.0.1, if the guest's variable kMetadataVariable names one, and where code has them written
/// into it, at port 80 of 169.254.169.254, if the guest's loopback has that address.
///
/// Each connection has one request of at most 4 KiB, which must come within five seconds, and one
/// answer. A ninth connection is refused. Nothing here waits, allocates or has an end by the
/// guest's leave.
class Api {
 public:
  static constexpr int kConnections = 8;
  /// And as many that have their answer and are to take it.
  static constexpr int kPlaces = 2 * kConnections;
  static constexpr int kListeners = 3;
  static constexpr int kPolled = kListeners + kPlaces;

  /// False with errno where there can be no socket.
  bool begin();
  bool begin_metadata(int port);
  bool begin_link_local();

  bool has_socket() const { return listener_ >= 0; }

  bool is_open() const { return listener_ >= 0 || metadata_ >= 0 || link_local_ >= 0; }

  /// It heard of its notice by the metadata: if it ends now, it is because of that.
  bool has_told_to_leave() const { return has_told_to_leave_; }

  /// What to wait for: kPolled of them, some of them -1.
  void fill(pollfd* out) const;
  void step(const pollfd* ready, std::int64_t now, bool is_time_to_look, Word& word);
  /// When step() has something to do by itself; -1 = no such time.
  std::int64_t wakes_at() const;

 private:
  enum class Phase : std::uint8_t { kFree, kReading, kWaiting, kClosing };
  struct Reply;

  static constexpr std::size_t kRequestMax = 4096;

  struct Connection {
    int fd = -1;
    Phase phase = Phase::kFree;
    bool is_metadata = false;
    std::int64_t until = 0;  ///< of the phase
    std::size_t used = 0;
    char request[kRequestMax + 1];

    void say(const Reply& reply, const char* words, std::int64_t now);
    void say(const Reply& reply, const char* body, std::size_t size, std::int64_t now);
    void end();
  };

  void accept_some(int listener, std::int64_t now);
  void serve(Connection& one, bool is_ready, std::int64_t now, Word& word);
  void read_some(Connection& one, std::int64_t now, Word& word);
  void answer(Connection& one, std::size_t head, std::int64_t now, Word& word);
  static void answer_notice(Connection& one, const char* query, std::int64_t now, Word& word);
  void answer_by_metadata(Connection& one, const char* method, const char* path, std::int64_t now);
  static void answer_saved(Connection& one, const char* query, std::int64_t now);

  static const Reply kOk, kText, kNothing, kBad, kNoSuchPath, kGetOnly, kPostOnly, kConflict,
      kTooLarge, kBusy;

  int listener_ = -1;
  int metadata_ = -1;
  int link_local_ = -1;
  bool has_told_to_leave_ = false;
  Connection connections_[kPlaces];
};

}  // namespace rn::init
