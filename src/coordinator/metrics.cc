// SPDX-License-Identifier: Apache-2.0
#include "coordinator/metrics.h"

#include <ctime>

#include "coordinator/core.h"
#include "coordinator/daemon_shell.h"
#include "coordinator/notify_outbox.h"
#include "io/metrics_page.h"
#include "model/reclaim_order.h"
#include "reclaim/evacuation.h"

namespace rn::coordinator {

namespace {

const std::vector<double> kSeconds = {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800};
const std::vector<double> kShortSeconds = {
    0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 900};

using Page = io::MetricsPage;

std::string label(std::string_view key, std::string_view value) {
  return io::metric_label(key, value);
}

void render_jobs(Page& page, const Metrics& m) {
  page.counter("reclaimnet_jobs_submitted_total", "Jobs submitted.", m.jobs_submitted);
  page.head("reclaimnet_jobs_finished_total", "counter", "Jobs that ended, by outcome.");
  page.value("reclaimnet_jobs_finished_total", "outcome=\"succeeded\"", double(m.jobs_succeeded));
  page.value("reclaimnet_jobs_finished_total", "outcome=\"failed\"", double(m.jobs_failed));
  page.value("reclaimnet_jobs_finished_total", "outcome=\"cancelled\"", double(m.jobs_cancelled));
  page.gauge("reclaimnet_queue_jobs", "Jobs that wait.", double(m.jobs_queued));
  page.gauge(
      "reclaimnet_jobs_without_holder",
      "Jobs that wait for a machine with their last generation.",
      double(m.jobs_without_holder)
  );
  page.gauge("reclaimnet_held_jobs", "Jobs that wait for other jobs.", double(m.jobs_held));
  page.gauge("reclaimnet_placing_jobs", "Jobs between probe and lease.", double(m.jobs_placing));
  page.gauge("reclaimnet_running_jobs", "Jobs with a live attempt.", double(m.jobs_running));
  page.counter("reclaimnet_attempts_crashed_total", "Attempts that crashed.", m.attempts_crashed);
  page.counter(
      "reclaimnet_effects_fenced_total", "Refused because of a stale epoch.", m.effects_fenced
  );
  page.counter(
      "reclaimnet_generations_durable_total", "Generations made durable.", m.generations_durable
  );
  page.counter(
      "reclaimnet_generations_refused_total", "Generations refused.", m.generations_refused
  );
  page.counter("reclaimnet_migrations_back_total", "Jobs sent home.", m.migrations_back);
  page.counter("reclaimnet_log_bytes_total", "Log bytes taken.", m.log_bytes);
  page.head("reclaimnet_displacements_total", "counter", "Attempts displaced, by kind of reclaim.");
  page.value(
      "reclaimnet_displacements_total", "kind=\"announced\"", double(m.displacements_announced)
  );
  page.value("reclaimnet_displacements_total", "kind=\"notice\"", double(m.displacements_notice));
  page.value(
      "reclaimnet_displacements_total", "kind=\"emergency\"", double(m.displacements_emergency)
  );
  page.value("reclaimnet_displacements_total", "kind=\"lost\"", double(m.displacements_lost));
}

void render_orders(Page& page, const Metrics& m) {
  constexpr std::string_view kOrders = "reclaimnet_reclaim_orders_total";
  page.head(kOrders, "counter", "Orders to take a node back from afar, by what became of them.");
  page.value(kOrders, label("outcome", "given"), double(m.orders_given));
  for (const OrderState ended :
       {OrderState::kTaken, OrderState::kRefused, OrderState::kExpired, OrderState::kUnanswered})
    page.value(
        kOrders,
        label("outcome", to_string(ended)),
        double(m.orders_ended.at(static_cast<std::size_t>(ended)))
    );
}

void render_transfers(Page& page, const Metrics& m) {
  constexpr std::string_view kEvacuations = "reclaimnet_evacuations_total";
  page.head(kEvacuations, "counter", "Copies with a deadline, by what was said and came of them.");
  page.value(kEvacuations, "verdict=\"admitted\"", double(m.evacuations_admitted));
  page.value(kEvacuations, "verdict=\"refused\"", double(m.evacuations_refused));
  page.value(kEvacuations, "verdict=\"withdrawn\"", double(m.evacuations_withdrawn));
  page.value(kEvacuations, "verdict=\"in_time\"", double(m.evacuations_in_time));
  page.value(kEvacuations, "verdict=\"missed\"", double(m.evacuations_missed));
  constexpr std::string_view kChoices = "reclaimnet_evacuation_choices_total";
  page.head(kChoices, "counter", "Ways chosen for jobs that lose their place, each change too.");
  for (std::size_t way = 0; way < m.choices.size(); ++way)
    page.value(
        kChoices,
        label("way", to_string(static_cast<reclaim::EvacuationWay>(way))),
        double(m.choices.at(way))
    );
  page.gauge(
      "reclaimnet_evacuations", "Jobs that lose or lost their place.", double(m.evacuations)
  );
  page.gauge(
      "reclaimnet_evacuations_without_place",
      "Of these, those that nobody can take now.",
      double(m.evacuations_without_place)
  );
  page.gauge("reclaimnet_transfers", "Copies under way.", double(m.transfers));
  constexpr std::string_view kFetches = "reclaimnet_fetches";
  page.head(
      kFetches,
      "gauge",
      "Generations and images under way to who starts a job, from peers and from the coordinator."
  );
  page.value(kFetches, "waits=\"start\"", double(m.fetches_awaited));
  page.value(kFetches, "waits=\"nothing\"", double(m.fetches_others));
  page.gauge("reclaimnet_uploads", "Outputs on their way to the coordinator.", double(m.uploads));
  page.gauge(
      "reclaimnet_transfers_planned_bytes_per_second",
      "Rates given to copies, fetches and outputs that a known line bounds.",
      m.planned_rate
  );
}

void render_placement(Page& page, const Metrics& m) {
  page.counter("reclaimnet_probes_sent_total", "Probes sent to nodes.", m.probes_sent);
  page.counter("reclaimnet_probes_refused_total", "Probes refused by nodes.", m.probes_refused);
  page.counter(
      "reclaimnet_probes_unanswered_total", "Probes without an answer.", m.probes_unanswered
  );
  page.counter("reclaimnet_commits_sent_total", "Commits sent.", m.commits_sent);
  page.counter("reclaimnet_commits_lost_total", "Commits whose hold was gone.", m.commits_lost);
  page.counter("reclaimnet_leases_granted_total", "Leases granted.", m.leases_granted);
  page.counter(
      "reclaimnet_gang_gathering_idle_gpu_seconds_total",
      "What lay idle because it was kept for a gang.",
      static_cast<std::uint64_t>(m.gang_gathering_idle_gpu_s)
  );
}

void render_nodes(Page& page, const std::vector<NodeView>& nodes, const Metrics& m) {
  page.counter("reclaimnet_heartbeats_total", "Heartbeats received.", m.heartbeats);
  page.counter("reclaimnet_connections_refused_total", "Agents refused.", m.connections_refused);
  page.counter("reclaimnet_reattached_nodes_total", "Suspect nodes that came back.", m.reattached);
  page.head("reclaimnet_nodes", "gauge", "Nodes by state.");
  page.value("reclaimnet_nodes", "state=\"up\"", double(m.nodes_up));
  page.value("reclaimnet_nodes", "state=\"suspect\"", double(m.nodes_suspect));
  page.value("reclaimnet_nodes", "state=\"lost\"", double(m.nodes_lost));
  page.gauge("reclaimnet_gpus", "GPUs of all nodes.", double(m.gpus_total));
  page.gauge("reclaimnet_gpus_open", "GPUs on nodes that take guests now.", double(m.gpus_open));

  const auto each = [&](std::string_view name, std::string_view help, auto value_of) {
    page.head(name, "gauge", help);
    for (const NodeView& node : nodes) {
      page.value(
          name,
          label("node", node.row.node.str()) + "," + label("lab", node.row.lab.str()),
          value_of(node)
      );
    }
  };
  each("reclaimnet_node_connected", "1 while the agent is connected.", [](const NodeView& n) {
    return n.is_connected ? 1.0 : 0.0;
  });
  each("reclaimnet_node_cpu_ratio", "CPU in use.", [](const NodeView& n) {
    return n.telemetry.cpu_percent / 100.0;
  });
  each("reclaimnet_node_memory_used_bytes", "Memory in use.", [](const NodeView& n) {
    return static_cast<double>(n.telemetry.memory_used_mib) * 1048576.0;
  });
  each("reclaimnet_node_disk_free_bytes", "Free disk.", [](const NodeView& n) {
    return static_cast<double>(n.telemetry.disk_free_mib) * 1048576.0;
  });
  each("reclaimnet_node_guests", "Guests.", [](const NodeView& n) {
    return double(n.telemetry.guests);
  });
  each(
      "reclaimnet_node_clock_offset_seconds",
      "Coordinator's clock minus the node's.",
      [](const NodeView& n) { return static_cast<double>(n.clock_offset_ms) / 1000.0; }
  );
  each(
      "reclaimnet_node_hazard_per_hour",
      "Departures an hour expected of the owner now.",
      [](const NodeView& n) { return n.departures_per_day / 24.0; }
  );
  constexpr std::string_view kChance = "reclaimnet_node_reclaim_probability";
  page.head(kChance, "gauge", "Chance that the owner takes the node back within the horizon.");
  for (const NodeView& node : nodes) {
    for (const int horizon_s : {300, 1800, 7200, 28800}) {
      page.value(
          kChance,
          label("node", node.row.node.str()) + "," + label("lab", node.row.lab.str()) + "," +
              label("horizon_s", std::to_string(horizon_s)),
          1 - sched::survival(node.outlook, horizon_s)
      );
    }
  }
}

void render_gpus(Page& page, const std::vector<NodeView>& nodes) {
  const auto each_gpu = [&](std::string_view name, std::string_view help, auto value_of) {
    page.head(name, "gauge", help);
    for (const NodeView& node : nodes) {
      for (const GpuTelemetry& gpu : node.telemetry.gpus) {
        if (gpu.is_unseen) continue;
        page.value(
            name,
            label("node", node.row.node.str()) + "," + label("gpu", std::to_string(gpu.index)),
            value_of(gpu)
        );
      }
    }
  };
  each_gpu("reclaimnet_gpu_utilisation_ratio", "GPU in use.", [](const GpuTelemetry& g) {
    return g.utilisation_percent / 100.0;
  });
  each_gpu("reclaimnet_gpu_memory_used_bytes", "GPU memory in use.", [](const GpuTelemetry& g) {
    return static_cast<double>(g.memory_used_mib) * 1048576.0;
  });
  each_gpu("reclaimnet_gpu_temperature_celsius", "GPU temperature.", [](const GpuTelemetry& g) {
    return double(g.temperature_c);
  });
  each_gpu("reclaimnet_gpu_power_watts", "GPU power.", [](const GpuTelemetry& g) {
    return static_cast<double>(g.power_mw) / 1000.0;
  });
}

void render_notifications(Page& page, const NotifyCounts& counts) {
  page.counter("reclaimnet_notifications_sent_total", "Notifications taken.", counts.sent);
  page.counter(
      "reclaimnet_notifications_failed_total", "Tries that were not taken.", counts.failed
  );
  page.counter("reclaimnet_notifications_dropped_total", "Notifications given up.", counts.dropped);
  page.counter(
      "reclaimnet_notifications_held_back_total",
      "Events that were told as a number, because they were many.",
      counts.held
  );
  page.gauge("reclaimnet_notifications_waiting", "Not sent yet.", double(counts.waiting));
  page.gauge("reclaimnet_notification_rules", "Rules of all users.", double(counts.rules));
}

void render_process(Page& page, const Shell& shell) {
  const auto counts = shell.store_counts();
  page.counter("reclaimnet_store_commits_total", "Transactions.", counts.commits);
  page.counter("reclaimnet_store_writes_total", "Rows written.", counts.writes);
  page.head("reclaimnet_store_commit_seconds_total", "counter", "Time spent in transactions.");
  page.value("reclaimnet_store_commit_seconds_total", "", double(counts.commit_ns) / 1e9);
  page.gauge(
      "reclaimnet_store_commit_seconds_max",
      "Slowest transaction.",
      double(counts.commit_ns_max) / 1e9
  );
  page.gauge(
      "reclaimnet_outputs_waiting",
      "Outputs that wait for the disk.",
      double(shell.waiting_for_disk())
  );
  page.gauge("reclaimnet_agents_connected", "Agents connected.", double(shell.agents()));
  page.counter(
      "reclaimnet_log_append_errors_total", "Log appends that failed.", shell.log_commit_errors()
  );
  timespec cpu{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  page.head("process_cpu_seconds_total", "counter", "CPU time of the process.");
  page.value("process_cpu_seconds_total", "", double(cpu.tv_sec) + double(cpu.tv_nsec) / 1e9);
}

}  // namespace

void Histogram::observe(double value) {
  std::size_t bucket = 0;
  while (bucket < bounds_.size() && value > bounds_[bucket]) ++bucket;
  ++counts_[bucket];
  ++total_;
  sum_ += value;
}

std::string Histogram::render(std::string_view name, const std::string& labels) const {
  std::string text;
  const std::string comma = labels.empty() ? "" : labels + ",";
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    text += std::string(name) + "_bucket{" + comma + "le=\"" + io::metric_number(bounds_[i]) +
            "\"} " + std::to_string(below) + "\n";
  }
  text += std::string(name) + "_bucket{" + comma + "le=\"+Inf\"} " + std::to_string(total_) + "\n";
  text +=
      io::metric_name(std::string(name) + "_sum", labels) + " " + io::metric_number(sum_) + "\n";
  return text + io::metric_name(std::string(name) + "_count", labels) + " " +
         std::to_string(total_) + "\n";
}

MetricsRecorder::MetricsRecorder()
    : submit_to_start_(kSeconds),
      placement_(kSeconds),
      reclaim_to_cut_{
          Histogram(kShortSeconds),
          Histogram(kShortSeconds),
          Histogram(kShortSeconds),
          Histogram(kShortSeconds)},
      reclaim_to_cleared_{
          Histogram(kShortSeconds),
          Histogram(kShortSeconds),
          Histogram(kShortSeconds),
          Histogram(kShortSeconds)} {}

void MetricsRecorder::prime(const Snapshot& snapshot) {
  for (const JobRow& row : snapshot.jobs) see_job(row, false);
  for (const AttemptRow& row : snapshot.attempts) see_attempt(row, false);
  for (const ReclaimRow& row : snapshot.reclaims) see_reclaim(row, false);
}

void MetricsRecorder::see(const Write& write) {
  if (const auto* job = std::get_if<PutJob>(&write)) see_job(job->row, true);
  if (const auto* attempt = std::get_if<PutAttempt>(&write)) see_attempt(attempt->row, true);
  if (const auto* reclaim = std::get_if<PutReclaim>(&write)) see_reclaim(reclaim->row, true);
}

void MetricsRecorder::see_job(const JobRow& row, bool counts) {
  const Job& job = row.job;
  JobSeen& seen = jobs_[job.id];
  seen.queued_wall_ms = row.queued_wall_ms;
  if (job.started_wall_ms != 0 && !seen.has_started) {
    seen.has_started = true;
    if (counts)
      submit_to_start_.observe(double(job.started_wall_ms - job.submitted_wall_ms) / 1000.0);
  }
  if (is_terminal(job.state)) jobs_.erase(job.id);
}

void MetricsRecorder::see_attempt(const AttemptRow& row, bool counts) {
  const Attempt& attempt = row.attempt;
  if (attempt.state == AttemptState::kEnded) {
    placed_.erase({attempt.job, attempt.epoch});
    return;
  }
  if (attempt.leased_wall_ms == 0 || !placed_.emplace(attempt.job, attempt.epoch).second) return;
  const auto job = jobs_.find(attempt.job);
  if (!counts || job == jobs_.end() || job->second.queued_wall_ms == 0) return;
  placement_.observe(double(attempt.leased_wall_ms - job->second.queued_wall_ms) / 1000.0);
}

void MetricsRecorder::see_reclaim(const ReclaimRow& row, bool counts) {
  const ReclaimRecord& record = row.record;
  const auto kind = static_cast<std::size_t>(record.kind);
  const auto [found, is_new] = reclaims_.try_emplace({record.node, record.id});
  ReclaimSeen& seen = found->second;
  if (is_new && counts) ++reclaims_by_kind_[kind];
  if (record.cut_ns != 0 && !seen.is_cut) {
    seen.is_cut = true;
    if (counts) reclaim_to_cut_[kind].observe(double(record.cut_ns - record.declared_ns) / 1e9);
  }
  if (record.cleared_ns != 0 && !seen.is_cleared) {
    seen.is_cleared = true;
    if (counts)
      reclaim_to_cleared_[kind].observe(double(record.cleared_ns - record.declared_ns) / 1e9);
  }
}

std::string MetricsRecorder::render(const Shell& shell, const Outbox* notify) const {
  Page page;
  const Metrics m = shell.core().metrics();
  render_jobs(page, m);
  render_orders(page, m);
  render_transfers(page, m);
  render_placement(page, m);
  page.head("reclaimnet_submit_to_start_seconds", "histogram", "From submit to the guest's start.");
  page.raw(submit_to_start_.render("reclaimnet_submit_to_start_seconds", ""));
  page.head("reclaimnet_placement_seconds", "histogram", "From queue to lease.");
  page.raw(placement_.render("reclaimnet_placement_seconds", ""));
  page.head("reclaimnet_reclaims_total", "counter", "Reclaims declared, by kind.");
  const auto kind_label = [](std::size_t kind) {
    return label("kind", to_string(static_cast<ReclaimKind>(kind)));
  };
  for (std::size_t kind = 0; kind < 4; ++kind)
    page.value("reclaimnet_reclaims_total", kind_label(kind), double(reclaims_by_kind_[kind]));
  page.head(
      "reclaimnet_reclaim_to_cut_seconds", "histogram", "From declared to cut, on the node's clock."
  );
  for (std::size_t kind = 0; kind < 4; ++kind)
    page.raw(reclaim_to_cut_[kind].render("reclaimnet_reclaim_to_cut_seconds", kind_label(kind)));
  page.head(
      "reclaimnet_reclaim_to_cleared_seconds",
      "histogram",
      "From declared to cleared, on the node's clock."
  );
  for (std::size_t kind = 0; kind < 4; ++kind)
    page.raw(
        reclaim_to_cleared_[kind].render("reclaimnet_reclaim_to_cleared_seconds", kind_label(kind))
    );
  const auto nodes = shell.core().nodes(shell.now());
  render_nodes(page, nodes, m);
  render_gpus(page, nodes);
  page.head("reclaimnet_http_requests_total", "counter", "Requests by operation.");
  for (const auto& [operation, count] : requests_)
    page.value("reclaimnet_http_requests_total", label("operation", operation), double(count));
  page.counter("reclaimnet_blobs_refused_total", "Uploads refused.", blobs_refused_);
  render_notifications(page, notify == nullptr ? NotifyCounts{} : notify->counts());
  render_process(page, shell);
  return page.take();
}

}  // namespace rn::coordinator
