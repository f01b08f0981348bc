// SPDX-License-Identifier: Apache-2.0
#include "coordinator/notify_outbox.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/crypto.h"
#include "coordinator/notify_config.h"
#include "model/codec.h"

namespace rn::coordinator {

namespace {

constexpr std::int64_t kOutboxVersion = 1;
constexpr const char* kOutboxSchema = R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE rules (id TEXT PRIMARY KEY, user TEXT NOT NULL, body TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  rule TEXT NOT NULL,
  user TEXT NOT NULL,
  receiver TEXT NOT NULL,
  due_wall_ms INTEGER NOT NULL,
  expires_wall_ms INTEGER NOT NULL,
  tries INTEGER NOT NULL,
  body TEXT NOT NULL
) STRICT;
CREATE INDEX outbox_by_due ON outbox (due_wall_ms, number);
CREATE INDEX outbox_by_rule ON outbox (rule);
CREATE INDEX outbox_by_user ON outbox (user);

CREATE TABLE budgets (
  user TEXT NOT NULL,
  what TEXT NOT NULL,
  since_wall_ms INTEGER NOT NULL,
  used INTEGER NOT NULL,
  PRIMARY KEY (user, what)
) STRICT, WITHOUT ROWID;
)sql";

constexpr std::int64_t kDayMs = 24 * 3'600'000;
/// Unwanted events are read again after a crash: so many are not worth a write.
constexpr std::uint64_t kCursorSavedEvery = 1000;
constexpr std::int64_t kGivenUpAtOnce = 500;

/// Messages to one server have the same.
std::string receiver_of(const NotifyRow& rule) {
  if (!rule.mail.empty()) return "smtp";
  const auto origin = origin_of(rule.webhook);
  return origin ? *origin : rule.webhook;
}

std::string json_list(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "\"" : ",\"") + word + "\"";
  return "[" + text + "]";
}

Error no_such_rule(const std::string& id) {
  return Error{ErrorCode::kNotFound, "no rule " + id, "'reclaim notify list' shows yours"};
}

void note_error(NotifyRow& row, const std::string& why, std::int64_t now_wall_ms) {
  row.last_error = why;
  row.last_error_wall_ms = now_wall_ms;
}

}  // namespace

Result<std::unique_ptr<Outbox>> Outbox::open(const std::string& path, const NotifyLimits& limits) {
  RN_TRY(auto database, SqliteDatabase::open(path, SqliteDatabase::Mode::kReadWrite));
  RN_TRY(const std::int64_t version, database->schema_version());
  if (version > kOutboxVersion)
    return fail(
        ErrorCode::kUnsupported,
        path + " has schema version " + std::to_string(version) + ", this coordinator knows " +
            std::to_string(kOutboxVersion),
        "start the newer coordinator that wrote it, or move it away: rules are then added anew"
    );
  const auto create = [&]() -> Status {
    RN_CHECK(database->execute(kOutboxSchema));
    return database->execute("PRAGMA user_version=" + std::to_string(kOutboxVersion));
  };
  if (version == 0) RN_CHECK(database->transaction(create));
  std::unique_ptr<Outbox> outbox(new Outbox(std::move(database), limits));
  RN_CHECK(outbox->load());
  return outbox;
}

Status Outbox::load() {
  const std::lock_guard lock(mutex_);
  {
    RN_TRY(auto statement, database_->prepare("SELECT body FROM rules"));
    while (true) {
      RN_TRY(const bool is_row, statement.step());
      if (!is_row) break;
      auto row = from_json<NotifyRow>(statement.text(0), Unknown::kLenient);
      if (!row) return fail(Error{ErrorCode::kCorrupt, row.error().message, ""}.with("a rule"));
      rules_[row->id] = *std::move(row);
    }
  }
  {
    RN_TRY(auto statement, database_->prepare("SELECT value FROM meta WHERE key='cursor'"));
    RN_TRY(const bool is_row, statement.step());
    if (is_row) cursor_ = std::strtoull(statement.text(0).c_str(), nullptr, 10);
  }
  RN_TRY(auto statement, database_->prepare("SELECT count(*) FROM outbox"));
  RN_CHECK(statement.step());
  waiting_ = static_cast<std::uint64_t>(statement.integer(0));
  publish();
  return {};
}

