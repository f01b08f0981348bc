// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "coordinator/notify_rules.h"
#include "coordinator/sqlite_database.h"

namespace rn::coordinator {

struct NotifyLimits {
  std::uint32_t rules_per_user = 50;
  std::uint32_t messages_per_window = 30;  ///< of one user; what is more is told as a number
  std::int64_t window_ms = 3'600'000;
  std::uint32_t confirmations_per_day = 6;  ///< of one user
  std::uint32_t waiting_per_user = 200;
  std::uint32_t waiting = 10'000;
  std::int64_t retry_first_ms = 30'000;  ///< of one message; doubles
  std::int64_t retry_max_ms = 3'600'000;
  std::int64_t expires_ms = 24 * 3'600'000;
  std::uint32_t code_tries = 5;
};

/// One message on its way.
struct OutboxMessage {
  std::int64_t number = 0;
  NotifyRow rule;
  api::Notification notification;
  std::string receiver;  ///< those of one server have the same: "smtp", or an origin
  std::uint32_t tries = 0;
  std::int64_t expires_wall_ms = 0;
};

/// Since the start, but for the gauges.
struct NotifyCounts {
  std::uint64_t sent = 0;
  std::uint64_t failed = 0;   ///< tries
  std::uint64_t dropped = 0;  ///< messages that were given up
  std::uint64_t held = 0;     ///< events that are told as a number
  std::uint64_t waiting = 0;  ///< gauge
  std::uint64_t rules = 0;    ///< gauge
};

/// Rules, and what is to be sent by them: FOLDER/notify.db, apart from the site's database (ADR
/// 0020). An event and the messages that follow from it go in together with the place up to which
/// events were read, so that each is taken once; a message goes out of it when its receiver has
/// taken it, so that it is sent once at least. Any thread; all block on the disk.
class Outbox {
 public:
  using JobLookup = std::function<std::optional<Job>(const JobId&)>;

  /// As SqliteDatabase::open; kUnsupported for a newer schema.
  static Result<std::unique_ptr<Outbox>> open(const std::string& path, const NotifyLimits& limits);

  // ---- rules

  /// `head`: the newest event there is. Answers up to which event the rule is not asked: what came
  /// until then is in the past. kExhausted with what to do: too many rules, or codes.
  Result<std::uint64_t> add(const NotifyRow& row, std::uint64_t head, std::int64_t now_wall_ms);
  std::vector<NotifyRow> rules() const;
  std::optional<NotifyRow> find(const std::string& id) const;
  /// True if this user has confirmed the address by another rule.
  bool has_confirmed(const UserId& user, const std::string& mail) const;
  /// With what waits for it. kNotFound.
  Status remove(const std::string& id);
  /// kDenied for another code; after code_tries the rule is gone. kNotFound. Confirmed already:
  /// fine.
  Result<NotifyRow> confirm(
      const std::string& id, const std::string& code, std::int64_t now_wall_ms
  );
  std::map<std::string, std::uint32_t> waiting_by_rule() const;
  bool has_rules() const;

  // ---- events

  /// Events up to it were taken.
  std::uint64_t cursor() const;
  /// After a start: a site's older database was restored, or there were no rules.
  Status move_cursor(std::uint64_t to);
  /// The events that follow on `from`, if that is the cursor still; else nothing.
  Status take(
      std::uint64_t from,
      std::span<const StoredEvent> events,
      const NotifyStanding& standing,
      const JobLookup& job_of,
      std::int64_t now_wall_ms
  );
  /// The same for one rule and events of before it.
  Status take_past(
      const std::string& rule,
      std::span<const StoredEvent> events,
      const NotifyStanding& standing,
      const JobLookup& job_of,
      std::int64_t now_wall_ms
  );
  /// Something that is no event. kExhausted: too many, now.
  Status put(const NotifyRow& rule, const api::Notification& one, std::int64_t now_wall_ms);
  /// Numbers of what was held back, as far as there is room again; and gives up what is too old.
  Status look(std::int64_t now_wall_ms);

  // ---- messages

  /// The one that is due longest, but for those to `busy` receivers.
  Result<std::optional<OutboxMessage>> next(
      const std::set<std::string>& busy, std::int64_t now_wall_ms
  );
  Status sent(const OutboxMessage& message, std::int64_t now_wall_ms);
  /// Tried again later; given up if that is after its end.
  Status failed(const OutboxMessage& message, const std::string& why, std::int64_t now_wall_ms);
  /// Its receiver takes nothing now: it is due still, after what else waits for it.
  Status put_off(const OutboxMessage& message, const std::string& why, std::int64_t now_wall_ms);
  Status refused(const OutboxMessage& message, const std::string& why, std::int64_t now_wall_ms);

  NotifyCounts counts() const;  ///< never waits for the disk

 private:
  using Rules = std::map<std::string, NotifyRow>;

  Outbox(std::unique_ptr<SqliteDatabase> database, const NotifyLimits& limits)
      : database_(std::move(database)), limits_(limits) {}

  Status load();
  Status save(const NotifyRow& row);
  Status erase(const std::string& rule);
  Result<std::uint64_t> count_waiting(const UserId& user);
  Result<bool> spend(
      const UserId& user,
      const std::string& what,
      std::uint32_t limit,
      std::int64_t window_ms,
      std::int64_t now_wall_ms
  );
  Result<bool> has_room(const UserId& user, std::int64_t now_wall_ms);
  Status insert(const NotifyRow& rule, const api::Notification& one, std::int64_t now_wall_ms);
  Status queue(
      NotifyRow& rule, NotifyWord word, const api::Notification& one, std::int64_t now_wall_ms
  );
  Status take_one(
      Rules& changed,
      const NotifyRow& rule,
      const StoredEvent& event,
      const NotifyStanding& standing,
      const JobLookup& job_of,
      std::int64_t now_wall_ms
  );
  Status drop_late(std::int64_t now_wall_ms);
  Result<bool> has_message(const std::string& rule);
  Status settle(const OutboxMessage& message, NotifyRow row);
  Status again(
      const OutboxMessage& message,
      const std::string& why,
      std::int64_t due_wall_ms,
      std::int64_t now_wall_ms
  );
  Status commit(const std::function<Status(Rules&)>& work);
  Status set_cursor(std::uint64_t to);
  void publish();

  mutable std::mutex mutex_;  ///< guards all below
  std::unique_ptr<SqliteDatabase> database_;
  const NotifyLimits limits_;
  Rules rules_;  ///< as on the disk
  std::uint64_t cursor_ = 0;
  std::uint64_t waiting_ = 0;
  NotifyCounts counts_;

  mutable std::mutex counting_;  ///< guards what follows; taken after mutex_
  NotifyCounts published_;
};

}  // namespace rn::coordinator
