// SPDX-License-Identifier: Apache-2.0
#include "cli_sign_in.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "cli_client.h"

#include "base/printable.h"
#include "model/sign_in.h"

namespace rn::cli {

namespace {

void print_where_to_go(const api::DeviceSignIn& begun) {
  std::fprintf(
      stderr,
      "Open in a browser, on this machine or any other:\n\n  %s\n\nand give it this code there: "
      "%s\n",
      printable(begun.url).c_str(),
      printable(begun.code).c_str()
  );
  if (!begun.url_with_code.empty())
    std::fprintf(stderr, "(with the code in it: %s)\n", printable(begun.url_with_code).c_str());
  std::fprintf(stderr, "waiting; Ctrl-C gives it up ...\n");
}

}  // namespace

Result<std::string> sign_in_from_terminal(const Login& site) {
  const Client client(site);
  RN_TRY(const auto begun, client.send_as<api::DeviceSignIn>("POST", "/v1/signin/device", "{}"));
  print_where_to_go(begun);
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(std::min<std::uint32_t>(begun.expires_s, 1800));
  std::uint32_t interval_s = std::clamp<std::uint32_t>(begun.interval_s, 1, 60);
  const std::string body = to_json(api::DeviceFinish{begun.ticket});
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::seconds(interval_s));
    const auto look = client.send_as<api::DeviceAnswer>("POST", "/v1/signin/device/finish", body);
    // A coordinator or a provider that is away for a moment does not end what a person began.
    if (!look && is_retryable(look.error().code)) continue;
    if (!look) return fail(look.error());
    if (!look->is_pending) return look->token;
    if (look->is_too_fast) interval_s = std::min(interval_s + 5, 60u);
  }
  return fail(
      ErrorCode::kTimeout,
      "nobody finished this sign-in in time",
      "begin again: reclaim login " + site.url
  );
}

}  // namespace rn::cli