// ---- inside of a transaction

Status Outbox::save(const NotifyRow& row) {
  RN_TRY(auto statement, database_->prepare("INSERT OR REPLACE INTO rules VALUES (?1,?2,?3)"));
  statement.bind(1, row.id).bind(2, row.user.str()).bind(3, to_json(row));
  RN_CHECK(statement.run());
  return {};
}

Status Outbox::erase(const std::string& rule) {
  {
    RN_TRY(auto statement, database_->prepare("DELETE FROM outbox WHERE rule=?1"));
    statement.bind(1, rule);
    RN_TRY(const std::int64_t gone, statement.run());
    waiting_ -= static_cast<std::uint64_t>(gone);
  }
  RN_TRY(auto statement, database_->prepare("DELETE FROM rules WHERE id=?1"));
  statement.bind(1, rule);
  RN_CHECK(statement.run());
  return {};
}

Status Outbox::set_cursor(std::uint64_t to) {
  RN_TRY(auto statement, database_->prepare("INSERT OR REPLACE INTO meta VALUES ('cursor',?1)"));
  statement.bind(1, std::to_string(to));
  RN_CHECK(statement.run());
  cursor_ = to;
  return {};
}

Result<std::uint64_t> Outbox::count_waiting(const UserId& user) {
  RN_TRY(auto statement, database_->prepare("SELECT count(*) FROM outbox WHERE user=?1"));
  statement.bind(1, user.str());
  RN_CHECK(statement.step());
  return static_cast<std::uint64_t>(statement.integer(0));
}

Result<bool> Outbox::spend(
    const UserId& user,
    const std::string& what,
    std::uint32_t limit,
    std::int64_t window_ms,
    std::int64_t now_wall_ms
) {
  std::int64_t since = now_wall_ms;
  std::int64_t used = 0;
  {
    RN_TRY(
        auto statement,
        database_->prepare("SELECT since_wall_ms, used FROM budgets WHERE user=?1 AND what=?2")
    );
    statement.bind(1, user.str()).bind(2, what);
    RN_TRY(const bool is_row, statement.step());
    const bool counts = is_row && statement.integer(0) <= now_wall_ms &&
                        now_wall_ms - statement.integer(0) < window_ms;
    if (counts) since = statement.integer(0);
    if (counts) used = statement.integer(1);
  }
  if (used >= static_cast<std::int64_t>(limit)) return false;
  RN_TRY(auto statement, database_->prepare("INSERT OR REPLACE INTO budgets VALUES (?1,?2,?3,?4)"));
  statement.bind(1, user.str()).bind(2, what).bind(3, since).bind(4, used + 1);
  RN_CHECK(statement.run());
  return true;
}

Result<bool> Outbox::has_room(const UserId& user, std::int64_t now_wall_ms) {
  RN_TRY(const std::uint64_t own, count_waiting(user));
  if (own >= limits_.waiting_per_user || waiting_ >= limits_.waiting) return false;
  return spend(user, "message", limits_.messages_per_window, limits_.window_ms, now_wall_ms);
}

Status Outbox::insert(
    const NotifyRow& rule, const api::Notification& one, std::int64_t now_wall_ms
) {
  RN_TRY(
      auto statement,
      database_->prepare(
          "INSERT OR IGNORE INTO outbox (id, rule, user, receiver, due_wall_ms, expires_wall_ms, "
          "tries, body) VALUES (?1,?2,?3,?4,?5,?6,0,?7)"
      )
  );
  statement.bind(1, one.id)
      .bind(2, rule.id)
      .bind(3, rule.user.str())
      .bind(4, receiver_of(rule))
      .bind(5, now_wall_ms)
      .bind(6, now_wall_ms + limits_.expires_ms)
      .bind(7, to_json(one));
  RN_TRY(const std::int64_t added, statement.run());
  waiting_ += static_cast<std::uint64_t>(added);
  return {};
}

