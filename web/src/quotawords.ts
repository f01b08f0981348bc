// SPDX-License-Identifier: Apache-2.0
// Quotas in words and in units that people write: what may be had, what is had of it, and how they are set.
import { Quota, QuotaRequest, QuotaUse } from "./types";

/** One bound of a quota, or a number without a bound. */
export interface Share {
  label: string;
  used: number;
  /** null: nothing bounds it. */
  bound: number | null;
}

/** What the coordinator takes (docs/quotas.md). */
const LONGEST_WINDOW_S = 31 * 86_400;
const SHORTEST_WINDOW_S = 3_600;
const SHORTEST_STOP_S = 60;
export const DEFAULT_WINDOW = "7d";

/** A number of hours as people read it. */
export function hoursText(hours: number): string {
  return Number.isInteger(hours) ? String(hours) : hours.toFixed(1);
}

/** As `reclaim quota set` reads it again: the largest unit that says it whole. */
export function windowText(seconds: number): string {
  for (const [unit, size] of [
    ["d", 86_400],
    ["h", 3_600],
    ["m", 60],
  ] as const)
    if (seconds > 0 && seconds % size === 0) return `${seconds / size}${unit}`;
  return `${seconds}s`;
}

/** "user:anna" in words; `me`: who looks. */
export function subjectWords(subject: string, me = ""): string {
  const at = subject.indexOf(":");
  const [kind, name] = [subject.slice(0, at), subject.slice(at + 1)];
  if (name === "*") return kind === "lab" ? "each lab that has none of its own" : "each user who has none of their own";
  if (kind === "lab") return `lab ${name}`;
  return name === me ? `${name} (you)` : name;
}

/** All that is counted; what a quota for one model cannot bound is left out. */
export function sharesOf(use: QuotaUse): Share[] {
  const hours = `GPU-hours in ${windowText(use.window_s)}`;
  const gpus = { label: "GPUs at once", used: use.gpus_used, bound: use.gpus };
  const ofHours = { label: hours, used: use.gpu_hours_used, bound: use.gpu_hours };
  if (use.gpu_model) return [gpus, ofHours];
  return [
    gpus,
    ofHours,
    { label: "jobs that run", used: use.running_used, bound: use.running },
    { label: "jobs that wait or run", used: use.jobs_used, bound: use.jobs },
  ];
}

export function shareText(one: Share): string {
  const used = hoursText(one.used);
  return one.bound === null ? `${used}, no bound` : `${used} of ${hoursText(one.bound)}`;
}

/** From 0 to 1 and beyond; a bound of 0 is reached by nothing at all. */
export function shareOf(one: Share): number {
  if (one.bound === null) return 0;
  return one.bound > 0 ? one.used / one.bound : 1;
}

/** The bounds of a quota in one line. */
export function boundsText(quota: Quota): string {
  const parts = [
    quota.gpus === null ? "" : `${quota.gpus} GPUs at once`,
    quota.running === null ? "" : `${quota.running} jobs that run`,
    quota.jobs === null ? "" : `${quota.jobs} jobs that wait or run`,
    quota.gpu_hours === null ? "" : `${hoursText(quota.gpu_hours)} GPU-hours in ${windowText(quota.window_s)}`,
    quota.idle_stop_s ? `jobs that use nothing are stopped after ${windowText(quota.idle_stop_s)}` : "",
  ];
  return parts.filter(Boolean).join(", ");
}

// ---- what an administrator writes

/** As it stands in the form's fields. */
export interface QuotaDraft {
  subject: string;
  model: string;
  gpus: string;
  running: string;
  jobs: string;
  hours: string;
  window: string;
  idleStop: string;
}

export const NEW_QUOTA: QuotaDraft = {
  subject: "",
  model: "",
  gpus: "",
  running: "",
  jobs: "",
  hours: "",
  window: DEFAULT_WINDOW,
  idleStop: "",
};

/** Of a quota that there is: `set` takes the place of the whole, so that all of it must stand in the form. */
export function draftOf(quota: Quota): QuotaDraft {
  const text = (bound: number | null) => (bound === null ? "" : String(bound));
  return {
    subject: quota.subject,
    model: quota.gpu_model,
    gpus: text(quota.gpus),
    running: text(quota.running),
    jobs: text(quota.jobs),
    hours: text(quota.gpu_hours),
    window: windowText(quota.window_s),
    idleStop: quota.idle_stop_s ? windowText(quota.idle_stop_s) : "",
  };
}

export type QuotaComplaints = Partial<Record<keyof QuotaDraft, string>>;

/** "90s", "90m", "12h", "7d", as windowText() has them; null: it is none, or not within these. */
export function windowSeconds(text: string, least = SHORTEST_WINDOW_S, most = LONGEST_WINDOW_S): number | null {
  const found = /^(\d{1,7})\s*(s|m|h|d)$/.exec(text.trim());
  if (!found) return null;
  const sizes: Record<string, number> = { s: 1, m: 60, h: 3_600, d: 86_400 };
  const seconds = Number(found[1]) * (sizes[found[2] ?? ""] ?? 0);
  return seconds >= least && seconds <= most ? seconds : null;
}

/** What is written, as the API takes it, and what is wrong with it; with a complaint nothing is sent. */
export function readQuota(draft: QuotaDraft): { request: QuotaRequest; complaints: QuotaComplaints } {
  const complaints: QuotaComplaints = {};
  const whole = (field: "gpus" | "running" | "jobs") => {
    const text = draft[field].trim();
    if (text === "") return null;
    if (/^\d{1,9}$/.test(text)) return Number(text);
    complaints[field] = "A whole number, or nothing for no bound.";
    return null;
  };
  const hoursWritten = draft.hours.trim().replace(",", ".");
  const isHours = /^\d{1,10}(\.\d{1,6})?$/.test(hoursWritten) && Number(hoursWritten) <= 1e9;
  if (hoursWritten !== "" && !isHours) complaints.hours = "A number of hours, or nothing for no bound.";
  if (!/^(user|lab):[^\s:]+$/.test(draft.subject.trim()))
    complaints.subject = "user:NAME or lab:NAME; with * it is of each that has none of their own.";
  const window = windowSeconds(draft.window);
  if (window === null) complaints.window = "An hour to 31 days: 12h, 7d.";
  const idleStop = draft.idleStop.trim() === "" ? null : windowSeconds(draft.idleStop, SHORTEST_STOP_S);
  if (draft.idleStop.trim() !== "" && idleStop === null) complaints.idleStop = "A minute to 31 days: 30m, 2h.";
  const request: QuotaRequest = {
    gpu_model: draft.model.trim(),
    gpus: whole("gpus"),
    running: whole("running"),
    jobs: whole("jobs"),
    gpu_hours: isHours ? Number(hoursWritten) : null,
    window_s: window ?? 0,
    idle_stop_s: idleStop,
  };
  if (request.gpu_model !== "") {
    const why = "A quota for one model bounds GPUs and GPU-hours alone.";
    if (request.running !== null) complaints.running = why;
    if (request.jobs !== null) complaints.jobs = why;
    if (request.idle_stop_s !== null) complaints.idleStop = why;
  }
  const bounds = [draft.gpus, draft.running, draft.jobs, draft.hours, draft.idleStop];
  const isEmpty = bounds.every((text) => text.trim() === "");
  if (isEmpty) complaints.gpus = "It bounds nothing: name at least one bound, or remove the quota.";
  return { request, complaints };
}
