// SPDX-License-Identifier: Apache-2.0
#include "traffic/prefix_table.h"

#include <array>
#include <string_view>

namespace rn::traffic {
namespace {

/// RFC 1918, RFC 6598, RFC 4193: a campus is made of these, so a broad rule never opens them.
constexpr std::array<std::string_view, 5> kPrivate{
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"};

Status add_rule(const AllowRule& rule, std::map<IpPrefix, rn_cut_ports>& table) {
  rn_cut_ports& ports = table[rule.remote];
  if (ports.count == RN_CUT_PORTS_PER_PREFIX) {
    return fail(
        ErrorCode::kExhausted,
        "more than " + std::to_string(RN_CUT_PORTS_PER_PREFIX) + " rules for " +
            to_string(rule.remote),
        "use port 0 (any) or a wider prefix"
    );
  }
  ports.port[ports.count++] = rn_cut_port{
      rule.remote_port,
      rule.local_port,
      static_cast<std::uint8_t>(rule.protocol),
      static_cast<std::uint8_t>(rule.opener),
      0};
  return {};
}

}  // namespace

Result<std::map<IpPrefix, rn_cut_ports>> make_prefix_table(
    const GuestPolicy& policy, const std::vector<IpPrefix>& host
) {
  std::map<IpPrefix, rn_cut_ports> table;
  for (const std::string_view text : kPrivate) {
    RN_TRY(const IpPrefix prefix, parse_prefix(text));
    table[prefix] = {};
  }
  for (const IpPrefix& prefix : host) table[prefix] = {};
  for (const IpPrefix& prefix : policy.deny) table[prefix] = {};
  for (const AllowRule& rule : policy.allow) RN_CHECK(add_rule(rule, table));
  // An explicit denial outweighs a rule for the same prefix.
  for (const IpPrefix& prefix : policy.deny) table[prefix] = {};
  return table;
}

}  // namespace rn::traffic