Status Outbox::queue(
    NotifyRow& rule, NotifyWord word, const api::Notification& one, std::int64_t now_wall_ms
) {
  RN_TRY(const bool is_room, has_room(rule.user, now_wall_ms));
  if (is_room) return insert(rule, one, now_wall_ms);
  hold_back(rule, word, now_wall_ms);
  ++counts_.held;
  return {};
}

Status Outbox::take_one(
    Rules& changed,
    const NotifyRow& rule,
    const StoredEvent& event,
    const NotifyStanding& standing,
    const JobLookup& job_of,
    std::int64_t now_wall_ms
) {
  const auto word = word_of(event.row.kind);
  if (!word) return {};
  const auto before = changed.find(rule.id);
  NotifyRow row = before == changed.end() ? rule : before->second;
  const bool is_ending = is_end(*word) && !row.job.empty() && row.job == event.row.job;
  if (!is_wanted(row, *word, event.row, standing)) {
    if (!is_ending) return {};
  } else {
    const auto job = is_of_nodes(*word) ? std::nullopt : job_of(event.row.job);
    if (job && row.job.empty() && is_told_by_first(*word, *job)) return {};
    const auto one = notification_of(row, *word, event, job, standing);
    RN_CHECK(queue(row, *word, one, now_wall_ms));
  }
  row.is_over = row.is_over || is_ending;
  changed[rule.id] = std::move(row);
  return {};
}

/// What `work` changes is on the disk and in memory, or neither.
Status Outbox::commit(const std::function<Status(Rules&)>& work) {
  Rules changed;
  const std::uint64_t waiting = waiting_;
  const std::uint64_t cursor = cursor_;
  const NotifyCounts counts = counts_;
  const Status done = database_->transaction([&]() -> Status {
    RN_CHECK(work(changed));
    for (const auto& entry : changed) RN_CHECK(save(entry.second));
    return {};
  });
  if (!done) {
    waiting_ = waiting;
    cursor_ = cursor;
    counts_ = counts;
    return done;
  }
  for (auto& entry : changed) rules_[entry.first] = std::move(entry.second);
  publish();
  return {};
}

// ---- rules

Result<std::uint64_t> Outbox::add(
    const NotifyRow& row, std::uint64_t head, std::int64_t now_wall_ms
) {
  const std::lock_guard lock(mutex_);
  const auto own = std::count_if(rules_.begin(), rules_.end(), [&](const auto& entry) {
    return entry.second.user == row.user;
  });
  if (own >= static_cast<std::int64_t>(limits_.rules_per_user))
    return fail(
        ErrorCode::kExhausted,
        row.user.str() + " has " + std::to_string(own) + " rules already",
        "remove one first: 'reclaim notify list', 'reclaim notify remove RULE'"
    );
  const std::uint64_t from = rules_.empty() ? head : cursor_;
  const auto work = [&](Rules& changed) -> Status {
    RN_CHECK(set_cursor(from));
    changed[row.id] = row;
    if (row.is_confirmed) return {};
    RN_TRY(
        const bool may_ask,
        spend(row.user, "confirm", limits_.confirmations_per_day, kDayMs, now_wall_ms)
    );
    if (!may_ask)
      return fail(
          ErrorCode::kExhausted,
          std::to_string(limits_.confirmations_per_day) + " codes were sent in a day",
          "use an address that is confirmed, or wait until tomorrow"
      );
    return insert(row, confirmation_of(row, now_wall_ms), now_wall_ms);
  };
  RN_CHECK(commit(work));
  return from;
}

std::vector<NotifyRow> Outbox::rules() const {
  const std::lock_guard lock(mutex_);
  std::vector<NotifyRow> rows;
  rows.reserve(rules_.size());
  for (const auto& entry : rules_) rows.push_back(entry.second);
  std::stable_sort(rows.begin(), rows.end(), [](const NotifyRow& a, const NotifyRow& b) {
    return a.created_wall_ms < b.created_wall_ms;
  });
  return rows;
}

