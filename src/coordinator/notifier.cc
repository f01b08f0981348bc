// SPDX-License-Identifier: Apache-2.0
#include "coordinator/notifier.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "io/url.h"
#include "model/codec.h"

namespace rn::coordinator {

namespace {

constexpr std::uint32_t kEventsAtOnce = 500;
constexpr seconds kRestFirst{5};
constexpr seconds kRestMax{600};
/// How often is looked for what has become due, while anything waits.
constexpr milliseconds kDueLook{500};
constexpr seconds kIdleLook{60};
constexpr std::size_t kMaxReceivers = 1000;

bool is_listed_inside(const std::string& host) {
  return io::is_ip_address(host) || host == "localhost";
}

}  // namespace

// ---- the real receivers

io::Delivery RealNotifySender::send(
    const OutboxMessage& message, const std::function<bool()>& should_stop
) {
  return message.rule.mail.empty() ? hook(message, should_stop) : mail(message, should_stop);
}

io::Delivery RealNotifySender::mail(
    const OutboxMessage& message, const std::function<bool()>& should_stop
) {
  if (!config_.smtp) return {io::DeliveryEnd::kRefused, "this site sends no mail any more"};
  const SmtpConfig& smtp = *config_.smtp;
  io::MailCall call;
  call.url = smtp.url;
  call.user = smtp.user;
  call.password = smtp.password;
  call.ca_file = smtp.ca;
  call.requires_tls = smtp.requires_tls;
  call.from = smtp.from;
  call.to = message.rule.mail;
  call.text = mail_text(smtp.from, message.rule.mail, message.notification);
  call.should_stop = should_stop;
  return io::send_mail(call);
}

io::Delivery RealNotifySender::hook(
    const OutboxMessage& message, const std::function<bool()>& should_stop
) {
  const auto origin = origin_of(message.rule.webhook);
  const auto url = io::parse_url(message.rule.webhook);
  const auto& allowed = config_.webhooks;
  if (!origin || !url || std::find(allowed.begin(), allowed.end(), *origin) == allowed.end())
    return {io::DeliveryEnd::kRefused, "the operator does not allow its host any more"};
  io::HookCall call;
  call.url = *origin + url->target;
  call.body = to_json(message.notification);
  const std::string timestamp = std::to_string(to_ms(clock_.now().wall) / 1000);
  call.headers = {
      {"Content-Type", "application/json"},
      {"User-Agent", "reclaimnet"},
      {"X-Reclaimnet-Delivery", message.notification.id},
      {"X-Reclaimnet-Timestamp", timestamp},
      {"X-Reclaimnet-Signature", hook_signature(message.rule.secret, timestamp, call.body)}};
  call.ca_file = config_.webhook_ca;
  call.reaches_inside = is_listed_inside(url->host);
  call.should_stop = should_stop;
  return io::post_hook(call);
}

// ---- threads

Notifier::~Notifier() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Notifier::start(std::size_t threads) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

void Notifier::look(NotifyStanding standing) {
  {
    const std::lock_guard lock(mutex_);
    standing_ = std::move(standing);
    ++woken_;
  }
  wake_.notify_one();
}

void Notifier::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++woken_;
  }
  wake_.notify_one();
}

void Notifier::run() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    const std::uint64_t seen = woken_;
    lock.unlock();
    const bool did_something = take_events() || deliver_one();
    const bool is_any_waiting = deps_.outbox.counts().waiting > 0;
    lock.lock();
    if (did_something) continue;
    const auto wait = is_any_waiting ? kDueLook : milliseconds(kIdleLook);
    wake_.wait_for(lock, wait, [this, seen] { return is_stopping_ || woken_ != seen; });
  }
}

// ---- events

bool Notifier::take_events() {
  NotifyStanding standing;
  {
    const std::lock_guard lock(mutex_);
    if (!standing_ || is_reading_ || is_stopping_) return false;
    standing = std::move(*standing_);
    standing_.reset();
    is_reading_ = true;
  }
  const Status read = read_events(standing);
  if (!read) log::warning("notify.not_read", {{"why", read.error().describe()}});
  {
    const std::lock_guard lock(mutex_);
    is_reading_ = false;
    ++woken_;
  }
  wake_.notify_all();  // messages for all threads; and a standing that came meanwhile
  return true;
}

