// SPDX-License-Identifier: Apache-2.0
#include "coordinator/notify_rules.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "base/bytes.h"
#include "base/crypto.h"
#include "base/printable.h"
#include "coordinator/collector.h"
#include "model/codec_detail.h"

namespace rn {

RN_INSTANTIATE_CODEC(coordinator::NotifyRow)

}  // namespace rn

namespace rn::coordinator {

namespace {

constexpr std::size_t kMaxNameBytes = 80;
constexpr std::size_t kMaxMessageBytes = 1500;
/// RFC 2047: an encoded word has 75 characters at most; these bytes make 60 of them.
constexpr std::size_t kEncodedWordBytes = 42;
constexpr std::size_t kBase64LineChars = 76;

constexpr std::string_view kGatheredInVain = "gang.gathered_in_vain";

struct KindWord {
  std::string_view kind;
  NotifyWord word;
};

constexpr std::array<KindWord, 23> kKindWords = {{
    {"job.succeeded", NotifyWord::kFinished},
    {"job.failed", NotifyWord::kFailed},
    {"job.cancelled", NotifyWord::kCancelled},
    {"job.displaced", NotifyWord::kMoved},
    {"gang.displaced", NotifyWord::kMoved},
    {"job.waits_for_holder", NotifyWord::kWaiting},
    {kGatheredInVain, NotifyWord::kWaiting},
    {"job.restart", NotifyWord::kRestarted},
    {"gang.restart", NotifyWord::kRestarted},
    {"outputs.expire", NotifyWord::kExpiring},
    {"job.idle", NotifyWord::kIdle},
    {"checkpoint.trouble", NotifyWord::kUnsaved},
    {"reclaim.cleared", NotifyWord::kReclaimed},
    {"reclaim.returned", NotifyWord::kReturned},
    {"node.returned", NotifyWord::kReturned},
    {"reclaim.wedged", NotifyWord::kWedged},
    {"reclaim.order_refused", NotifyWord::kRefused},
    {"reclaim.order_expired", NotifyWord::kRefused},
    {"node.lost", NotifyWord::kLost},
    {"node.lent", NotifyWord::kLent},
    {"node.wanted", NotifyWord::kWanted},
    {"gpu.sick", NotifyWord::kSick},
    {"gpu.well", NotifyWord::kSick},
}};

/// At most so many bytes, and no character cut in two.
std::string clipped(std::string text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::size_t end = bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::string subject_of(NotifyWord word, const std::string& job, const std::string& host) {
  switch (word) {
    case NotifyWord::kFinished:
      return job + " has finished";
    case NotifyWord::kFailed:
      return job + " has failed";
    case NotifyWord::kCancelled:
      return job + " was cancelled";
    case NotifyWord::kMoved:
      return job + " lost its machine and goes on elsewhere";
    case NotifyWord::kWaiting:
      return job + " waits for a machine that has its files";
    case NotifyWord::kRestarted:
      return job + " crashed and is started again";
    case NotifyWord::kExpiring:
      return "outputs of " + job + " will be removed";
    case NotifyWord::kIdle:
      return job + " uses nothing of its GPUs";
    case NotifyWord::kUnsaved:
      return job + " would lose work with its machine";
    case NotifyWord::kReclaimed:
      return host + " is yours again";
    case NotifyWord::kReturned:
      return host + " lends again";
    case NotifyWord::kWedged:
      return host + " was taken back and could not be verified free";
    case NotifyWord::kRefused:
      return "an order to take " + host + " back was not carried out";
    case NotifyWord::kLost:
      return host + " is not heard any more";
    case NotifyWord::kLent:
      return host + " is lent";
    case NotifyWord::kWanted:
      return "a job waits for " + host;
    case NotifyWord::kSick:
      return "a GPU of " + host;
  }
  return "";
}

std::string next_step(NotifyWord word, const std::string& number, const std::string& node) {
  switch (word) {
    case NotifyWord::kFinished:
    case NotifyWord::kExpiring:
      return "reclaim cp " + number + ": FOLDER";
    case NotifyWord::kFailed:
    case NotifyWord::kCancelled:
    case NotifyWord::kRestarted:
      return "reclaim logs " + number;
    case NotifyWord::kMoved:
    case NotifyWord::kWaiting:
    case NotifyWord::kIdle:
    case NotifyWord::kUnsaved:
      return "reclaim why " + number;
    case NotifyWord::kReclaimed:
      return "reclaim-agent release, on it, lends it again";
    case NotifyWord::kLent:
      return "reclaim-agent reclaim, on it, takes it back";
    case NotifyWord::kWanted:
      return "reclaim-agent status --why, on it, says why it lends nothing now";
    case NotifyWord::kSick:
      return "reclaim-agent gpu ok N, on it, lends it again when you have looked at it";
    case NotifyWord::kReturned:
    case NotifyWord::kLost:
      return "reclaim events --node " + node;
    case NotifyWord::kWedged:
      return "reclaim-agent status --why, on it, says what is still there";
    case NotifyWord::kRefused:
      return "reclaim-agent reclaim --now, on it, needs nobody else";
  }
  return "";
}

std::string text_of(const api::Notification& one, const std::string& message, std::string next) {
  std::string text = one.subject;
  if (!message.empty()) text += "\n" + message;
  text += "\n" + utc_text(one.at_wall_ms);
  if (!next.empty()) text += "\nnext: " + std::move(next);
  return text;
}

/// For what is no event.
api::Notification plain_notification(
    const NotifyRow& rule, const std::string& what, std::int64_t now_wall_ms
) {
  api::Notification one;
  one.id = what + "." + std::to_string(now_wall_ms) + "." + rule.id;
  one.what = what;
  one.at_wall_ms = now_wall_ms;
  one.rule = rule.id;
  return one;
}

std::string mail_date(std::int64_t wall_ms) {
  static constexpr std::array<const char*, 7> kDays = {
      "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array<const char*, 12> kMonths = {
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto seconds_of_epoch = static_cast<std::time_t>(wall_ms / 1000);
  std::tm utc{};
  if (::gmtime_r(&seconds_of_epoch, &utc) == nullptr) return "Thu, 01 Jan 1970 00:00:00 +0000";
  const auto two = [](int value) { return std::to_string(100 + value).substr(1); };
  return std::string(kDays.at(static_cast<std::size_t>(utc.tm_wday))) + ", " + two(utc.tm_mday) +
         " " + kMonths.at(static_cast<std::size_t>(utc.tm_mon)) + " " +
         std::to_string(1900 + utc.tm_year) + " " + two(utc.tm_hour) + ":" + two(utc.tm_min) + ":" +
         two(utc.tm_sec) + " +0000";
}

}  // namespace

std::optional<NotifyWord> word_of(std::string_view kind) {
  for (const KindWord& one : kKindWords)
    if (one.kind == kind) return one.word;
  return std::nullopt;
}

bool is_end(NotifyWord word) {
  return word == NotifyWord::kFinished || word == NotifyWord::kFailed ||
         word == NotifyWord::kCancelled;
}

bool is_told_by_first(NotifyWord word, const Job& job) {
  const bool is_shared =
      is_end(word) || word == NotifyWord::kMoved || word == NotifyWord::kRestarted;
  return is_shared && job.gang && job.gang->rank > 0;
}

std::vector<NotifyWord> usual_words() {
  return {
      NotifyWord::kFinished,
      NotifyWord::kFailed,
      NotifyWord::kMoved,
      NotifyWord::kWaiting,
      NotifyWord::kExpiring,
      NotifyWord::kIdle,
      NotifyWord::kUnsaved};
}

bool is_wanted(
    const NotifyRow& rule, NotifyWord word, const EventRow& event, const NotifyStanding& standing
) {
  if (!rule.is_confirmed || rule.is_over) return false;
  if (std::find(rule.on.begin(), rule.on.end(), word) == rule.on.end()) return false;
  if (is_of_nodes(word))
    return !event.node.empty() && event.lab == rule.lab &&
           event.at_wall_ms >= rule.heard_from_wall_ms &&
           standing.owners.contains({rule.user, rule.lab});
  if (event.job.empty() || event.user != rule.user || !standing.users.contains(rule.user))
    return false;
  return rule.job.empty() ? event.at_wall_ms >= rule.heard_from_wall_ms : event.job == rule.job;
}

api::Notification notification_of(
    const NotifyRow& rule,
    NotifyWord word,
    const StoredEvent& event,
    const std::optional<Job>& job,
    const NotifyStanding& standing
) {
  const EventRow& row = event.row;
  api::Notification one;
  one.id = std::to_string(event.seq) + "." + rule.id;
  one.what = to_string(word);
  one.kind = row.kind;
  one.seq = event.seq;
  one.at_wall_ms = row.at_wall_ms;
  one.rule = rule.id;
  one.node = row.node;
  const auto host = standing.hosts.find(row.node);
  if (host != standing.hosts.end()) one.host = clipped(printable(host->second), kMaxNameBytes);
  std::string shown = "job";
  std::string number;
  if (!is_of_nodes(word)) {
    one.job = row.job;
    if (job) one.job_number = job->number;
    if (job) one.job_name = clipped(printable(job->spec.name), kMaxNameBytes);
    number = job ? std::to_string(job->number) : row.job.str();
    shown += " " + number + (one.job_name.empty() ? "" : " (" + one.job_name + ")");
  }
  const std::string machine = one.host.empty() ? row.node.str() : one.host;
  one.subject = "ReclaimNet: " + (row.kind == kGatheredInVain
                                      ? shown + " waits for all of its machines at once"
                                      : subject_of(word, shown, machine));
  const std::string message = clipped(printable(row.message), kMaxMessageBytes);
  one.text = text_of(one, message, next_step(word, number, row.node.str()));
  return one;
}

api::Notification summary_of(const NotifyRow& rule, std::int64_t now_wall_ms) {
  api::Notification one = plain_notification(rule, "summary", now_wall_ms);
  std::string words;
  for (const HeldBack& held : rule.held)
    words += (words.empty() ? "" : ", ") + std::to_string(held.count) + " " +
             std::string(to_string(held.word));
  one.subject = "ReclaimNet: " + std::to_string(held_back(rule)) + " more: " + words;
  one.text = text_of(
      one,
      "since " + utc_text(rule.held_since_wall_ms) + ", not told one by one because they were many",
      "reclaim events"
  );
  return one;
}

api::Notification test_of(const NotifyRow& rule, std::int64_t now_wall_ms) {
  api::Notification one = plain_notification(rule, "test", now_wall_ms);
  one.subject = "ReclaimNet: a test of rule " + rule.id;
  one.text = text_of(one, "Nothing has happened: " + rule.user.str() + " asked for it.", "");
  return one;
}

api::Notification confirmation_of(const NotifyRow& rule, std::int64_t now_wall_ms) {
  api::Notification one = plain_notification(rule, "confirm", now_wall_ms);
  one.subject = "ReclaimNet: confirm this address";
  one.text = text_of(
      one,
      printable(rule.user.str()) +
          " wants to be told here what becomes of jobs. If that is not you, do nothing: nothing "
          "more comes.",
      "reclaim notify confirm " + rule.id + " " + rule.code
  );
  return one;
}

void hold_back(NotifyRow& rule, NotifyWord word, std::int64_t now_wall_ms) {
  if (rule.held.empty()) rule.held_since_wall_ms = now_wall_ms;
  for (HeldBack& held : rule.held) {
    if (held.word != word) continue;
    ++held.count;
    return;
  }
  rule.held.push_back({word, 1});
}

std::uint32_t held_back(const NotifyRow& rule) {
  std::uint32_t count = 0;
  for (const HeldBack& held : rule.held) count += held.count;
  return count;
}

std::string header_text(std::string_view text) {
  const bool is_plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (is_plain && text.find("=?") == std::string_view::npos) return std::string(text);
  std::string out;
  while (!text.empty()) {
    std::size_t bytes = std::min(text.size(), kEncodedWordBytes);
    while (bytes > 1 && bytes < text.size() &&
           (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80)
      --bytes;  // a character is whole in one word
    out += (out.empty() ? "" : "\r\n ") + std::string("=?UTF-8?B?") +
           to_base64(as_bytes(text.substr(0, bytes))) + "?=";
    text.remove_prefix(bytes);
  }
  return out;
}

std::string mail_text(
    const std::string& from, const std::string& to, const api::Notification& notification
) {
  const std::string domain = from.substr(from.rfind('@') + 1);
  std::string text =
      "From: ReclaimNet <" + from + ">\r\nTo: <" + to +
      ">\r\nSubject: " + header_text(notification.subject) +
      "\r\nDate: " + mail_date(notification.at_wall_ms) + "\r\nMessage-ID: <" + notification.id +
      "@" + domain +
      ">\r\nAuto-Submitted: auto-generated\r\nX-ReclaimNet-What: " + notification.what +
      "\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n"
      "Content-Transfer-Encoding: base64\r\n\r\n";
  const std::string body = to_base64(as_bytes(
      notification.text + "\n-- \nrule " + notification.rule + "; reclaim notify remove " +
      notification.rule + " ends it\n"
  ));
  for (std::size_t at = 0; at < body.size(); at += kBase64LineChars)
    text += body.substr(at, kBase64LineChars) + "\r\n";
  return text;
}

std::string hook_signature(
    const std::string& secret, const std::string& timestamp, const std::string& body
) {
  return "sha256=" +
         to_hex(crypto::hmac_sha256(as_bytes(secret), as_bytes(timestamp + "." + body)));
}

}  // namespace rn::coordinator
