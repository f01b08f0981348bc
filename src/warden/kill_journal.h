// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/time.h"

namespace rn::warden {

enum class KillStep : std::uint8_t {
  kIntentCut = 1,   ///< the guests are about to be cut
  kIntentKill = 2,  ///< the guests are about to be cut and killed
  kDone = 3,        ///< what the intent with this declared_ns asked for has come out as `outcome`
};

/// One line of the kill journal: fixed size, host byte order (the file never leaves the machine). A
/// file is a sequence of these; a torn or damaged last one is ignored.
struct KillRecord {
  static constexpr std::uint32_t kMagic = 0x4a4b4e52;  // "RNKJ"

  std::uint32_t magic = kMagic;
  std::uint16_t version = 2;
  KillStep step = KillStep::kIntentKill;
  std::uint8_t is_node = 1;  ///< 1 = every guest of the node; 0 = those that have one of `gpus`
  std::int64_t declared_boot_ns = 0;
  std::int64_t declared_wall_ms = 0;
  std::int64_t cleared_boot_ns = 0;  ///< of kDone; 0 = not cleared
  std::uint32_t processes = 0;       ///< of kDone: seen before the kill
  std::uint32_t remaining = 0;       ///< of kDone: what verification still saw
  std::uint64_t gpus =
      0;  ///< what the order named, bit by index; version 1 named guests here instead
  std::array<std::uint64_t, 3> reserved{};
  std::array<char, 40> boot_id{};  ///< boot times of two boots must not be compared
  std::uint64_t checksum = 0;      ///< FNV-1a over all before it

  friend bool operator==(const KillRecord&, const KillRecord&) = default;
};

static_assert(sizeof(KillRecord) == 120);
static_assert(std::is_trivially_copyable_v<KillRecord>);

/// Writes records durably on a thread of its own: a disk that hangs must not hold a cut for longer
/// than the caller grants. post() and wait() do not allocate. One poster at a time.
class KillJournal {
 public:
  /// Opens or creates the file (0600) and cuts off a torn tail, and a last record that is damaged.
  /// kInternal with errno's words.
  static Result<std::unique_ptr<KillJournal>> open(const std::string& path);
  ~KillJournal();  ///< waits for the write in hand
  KillJournal(const KillJournal&) = delete;
  KillJournal& operator=(const KillJournal&) = delete;

  /// Hands the record over; it is appended and fdatasynced. False when the previous ones still hang
  /// (two are kept) or an earlier write failed: a failed fdatasync condemns the file.
  bool post(KillRecord record);
  /// True when everything posted is durable; false when `limit` passed first or the file is
  /// condemned.
  bool wait(nanoseconds limit);

  bool is_condemned() const;

 private:
  explicit KillJournal(int fd);
  void run();

  mutable std::mutex mutex_;  ///< guards all below
  std::condition_variable changed_;
  std::array<KillRecord, 2> queue_{};
  std::size_t queued_ = 0;
  bool is_writing_ = false;
  bool is_condemned_ = false;
  bool is_stopping_ = false;

  int fd_;
  std::thread writer_;  ///< last: it starts when the rest is there
};

/// All whole and valid records, oldest first. An empty or missing file has none. kCorrupt when a
/// record before the last is damaged, or the file is there and cannot be read.
Result<std::vector<KillRecord>> read_kill_journal(const std::string& path);

/// Gives a damaged one its other name, durably; an older one of that name goes. Then there is none
/// at `path`, which has no records: what that loses must be durable elsewhere before.
Status put_kill_journal_aside(const std::string& path);
/// That other name. Pure.
std::string damaged_kill_journal(const std::string& path);

}  // namespace rn::warden