Status Notifier::read_events(const NotifyStanding& standing) {
  const auto job_of = [this](const JobId& id) -> std::optional<Job> {
    auto job = deps_.store.find_job(id);
    return job ? std::optional(*std::move(job)) : std::nullopt;
  };
  while (deps_.outbox.has_rules()) {
    EventFilter filter;
    filter.after = deps_.outbox.cursor();
    filter.limit = kEventsAtOnce;
    RN_TRY(const auto events, deps_.store.events(filter));
    const std::int64_t now = to_ms(deps_.clock.now().wall);
    RN_CHECK(deps_.outbox.take(filter.after, events, standing, job_of, now));
    if (events.size() < kEventsAtOnce) break;
  }
  return deps_.outbox.look(to_ms(deps_.clock.now().wall));
}

// ---- messages

std::optional<OutboxMessage> Notifier::claim() {
  if (is_stopping()) return std::nullopt;
  const std::lock_guard lock(claiming_);
  const Now now = deps_.clock.now();
  if (receivers_.size() > kMaxReceivers)
    std::erase_if(receivers_, [&](const auto& entry) {
      return !entry.second.is_busy && entry.second.rests_until <= now.boot;
    });
  std::set<std::string> unavailable;
  for (const auto& entry : receivers_)
    if (entry.second.is_busy || entry.second.rests_until > now.boot)
      unavailable.insert(entry.first);
  auto message = deps_.outbox.next(unavailable, to_ms(now.wall));
  if (!message) {
    log::warning("notify.not_read", {{"why", message.error().describe()}});
    return std::nullopt;
  }
  if (*message) receivers_[(*message)->receiver].is_busy = true;
  return *std::move(message);
}

bool Notifier::is_stopping() {
  const std::lock_guard lock(mutex_);
  return is_stopping_;
}

bool Notifier::deliver_one() {
  const auto message = claim();
  if (!message) return false;
  const io::Delivery delivery = deps_.sender.send(*message, [this] { return is_stopping(); });
  conclude(*message, delivery);
  return true;
}

/// The receiver is free only when it is written down, so that nobody sends the same once more.
void Notifier::conclude(const OutboxMessage& message, const io::Delivery& delivery) {
  const std::lock_guard lock(claiming_);
  Receiver& receiver = receivers_[message.receiver];
  receiver.is_busy = false;
  const bool is_down = delivery.end == io::DeliveryEnd::kDown;
  if (is_down && is_stopping()) return;  // it was broken off by us
  const Now now = deps_.clock.now();
  const std::int64_t now_ms = to_ms(now.wall);
  Status noted;
  switch (delivery.end) {
    case io::DeliveryEnd::kTaken:
      noted = deps_.outbox.sent(message, now_ms);
      break;
    case io::DeliveryEnd::kLater:
      noted = deps_.outbox.failed(message, delivery.why, now_ms);
      break;
    case io::DeliveryEnd::kDown:
      noted = deps_.outbox.put_off(message, delivery.why, now_ms);
      break;
    case io::DeliveryEnd::kRefused:
      noted = deps_.outbox.refused(message, delivery.why, now_ms);
      break;
  }
  if (!noted) log::warning("notify.not_noted", {{"why", noted.error().describe()}});
  // What could not be written down would be sent again and again.
  if (noted && !is_down) {
    receiver.failures = 0;
    return;
  }
  if (receiver.failures == 0)
    log::warning("notify.receiver_down", {{"receiver", message.receiver}, {"why", delivery.why}});
  const std::uint32_t doubled = std::min<std::uint32_t>(receiver.failures, 10);
  receiver.rests_until =
      now.boot + std::min<nanoseconds>(kRestMax, nanoseconds(kRestFirst) * (1 << doubled));
  ++receiver.failures;
}

}  // namespace rn::coordinator
