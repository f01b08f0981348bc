// SPDX-License-Identifier: Apache-2.0
#include "warden/transfer_bounds.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <utility>

#include <linux/in.h>

#include "base/fs.h"
#include "io/read_text.h"
#include "io/real_fs.h"
#include "warden/guest_uplink.h"

namespace rn::warden {

namespace {

constexpr const char* kOfDefaultRoutes = "auto";
constexpr std::uint64_t kBitsPerByte = 8;
constexpr std::uint64_t kPortMax = 65'535;
constexpr std::uint16_t kNamesPort = 53;
constexpr std::size_t kUplinksMax = RN_EDGE_LINKS;

/// "192.0.2.1:4711" or "[2001:db8::1]:4711".
Result<traffic::EdgeEnd> end_of(const std::string& text) {
  const auto bad = [&] {
    return fail(
        ErrorCode::kInvalid,
        "\"" + text + "\" is no end of a connection",
        "write it like 192.0.2.7:7445 or [2001:db8::7]:7445"
    );
  };
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad();
  std::string address = text.substr(0, colon);
  if (address.front() == '[' && address.back() == ']')
    address = address.substr(1, address.size() - 2);
  std::uint64_t port = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + colon + 1, last, port);
  if (error != std::errc() || end != last || port == 0 || port > kPortMax) return bad();
  auto parsed = traffic::parse_end(address, static_cast<std::uint16_t>(port));
  if (!parsed) return bad();
  return *parsed;
}

/// 0 on either side stands for no bound.
std::uint64_t narrower(std::uint64_t wanted, std::uint64_t granted) {
  const std::uint64_t least = wanted == 0    ? granted
                              : granted == 0 ? wanted
                                             : std::min(wanted, granted);
  return least == 0 ? RN_EDGE_UNBOUNDED : least;
}

rn_edge_class edge_class_of(TransferPurpose purpose) {
  switch (purpose) {
    case TransferPurpose::kEvacuation:
      return RN_EDGE_EVACUATION;
    case TransferPurpose::kCheckpoint:
      return RN_EDGE_CHECKPOINT;
    case TransferPurpose::kPrefetch:
      return RN_EDGE_PREFETCH;
  }
  return RN_EDGE_CHECKPOINT;
}

warden_wire::TransferCount count_of(std::uint64_t id, const traffic::EdgeCounters& counters) {
  return {
      id,
      counters.passed_bytes,
      counters.marked_packets,
      counters.dropped_packets,
      counters.cut_packets};
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  const bool is_new = std::find(names.begin(), names.end(), name) == names.end();
  if (is_new && name != "lo" && names.size() < kUplinksMax) names.push_back(name);
}

bool is_recorded(const std::string& record) {
  std::error_code unknown;
  return std::filesystem::exists(record, unknown) || unknown;
}

}  // namespace

Result<TransfersGrant> parse_transfers(const std::string& text) {
  const auto colon = text.rfind(':');
  TransfersGrant grant;
  grant.interface = text.substr(0, colon);
  const auto in_words = [&](const Error&) {
    return Error{
        ErrorCode::kInvalid,
        "\"" + text + "\" is neither INTERFACE nor INTERFACE:RATE",
        "for example auto, eth0 or eth0:90mbit; kbit, mbit or gbit, from 1mbit to 1000gbit"};
  };
  // Without a rate the name is looked at with one.
  const std::string whole = colon == std::string::npos ? text + ":1gbit" : text;
  RN_TRY(const UplinkGrant uplink, parse_uplink(whole).map_error(in_words));
  if (colon != std::string::npos) grant.bytes_per_s = uplink.bps / kBitsPerByte;
  if (grant.interface == kOfDefaultRoutes) grant.interface.clear();
  return grant;
}

std::vector<std::string> default_route_interfaces(const std::string& proc_net) {
  std::vector<std::string> names;
  std::istringstream v4(io::read_text(proc_net + "/route"));
  std::string line;
  std::getline(v4, line);  // the head
  while (std::getline(v4, line)) {
    std::istringstream fields(line);
    std::string name, destination, skip, mask;
    fields >> name >> destination >> skip >> skip >> skip >> skip >> skip >> mask;
    if (destination == "00000000" && mask == "00000000") add_once(names, name);
  }
  std::istringstream v6(io::read_text(proc_net + "/ipv6_route"));
  const std::string zeros(32, '0');
  while (std::getline(v6, line)) {
    std::istringstream fields(line);
    std::string destination, bits, skip, name;
    fields >> destination >> bits;
    for (int i = 0; i < 7; ++i) fields >> skip;
    fields >> name;
    if (destination == zeros && bits == "00") add_once(names, name);
  }
  return names;
}

Result<std::vector<traffic::TransferClaim>> claims_of(const warden_wire::SetTransfers& wanted) {
  if (wanted.transfers.size() > warden_wire::kMaxTransfers)
    return fail(
        ErrorCode::kExhausted,
        "more than " + std::to_string(warden_wire::kMaxTransfers) + " transfers at a time",
        "claim the largest ones; the others share what is left for unclaimed ones"
    );
  std::vector<traffic::TransferClaim> claims;
  for (const warden_wire::Transfer& one : wanted.transfers) {
    const auto in_transfer = [&](const Error& error) {
      return error.with("transfer " + std::to_string(one.id));
    };
    traffic::TransferClaim claim;
    claim.id = one.id;
    RN_TRY(claim.local, end_of(one.local).map_error(in_transfer));
    RN_TRY(claim.remote, end_of(one.remote).map_error(in_transfer));
    claim.purpose = edge_class_of(one.purpose);
    claim.bytes_per_s = narrower(one.bytes_per_s, 0);
    claim.is_open = !one.is_cut;
    claims.push_back(claim);
  }
  return claims;
}

