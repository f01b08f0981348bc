// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "coordinator/id_token.h"
#include "coordinator/oidc_config.h"
#include "io/delivery.h"

namespace rn::coordinator {

/// Where the provider is asked for what, as it says itself.
struct OidcEndpoints {
  std::string authorization;
  std::string token;
  std::string keys;
  std::string device;                   ///< empty: it has no sign-in without a browser
  bool takes_secret_in_form = false;    ///< beside the client's id
  bool takes_secret_in_header = false;  ///< also if it says nothing of where
};

/// A sign-in on another machine's browser, as the provider began it (RFC 8628).
struct DeviceGrant {
  std::string device_code;
  std::string user_code;
  std::string url;
  std::string url_with_code;  ///< empty: it gave none
  std::uint32_t interval_s = 5;
  std::uint32_t expires_s = 600;
};

/// What one look at a device's sign-in found.
struct DeviceLook {
  std::optional<IdClaims> claims;  ///< none: nobody has finished it yet
  bool is_too_fast = false;        ///< look five seconds less often from now on
};

/// Speaks with the provider: its documents, which are kept for an hour (and are used for a day if
/// it does not answer), its keys, and its tokens. Blocks for 10 s at most for each request; no more
/// than three of them in a call. Any thread. Errors say what to do next; they repeat nothing
/// secret.
class OidcProvider {
 public:
  using Ask = std::function<Result<io::HttpReply>(const io::AskCall&)>;

  /// Borrows the first two. `ask` is io::ask, or a test's.
  OidcProvider(const OidcConfig& config, const Clock& clock, Ask ask);

  /// Breaks off what is being asked, for good. Any thread.
  void stop() { is_stopping_ = true; }

  Result<OidcEndpoints> endpoints();
  /// For the code that came back by the browser. kDenied if it is none, or what it gives is not
  /// to be trusted.
  Result<IdClaims> redeem(
      const std::string& code,
      const std::string& verifier,
      const std::string& nonce,
      const std::string& redirect
  );
  /// kUnsupported if it has no such thing.
  Result<DeviceGrant> begin_device();
  /// kDenied if it was refused or is over.
  Result<DeviceLook> look_at_device(const std::string& device_code);

 private:
  Result<std::string> document(const std::string& url, std::size_t max_bytes);
  Status check_endpoint(const std::string& name, const std::string& url) const;
  Result<OidcEndpoints> read_endpoints(const std::string& text) const;
  Result<std::vector<ProviderKey>> keys(bool is_anew);
  Result<io::HttpReply> post(const std::string& url, std::string form);
  Result<IdClaims> claims_in(const io::HttpReply& reply, const std::string& nonce);

  const OidcConfig& config_;
  const Clock& clock_;
  const Ask ask_;

  std::atomic<bool> is_stopping_ = false;

  std::mutex
      mutex_;  ///< guards all below; held while a document is fetched, so that one is at once
  std::optional<OidcEndpoints> endpoints_;
  Instant endpoints_at_;
  std::optional<Error> endpoints_failed_;
  Instant endpoints_tried_;
  std::optional<std::vector<ProviderKey>> keys_;
  Instant keys_at_;     ///< they came
  Instant keys_tried_;  ///< they were asked for
};

}  // namespace rn::coordinator
