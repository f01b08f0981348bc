// SPDX-License-Identifier: Apache-2.0
// A job as it is written on the page, what is wrong with it, and what the coordinator says would become of it.
import { wordsOf } from "./api";
import { JobSpec, Plan, PlanCandidate } from "./types";
import { duration, Word } from "./words";

/** As it stands in the form's fields. */
export interface Draft {
  name: string;
  image: string;
  isScript: boolean;
  command: string;
  script: string;
  gpus: string;
  gpuMemory: string;
  cores: string;
  memory: string;
  disk: string;
  longest: string;
  notice: string;
  data: string[];
}

export const NEW_DRAFT: Draft = {
  name: "",
  image: "",
  isScript: false,
  command: "",
  script: "",
  gpus: "0",
  gpuMemory: "",
  cores: "1",
  memory: "1",
  disk: "2",
  longest: "",
  notice: "",
  data: [],
};

export type Complaints = Partial<Record<keyof Draft, string>>;

/** Words as a shell splits them, by blanks, quotes and backslashes, and nothing else of it; null: a quote is open. */
export function splitCommand(text: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  let quote = "";
  for (let at = 0; at < text.length; at += 1) {
    const c = text.charAt(at);
    if (quote === "" && /\s/.test(c)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (quote === "" && (c === "'" || c === '"')) {
      quote = c;
      word ??= "";
    } else if (c === quote) {
      quote = "";
    } else if (c === "\\" && quote !== "'" && at + 1 < text.length) {
      const next = text.charAt(at + 1);
      const isMeant = quote === "" || /["\\$`]/.test(next);
      word = (word ?? "") + (isMeant ? next : c + next);
      at += 1;
    } else {
      word = (word ?? "") + c;
    }
  }
  if (quote !== "") return null;
  if (word !== null) words.push(word);
  return words;
}

const UNITS: Record<string, number> = { "": 1, s: 1, m: 60, min: 60, h: 3_600, d: 86_400 };

/** "90", "90 s", "5m", "2h", "1d" in seconds, 0 for nothing; null: it is no time. */
export function secondsOf(text: string): number | null {
  if (text.trim() === "") return 0;
  const found = /^\s*(\d{1,9}(?:\.\d{1,3})?)\s*(s|m|min|h|d)?\s*$/.exec(text);
  const seconds = found ? Math.round(Number(found[1]) * (UNITS[found[2] ?? ""] ?? 1)) : 0;
  return seconds > 0 && seconds < 4_294_967_296 ? seconds : null;
}

/** A number within bounds that ends with one; null: it is none. */
function numberIn(text: string, least: number, most: number): number | null {
  const value = /^\s*\d{1,9}([.,]\d{1,6})?\s*$/.test(text) ? Number(text.replace(",", ".")) : NaN;
  return value >= least && value <= most ? value : null;
}

const MIB = 1_024;
const BIGGEST_GIB = 65_536;

function commandOf(draft: Draft, complaints: Complaints): string[] {
  if (draft.isScript) {
    if (draft.script.trim() === "") complaints.script = "Say what to run.";
    return ["/bin/sh", "-ec", draft.script.replace(/\r\n?/g, "\n")];
  }
  const words = splitCommand(draft.command);
  if (words === null) complaints.command = "A quote is not closed.";
  else if (words.length === 0) complaints.command = "Say what to run, as python3 train.py.";
  else if (words[0] === "") complaints.command = "Its first word is empty.";
  return words ?? [];
}

/** The job that is written there; where complaints are it is not to be sent. */
export function readDraft(draft: Draft): { spec: JobSpec; complaints: Complaints } {
  const complaints: Complaints = {};
  const number = (field: "gpus" | "gpuMemory" | "cores" | "memory" | "disk", least: number, most: number) => {
    const text = draft[field];
    if (text.trim() === "" && field === "gpuMemory") return 0;
    const value = numberIn(text, least, most);
    if (value === null) complaints[field] = `A number from ${least} to ${most}.`;
    return value ?? least;
  };
  const gpus = number("gpus", 0, 64);
  if (!Number.isInteger(gpus)) complaints.gpus = "A whole number.";
  const time = (field: "longest" | "notice", most: number, words: string) => {
    const seconds = secondsOf(draft[field]);
    if (seconds === null) complaints[field] = "A time, as 90s, 5m, 2h or 1d.";
    else if (seconds > most) complaints[field] = words;
    return seconds ?? 0;
  };
  const spec: JobSpec = {
    name: draft.name.trim(),
    image: draft.image,
    command: commandOf(draft, complaints),
    resources: {
      gpus,
      gpu_memory_mib: gpus > 0 ? Math.round(number("gpuMemory", 0.1, 1_024) * MIB) : 0,
      cpu_milli: Math.round(number("cores", 0.1, 1_000) * 1_000),
      memory_mib: Math.round(number("memory", 0.02, BIGGEST_GIB) * MIB),
      disk_mib: Math.round(number("disk", 0.02, BIGGEST_GIB) * MIB),
    },
    data: draft.data,
    max_duration_s: time("longest", 4_294_967_295, ""),
    notice_s: time("notice", 900, "Owners grant at most 15 minutes."),
  };
  if (draft.image === "") complaints.image = "Choose an image.";
  return { spec, complaints };
}

/** What is asked while it is written: what it runs says nothing of its place, and may come last. null: not yet. */
export function plannedOf(draft: Draft): JobSpec | null {
  const { spec, complaints } = readDraft(draft);
  const { command, script, ...others } = complaints;
  if (Object.keys(others).length > 0) return null;
  return command || script ? { ...spec, command: ["true"] } : spec;
}

// ---- what the coordinator says of it, in words

function host(candidate: PlanCandidate): string {
  return `${candidate.hostname || candidate.node} (${candidate.lab})`;
}

export function verdictWord(plan: Plan): Word {
  if (plan.verdict === "now") return { text: "would start now", tone: "good" };
  if (plan.verdict === "waits") return { text: `would wait as number ${plan.queue_position}`, tone: "warn" };
  return { text: "can never run as it is", tone: "bad" };
}

export function startWords(plan: Plan): string {
  if (plan.starts_in_s === null) return "not known: nothing says when a machine can take it";
  const about = `in about ${duration(plan.starts_in_s * 1_000)}`;
  const first = plan.candidates[0];
  if (plan.verdict === "now") return first ? `${about}, as starts on ${host(first)} took lately` : about;
  return plan.queue_position > 1 ? `${about}, if nobody who waits before it takes the place` : about;
}

function figure(value: number): string {
  return value < 1 ? value.toFixed(2) : value.toFixed(1);
}

function range(least: string, most: string): string {
  return least === most ? least : `${least} to ${most}`;
}

export function interruptionWords(plan: Plan): string {
  const count = range(figure(plan.interruptions_least), figure(plan.interruptions_most));
  const long = duration(plan.horizon_s * 1_000);
  return plan.is_horizon_assumed
    ? `${count} expected in ${long}, which is assumed: it says no longest time`
    : `${count} expected in ${long} of running`;
}

export function noticeWords(plan: Plan): string {
  const granted = range(duration(plan.notice_least_s * 1_000), duration(plan.notice_most_s * 1_000));
  if (plan.notice_most_s === 0) return "none: what it did since its last save is lost when an owner comes";
  const wanted = plan.notice_wanted_s;
  if (wanted === 0) return `${granted} before it must leave`;
  const short = plan.notice_least_s < wanted ? ", which not every owner grants" : "";
  return `${granted} before it must leave; ${duration(wanted * 1_000)} wanted${short}`;
}

/** What to do about it. */
export function nextWords(plan: Plan): string {
  if (plan.verdict === "now") return "Submit it. No place is kept for it before.";
  if (plan.verdict === "waits")
    return "Submit it, and it waits in the queue until a machine can take it; or ask for less.";
  if (plan.is_over_quota)
    return "Ask for less, or ask an administrator for a larger quota. Submitted as it is it is refused.";
  const nearest = plan.candidates[0];
  if (!nearest) return "No machine has joined this site yet: ask an owner to lend one.";
  return (
    `Ask for less than ${host(nearest)} lacks, which comes nearest (${nearest.reason}), or ask its owner. ` +
    "Submitted as it is it waits until a machine fits."
  );
}

export function fitWords(candidate: PlanCandidate): string {
  if (candidate.fit === "not_now") return "not now";
  if (candidate.fit === "never") return "never";
  return candidate.rank ? `fits, asked as number ${candidate.rank}` : "fits";
}

// ---- asking as one types

export interface PlanState {
  plan: Plan | null;
  trouble: string;
  isAsking: boolean;
}

/** Nobody types so slowly, and nobody waits so long. */
const REST_MS = 400;

/** Asks of the newest that it is given, when that has rested a moment; one question at a time. */
export class Planner {
  private wanted: JobSpec | null = null;
  private wantedText = "";
  private isDue = false;
  private isBusy = false;
  private isClosed = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly ask: (spec: JobSpec) => Promise<Plan>,
    private readonly tell: (state: PlanState) => void,
    private readonly restMs = REST_MS,
  ) {}

  want(spec: JobSpec | null): void {
    const text = JSON.stringify(spec);
    if (text === this.wantedText) return;
    this.wantedText = text;
    this.wanted = spec;
    this.isDue = false;
    clearTimeout(this.timer);
    this.tell({ plan: null, trouble: "", isAsking: spec !== null });
    if (spec) this.timer = setTimeout(() => this.due(), this.restMs);
  }

  /** The site may have changed. What is shown stays until the answer. */
  again(): void {
    if (this.wanted && !this.isBusy) this.due();
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
  }

  private due(): void {
    this.isDue = true;
    void this.next();
  }

  private async next(): Promise<void> {
    const spec = this.wanted;
    if (this.isClosed || this.isBusy || !this.isDue || !spec) return;
    this.isDue = false;
    this.isBusy = true;
    let state: PlanState;
    try {
      state = { plan: await this.ask(spec), trouble: "", isAsking: false };
    } catch (error) {
      state = { plan: null, trouble: wordsOf(error), isAsking: false };
    }
    this.isBusy = false;
    if (!this.isClosed && spec === this.wanted) this.tell(state);
    void this.next();
  }
}
