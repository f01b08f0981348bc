// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "coordinator/core_types.h"
#include "coordinator/notifier.h"
#include "coordinator/notify_config.h"
#include "coordinator/notify_outbox.h"
#include "coordinator/store.h"
#include "model/notify.h"

namespace rn::coordinator {

/// What people ask about rules, and what they may. Any thread; blocks on the disk. Every error
/// says what to do.
class NotifyDesk {
 public:
  struct Deps {
    Outbox& outbox;
    Notifier& notifier;
    Store& store;
    const NotifyConfig& config;
    Rng& rng;  ///< of any thread, unpredictable
    const Clock& clock;
  };

  explicit NotifyDesk(const Deps& deps) : deps_(deps) {}

  /// `job`: the one that the request names, which the caller may read.
  Result<api::NotifyAnswer> add(
      const Caller& caller, const api::NotifyRequest& request, const std::optional<Job>& job
  );
  /// The caller's own; of all users with `all`, for admins, and then without the paths of webhooks,
  /// which are secrets in many places.
  Result<api::NotifyList> list(const Caller& caller, bool all) const;
  Result<api::NotifyRule> confirm(
      const Caller& caller, const std::string& id, const std::string& code
  );
  Status test(const Caller& caller, const std::string& id);
  /// Admins any, others their own.
  Result<api::NotifyRule> remove(const Caller& caller, const std::string& id);

 private:
  Result<NotifyRow> find(const Caller& caller, const std::string& id, bool also_foreign) const;
  Result<std::vector<NotifyWord>> words_for(const Caller& caller, const api::NotifyRequest& request)
      const;
  Status check_mail(const std::string& address) const;
  Status check_webhook(const std::string& url) const;
  Result<std::uint64_t> newest_event() const;
  Status take_past(const NotifyRow& row, std::uint64_t until);

  const Deps deps_;
};

}  // namespace rn::coordinator
