// SPDX-License-Identifier: Apache-2.0
#include "coordinator/notify_desk.h"

#include <algorithm>
#include <utility>

namespace rn::coordinator {

namespace {

constexpr std::size_t kMaxHookBytes = 500;
constexpr std::uint32_t kPastEvents = 20;

api::NotifyRule rule_info(const NotifyRow& row, bool is_own) {
  api::NotifyRule info;
  info.id = row.id;
  info.user = row.user;
  info.lab = row.lab;
  info.mail = row.mail;
  info.webhook = is_own || row.webhook.empty() ? row.webhook : origin_of(row.webhook).value_or("");
  info.on = row.on;
  info.job = row.job;
  info.job_number = row.job_number;
  info.is_confirmed = row.is_confirmed;
  info.created_wall_ms = row.created_wall_ms;
  info.sent = row.sent;
  info.last_sent_wall_ms = row.last_sent_wall_ms;
  info.last_error = row.last_error;
  info.last_error_wall_ms = row.last_error_wall_ms;
  info.held_back = held_back(row);
  return info;
}

std::string listed_origins(const std::vector<std::string>& origins) {
  std::string text;
  for (const std::string& one : origins) text += (text.empty() ? "" : ", ") + one;
  return text;
}

std::string domain_of(const std::string& address) {
  std::string domain = address.substr(address.rfind('@') + 1);
  for (char& c : domain) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return domain;
}

}  // namespace

Status NotifyDesk::check_mail(const std::string& address) const {
  const auto& smtp = deps_.config.smtp;
  if (!smtp)
    return fail(
        ErrorCode::kUnsupported,
        "this site sends no mail",
        "ask its operator to name a mail server (smtp: in coordinator.yaml), or use --webhook"
    );
  RN_CHECK(check_address(address));
  const auto& domains = smtp->domains;
  const bool is_allowed =
      domains.empty() ||
      std::find(domains.begin(), domains.end(), domain_of(address)) != domains.end();
  if (is_allowed) return {};
  return fail(
      ErrorCode::kDenied,
      "this site sends no mail to " + domain_of(address),
      "use an address of " + listed_origins(domains)
  );
}

Status NotifyDesk::check_webhook(const std::string& url) const {
  const auto& allowed = deps_.config.webhooks;
  if (allowed.empty())
    return fail(
        ErrorCode::kUnsupported,
        "this site calls no webhooks",
        "ask its operator to list the host (webhooks: allow: in coordinator.yaml), or use --mail"
    );
  if (url.size() > kMaxHookBytes)
    return fail(
        ErrorCode::kInvalid,
        "webhook: longer than " + std::to_string(kMaxHookBytes) + " bytes",
        "give the URL as its server shows it"
    );
  RN_TRY(const std::string origin, origin_of(url));
  if (std::find(allowed.begin(), allowed.end(), origin) != allowed.end()) return {};
  return fail(
      ErrorCode::kDenied,
      "this site calls no webhooks at " + origin,
      "the operator allows " + listed_origins(allowed)
  );
}

Result<std::vector<NotifyWord>> NotifyDesk::words_for(
    const Caller& caller, const api::NotifyRequest& request
) const {
  std::vector<NotifyWord> words = request.on.empty() ? usual_words() : request.on;
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  const auto of_nodes = std::find_if(words.begin(), words.end(), is_of_nodes);
  if (of_nodes == words.end()) return words;
  const std::string word(to_string(*of_nodes));
  if (!request.job.empty())
    return fail(
        ErrorCode::kInvalid,
        "on: " + word + " is about machines and not about a job",
        "leave it out, or leave the job out"
    );
  if (caller.role < Role::kOwner)
    return fail(
        ErrorCode::kDenied,
        "on: " + word + " is told to the owners of machines, " + caller.user.str() + " is " +
            std::string(to_string(caller.role)),
        "leave it out, or ask an admin for a token of the role owner"
    );
  return words;
}

Result<std::uint64_t> NotifyDesk::newest_event() const {
  EventFilter newest;
  newest.is_newest_first = true;
  newest.limit = 1;
  RN_TRY(const auto events, deps_.store.events(newest));
  return events.empty() ? std::uint64_t{0} : events.front().seq;
}

Result<api::NotifyAnswer> NotifyDesk::add(
    const Caller& caller, const api::NotifyRequest& request, const std::optional<Job>& job
) {
  if (request.mail.empty() == request.webhook.empty())
    return fail(
        ErrorCode::kInvalid,
        "expected one of mail and webhook",
        "name one receiver; another one gets a rule of its own"
    );
  RN_CHECK(request.mail.empty() ? check_webhook(request.webhook) : check_mail(request.mail));
  if (job && job->owner != caller.user)
    return fail(
        ErrorCode::kDenied,
        "job " + std::to_string(job->number) + " is of " + job->owner.str(),
        "only its own user is told of it"
    );
  const std::int64_t now = to_ms(deps_.clock.now().wall);
  NotifyRow row;
  RN_TRY(row.on, words_for(caller, request));
  row.id = "w-" + deps_.rng.hex(8);
  row.user = caller.user;
  row.lab = caller.lab;
  row.mail = request.mail;
  row.webhook = request.webhook;
  row.created_wall_ms = row.heard_from_wall_ms = now;
  if (job) row.job = job->id;
  if (job) row.job_number = job->number;
  if (row.mail.empty()) row.secret = deps_.rng.hex(32);
  row.is_confirmed = row.mail.empty() || deps_.outbox.has_confirmed(row.user, row.mail);
  if (!row.is_confirmed) row.code = deps_.rng.hex(4);
  row.tries_left = NotifyLimits{}.code_tries;
  RN_TRY(const std::uint64_t head, newest_event());
  RN_TRY(const std::uint64_t until, deps_.outbox.add(row, head, now));
  if (job) RN_CHECK(take_past(row, until));
  deps_.notifier.wake();
  return api::NotifyAnswer{rule_info(row, true), row.secret};
}

/// A job that was over before its rule was there is told of all the same.
Status NotifyDesk::take_past(const NotifyRow& row, std::uint64_t until) {
  EventFilter filter;
  filter.job = row.job;
  filter.kind_prefix = "job.";
  filter.is_newest_first = true;
  filter.limit = kPastEvents;
  RN_TRY(auto events, deps_.store.events(filter));
  std::erase_if(events, [&](const StoredEvent& event) {
    const auto word = word_of(event.row.kind);
    return event.seq > until || !word || !is_end(*word);
  });
  NotifyStanding standing;
  standing.users.insert(row.user);
  const auto job_of = [this](const JobId& id) -> std::optional<Job> {
    auto found = deps_.store.find_job(id);
    return found ? std::optional(*std::move(found)) : std::nullopt;
  };
  return deps_.outbox.take_past(row.id, events, standing, job_of, to_ms(deps_.clock.now().wall));
}

Result<api::NotifyList> NotifyDesk::list(const Caller& caller, bool all) const {
  if (all && caller.role != Role::kAdmin)
    return fail(ErrorCode::kDenied, "only admins see the rules of all users", "leave out --all");
  api::NotifyList list;
  const auto waiting = deps_.outbox.waiting_by_rule();
  for (const NotifyRow& row : deps_.outbox.rules()) {
    const bool is_own = row.user == caller.user;
    if (!is_own && !all) continue;
    list.rules.push_back(rule_info(row, is_own));
    const auto found = waiting.find(row.id);
    if (found != waiting.end()) list.rules.back().waiting = found->second;
  }
  return list;
}

Result<NotifyRow> NotifyDesk::find(const Caller& caller, const std::string& id, bool also_foreign)
    const {
  auto row = deps_.outbox.find(id);
  const bool is_theirs =
      row && (row->user == caller.user || (also_foreign && caller.role == Role::kAdmin));
  if (is_theirs) return *std::move(row);
  return fail(ErrorCode::kNotFound, "no rule " + id, "'reclaim notify list' shows yours");
}

Result<api::NotifyRule> NotifyDesk::confirm(
    const Caller& caller, const std::string& id, const std::string& code
) {
  RN_CHECK(find(caller, id, false));
  RN_TRY(const NotifyRow row, deps_.outbox.confirm(id, code, to_ms(deps_.clock.now().wall)));
  return rule_info(row, true);
}

Status NotifyDesk::test(const Caller& caller, const std::string& id) {
  RN_TRY(const NotifyRow row, find(caller, id, false));
  if (!row.is_confirmed)
    return fail(
        ErrorCode::kConflict,
        row.mail + " is not confirmed",
        "the code is in the mail: reclaim notify confirm " + id + " CODE"
    );
  const std::int64_t now = to_ms(deps_.clock.now().wall);
  RN_CHECK(deps_.outbox.put(row, test_of(row, now), now));
  deps_.notifier.wake();
  return {};
}

Result<api::NotifyRule> NotifyDesk::remove(const Caller& caller, const std::string& id) {
  RN_TRY(const NotifyRow row, find(caller, id, true));
  RN_CHECK(deps_.outbox.remove(id));
  return rule_info(row, row.user == caller.user);
}

}  // namespace rn::coordinator
