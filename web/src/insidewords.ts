// SPDX-License-Identifier: Apache-2.0
// What there is inside a running job, and what becomes of it, in words: its notebook, its ports, its GPUs that are not
// used, the owner who takes its machine back.
import { Job, Node, NotebookAnswer, Reclaim } from "./types";
import { duration } from "./words";

/** The job's variable that says on which port of its guest a server for browsers listens (docs/notebooks.md). */
const NOTEBOOK_PORT = "NOTEBOOK_PORT";
/** After so long without work a notebook ends itself. */
const NOTEBOOK_IDLE = "NOTEBOOK_IDLE_S";

/** "8080" as a port; null: it is none. */
export function portOf(text: string): number | null {
  const port = /^\d{1,5}$/.test(text.trim()) ? Number(text) : 0;
  return port >= 1 && port <= 65_535 ? port : null;
}

/** Where the job's server for browsers listens in its guest; null: it has none. */
export function notebookPort(job: Job): number | null {
  return portOf(job.spec.env[NOTEBOOK_PORT] ?? "");
}

/** A job in whose guest something can listen now. */
export function isInside(job: Job): boolean {
  return ["running", "noticed", "saving"].includes(job.state);
}

/** When it ends by itself; empty: it does not. */
export function notebookIdleWords(job: Job): string {
  const limit = Number(job.spec.env[NOTEBOOK_IDLE] ?? "");
  if (!Number.isFinite(limit) || limit <= 0) return "It goes on until it is stopped, also when nobody works in it.";
  return (
    `It ends by itself when nobody has worked in it for ${duration(limit * 1_000)}; before that its list of files ` +
    "says when."
  );
}

/**
 * Whether an answer may be opened in a window: a notebook is a stranger's page, and must not be of the dashboard's own
 * origin, nor anything but a page (ADR 0023).
 */
export function isNotebookAddress(answer: NotebookAnswer, own: string): boolean {
  const isGood = (text: string) => {
    try {
      const url = new URL(text);
      return url.protocol === "https:" && url.origin !== own && url.pathname.startsWith("/notebooks/");
    } catch {
      return false;
    }
  };
  return isGood(answer.url) && isGood(answer.place);
}

/** That it uses next to nothing of its GPUs, or cores; empty: it uses them, or nobody knows. */
export function idleWords(job: Job, now: number): string {
  if (job.idle_since_wall_ms === 0) return "";
  const since = duration(Math.max(0, now - job.idle_since_wall_ms));
  const stop = job.spec.idle_stop_s;
  const things = job.spec.resources.gpus > 0 ? "GPUs" : "cores";
  return (
    `It has used next to nothing of its ${things} for ${since}. ` +
    (stop > 0
      ? `It is saved and stopped after ${duration(stop * 1_000)} of that.`
      : `It does not ask to be stopped for that; whether a quota has it stopped, the sentence on why it runs here ` +
        `says. If it waits for nothing, leave the ${things} to others.`)
  );
}

export interface Notice {
  /** By this machine's clock, as near as the coordinator knows it; null: at once, or not known. */
  deadline: number | null;
  words: string;
}

/** That the owner takes the job's machine back; null: nobody does. */
export function noticeOf(job: Job, reclaims: Reclaim[], nodes: Node[], now: number): Notice | null {
  if (!["noticed", "saving", "draining"].includes(job.state)) return null;
  const open = reclaims.filter(
    (one) => one.node === job.node && (one.phase === "declared" || one.phase === "evacuating"),
  );
  const offset = nodes.find((one) => one.id === job.node)?.clock_offset_ms ?? 0;
  const deadlines = open
    .filter((one) => one.deadline_ns > one.declared_ns)
    .map((one) => one.declared_wall_ms + (one.deadline_ns - one.declared_ns) / 1e6 + offset);
  if (deadlines.length === 0) {
    if (job.state !== "noticed") return null;
    return { deadline: null, words: "It must leave its machine soon: it saves, and goes on elsewhere." };
  }
  const deadline = Math.min(...deadlines);
  const left = deadline - now;
  const when = left > 0 ? `in ${duration(left)}` : "now";
  return { deadline, words: `The owner takes its machine back ${when}: it saves, and goes on elsewhere.` };
}
