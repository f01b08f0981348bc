// SPDX-License-Identifier: Apache-2.0
// Numbers and states in words.
import {
  Contract,
  ContractEdit,
  GpuTelemetry,
  Job,
  Lending,
  LendingWindow,
  Node,
  Reclaim,
  ReclaimOrder,
} from "./types";

export function duration(ms: number): string {
  if (ms <= 0) return "0 s";
  if (ms < 1) return "< 1 ms";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const s = ms / 1_000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7_200) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${(s / 3_600).toFixed(1)} h`;
  return `${Math.round(s / 86_400)} days`;
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${count < 10 && unit > 0 ? count.toFixed(1) : Math.round(count)} ${units[unit] ?? ""}`;
}

/** A share of 1. */
export function share(value: number): string {
  return value > 0 && value < 0.01 ? "< 1 %" : `${Math.round(value * 100)} %`;
}

const TIME = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;

export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString([], { ...TIME, second: "2-digit" });
}

export function dayAndClock(ms: number): string {
  const then = new Date(ms);
  const isToday = then.toDateString() === new Date().toDateString();
  const time = then.toLocaleTimeString([], TIME);
  return isToday ? time : `${then.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}

export type Tone = "good" | "busy" | "warn" | "bad" | "quiet";

export interface Word {
  text: string;
  tone: Tone;
}

export function lendingWord(node: Node): Word {
  if (node.is_revoked || node.state === "left") return { text: "has left", tone: "quiet" };
  if (node.state === "lost") return { text: "not reached", tone: "bad" };
  if (node.state === "suspect" || !node.is_connected) return { text: "silent", tone: "warn" };
  const words: Record<Lending, Word> = {
    open: {
      text: node.telemetry.guests > 0 ? "lent" : "free to borrow",
      tone: node.telemetry.guests > 0 ? "busy" : "good",
    },
    not_lending: { text: "does not lend", tone: "quiet" },
    outside_window: { text: "outside its hours", tone: "quiet" },
    owner_present: { text: "owner is at it", tone: "warn" },
    reclaimed: { text: "taken back", tone: "warn" },
    paused: { text: "paused", tone: "quiet" },
    draining: { text: "being cleared", tone: "warn" },
  };
  return words[node.lending];
}

const JOB_WORDS: Record<Job["state"], Word> = {
  queued: { text: "waits", tone: "quiet" },
  placing: { text: "looks for a place", tone: "quiet" },
  starting: { text: "starts", tone: "busy" },
  running: { text: "runs", tone: "good" },
  noticed: { text: "must leave soon", tone: "warn" },
  saving: { text: "saves", tone: "warn" },
  draining: { text: "moves", tone: "warn" },
  succeeded: { text: "done", tone: "good" },
  failed: { text: "failed", tone: "bad" },
  cancelled: { text: "stopped", tone: "quiet" },
};

export function jobWord(state: Job["state"]): Word {
  return JOB_WORDS[state];
}

/** Of a job: that it holds GPUs and uses nothing is part of its state. */
export function wordOfJob(job: Job): Word {
  if (job.state === "running" && job.idle_since_wall_ms !== 0) return { text: "runs, idle", tone: "warn" };
  return JOB_WORDS[job.state];
}

export function isOver(job: Job): boolean {
  return job.state === "succeeded" || job.state === "failed" || job.state === "cancelled";
}

export function nameOf(job: Job): string {
  return job.spec.name || job.spec.command[0] || "job";
}

export function hostOf(nodes: Node[], id: string): string {
  const node = nodes.find((one) => one.id === id);
  return node ? `${node.facts.hostname} (${node.lab})` : id;
}

const RECLAIM_WORDS: Record<Reclaim["phase"], Word> = {
  declared: { text: "announced", tone: "warn" },
  evacuating: { text: "guests are leaving", tone: "warn" },
  cut: { text: "network cut", tone: "warn" },
  cleared: { text: "cleared: all yours", tone: "good" },
  returned: { text: "lent again", tone: "quiet" },
  wedged: { text: "could not be verified free", tone: "bad" },
};

export function reclaimWord(phase: Reclaim["phase"]): Word {
  return RECLAIM_WORDS[phase];
}

const RECLAIM_KINDS: Record<Reclaim["kind"], string> = {
  announced: "at an announced time",
  notice: "with notice",
  emergency: "at once",
  lost: "without a word (lost)",
};

export function reclaimKind(kind: Reclaim["kind"]): string {
  return RECLAIM_KINDS[kind];
}

const ORDER_WORDS: Record<ReclaimOrder["state"], Word> = {
  waiting: { text: "not reached yet", tone: "warn" },
  sent: { text: "on its way", tone: "busy" },
  taken: { text: "begun", tone: "good" },
  refused: { text: "not done", tone: "bad" },
  expired: { text: "not done", tone: "bad" },
  unanswered: { text: "no answer", tone: "bad" },
};

export function orderWord(state: ReclaimOrder["state"]): Word {
  return ORDER_WORDS[state];
}

const EDIT_WORDS: Record<ContractEdit["state"], Word> = {
  sent: { text: "on its way", tone: "busy" },
  in_force: { text: "in force", tone: "good" },
  pending: { text: "waits at the machine", tone: "warn" },
  conflict: { text: "not done", tone: "bad" },
  refused: { text: "not done", tone: "bad" },
  late: { text: "not done", tone: "bad" },
  unanswered: { text: "no answer", tone: "bad" },
  rejected: { text: "rejected at the machine", tone: "bad" },
  expired: { text: "nobody accepted it", tone: "quiet" },
  replaced: { text: "taken back", tone: "quiet" },
};

export function editWord(state: ContractEdit["state"]): Word {
  return EDIT_WORDS[state];
}

/** Reclaims that hold still: whose guests leave, or whose machine is its owner's. */
export function openReclaims(reclaims: Reclaim[], node: string): Reclaim[] {
  return reclaims.filter((one) => one.node === node && one.kind !== "lost" && one.phase !== "returned");
}

/** What taking the machine (or one GPU) back can still add to what holds already: only earlier, never later. */
export function reclaimChoices(open: Reclaim[], gpu: number | null): { notice: boolean; now: boolean } {
  const holds = open.filter((one) => one.gpus.length === 0 || (gpu !== null && one.gpus.includes(gpu)));
  const isWaiting = (one: Reclaim) =>
    one.kind !== "emergency" && (one.phase === "declared" || one.phase === "evacuating");
  return { notice: holds.length === 0, now: holds.every(isWaiting) };
}

/** From its declaration until a later moment of the same machine's clock; null while there is none. */
export function since(reclaim: Reclaim, then_ns: number): number | null {
  return then_ns > 0 && reclaim.declared_ns > 0 ? (then_ns - reclaim.declared_ns) / 1e6 : null;
}

export function gpuOf(node: Node, index: number): GpuTelemetry | undefined {
  return node.telemetry.gpus.find((gpu) => gpu.index === index);
}

/** Whether its owner uses a GPU, by the contract's own rule. */
export function isOwnersOwn(contract: Contract, gpu: GpuTelemetry): boolean {
  if (contract.idle.owner_processes === "ignore") return false;
  const tolerated = contract.idle.foreign_vram_mib;
  return tolerated === 0 ? gpu.foreign_processes > 0 : gpu.foreign_vram_mib > tolerated;
}

export function isGpuLent(contract: Contract, index: number): boolean {
  return contract.lends && contract.lends_gpus && (contract.gpus.length === 0 || contract.gpus.includes(index));
}

// ---- the contract

export const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] as const;
export const DAY_NAMES = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"] as const;

function minutes(clockText: string): number {
  const [hours = "0", rest = "0"] = clockText.split(":");
  return Number(hours) * 60 + Number(rest);
}

/** For each day of the week, its half hours: lent or not. A window whose end is before its start crosses midnight. */
export function weekOf(windows: LendingWindow[]): boolean[][] {
  const week = DAYS.map(() => new Array<boolean>(48).fill(windows.length === 0));
  const paint = (day: number, from: number, to: number) => {
    for (let half = Math.floor(from / 30); half < Math.ceil(to / 30); half += 1) {
      const row = week[day % 7];
      if (row && half < 48) row[half] = true;
    }
  };
  for (const window of windows) {
    const from = minutes(window.from);
    const to = minutes(window.to);
    for (const name of window.days.length ? window.days : DAYS) {
      const day = DAYS.indexOf(name as (typeof DAYS)[number]);
      if (day < 0) continue;
      if (from < to) {
        paint(day, from, to);
      } else {
        paint(day, from, 24 * 60);
        paint(day + 1, 0, to);
      }
    }
  }
  return week;
}

function list(words: string[]): string {
  return words.length < 2
    ? (words[0] ?? "")
    : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1] ?? ""}`;
}

