// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace rn::init {

/// The warden's word that a save is due or that the guest has to leave: the file /reclaim/told, one
/// line of JSON and, behind a zero byte each, variables for a hook (warden/guest_word.h). It stands
/// until the file is removed. The folder is the guest's: what it puts there itself is bounded, no
/// link is followed and nothing is waited for; with a word of its own it tells itself.
class Word {
 public:
  static constexpr int kVariablesMax = 8;

  /// False if none stands.
  bool load();
  /// The guest can be told again. False if something lies there that cannot be removed.
  static bool take_away();

  const char* json() const { return bytes_; }

  std::size_t json_size() const { return json_size_; }

  /// "RECLAIM_NAME=value", at most kVariablesMax; ends with a null pointer.
  char* const* variables() const { return variables_; }

  /// 0 = it may stay.
  std::int64_t grace_s() const;

 private:
  static constexpr std::size_t kBytesMax = 8192;

  char bytes_[kBytesMax + 1] = {};
  std::size_t json_size_ = 0;
  char* variables_[kVariablesMax + 1] = {};
};

/// Watches for new words. Without inotify (the guest's instances are used up) each second.
class WordWatch {
 public:
  void begin();

  int fd() const { return fd_; }

  /// Whether it is time to look again. Bounded, however much the guest makes in the folder.
  bool is_due(std::int64_t now);

  static constexpr std::int64_t kLookMs = 1000;

 private:
  int fd_ = -1;
  std::int64_t looked_ = 0;
};

}  // namespace rn::init
