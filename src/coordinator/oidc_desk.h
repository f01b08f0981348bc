// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/crypto.h"
#include "coordinator/api.h"
#include "coordinator/oidc_provider.h"
#include "io/workers.h"
#include "model/sign_in.h"

namespace rn::coordinator {

/// People's sign-ins: begins them, and turns what the provider says of somebody into a token of the
/// site's own, with an end. It keeps nothing between the two: what has to be remembered is in the
/// ticket, sealed. What goes to the provider for strangers is bounded, for each address and in all.
/// Loop thread; callbacks come there, once.
class OidcDesk {
 public:
  struct Deps {
    io::Loop& loop;
    io::Workers& workers;  ///< of its own: a slow provider holds nothing else up
    Shell& shell;
    OidcProvider& provider;
    const OidcConfig& config;
    Rng& rng;
  };

  /// `redirect`: where the provider sends browsers back to. `key` seals tickets: it is the site's,
  /// so that a sign-in goes on over a restart.
  OidcDesk(const Deps& deps, std::string redirect, const crypto::Key256& key);

  api::SignInOffer offer() const;
  void begin(
      const std::string& remote,
      const api::SignInBegin& request,
      std::function<void(Result<api::SignInBegun>)> done
  );

  /// On the browser's own machine, where the program waits that began what comes back with `state`;
  /// 0: the dashboard did, or `state` is none of ours.
  std::uint16_t port_of(const std::string& state) const { return tied_by(state).port; }

  /// By which people see that a program's terminal and a page are of one sign-in: "3F9A1C".
  static std::string word_of(const std::string& state);

  void finish(
      const std::string& remote,
      const api::SignInFinish& request,
      std::function<void(Result<TokenMade>)> done
  );
  void begin_device(const std::string& remote, std::function<void(Result<api::DeviceSignIn>)> done);
  /// `pending` is called in place of `done` while nobody has finished it.
  void finish_device(
      const std::string& remote,
      const std::string& ticket,
      std::function<void(bool is_too_fast)> pending,
      std::function<void(Result<TokenMade>)> done
  );

 private:
  /// Whose a state is: the hash of its ticket, and where a program waits.
  struct Tied {
    std::string ticket;
    std::uint16_t port = 0;
  };

  Status admit(const std::string& remote);
  std::string sealed(const std::string& text, std::string_view purpose);
  std::string state_for(const std::string& ticket, std::uint32_t port);
  Tied tied_by(const std::string& state) const;
  Result<std::string> opened(const std::string& ticket, std::string_view purpose) const;
  void let_in(const IdClaims& claims, std::function<void(Result<TokenMade>)> done);

  const Deps deps_;
  const std::string redirect_;
  const crypto::Key256 key_;
  RateLimiter addresses_{5, 40};
  RateLimiter everybody_{40, 160};
};

}  // namespace rn::coordinator
