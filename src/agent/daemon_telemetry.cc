// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <unistd.h>

#include "agent/contract_file.h"
#include "agent/daemon_state.h"
#include "base/log.h"
#include "io/http_client.h"
#include "model/api.h"
#include "model/codec.h"

namespace rn::agent {

namespace {

constexpr std::chrono::hours kRenewAfter{24};

}  // namespace

NodeFacts Daemon::State::measure_facts() {
  NodeFacts out;
  const HostSampler host(config.root);
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  out.hostname = name;
  out.failure_domain = config.failure_domain.empty() ? identity.lab.str() : config.failure_domain;
  out.cpu_milli = host.cpu_milli().value_or(0);
  out.memory_mib = host.memory_mib().value_or(0);
  out.kernel = host.kernel();
  out.cgroup_version = host.cgroup_version();
  out.has_user_namespaces = host.has_user_namespaces();
  out.uplink_bps = config.uplink_bps;
  std::error_code ignored;
  const auto space = std::filesystem::space(config.folder(), ignored);
  if (!ignored) out.disk_mib = space.capacity >> 20;
  if (!config.nvml_library.empty()) {
    auto opened = NvmlSampler::open(config.nvml_library);
    if (opened) {
      nvml = *std::move(opened);
      out.gpus = nvml->gpus();
    } else if (opened.error().code != ErrorCode::kNotFound) {
      out.warnings.push_back(opened.error().message);
    }
  }
  for (Gpu gpu : config.gpus) {
    gpu.is_static = true;
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

TelemetrySampled Daemon::State::sample(HostSampler& host, const NvmlSampler* gpus) {
  TelemetrySampled out;
  const Status measured = host.sample(out.telemetry);
  if (!measured) log::warning("telemetry.failed", {{"error", measured.error().describe()}});
  out.telemetry.disk_free_mib = fs.free_bytes(config.folder()).value_or(0) >> 20;
  out.telemetry.chunk_bytes = store->usage().bytes;
  const WallTime now = clock.now().wall;
  out.idle_s = host.idle_s(now);
  std::string zone;
  {
    const std::lock_guard lock(sampler_mutex);
    zone = sampled_zone;
  }
  out.utc_offset_s = utc_offset_s(fs, zone, now, config.zone_folder).value_or(0);
  if (gpus != nullptr) {
    auto seen = gpus->sample([this](pid_t pid) {
      return is_in_group(config.root, pid, config.guest_group);
    });
    out.telemetry.gpus = std::move(seen.gpus);
    out.foreign_vram_mib = std::move(seen.foreign_vram_mib);
  }
  return out;
}

/// On a thread of its own: a hanging GPU driver delays nothing but telemetry.
void Daemon::State::sample_forever() {
  HostSampler host(config.root);
  for (;;) {
    loop.post([this, sampled = sample(host, nvml.get())] { feed(sampled); });
    std::unique_lock lock(sampler_mutex);
    if (sampler_wake.wait_for(lock, milliseconds(config.telemetry_ms), [this] {
          return is_sampler_stopping;
        }))
      return;
  }
}

/// A day-old certificate is renewed; the new one serves from the next connections on. A coordinator
/// that is away is no trouble for a week.
void Daemon::State::renew_certificate() {
  const auto info = io::read_certificate(identity.certificate_pem);
  if (!info || clock.now().wall < info->not_after - io::kCertificateValidity + kRenewAfter) return;
  const auto renew = [identity = identity]() -> Result<api::RenewAnswer> {
    api::RenewRequest request;
    RN_TRY(request.csr_pem, io::make_signing_request(identity.key_pem, identity.node.str()));
    io::HttpCall call;
    call.method = "POST";
    call.url = identity.coordinator_url + "/v1/renew";
    call.tls = tls_to_coordinator(identity);
    call.headers = {{"Content-Type", "application/json"}};
    call.body = to_json(request);
    RN_TRY(const io::HttpReply reply, io::succeed(io::perform_blocking(call)));
    return from_json<api::RenewAnswer>(reply.body, Unknown::kLenient);
  };
  const auto done = [this](Result<api::RenewAnswer> answer) {
    if (!answer) {
      log::warning("certificate.not_renewed", {{"error", answer.error().describe()}});
      return;
    }
    const Status stored =
        store_certificate(fs, config.identity_folder(), answer->certificate_pem, answer->ca_pem);
    if (!stored) log::warning("certificate.not_stored", {{"error", stored.error().describe()}});
    // NOTE: workers hold references to `identity`; its strings are swapped only at the next start,
    // and the servers and the link to the coordinator get the new certificate now.
    Identity fresh = identity;
    fresh.certificate_pem = answer->certificate_pem;
    fresh.ca_pem = answer->ca_pem;
    const io::TlsConfig tls = tls_server(fresh);
    if (peer_server) (void)peer_server->reload_tls(tls);
    if (api) (void)api->reload_tls(tls);
    coordinator->set_tls(tls_to_coordinator(fresh));
    log::info("certificate.renewed");
  };
  (void)light->submit_for(renew, done);
}

}  // namespace rn::agent
