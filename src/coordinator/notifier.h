// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/time.h"
#include "coordinator/notify_config.h"
#include "coordinator/notify_outbox.h"
#include "coordinator/store.h"
#include "io/delivery.h"

namespace rn::coordinator {

/// Brings one message to its receiver. Several threads at once; blocks.
class NotifySender {
 public:
  virtual ~NotifySender() = default;
  virtual io::Delivery send(
      const OutboxMessage& message, const std::function<bool()>& should_stop
  ) = 0;
};

/// By the site's mail server and by HTTP.
class RealNotifySender final : public NotifySender {
 public:
  /// Borrows both.
  RealNotifySender(const NotifyConfig& config, const Clock& clock)
      : config_(config), clock_(clock) {}

  io::Delivery send(const OutboxMessage& message, const std::function<bool()>& should_stop)
      override;

 private:
  io::Delivery mail(const OutboxMessage& message, const std::function<bool()>& should_stop);
  io::Delivery hook(const OutboxMessage& message, const std::function<bool()>& should_stop);

  const NotifyConfig& config_;
  const Clock& clock_;
};

/// Takes what has happened from the audit log and sends what follows from it, on threads of its
/// own: nothing here waits for anything in the core's loop, or is waited for there. One message at
/// a time goes to each receiver; one that takes nothing rests, longer each time.
class Notifier {
 public:
  struct Deps {
    Outbox& outbox;
    Store& store;
    NotifySender& sender;
    const Clock& clock;
  };

  explicit Notifier(const Deps& deps) : deps_(deps) {}

  ~Notifier();  ///< breaks off what is being sent: it is sent again after the next start
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  /// Without it nothing runs but what the caller runs by the steps below.
  void start(std::size_t threads);

  /// There may be new events; a later one replaces one that nobody has begun. Any thread; never
  /// blocks.
  void look(NotifyStanding standing);
  /// Something was put into the outbox. The same.
  void wake();

  // ---- steps of the threads. True: something was done, and there may be more.

  bool take_events();
  bool deliver_one();

 private:
  struct Receiver {
    bool is_busy = false;
    std::uint32_t failures = 0;  ///< in a row
    Instant rests_until;
  };

  void run();
  bool is_stopping();
  Status read_events(const NotifyStanding& standing);
  std::optional<OutboxMessage> claim();
  void conclude(const OutboxMessage& message, const io::Delivery& delivery);

  const Deps deps_;

  std::mutex claiming_;  ///< guards `receivers_`; held over the disk, so never by the loop; first
  std::map<std::string, Receiver> receivers_;

  std::mutex mutex_;  ///< guards all below up to the threads
  std::condition_variable wake_;
  std::optional<NotifyStanding> standing_;
  bool is_reading_ = false;
  std::uint64_t woken_ = 0;
  bool is_stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace rn::coordinator