std::optional<NotifyRow> Outbox::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = rules_.find(id);
  return found == rules_.end() ? std::nullopt : std::optional(found->second);
}

bool Outbox::has_confirmed(const UserId& user, const std::string& mail) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(rules_.begin(), rules_.end(), [&](const auto& entry) {
    const NotifyRow& rule = entry.second;
    return rule.is_confirmed && rule.user == user && rule.mail == mail;
  });
}

Status Outbox::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (!rules_.contains(id)) return fail(no_such_rule(id));
  RN_CHECK(commit([&](Rules&) { return erase(id); }));
  rules_.erase(id);
  publish();
  return {};
}

Result<NotifyRow> Outbox::confirm(
    const std::string& id, const std::string& code, std::int64_t now_wall_ms
) {
  const std::lock_guard lock(mutex_);
  const auto found = rules_.find(id);
  if (found == rules_.end()) return fail(no_such_rule(id));
  NotifyRow row = found->second;
  if (row.is_confirmed) return row;
  if (crypto::equal_in_constant_time(as_bytes(row.code), as_bytes(code))) {
    row.is_confirmed = true;
    row.heard_from_wall_ms = now_wall_ms;
    row.code.clear();
    RN_CHECK(commit([&](Rules& changed) -> Status {
      changed[id] = row;
      return {};
    }));
    return row;
  }
  if (row.tries_left > 0) --row.tries_left;
  const bool is_last = row.tries_left == 0;
  RN_CHECK(commit([&](Rules& changed) -> Status {
    if (is_last) return erase(id);
    changed[id] = row;
    return {};
  }));
  if (is_last) rules_.erase(id);
  publish();
  return fail(
      ErrorCode::kDenied,
      "that is not the code of the mail",
      is_last ? "the rule is gone after so many wrong ones: add it again"
              : "copy the code from the newest mail; tries left: " + std::to_string(row.tries_left)
  );
}

std::map<std::string, std::uint32_t> Outbox::waiting_by_rule() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::uint32_t> counts;
  auto statement = database_->prepare("SELECT rule, count(*) FROM outbox GROUP BY rule");
  while (statement) {
    const auto is_row = statement->step();
    if (!is_row || !*is_row) break;
    counts[statement->text(0)] = static_cast<std::uint32_t>(statement->integer(1));
  }
  return counts;
}

bool Outbox::has_rules() const {
  const std::lock_guard lock(mutex_);
  return !rules_.empty();
}

// ---- events

std::uint64_t Outbox::cursor() const {
  const std::lock_guard lock(mutex_);
  return cursor_;
}

Status Outbox::move_cursor(std::uint64_t to) {
  const std::lock_guard lock(mutex_);
  return commit([&](Rules&) { return set_cursor(to); });
}

Status Outbox::take(
    std::uint64_t from,
    std::span<const StoredEvent> events,
    const NotifyStanding& standing,
    const JobLookup& job_of,
    std::int64_t now_wall_ms
) {
  const std::lock_guard lock(mutex_);
  if (from != cursor_ || events.empty()) return {};
  const std::uint64_t to = events.back().seq;
  return commit([&](Rules& changed) -> Status {
    for (const StoredEvent& event : events) {
      if (!word_of(event.row.kind)) continue;
      for (const auto& entry : rules_)
        RN_CHECK(take_one(changed, entry.second, event, standing, job_of, now_wall_ms));
    }
    const bool is_worth_it = !changed.empty() || to / kCursorSavedEvery != from / kCursorSavedEvery;
    if (is_worth_it) return set_cursor(to);
    cursor_ = to;
    return {};
  });
}

Status Outbox::take_past(
    const std::string& rule,
    std::span<const StoredEvent> events,
    const NotifyStanding& standing,
    const JobLookup& job_of,
    std::int64_t now_wall_ms
) {
  const std::lock_guard lock(mutex_);
  const auto found = rules_.find(rule);
  if (found == rules_.end()) return {};
  return commit([&](Rules& changed) -> Status {
    for (const StoredEvent& event : events)
      RN_CHECK(take_one(changed, found->second, event, standing, job_of, now_wall_ms));
    return {};
  });
}

