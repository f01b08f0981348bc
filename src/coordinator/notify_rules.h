// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "coordinator/store.h"
#include "model/job.h"
#include "model/notify.h"

namespace rn::coordinator {

/// So many of this word were not told one by one.
struct HeldBack {
  NotifyWord word = NotifyWord::kFinished;
  std::uint32_t count = 0;

  RN_FIELDS(HeldBack, word, count)
};

/// Key: id. A rule with everything about it that no user sees.
struct NotifyRow {
  std::string id;  ///< "w-" and 16 hex digits
  UserId user;
  LabId lab;  ///< whose machines the words of nodes are about
  std::string mail;
  std::string webhook;
  std::vector<NotifyWord> on;
  JobId job;
  std::uint64_t job_number = 0;
  std::string secret;  ///< of a webhook, 64 hex digits
  std::string code;    ///< of an address that is not confirmed
  std::uint32_t tries_left = 0;
  bool is_confirmed = false;
  bool is_over = false;  ///< its one job has ended: goes away with its last message
  std::int64_t created_wall_ms = 0;
  std::int64_t heard_from_wall_ms = 0;  ///< nothing of before is told: it was not confirmed yet
  std::uint64_t sent = 0;
  std::int64_t last_sent_wall_ms = 0;
  std::string last_error;
  std::int64_t last_error_wall_ms = 0;
  std::vector<HeldBack> held;
  std::int64_t held_since_wall_ms = 0;

  RN_FIELDS(
      NotifyRow,
      id,
      user,
      lab,
      mail,
      webhook,
      on,
      job,
      job_number,
      secret,
      code,
      tries_left,
      is_confirmed,
      is_over,
      created_wall_ms,
      heard_from_wall_ms,
      sent,
      last_sent_wall_ms,
      last_error,
      last_error_wall_ms,
      held,
      held_since_wall_ms
  )
};

/// Who may be told at the moment, by tokens that count, and what machines are called.
struct NotifyStanding {
  std::set<UserId> users;                     ///< with a token of role user at least
  std::set<std::pair<UserId, LabId>> owners;  ///< with one of role owner at least, of this lab
  std::map<NodeId, std::string> hosts;
};

/// What an event is to people; nullopt for most.
std::optional<NotifyWord> word_of(std::string_view kind);
/// The end of its job.
bool is_end(NotifyWord word);
/// It happens to all members of the job's gang, and rank 0's tells it: who hears of all jobs is
/// told once.
bool is_told_by_first(NotifyWord word, const Job& job);
/// Those of a rule that names none.
std::vector<NotifyWord> usual_words();

/// True if the event is one that the rule's user asked for and may be told of.
bool is_wanted(
    const NotifyRow& rule, NotifyWord word, const EventRow& event, const NotifyStanding& standing
);

/// `job` as it is now, if it is known.
api::Notification notification_of(
    const NotifyRow& rule,
    NotifyWord word,
    const StoredEvent& event,
    const std::optional<Job>& job,
    const NotifyStanding& standing
);
/// "17 more: 12 finished, 5 failed", of all that the rule holds back.
api::Notification summary_of(const NotifyRow& rule, std::int64_t now_wall_ms);
api::Notification test_of(const NotifyRow& rule, std::int64_t now_wall_ms);
/// With the code.
api::Notification confirmation_of(const NotifyRow& rule, std::int64_t now_wall_ms);

/// One more that is not told by itself.
void hold_back(NotifyRow& rule, NotifyWord word, std::int64_t now_wall_ms);
std::uint32_t held_back(const NotifyRow& rule);

/// A whole mail: headers, an empty line, body; CR LF. Whatever names and messages hold, they begin
/// no header and end no line.
std::string mail_text(
    const std::string& from, const std::string& to, const api::Notification& notification
);
/// A header's value (RFC 2047): as it is if it is plain ASCII, else encoded.
std::string header_text(std::string_view text);

/// "sha256=" and the hex HMAC of "TIMESTAMP.BODY".
std::string hook_signature(
    const std::string& secret, const std::string& timestamp, const std::string& body
);

}  // namespace rn::coordinator