/** What the contract means for its owner, one sentence each. */
export function consequences(contract: Contract, node: Node): string[] {
  if (!contract.lends) return ["Nothing runs here: the machine only keeps others' saved state."];
  const out: string[] = [];
  const hours = weekOf(contract.windows).flat().filter(Boolean).length / 2;
  const share = Math.round((hours / 168) * 100);
  out.push(
    hours >= 168
      ? "Lent around the clock. It is yours whenever you take it back."
      : `Lent ${hours} of the week's 168 hours (${share} %), by the clock of ${contract.time_zone}.`,
  );
  if (contract.holidays.length) out.push(`Lent all day on ${list(contract.holidays)}.`);
  for (const own of contract.gpu_windows ?? []) {
    const ownHours = weekOf(own.windows).flat().filter(Boolean).length / 2;
    out.push(
      `GPU ${own.gpu} is lent in ${ownHours} hours of the week of its own, where the machine is` +
        (own.holidays.length ? `, and all day on ${list(own.holidays)}.` : "."),
    );
  }
  const lent = node.facts.gpus.filter((gpu) => isGpuLent(contract, gpu.index));
  if (node.facts.gpus.length === 0) out.push("There is no GPU: processors and memory are lent.");
  else if (lent.length === 0) out.push("No GPU is lent, only processors and memory.");
  else if (lent.length < node.facts.gpus.length)
    out.push(`GPUs ${list(lent.map((gpu) => String(gpu.index)))} are lent; the others never are.`);
  out.push(
    contract.notice_s === 0
      ? "Guests get no notice: when you take it back, what they did since their last save is lost."
      : `With notice you wait up to ${duration(contract.notice_s * 1_000)}, in which guests save and leave. ` +
          "Taking it back at once waits for nobody.",
  );
  if (contract.idle.idle_minutes > 0)
    out.push(`Nobody is let in until you have been away from the keyboard for ${contract.idle.idle_minutes} min.`);
  if (contract.min_free_s > 0)
    out.push(`After you took it back it stays yours for at least ${duration(contract.min_free_s * 1_000)}.`);
  const caps: string[] = [];
  if (contract.guest_cpu_milli) caps.push(`${contract.guest_cpu_milli / 1_000} cores`);
  if (contract.guest_memory_mib) caps.push(`${bytes(contract.guest_memory_mib * 1_048_576)} of memory`);
  if (caps.length) out.push(`All guests together get at most ${list(caps)}.`);
  if (contract.uplink_bps_normal)
    out.push(`Guests' copies use at most ${Math.round(contract.uplink_bps_normal / 1e6)} Mbit/s of your uplink.`);
  const who = [...contract.allow_labs.map((lab) => `lab ${lab}`), ...contract.allow_users.map((user) => user)];
  out.push(who.length ? `Only for ${list(who)}.` : "For everybody of the site.");
  return out;
}
