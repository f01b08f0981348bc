// SPDX-License-Identifier: Apache-2.0
#include "traffic/transfer_edge.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <net/if.h>
#include <netinet/in.h>

#include "base/log.h"
#include "traffic/bpffs.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include "traffic/transfer_edge.skel.h"
#pragma GCC diagnostic pop

namespace rn::traffic {

struct TransferEdge::Parts {
  Parts(std::string pinned_in, transfer_edge_bpf* loaded, TransferGate opened)
      : folder(std::move(pinned_in)), program(loaded), gate(std::move(opened)) {}

  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  ~Parts() { transfer_edge_bpf::destroy(program); }

  int claims_fd() const { return bpf_map__fd(program->maps.rn_edge_claims); }

  int gates_fd() const { return bpf_map__fd(program->maps.rn_edge_gates); }

  int rates_fd() const { return bpf_map__fd(program->maps.rn_edge_rates); }

  int buckets_fd() const { return bpf_map__fd(program->maps.rn_edge_buckets); }

  int counters_fd() const { return bpf_map__fd(program->maps.rn_edge_counters); }

  int links_fd() const { return bpf_map__fd(program->maps.rn_edge_links); }

  std::string folder;
  transfer_edge_bpf* program;
  TransferGate gate;
};

namespace {

/// Before the owner's own filters, which then still see whatever passes.
constexpr FilterPlace kEdgePlace{3, "rn_edge_in", "rn_edge_out"};
constexpr std::array<rn_cut_direction, 2> kEdgeHooks{RN_CUT_FROM_GUEST, RN_CUT_TO_GUEST};
constexpr std::uint64_t kEmptyBytesPerS = 4u << 20;   ///< 65,536 packets a second
constexpr std::uint64_t kTransferBurst = 256u << 10;  ///< four packets of TCP's
constexpr std::uint64_t kClassBurst = 256u << 10;
constexpr std::uint64_t kMostBurst = 16u << 20;
constexpr std::uint64_t kMsPerS = 1000;

using FlowKey = std::
    tuple<std::array<std::uint8_t, 16>, std::uint16_t, std::array<std::uint8_t, 16>, std::uint16_t>;

tl::unexpected<Error> edge_error(const std::string& what, int error) {
  const bool is_denied = error == EPERM || error == EACCES;
  return fail(
      is_denied ? ErrorCode::kDenied : ErrorCode::kInternal, what + ": " + std::strerror(error)
  );
}

Status write_at(int map_fd, std::uint32_t key, const void* value, const char* what) {
  if (bpf_map_update_elem(map_fd, &key, value, BPF_ANY) == 0) return {};
  return edge_error(std::string("writing ") + what, errno);
}

rn_edge_rate bucket_of(std::uint64_t bytes_per_s, std::uint64_t least, std::uint64_t ms) {
  const std::uint64_t burst = std::clamp(bytes_per_s / kMsPerS * ms, least, kMostBurst);
  return {bytes_per_s, static_cast<__u32>(burst), static_cast<__u32>(burst / 2)};
}

rn_edge_flow flow_of(const TransferClaim& claim) {
  rn_edge_flow flow{};
  std::copy(claim.local.address.begin(), claim.local.address.end(), flow.local);
  std::copy(claim.remote.address.begin(), claim.remote.address.end(), flow.remote);
  flow.local_port = claim.local.port;
  flow.remote_port = claim.remote.port;
  flow.protocol = IPPROTO_TCP;
  return flow;
}

struct KnownClaim {
  rn_edge_flow flow{};
  rn_edge_claim claim{};
};

std::vector<KnownClaim> read_claims(int map_fd) {
  std::vector<KnownClaim> known;
  rn_edge_flow key{};
  const void* previous = nullptr;
  while (bpf_map_get_next_key(map_fd, previous, &key) == 0) {
    KnownClaim one{key, {}};
    if (bpf_map_lookup_elem(map_fd, &key, &one.claim) == 0) known.push_back(one);
    previous = &key;
  }
  return known;
}

Status check_claims(const std::vector<TransferClaim>& claims) {
  if (claims.size() > RN_EDGE_TRANSFERS)
    return fail(
        ErrorCode::kExhausted,
        "more than " + std::to_string(RN_EDGE_TRANSFERS) + " transfers at a time",
        "claim the largest ones; the others share what is left for unclaimed ones"
    );
  std::set<std::uint64_t> ids;
  std::set<FlowKey> flows;
  for (const TransferClaim& claim : claims) {
    const std::string name = "transfer " + std::to_string(claim.id);
    if (claim.local.port == 0 || claim.remote.port == 0)
      return fail(ErrorCode::kInvalid, name + " has no port", "claim a connection when it is made");
    if (claim.purpose > RN_EDGE_PREFETCH)
      return fail(ErrorCode::kInvalid, name + " has no class that a transfer can have");
    if (!ids.insert(claim.id).second)
      return fail(ErrorCode::kInvalid, name + " is claimed twice", "give each an id of its own");
    const FlowKey flow{
        claim.local.address, claim.local.port, claim.remote.address, claim.remote.port};
    if (!flows.insert(flow).second)
      return fail(
          ErrorCode::kInvalid,
          name + " has another one's connection",
          "claim each connection for one transfer at a time"
      );
  }
  return {};
}

Result<std::vector<rn_edge_counters>> no_counts() {
  const int cpus = libbpf_num_possible_cpus();
  if (cpus <= 0) return fail(ErrorCode::kInternal, "cannot tell the number of possible CPUs");
  return std::vector<rn_edge_counters>(static_cast<std::size_t>(cpus));
}

Result<EdgeCounters> read_edge_counters(int map_fd, std::uint32_t slot) {
  RN_TRY(auto per_cpu, no_counts());
  if (bpf_map_lookup_elem(map_fd, &slot, per_cpu.data()) != 0)
    return edge_error("reading a transfer's counters", errno);
  EdgeCounters total;
  std::uint64_t last_ns = 0;
  for (const rn_edge_counters& cpu : per_cpu) {
    total.passed_packets += cpu.passed_packets;
    total.passed_bytes += cpu.passed_bytes;
    total.marked_packets += cpu.marked_packets;
    total.dropped_packets += cpu.dropped_packets;
    total.dropped_bytes += cpu.dropped_bytes;
    total.cut_packets += cpu.cut_packets;
    last_ns = std::max<std::uint64_t>(last_ns, cpu.last_passed_boot_ns);
  }
  total.last_passed = instant_from_ns(static_cast<std::int64_t>(last_ns));
  return total;
}

/// Counters and bucket as new; then rate and gate; the claim itself last, so that no packet meets a
/// slot that is not ready.
Status write_claim(
    const TransferEdge::Parts& parts, const TransferClaim& claim, std::uint32_t slot
) {
  RN_TRY(const auto zeros, no_counts());
  RN_CHECK(write_at(parts.counters_fd(), slot, zeros.data(), "a transfer's counters"));
  const std::vector<std::uint8_t> empty(bpf_map__value_size(parts.program->maps.rn_edge_buckets));
  RN_CHECK(write_at(parts.buckets_fd(), slot, empty.data(), "a transfer's bucket"));
  const rn_edge_rate rate = transfer_bucket(claim.bytes_per_s);
  RN_CHECK(write_at(parts.rates_fd(), slot, &rate, "a transfer's rate"));
  const rn_edge_gate gate{claim.is_open};
  RN_CHECK(write_at(parts.gates_fd(), slot, &gate, "a transfer's gate"));
  const rn_edge_flow flow = flow_of(claim);
  const rn_edge_claim value{claim.id, slot, static_cast<__u16>(claim.purpose), 0};
  if (bpf_map_update_elem(parts.claims_fd(), &flow, &value, BPF_ANY) == 0) return {};
  return edge_error("claiming a transfer", errno);
}

Status renew_claim(
    const TransferEdge::Parts& parts, const TransferClaim& claim, std::uint32_t slot
) {
  const rn_edge_rate rate = transfer_bucket(claim.bytes_per_s);
  RN_CHECK(write_at(parts.rates_fd(), slot, &rate, "a transfer's rate"));
  const rn_edge_gate gate{claim.is_open};
  return write_at(parts.gates_fd(), slot, &gate, "a transfer's gate");
}

bool is_same(const KnownClaim& known, const TransferClaim& claim) {
  const rn_edge_flow flow = flow_of(claim);
  return known.claim.id == claim.id && known.claim.class_ == claim.purpose &&
         std::memcmp(&known.flow, &flow, sizeof flow) == 0;
}

Result<std::uint32_t> slot_of(const TransferEdge::Parts& parts, std::uint64_t id) {
  for (const KnownClaim& known : read_claims(parts.claims_fd())) {
    if (known.claim.id == id) return known.claim.slot;
  }
  return fail(ErrorCode::kNotFound, "no transfer " + std::to_string(id) + " is claimed");
}

std::map<std::uint32_t, rn_edge_link> read_links(int map_fd) {
  std::map<std::uint32_t, rn_edge_link> links;
  std::uint32_t key = 0;
  const void* previous = nullptr;
  while (bpf_map_get_next_key(map_fd, previous, &key) == 0) {
    rn_edge_link link{};
    if (bpf_map_lookup_elem(map_fd, &key, &link) == 0) links[key] = link;
    previous = &key;
  }
  return links;
}

bool is_whole(std::uint32_t ifindex) {
  return std::all_of(kEdgeHooks.begin(), kEdgeHooks.end(), [&](rn_cut_direction hook) {
    return has_filter(ifindex, hook, kEdgePlace);
  });
}

/// Remembered before a filter is there: what we made is found by whoever leaves.
Status put_edge(const TransferEdge::Parts& parts, std::uint32_t ifindex, rn_edge_link link) {
  RN_TRY(const bool is_made, ensure_clsact(ifindex));
  if (is_made) link.made_clsact = 1;
  if (bpf_map_update_elem(parts.links_fd(), &ifindex, &link, BPF_ANY) != 0)
    return edge_error("remembering an uplink", errno);
  const int in = bpf_program__fd(parts.program->progs.rn_edge_in);
  const int out = bpf_program__fd(parts.program->progs.rn_edge_out);
  RN_CHECK(put_filter(ifindex, RN_CUT_FROM_GUEST, in, kEdgePlace));
  return put_filter(ifindex, RN_CUT_TO_GUEST, out, kEdgePlace);
}

/// The owner may use a qdisc that we made: then it stays.
Status take_edge_off(const TransferEdge::Parts& parts, std::uint32_t ifindex, rn_edge_link link) {
  std::size_t others = 0;
  for (const rn_cut_direction hook : kEdgeHooks) {
    RN_CHECK(remove_filter(ifindex, hook, kEdgePlace));
    RN_TRY(const std::size_t left, count_filters(ifindex, hook));
    others += left;
  }
  if (link.made_clsact != 0 && others == 0) RN_CHECK(remove_clsact(ifindex));
  if (bpf_map_delete_elem(parts.links_fd(), &ifindex) != 0 && errno != ENOENT)
    return edge_error("forgetting an uplink", errno);
  return {};
}

}  // namespace

Result<EdgeEnd> parse_end(const std::string& address, std::uint16_t port) {
  EdgeEnd end;
  end.port = port;
  if (inet_pton(AF_INET6, address.c_str(), end.address.data()) == 1) return end;
  end.address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (inet_pton(AF_INET, address.c_str(), end.address.data() + 12) == 1) return end;
  return fail(
      ErrorCode::kInvalid, "not an address: " + address, "write it like 192.0.2.7 or 2001:db8::7"
  );
}

ClassRates unbounded_rates() {
  ClassRates rates;
  rates.fill(RN_EDGE_UNBOUNDED);
  return rates;
}

rn_edge_rate transfer_bucket(std::uint64_t bytes_per_s) {
  return bucket_of(bytes_per_s, kTransferBurst, 5);
}

rn_edge_rate class_bucket(std::uint64_t bytes_per_s) {
  return bucket_of(bytes_per_s, kClassBurst, 20);
}

bool has_pinned_edge(const std::string& folder) {
  std::error_code unknown;
  return std::filesystem::exists(folder + "/" RN_EDGE_MAP_GATE, unknown) && !unknown;
}

TransferEdge::TransferEdge(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

TransferEdge::TransferEdge(TransferEdge&&) noexcept = default;
TransferEdge& TransferEdge::operator=(TransferEdge&&) noexcept = default;
TransferEdge::~TransferEdge() = default;

Result<TransferEdge> TransferEdge::load(const std::string& folder) {
  RN_CHECK(ensure_bpffs(folder));
  std::unique_ptr<transfer_edge_bpf, void (*)(transfer_edge_bpf*)> program(
      transfer_edge_bpf::open(), transfer_edge_bpf::destroy
  );
  if (!program) return fail(ErrorCode::kInternal, "the built-in transfer program cannot be parsed");
  RN_CHECK(pin_maps_in(folder, program->obj));
  if (const int result = transfer_edge_bpf::load(program.get()); result != 0)
    return fail(load_error(-result));
  RN_TRY(TransferGate gate, TransferGate::open_pinned(folder));
  return TransferEdge(std::make_unique<Parts>(folder, program.release(), std::move(gate)));
}

Result<TransferEdge> TransferEdge::open(const std::string& folder, std::uint32_t agent_uid) {
  if (agent_uid == 0)
    return fail(
        ErrorCode::kInvalid,
        "an agent that runs as root cannot be told from the owner",
        "give it a user of its own, and that user's number as --agent-uid"
    );
  RN_TRY(TransferEdge edge, load(folder));
  rn_edge_settings settings{};
  const std::uint32_t key = 0;
  if (bpf_map_lookup_elem(edge.settings_fd(), &key, &settings) != 0)
    return edge_error("reading the edge's settings", errno);
  settings.agent_uid = agent_uid;
  RN_CHECK(write_at(edge.settings_fd(), key, &settings, "the edge's settings"));
  return edge;
}

Status TransferEdge::set_control(const std::vector<rn_edge_port>& ports) {
  if (ports.size() > RN_EDGE_CONTROL_PORTS)
    return fail(
        ErrorCode::kInvalid,
        "more than " + std::to_string(RN_EDGE_CONTROL_PORTS) + " ports that are no transfers'"
    );
  rn_edge_settings settings{};
  const std::uint32_t key = 0;
  if (bpf_map_lookup_elem(settings_fd(), &key, &settings) != 0)
    return edge_error("reading the edge's settings", errno);
  std::fill(std::begin(settings.control), std::end(settings.control), rn_edge_port{});
  std::copy(ports.begin(), ports.end(), settings.control);
  return write_at(settings_fd(), key, &settings, "the edge's settings");
}

Status TransferEdge::set_classes(const ClassRates& rates) {
  for (std::uint32_t one = 0; one < RN_EDGE_CLASSES; ++one) {
    const bool is_empty = one == RN_EDGE_EMPTY;
    const rn_edge_rate rate = class_bucket(is_empty ? kEmptyBytesPerS : rates[one]);
    RN_CHECK(write_at(parts_->rates_fd(), RN_EDGE_CLASS_SLOT(one), &rate, "a class's rate"));
  }
  return {};
}

Status TransferEdge::set_claims(const std::vector<TransferClaim>& claims) {
  RN_CHECK(check_claims(claims));
  std::vector<bool> is_taken(RN_EDGE_TRANSFERS);
  std::vector<const TransferClaim*> fresh;
  std::map<std::uint64_t, KnownClaim> known;
  for (const KnownClaim& one : read_claims(parts_->claims_fd())) known[one.claim.id] = one;
  std::map<std::uint64_t, KnownClaim> gone = known;
  for (const TransferClaim& claim : claims) {
    const auto old = known.find(claim.id);
    if (old == known.end() || !is_same(old->second, claim)) {
      fresh.push_back(&claim);
      continue;
    }
    gone.erase(claim.id);
    is_taken[old->second.claim.slot] = true;
    RN_CHECK(renew_claim(*parts_, claim, old->second.claim.slot));
  }
  for (const auto& [id, old] : gone) {
    if (bpf_map_delete_elem(parts_->claims_fd(), &old.flow) != 0 && errno != ENOENT)
      return edge_error("forgetting a transfer", errno);
  }
  std::uint32_t slot = 0;
  for (const TransferClaim* claim : fresh) {
    while (is_taken[slot]) ++slot;
    RN_CHECK(write_claim(*parts_, *claim, slot++));
  }
  return {};
}

Status TransferEdge::set_gate(std::uint64_t id, bool is_open) {
  RN_TRY(const std::uint32_t slot, slot_of(*parts_, id));
  const rn_edge_gate gate{is_open};
  return write_at(parts_->gates_fd(), slot, &gate, "a transfer's gate");
}

Status TransferEdge::set_rate(std::uint64_t id, std::uint64_t bytes_per_s) {
  RN_TRY(const std::uint32_t slot, slot_of(*parts_, id));
  const rn_edge_rate rate = transfer_bucket(bytes_per_s);
  return write_at(parts_->rates_fd(), slot, &rate, "a transfer's rate");
}

std::vector<EdgeLoss> TransferEdge::guard(const std::vector<std::string>& interfaces) {
  std::vector<EdgeLoss> losses;
  std::map<std::uint32_t, rn_edge_link> links = read_links(parts_->links_fd());
  for (const std::string& interface : interfaces) {
    const std::uint32_t ifindex = if_nametoindex(interface.c_str());
    if (ifindex == 0) continue;
    const auto node = links.extract(ifindex);
    if (is_whole(ifindex) && !node.empty()) continue;
    Status put = put_edge(*parts_, ifindex, node.empty() ? rn_edge_link{} : node.mapped());
    if (if_nametoindex(interface.c_str()) != ifindex) continue;  // gone just now
    if (put && node.empty()) {
      log::info("traffic.edge_attached", {{"interface", interface}});
    } else {
      losses.push_back({interface, std::move(put)});
    }
  }
  for (const auto& [ifindex, link] : links) {
    if (const Status off = take_edge_off(*parts_, ifindex, link); !off)
      log::warning("traffic.edge_stays", {{"ifindex", ifindex}, {"why", off.error().describe()}});
  }
  return losses;
}

std::vector<EdgeBefore> TransferEdge::filters_before(const std::vector<std::string>& interfaces
) const {
  std::vector<EdgeBefore> before;
  for (const std::string& interface : interfaces) {
    const std::uint32_t ifindex = if_nametoindex(interface.c_str());
    for (const rn_cut_direction hook : kEdgeHooks) {
      auto foreign = filter_before(ifindex, hook, kEdgePlace);
      if (foreign && *foreign) before.push_back({interface, std::move(**foreign)});
    }
  }
  return before;
}

Result<std::vector<ClaimCounters>> TransferEdge::claim_counters() const {
  std::vector<ClaimCounters> all;
  for (const KnownClaim& known : read_claims(parts_->claims_fd())) {
    RN_TRY(
        const EdgeCounters counters, read_edge_counters(parts_->counters_fd(), known.claim.slot)
    );
    all.push_back({known.claim.id, counters});
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return all;
}

Result<EdgeCounters> TransferEdge::class_counters(rn_edge_class purpose) const {
  return read_edge_counters(parts_->counters_fd(), RN_EDGE_CLASS_SLOT(purpose));
}

TransferGate& TransferEdge::gate() {
  return parts_->gate;
}

Status TransferEdge::leave() {
  for (const auto& [ifindex, link] : read_links(parts_->links_fd()))
    RN_CHECK(take_edge_off(*parts_, ifindex, link));
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, parts_->program->obj) {
    if (bpf_map__is_pinned(map) && bpf_map__unpin(map, nullptr) != 0)
      return edge_error("unpinning a map", errno);
  }
  return {};
}

Status TransferEdge::leave_pinned(const std::string& folder) {
  if (!has_pinned_edge(folder)) return {};
  RN_TRY(TransferEdge edge, load(folder));
  return edge.leave();
}

int TransferEdge::egress_fd() const {
  return bpf_program__fd(parts_->program->progs.rn_edge_out);
}

int TransferEdge::ingress_fd() const {
  return bpf_program__fd(parts_->program->progs.rn_edge_in);
}

int TransferEdge::settings_fd() const {
  return bpf_map__fd(parts_->program->maps.rn_edge_settings);
}

}  // namespace rn::traffic
