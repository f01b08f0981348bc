// SPDX-License-Identifier: Apache-2.0
// What the coordinator answers, as far as the dashboard shows it (docs/openapi.yaml has all of it).

export type Role = "viewer" | "user" | "owner" | "admin";

export interface Whoami {
  user: string;
  lab: string;
  role: Role;
}

export interface SignInOffer {
  is_offered: boolean;
  name: string;
}

export interface SignInBegun {
  url: string;
  ticket: string;
}

export interface LendingWindow {
  days: string[];
  from: string;
  to: string;
}

/** When one GPU is lent, within the hours of the machine. */
export interface GpuWindows {
  gpu: number;
  windows: LendingWindow[];
  holidays: string[];
}

export interface Contract {
  lends: boolean;
  lends_gpus: boolean;
  gpus: number[];
  windows: LendingWindow[];
  time_zone: string;
  holidays: string[];
  gpu_windows?: GpuWindows[];
  idle: { idle_minutes: number; foreign_vram_mib: number; owner_processes?: "evict" | "wait" | "ignore" };
  notice_s: number;
  min_free_s: number;
  guest_cpu_milli: number;
  guest_memory_mib: number;
  guest_disk_mib: number;
  uplink_bps_normal: number;
  uplink_bps_evacuation: number;
  max_guests: number;
  orphan_limit_s: number;
  max_drain_s: number;
  allow_users: string[];
  allow_labs: string[];
  own_lab_first: boolean;
}

export interface Gpu {
  index: number;
  model: string;
  memory_mib: number;
  is_static: boolean;
}

export interface GpuTelemetry {
  index: number;
  utilisation_percent: number;
  memory_used_mib: number;
  temperature_c: number;
  power_mw: number;
  foreign_processes: number;
  foreign_vram_mib: number;
  is_wedged: boolean;
  sickness?: string;
  is_outside_window?: boolean;
  closes_in_s?: number;
  is_unseen?: boolean;
}

export interface Guest {
  job_number: number;
  user: string;
  lab: string;
  state: JobState;
  gpus: number;
  since_wall_ms: number;
}

export type Lending =
  "open" | "not_lending" | "outside_window" | "owner_present" | "reclaimed" | "paused" | "draining";

export interface Node {
  id: string;
  lab: string;
  state: "up" | "suspect" | "lost" | "left";
  is_connected: boolean;
  is_revoked: boolean;
  lending: Lending;
  facts: {
    hostname: string;
    cpu_milli: number;
    memory_mib: number;
    disk_mib: number;
    gpus: Gpu[];
    data_sets: string[];
    warnings: string[];
  };
  contract: Contract;
  telemetry: {
    cpu_percent: number;
    memory_used_mib: number;
    disk_free_mib: number;
    guests: number;
    logins: number;
    gpus: GpuTelemetry[];
  };
  /** The coordinator's wall clock minus the machine's. */
  clock_offset_ms: number;
  silent_ms: number;
  departures_per_day: number;
  jobs: string[];
  guests: Guest[];
  orders: ReclaimOrder[];
  /** Empty: its agent takes no contract from elsewhere, or it is not the caller's. */
  contract_version: string;
  proposal: ContractProposal | null;
  edits: ContractEdit[];
  version: string;
  joined_wall_ms: number;
}

export type JobState =
  | "queued"
  | "placing"
  | "starting"
  | "running"
  | "noticed"
  | "saving"
  | "draining"
  | "succeeded"
  | "failed"
  | "cancelled";

export interface GenerationRef {
  generation: number;
  step: number;
  bytes: number;
  created_wall_ms: number;
}

export interface Job {
  id: string;
  number: number;
  owner: string;
  lab: string;
  spec: {
    name: string;
    command: string[];
    priority: number;
    resources: { gpus: number; cpu_milli: number; memory_mib: number };
    checkpoint: { is_stateless: boolean };
    env: Record<string, string>;
    idle_stop_s: number;
  };
  state: JobState;
  epoch: string;
  node: string;
  submitted_wall_ms: number;
  started_wall_ms: number;
  finished_wall_ms: number;
  exit_code: number;
  restarts: number;
  displacements: number;
  reason: string;
  durable: GenerationRef;
  is_degraded: boolean;
  /** It uses next to nothing of its GPUs since then; 0: it does, or nobody knows. */
  idle_since_wall_ms: number;
}

/** What opens a job's notebook: `url` begins a session in one browser, once; `place` is where it is from then on. */
export interface NotebookAnswer {
  url: string;
  place: string;
  lives_s: number;
  port: number;
}

/** What is null has no bound. */
export interface QuotaRequest {
  gpu_model: string;
  gpus: number | null;
  running: number | null;
  jobs: number | null;
  gpu_hours: number | null;
  window_s: number;
  /** Jobs that do not say it themselves are stopped when they used nothing for so long; null: they are not. */
  idle_stop_s: number | null;
}

export interface Quota extends QuotaRequest {
  /** "user:anna", "lab:vision", "user:*". */
  subject: string;
  set_by: string;
  set_wall_ms: number;
}

