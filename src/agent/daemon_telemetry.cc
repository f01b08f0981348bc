// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include <unistd.h>

#include "agent/contract_file.h"
#include "agent/daemon_state.h"
#include "agent/machine_facts.h"
#include "base/log.h"
#include "io/http_client.h"
#include "io/own_address.h"
#include "model/api.h"
#include "model/codec.h"

namespace rn::agent {

namespace {

/// A timer does not count a suspend, and a certificate's life does: look at least so often.
constexpr nanoseconds kRenewalLook = std::chrono::hours(1);

Result<api::RenewAnswer> renew(const Identity& identity) {
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
}

}  // namespace

NodeFacts Daemon::State::measure_facts() {
  NodeFacts out = machine_facts(config, nvml);
  const std::string shown_as = identity->get()->shown_as;
  out.hostname = shown_as.empty() ? io::own_hostname() : shown_as;
  out.failure_domain =
      config.failure_domain.empty() ? identity->get()->lab.str() : config.failure_domain;
  // Its members reach each other by the peer port.
  if (!config.listen_peer.empty()) out.features = {kGangsFeature};
  out.features.emplace_back(kKeepsSetsFeature);
  return out;
}

TelemetrySampled Daemon::State::sample(HostSampler& host, const NvmlSampler* gpus) {
  TelemetrySampled out;
  const Status measured = host.sample(out.telemetry);
  if (!measured) log::warning("telemetry.failed", {{"error", measured.error().describe()}});
  out.telemetry.disk_free_mib = fs.free_bytes(config.folder()).value_or(0) >> 20;
  out.telemetry.chunk_bytes = store->usage().bytes;
  out.guest_memory_mib = host.guest_memory_mib(config.guest_group);
  out.guest_cpu_ms = host.guest_cpu_ms(config.guest_group);
  const WallTime now = clock.now().wall;
  out.idle_s = host.idle_s(now);
  std::string zone;
  {
    const std::lock_guard lock(sampler_mutex);
    zone = sampled_zone;
  }
  out.utc_offset_s = utc_offset_s(fs, zone, now, config.zone_folder).value_or(0);
  if (gpus != nullptr) {
    out.telemetry.gpus = gpus->sample([this](pid_t pid) {
      return is_in_group(config.root, pid, config.guest_group);
    });
    out.signs = gpus->signs();
  }
  return out;
}

/// On a thread of its own: a hanging GPU driver delays nothing but telemetry.
void Daemon::State::sample_forever() {
  HostSampler host(config.root);
  for (;;) {
    loop.post([this, sampled = sample(host, nvml.get())]() mutable {
      if (tunnels) sampled.visited = tunnels->guests();
      feed(sampled);
    });
    std::unique_lock lock(sampler_mutex);
    if (sampler_wake.wait_for(lock, milliseconds(config.telemetry_ms), [this] {
          return is_sampler_stopping;
        }))
      return;
  }
}

void Daemon::State::renew_when_due() {
  const Now now = clock.now();
  if (renewal.is_due(now)) {
    renewal.tried(now);
    const Status submitted = light->submit_for(
        [self = identity->get()] { return renew(*self); },
        [this](const Result<api::RenewAnswer>& answer) {
          if (answer) return use_certificate(*answer);
          log::warning("certificate.not_renewed", {{"error", answer.error().describe()}});
        }
    );
    if (!submitted) log::warning("certificate.not_renewed", {{"error", submitted.error().message}});
  }
  const nanoseconds wait = std::min(kRenewalLook, renewal.wait(now));
  loop.run_after(std::max<nanoseconds>(wait, milliseconds(100)), [this] { renew_when_due(); });
}

/// From now on for everything: each new connection takes its certificate from `identity`, the
/// servers serve it. What is connected stays so.
void Daemon::State::use_certificate(const api::RenewAnswer& answer) {
  const auto info = io::read_certificate(answer.certificate_pem);
  const auto old = identity->get();
  const auto key = io::public_key_of(old->key_pem);
  const std::string name = identity_of(old->node);
  if (!info || !key || info->public_key_pem != *key ||
      std::find(info->uris.begin(), info->uris.end(), name) == info->uris.end()) {
    log::warning("certificate.not_renewed", {{"error", "the answer is not for this node's key"}});
    return;
  }
  const Status stored =
      store_certificate(fs, config.identity_folder(), answer.certificate_pem, answer.ca_pem);
  if (!stored) log::warning("certificate.not_stored", {{"error", stored.error().describe()}});
  identity->renew(answer.certificate_pem, answer.ca_pem);
  const auto fresh = identity->get();
  Status served;
  if (peer_server) served = peer_server->reload_tls(tls_server(*fresh));
  if (served && api) served = api->reload_tls(tls_server(*fresh));
  if (!served) log::warning("certificate.not_served", {{"error", served.error().describe()}});
  coordinator->set_tls(tls_to_coordinator(*fresh));
  renewal.renewed(*info, clock.now());
  log::info("certificate.renewed", {{"not_after_ms", to_ms(info->not_after)}});
}

}  // namespace rn::agent