traffic::ClassRates class_rates_of(
    const warden_wire::SetTransfers& wanted, const TransfersGrant& grant
) {
  traffic::ClassRates rates;
  rates.fill(narrower(0, grant.bytes_per_s));
  rates[RN_EDGE_EVACUATION] = narrower(wanted.evacuation_bytes_per_s, grant.bytes_per_s);
  rates[RN_EDGE_CHECKPOINT] = narrower(wanted.checkpoint_bytes_per_s, grant.bytes_per_s);
  rates[RN_EDGE_PREFETCH] = narrower(wanted.prefetch_bytes_per_s, grant.bytes_per_s);
  rates[RN_EDGE_UNCLAIMED] = narrower(wanted.unclaimed_bytes_per_s, grant.bytes_per_s);
  return rates;
}

std::vector<rn_edge_port> control_ports_of(const warden_wire::SetTransfers& wanted) {
  std::vector<rn_edge_port> ports = {{kNamesPort, IPPROTO_UDP, 0}, {kNamesPort, IPPROTO_TCP, 0}};
  const auto add = [&](std::uint32_t port, std::uint8_t is_local) {
    if (port == 0 || port > kPortMax) return;
    ports.push_back({static_cast<std::uint16_t>(port), IPPROTO_TCP, is_local});
  };
  add(wanted.coordinator_port, 0);
  add(wanted.rest_port, 1);
  return ports;
}

Result<TransfersCut> TransfersCut::open(const std::string& gates, const std::string& record) {
  RN_TRY(traffic::TransferGate gate, traffic::TransferGate::open_pinned(gates));
  return TransfersCut(std::move(gate), record);
}

Result<bool> TransfersCut::is_cut() const {
  RN_TRY(const bool is_open, gate_.is_open());
  return !is_open;
}

Status TransfersCut::record() const {
  RN_TRY(const bool is_shut, is_cut());
  io::RealFileSystem fs;
  if (is_shut) return write_durably(fs, record_, {}, 0644);
  std::error_code failed;
  std::filesystem::remove(record_, failed);
  if (failed) return fail(ErrorCode::kInternal, "removing " + record_ + ": " + failed.message());
  return {};
}

Result<std::unique_ptr<TransferBounds>> TransferBounds::open(
    const TransfersGrant& grant,
    const std::string& gates,
    const std::string& record,
    std::uint32_t agent_uid
) {
  const bool is_fresh = !traffic::has_pinned_edge(gates);
  RN_TRY(traffic::TransferEdge edge, traffic::TransferEdge::open(gates, agent_uid));
  if (is_recorded(record)) {
    RN_CHECK(edge.gate().cut());
  } else if (is_fresh) {
    RN_CHECK(edge.gate().uncut());
  }
  const warden_wire::SetTransfers nothing_said;
  if (is_fresh) RN_CHECK(edge.set_control(control_ports_of(nothing_said)));
  // Until the agent says more: the owner's grant, which may be another than at the last start.
  RN_CHECK(edge.set_classes(class_rates_of(nothing_said, grant)));
  return std::unique_ptr<TransferBounds>(new TransferBounds(grant, std::move(edge)));
}

std::vector<std::string> TransferBounds::uplinks() const {
  if (!grant_.interface.empty()) return {grant_.interface};
  return default_route_interfaces("/proc/net");
}

Result<warden_wire::TransferCounts> TransferBounds::set(const warden_wire::SetTransfers& wanted) {
  RN_TRY(const auto claims, claims_of(wanted));
  const std::lock_guard lock(mutex_);
  RN_CHECK(edge_.set_claims(claims));
  RN_CHECK(edge_.set_classes(class_rates_of(wanted, grant_)));
  RN_CHECK(edge_.set_control(control_ports_of(wanted)));
  warden_wire::TransferCounts counts;
  RN_TRY(const auto counters, edge_.claim_counters());
  for (const traffic::ClaimCounters& one : counters)
    counts.transfers.push_back(count_of(one.id, one.counters));
  RN_TRY(const auto unclaimed, edge_.class_counters(RN_EDGE_UNCLAIMED));
  counts.unclaimed = count_of(0, unclaimed);
  RN_TRY(const bool is_open, edge_.gate().is_open());
  counts.is_cut = !is_open;
  return counts;
}

std::vector<std::string> TransferBounds::look() {
  const std::vector<std::string> names = uplinks();
  std::vector<std::string> words;
  const std::lock_guard lock(mutex_);
  for (const traffic::EdgeLoss& loss : edge_.guard(names)) {
    const std::string& name = loss.interface;
    words.push_back(
        loss.repaired ? "somebody removed the transfers' filter of " + name + "; it is back"
                      : "transfers are paced only, nothing bounds them at " + name + ": " +
                            loss.repaired.error().describe()
    );
  }
  for (const traffic::EdgeBefore& found : edge_.filters_before(names)) {
    words.push_back(
        found.filter.what + " of somebody else stands before the transfers' filter of " +
        found.interface + ": it may let pass what is over a grant or cut" +
        (found.filter.remove.empty() ? "" : "; next: " + found.filter.remove)
    );
  }
  return words;
}

}  // namespace rn::warden