export interface QuotaUse {
  subject: string;
  /** Whose quota counts: their own, or "user:*"; empty: none. */
  rule: string;
  gpu_model: string;
  gpus_used: number;
  gpus: number | null;
  running_used: number;
  running: number | null;
  jobs_used: number;
  jobs: number | null;
  gpu_hours_used: number;
  gpu_hours: number | null;
  window_s: number;
}

export interface QuotaList {
  quotas: Quota[];
  uses: QuotaUse[];
}

export interface Attempt {
  job: string;
  epoch: string;
  node: string;
  state: string;
  end: string;
  leased_wall_ms: number;
  started_wall_ms: number;
  ended_wall_ms: number;
  exit_code: number;
  detail: string;
  resumed_generation: number;
  placed_because: string;
}

export interface Generation {
  generation: GenerationRef;
  source: string;
  holders: string[];
  committed_wall_ms: number;
}

export interface Why {
  sentence: string;
  queue_position: number | null;
  evacuation: { sentence: string } | null;
}

export interface Reclaim {
  id: string;
  node: string;
  kind: "announced" | "notice" | "emergency" | "lost";
  phase: "declared" | "evacuating" | "cut" | "cleared" | "returned" | "wedged";
  gpus: number[];
  declared_ns: number;
  deadline_ns: number;
  cut_ns: number;
  killed_ns: number;
  cleared_ns: number;
  returned_ns: number;
  declared_wall_ms: number;
  message: string;
  remains: string[];
  processes_killed: number;
}

/** What an owner asked for by the coordinator, and what became of it. */
export interface ReclaimOrder {
  id: string;
  node: string;
  user: string;
  kind: Reclaim["kind"];
  gpus: number[];
  in_s: number;
  state: "waiting" | "sent" | "taken" | "refused" | "expired" | "unanswered";
  message: string;
  reclaim: string;
  ordered_wall_ms: number;
  until_wall_ms: number;
}

/** A contract that waits on its machine until somebody there accepts it. */
export interface ContractProposal {
  id: string;
  user: string;
  contract: Contract;
  /** By the machine's clock. */
  came_wall_ms: number;
  until_wall_ms: number;
}

/** What became of a contract that was sent. */
export interface ContractEdit {
  id: string;
  node: string;
  user: string;
  state:
    | "sent"
    | "in_force"
    | "pending"
    | "conflict"
    | "refused"
    | "late"
    | "unanswered"
    | "rejected"
    | "expired"
    | "replaced";
  message: string;
  sent_wall_ms: number;
}

/** What a contract would do, before it is sent. */
export interface ContractPreview {
  version: string;
  problems: string[];
  narrows: boolean;
  widens: string[];
  changes: string[];
  lent_minutes_before: number;
  lent_minutes_after: number;
  guests: { job_number: number; user: string; message: string }[];
  notes: string[];
}

export interface SiteEvent {
  seq: number;
  kind: string;
  message: string;
  job: string;
  epoch: string;
  node: string;
  lab: string;
  user: string;
  at_wall_ms: number;
  data: Record<string, string>;
}

export interface Hazard {
  is_lent: boolean;
  rate_per_hour: number;
  base_per_hour: number;
  base_events: number;
  /** For each hour of the week, from Monday on: departures an hour, if it is lent then. */
  week_per_hour: number[];
  factors: { name: string; value: number; low: number; high: number; events: number; detail: string }[];
  reclaimed_within: { horizon_s: number; probability: number; low: number; high: number }[];
  prior: string;
}

export interface HistoryPoint {
  node: string;
  bucket_wall_ms: number;
  bucket_s: number;
  samples: number;
  cpu_percent: number;
  guests: number;
  lending_share: number;
  gpus: { index: number; utilisation_percent: number }[];
}

export interface Health {
  is_ok: boolean;
  is_adopting: boolean;
  reason: string;
}

export interface Image {
  name: string;
}

/** As far as the page fills it in; what is left out has the coordinator's defaults. */
export interface JobSpec {
  name: string;
  image: string;
  command: string[];
  resources: { gpus: number; gpu_memory_mib: number; cpu_milli: number; memory_mib: number; disk_mib: number };
  data: string[];
  max_duration_s: number;
  notice_s: number;
}

export interface SubmitAnswer {
  job: Job;
  is_repeat: boolean;
  warnings: string[];
}

export interface PlanCandidate {
  node: string;
  lab: string;
  hostname: string;
  fit: "fits" | "not_now" | "never";
  rank: number;
  reason: string;
  notice_s: number;
  starts_in_s: number | null;
  leaves_in_s: number | null;
  interruptions: number;
  stays: number;
  stays_low: number;
  stays_high: number;
}

export interface Plan {
  verdict: "now" | "waits" | "never";
  sentence: string;
  is_over_quota: boolean;
  queue_position: number;
  starts_in_s: number | null;
  horizon_s: number;
  is_horizon_assumed: boolean;
  interruptions_least: number;
  interruptions_most: number;
  notice_wanted_s: number;
  notice_least_s: number;
  notice_most_s: number;
  warnings: string[];
  candidates: PlanCandidate[];
}
