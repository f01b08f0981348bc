// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "model/fields.h"

// Who is told of what by mail or webhook (docs/notifications.md).
namespace rn {

/// What happened: to a job, or from `kReclaimed` on to a machine that its owners lend.
enum class NotifyWord : std::uint8_t {
  kFinished,
  kFailed,
  kCancelled,
  kMoved,      ///< it lost its machine and goes on from its last generation
  kWaiting,    ///< for a machine that holds its last generation
  kRestarted,  ///< it crashed and is tried again
  kExpiring,   ///< its outputs will be removed
  kIdle,       ///< it holds GPUs and uses nothing of them
  kUnsaved,    ///< it cannot be saved, or too seldom for how often its owner comes
  kReclaimed,  ///< verified free: its owner's again
  kReturned,   ///< it lends again, or is back after it was lost
  kWedged,     ///< taken back, and could not be verified free
  kRefused,    ///< an order from afar was not carried out
  kLost,       ///< its agent is not heard any more
  kLent,       ///< a guest runs there, after a while without any
  kWanted,     ///< a job waits that only machines of its lab could take
  kSick        ///< one of its GPUs
};
RN_ENUM(
    NotifyWord,
    "finished",
    "failed",
    "cancelled",
    "moved",
    "waiting",
    "restarted",
    "expiring",
    "idle",
    "unsaved",
    "reclaimed",
    "returned",
    "wedged",
    "refused",
    "lost",
    "lent",
    "wanted",
    "sick"
)

constexpr bool is_of_nodes(NotifyWord word) {
  return word >= NotifyWord::kReclaimed;
}

namespace api {

/// Exactly one of mail and webhook.
struct NotifyRequest {
  std::string mail;            ///< an address
  std::string webhook;         ///< a URL whose host the operator allows
  std::vector<NotifyWord> on;  ///< none: finished, failed, moved, waiting, expiring, idle, unsaved
  std::string job;             ///< id or number of the one job that it is for; empty: all of ours

  RN_FIELDS(NotifyRequest, mail, webhook, on, job)
};

/// A rule as its user sees it.
struct NotifyRule {
  std::string id;
  UserId user;
  LabId lab;
  std::string mail;
  std::string webhook;
  std::vector<NotifyWord> on;
  JobId job;
  std::uint64_t job_number = 0;
  bool is_confirmed = false;  ///< of an address: its code was given; nothing is sent before
  std::int64_t created_wall_ms = 0;
  std::uint64_t sent = 0;
  std::int64_t last_sent_wall_ms = 0;  ///< 0 = never
  std::string last_error;              ///< of the newest that was not taken; empty once one was
  std::int64_t last_error_wall_ms = 0;
  std::uint32_t waiting = 0;    ///< not sent yet
  std::uint32_t held_back = 0;  ///< too many at once: told together, as a number, later

  RN_FIELDS(
      NotifyRule,
      id,
      user,
      lab,
      mail,
      webhook,
      on,
      job,
      job_number,
      is_confirmed,
      created_wall_ms,
      sent,
      last_sent_wall_ms,
      last_error,
      last_error_wall_ms,
      waiting,
      held_back
  )
};

struct NotifyAnswer {
  NotifyRule rule;
  std::string secret;  ///< of a webhook: signs what is sent; shown once

  RN_FIELDS(NotifyAnswer, rule, secret)
};

struct NotifyList {
  std::vector<NotifyRule> rules;  ///< oldest first

  RN_FIELDS(NotifyList, rules)
};

struct NotifyConfirm {
  std::string code;  ///< from the mail

  RN_FIELDS(NotifyConfirm, code)
};

/// What a webhook is sent. `text` is for people, and all that chat servers read.
struct Notification {
  std::string id;    ///< the same when it is sent again
  std::string what;  ///< a NotifyWord, or summary, test, confirm
  std::string kind;  ///< of the event: job.succeeded
  std::string subject;
  std::string text;
  std::uint64_t seq = 0;  ///< of the event; 0 = none
  std::int64_t at_wall_ms = 0;
  JobId job;
  std::uint64_t job_number = 0;
  std::string job_name;
  NodeId node;
  std::string host;
  std::string rule;

  RN_FIELDS(
      Notification,
      id,
      what,
      kind,
      subject,
      text,
      seq,
      at_wall_ms,
      job,
      job_number,
      job_name,
      node,
      host,
      rule
  )
};

}  // namespace api

}  // namespace rn
