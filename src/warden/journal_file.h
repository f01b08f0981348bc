// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "warden/core_types.h"

namespace rn::warden {

/// The intent journal on disk (docs/formats/warden-journal.md): two slots of a file whose space is
/// taken beforehand, written in turn, so that a full disk cannot keep the owner's reclaim from
/// being recorded, and a torn write leaves the older one. Blocking; one thread.
class JournalFile {
 public:
  static constexpr std::uint64_t kSlotBytes = 512 << 10;

  /// Opens or creates it. kExhausted when its space cannot be taken.
  static Result<JournalFile> open(const std::string& path);
  JournalFile(JournalFile&& other) noexcept;
  JournalFile& operator=(JournalFile&&) = delete;
  JournalFile(const JournalFile&) = delete;
  ~JournalFile();

  /// Puts a damaged one aside, as `aside`, and begins a new one with `first`: at each instant there
  /// is one at `path`, the damaged or the whole new one. kExhausted when the new one's space cannot
  /// be taken; then nothing changed.
  static Result<JournalFile> replace(
      const std::string& path, const std::string& aside, const Journal& first
  );
  /// The newest whole one of a file that is only looked at. kNotFound: there is none; else as
  /// read().
  static Result<Journal> look(const std::string& path);

  /// The newest whole one; an empty journal when there is none (a new node). kCorrupt when both
  /// slots are damaged.
  Result<Journal> read();
  /// Durable when this returns without error. After an error the file is condemned: every later
  /// call fails too (the kernel may have dropped the pages).
  Status write(const Journal& journal);

 private:
  explicit JournalFile(int fd) : fd_(fd) {}

  int fd_ = -1;
  std::uint64_t sequence_ = 0;
  bool is_condemned_ = false;
};

/// What the owner and the contract have said, without guests and images. It is kept a second time,
/// since nothing else on the machine says it; what runs is found by its labels. Pure.
Journal owners_part(const Journal& journal);

}  // namespace rn::warden