Status Outbox::put(const NotifyRow& rule, const api::Notification& one, std::int64_t now_wall_ms) {
  const std::lock_guard lock(mutex_);
  return commit([&](Rules&) -> Status {
    RN_TRY(const bool is_room, has_room(rule.user, now_wall_ms));
    if (is_room) return insert(rule, one, now_wall_ms);
    return fail(
        ErrorCode::kExhausted,
        "too many notifications at once",
        "wait an hour, or see 'reclaim notify list' for one that nobody takes"
    );
  });
}

Status Outbox::drop_late(std::int64_t now_wall_ms) {
  std::vector<std::int64_t> late;
  {
    RN_TRY(
        auto statement,
        database_->prepare("SELECT number FROM outbox WHERE expires_wall_ms<=?1 LIMIT ?2")
    );
    statement.bind(1, now_wall_ms).bind(2, kGivenUpAtOnce);
    while (true) {
      RN_TRY(const bool is_row, statement.step());
      if (!is_row) break;
      late.push_back(statement.integer(0));
    }
  }
  for (const std::int64_t number : late) {
    RN_TRY(auto statement, database_->prepare("DELETE FROM outbox WHERE number=?1"));
    statement.bind(1, number);
    RN_CHECK(statement.run());
    --waiting_;
    ++counts_.dropped;
  }
  return {};
}

Result<bool> Outbox::has_message(const std::string& rule) {
  RN_TRY(auto statement, database_->prepare("SELECT 1 FROM outbox WHERE rule=?1 LIMIT 1"));
  statement.bind(1, rule);
  return statement.step();
}

Status Outbox::look(std::int64_t now_wall_ms) {
  const std::lock_guard lock(mutex_);
  std::set<std::string> gone;
  const auto work = [&](Rules& changed) -> Status {
    RN_CHECK(drop_late(now_wall_ms));
    for (const auto& entry : rules_) {
      NotifyRow row = entry.second;
      const bool is_stale =
          !row.is_confirmed && now_wall_ms - row.created_wall_ms > limits_.expires_ms;
      if (row.held.empty() && !row.is_over && !is_stale) continue;
      RN_TRY(const bool is_awaited, has_message(row.id));
      if (is_stale || (row.held.empty() && !is_awaited)) {
        gone.insert(row.id);
        continue;
      }
      if (row.held.empty()) continue;
      RN_TRY(const bool is_room, has_room(row.user, now_wall_ms));
      if (!is_room) continue;
      RN_CHECK(insert(row, summary_of(row, now_wall_ms), now_wall_ms));
      row.held.clear();
      row.held_since_wall_ms = 0;
      changed[row.id] = std::move(row);
    }
    for (const std::string& id : gone) RN_CHECK(erase(id));
    return {};
  };
  RN_CHECK(commit(work));
  for (const std::string& id : gone) rules_.erase(id);
  publish();
  return {};
}

// ---- messages

Result<std::optional<OutboxMessage>> Outbox::next(
    const std::set<std::string>& busy, std::int64_t now_wall_ms
) {
  const std::lock_guard lock(mutex_);
  if (waiting_ == 0) return std::optional<OutboxMessage>();
  RN_TRY(
      auto statement,
      database_->prepare("SELECT number, rule, receiver, tries, expires_wall_ms, body FROM outbox "
                         "WHERE due_wall_ms<=?1 AND receiver NOT IN (SELECT value FROM "
                         "json_each(?2)) ORDER BY due_wall_ms, number LIMIT 1")
  );
  statement.bind(1, now_wall_ms).bind(2, json_list(busy));
  RN_TRY(const bool is_row, statement.step());
  if (!is_row) return std::optional<OutboxMessage>();
  OutboxMessage message;
  message.number = statement.integer(0);
  message.receiver = statement.text(2);
  message.tries = static_cast<std::uint32_t>(statement.integer(3));
  message.expires_wall_ms = statement.integer(4);
  const auto rule = rules_.find(statement.text(1));
  if (rule == rules_.end())
    return fail(ErrorCode::kCorrupt, "notify.db: a message without its rule");
  message.rule = rule->second;
  RN_TRY(message.notification, from_json<api::Notification>(statement.text(5), Unknown::kLenient));
  return std::optional(std::move(message));
}

/// It is over, and the rule is as `row` from now on.
Status Outbox::settle(const OutboxMessage& message, NotifyRow row) {
  const bool is_known = rules_.contains(row.id);
  return commit([&](Rules& changed) -> Status {
    RN_TRY(auto statement, database_->prepare("DELETE FROM outbox WHERE number=?1"));
    statement.bind(1, message.number);
    RN_TRY(const std::int64_t gone, statement.run());
    waiting_ -= static_cast<std::uint64_t>(gone);
    if (is_known) changed[row.id] = row;
    return {};
  });
}

Status Outbox::sent(const OutboxMessage& message, std::int64_t now_wall_ms) {
  const std::lock_guard lock(mutex_);
  const auto found = rules_.find(message.rule.id);
  NotifyRow row = found == rules_.end() ? message.rule : found->second;
  ++row.sent;
  row.last_sent_wall_ms = now_wall_ms;
  row.last_error.clear();
  RN_CHECK(settle(message, std::move(row)));
  ++counts_.sent;
  publish();
  return {};
}

Status Outbox::refused(
    const OutboxMessage& message, const std::string& why, std::int64_t now_wall_ms
) {
  const std::lock_guard lock(mutex_);
  const auto found = rules_.find(message.rule.id);
  NotifyRow row = found == rules_.end() ? message.rule : found->second;
  note_error(row, why, now_wall_ms);
  RN_CHECK(settle(message, std::move(row)));
  ++counts_.failed;
  ++counts_.dropped;
  publish();
  return {};
}

Status Outbox::again(
    const OutboxMessage& message,
    const std::string& why,
    std::int64_t due_wall_ms,
    std::int64_t now_wall_ms
) {
  const std::lock_guard lock(mutex_);
  const auto work = [&](Rules& changed) -> Status {
    RN_TRY(
        auto statement,
        database_->prepare("UPDATE outbox SET tries=tries+1, due_wall_ms=?1 WHERE number=?2")
    );
    statement.bind(1, due_wall_ms).bind(2, message.number);
    RN_CHECK(statement.run());
    const auto found = rules_.find(message.rule.id);
    if (found == rules_.end()) return {};
    NotifyRow row = found->second;
    note_error(row, why, now_wall_ms);
    changed[row.id] = std::move(row);
    return {};
  };
  RN_CHECK(commit(work));
  ++counts_.failed;
  publish();
  return {};
}

Status Outbox::failed(
    const OutboxMessage& message, const std::string& why, std::int64_t now_wall_ms
) {
  std::int64_t wait = limits_.retry_first_ms;
  for (std::uint32_t i = 0; i < message.tries && wait < limits_.retry_max_ms; ++i) wait *= 2;
  const std::int64_t due = now_wall_ms + std::min(wait, limits_.retry_max_ms);
  if (due >= message.expires_wall_ms) return refused(message, why, now_wall_ms);
  return again(message, why, due, now_wall_ms);
}

Status Outbox::put_off(
    const OutboxMessage& message, const std::string& why, std::int64_t now_wall_ms
) {
  if (now_wall_ms >= message.expires_wall_ms) return refused(message, why, now_wall_ms);
  return again(message, why, now_wall_ms, now_wall_ms);
}

void Outbox::publish() {
  const std::lock_guard lock(counting_);
  published_ = counts_;
  published_.waiting = waiting_;
  published_.rules = rules_.size();
}

NotifyCounts Outbox::counts() const {
  const std::lock_guard lock(counting_);
  return published_;
}

}  // namespace rn::coordinator
