// SPDX-License-Identifier: Apache-2.0
// What became of the jobs of a machine that was taken back, step by step beside its deadline.
import { useRef, useState } from "react";
import { wordsOf } from "./api";
import { Badge, Empty, Scroll, useFetched } from "./parts";
import { Site, SiteState } from "./site";
import { Job, Node, Reclaim, SiteEvent } from "./types";
import { clock, dayAndClock, duration, hostOf, nameOf, reclaimKind, reclaimWord, since } from "./words";

export const STEPS = ["notice", "save", "copy", "waits", "restore", "runs"] as const;
export type Step = (typeof STEPS)[number];

const STEP_WORDS: Record<Step, string> = {
  notice: "notice",
  save: "saves",
  copy: "copies leave",
  waits: "waits for a place",
  restore: "restores",
  runs: "runs again",
};

/** In ms from the declaration on; `to` null: it goes on. */
export interface Span {
  step: Step;
  from: number;
  to: number | null;
}

export interface Flow {
  job: string;
  spans: Span[];
  /** The machine on which it went on; empty: none yet. */
  to: string;
}

/** Until when guests might stay; null: they might not. */
function deadlineOf(reclaim: Reclaim): number | null {
  return reclaim.kind === "emergency" ? null : since(reclaim, reclaim.deadline_ns);
}

/** Events of guests that leave; what comes later than this after the machine was cleared is not this reclaim's. */
const LEAVES = new Set(["attempt.noticed", "attempt.saving", "attempt.draining", "attempt.ended", "job.displaced"]);
const LATER_MS = 60_000;
const EARLIER_MS = 1_000;
/** How far the two clocks may be apart before one of them is of another boot. */
const OTHER_BOOT_MS = 60_000;

/** When, in ms from the declaration on: by the machine's own clock where it says so, else by the coordinator's. */
function whenOf(event: SiteEvent, reclaim: Reclaim, offsetMs: number): number {
  const bySite = event.at_wall_ms - (reclaim.declared_wall_ms + offsetMs);
  const boot = event.data["at_boot_ns"];
  if (event.node !== reclaim.node || boot === undefined) return bySite;
  const byMachine = (Number(boot) - reclaim.declared_ns) / 1e6;
  return Math.abs(byMachine - bySite) < OTHER_BOOT_MS ? byMachine : bySite;
}

/** Jobs that had to leave by this reclaim, each with the number of its first such event; oldest first. */
export function displacedBy(reclaim: Reclaim, events: SiteEvent[], offsetMs: number): Map<string, number> {
  const cleared = since(reclaim, reclaim.cleared_ns) ?? Infinity;
  const found = new Map<string, number>();
  for (const event of [...events].sort((a, b) => a.seq - b.seq)) {
    if (event.node !== reclaim.node || !LEAVES.has(event.kind) || found.has(event.job)) continue;
    if (event.kind === "attempt.ended" && !["reclaimed", "lost"].includes(event.data["end"] ?? "")) continue;
    const when = whenOf(event, reclaim, offsetMs);
    if (when >= -EARLIER_MS && when <= cleared + LATER_MS) found.set(event.job, event.seq);
  }
  return found;
}

/** The steps of one of them; `events` are the job's from there on. */
export function flowOf(reclaim: Reclaim, job: string, events: SiteEvent[], offsetMs: number): Flow {
  const sorted = [...events].sort((a, b) => a.seq - b.seq);
  const epoch = sorted.find((event) => event.node === reclaim.node && LEAVES.has(event.kind))?.epoch;
  const when = (event: SiteEvent | undefined) => (event ? Math.max(0, whenOf(event, reclaim, offsetMs)) : null);
  const own = (kind: string) => when(sorted.find((event) => event.kind === kind && event.epoch === epoch));
  const noticed = own("attempt.noticed");
  const saving = own("attempt.saving");
  const draining = own("attempt.draining");
  const ended = own("attempt.ended");
  const left = when(sorted.find((event) => event.kind === "job.displaced")) ?? ended;
  const place = sorted.find((event) => event.kind === "job.placed" && event.epoch !== epoch);
  const placed = when(place);
  const running = when(
    sorted.find((event) => place && event.kind === "attempt.running" && event.epoch === place.epoch),
  );
  const spans: Span[] = [];
  const add = (step: Step, from: number | null, ...ends: (number | null)[]) => {
    if (from === null) return;
    const to = ends.find((end) => end !== null && end !== undefined) ?? null;
    spans.push({ step, from, to: to === null ? null : Math.max(from, to) });
  };
  add("notice", noticed, saving, draining, ended, left);
  add("save", saving, draining, ended, left);
  add("copy", draining, ended, left);
  add("waits", left, placed);
  add("restore", placed, running);
  add("runs", running);
  return { job, spans, to: place?.node ?? "" };
}

/** Until when it is drawn: what goes on is drawn a little further than all that is over. */
export function endOf(flows: Flow[], reclaim: Reclaim): number {
  const marks = [since(reclaim, reclaim.cut_ns) ?? 0, deadlineOf(reclaim) ?? 0];
  const times = flows.flatMap((flow) => flow.spans.flatMap((span) => [span.from, span.to ?? span.from]));
  return Math.max(1, ...marks, ...times) * 1.1;
}

/** Newest first of these, and jobs of one. */
const RECLAIMS_OFFERED = 30;
const JOBS_SHOWN = 12;
const EVENTS_OF_NODE = 1_000;
const EVENTS_OF_JOB = 200;

async function loadFlows(site: Site, reclaim: Reclaim, offsetMs: number): Promise<Flow[]> {
  const path = `/v1/events?node=${encodeURIComponent(reclaim.node)}&newest=1&limit=${EVENTS_OF_NODE}&kind=`;
  const found = await Promise.all(
    ["attempt.", "job.displaced"].map((kind) => site.api.get<{ events: SiteEvent[] }>(path + kind)),
  );
  const events = found.flatMap((answer) => answer.events);
  const jobs = [...displacedBy(reclaim, events, offsetMs)].slice(0, JOBS_SHOWN);
  return Promise.all(
    jobs.map(async ([job, seq]) => {
      const more = `/v1/jobs/${encodeURIComponent(job)}/events?after=${seq - 1}&limit=${EVENTS_OF_JOB}`;
      const answer = await site.api.get<{ events: SiteEvent[] }>(more);
      return flowOf(reclaim, job, answer.events, offsetMs);
    }),
  );
}

const WIDTH = 1_000;
const BAR = 18;

function Marks({ reclaim, x }: { reclaim: Reclaim; x: (ms: number) => number }) {
  const deadline = deadlineOf(reclaim);
  const cut = since(reclaim, reclaim.cut_ns);
  const line = (at: number, kind: string) => (
    <line className={`mark ${kind}`} x1={x(at)} x2={x(at)} y1="0" y2={BAR + 8} />
  );
  return (
    <>
      {cut === null ? null : line(cut, "cut")}
      {deadline === null ? null : line(deadline, "deadline")}
    </>
  );
}

function Bars({ flow, reclaim, end }: { flow: Flow; reclaim: Reclaim; end: number }) {
  const x = (ms: number) => (Math.min(ms, end) / end) * WIDTH;
  return (
    <svg viewBox={`0 0 ${WIDTH} ${BAR + 8}`} preserveAspectRatio="none" height={BAR + 8} aria-hidden="true">
      {flow.spans.map((span) => (
        <rect
          key={span.step}
          className={`flow-${span.step}`}
          x={x(span.from)}
          y={4}
          width={Math.max(1.5, x(span.to ?? end) - x(span.from))}
          height={BAR}
        >
          <title>{STEP_WORDS[span.step]}</title>
        </rect>
      ))}
      <Marks reclaim={reclaim} x={x} />
    </svg>
  );
}

function spanWords(flow: Flow, step: Step): string {
  const span = flow.spans.find((one) => one.step === step);
  if (!span) return "–";
  if (step === "runs") return `after ${duration(span.from)}`;
  return span.to === null ? "still" : duration(span.to - span.from);
}

/** How the last copy stood to the deadline. */
export function marginWords(flow: Flow, reclaim: Reclaim): string {
  const deadline = deadlineOf(reclaim);
  const copy = flow.spans.find((span) => span.step === "copy");
  if (deadline === null || !copy) return "–";
  if (copy.to === null) return "still";
  const left = deadline - copy.to;
  return left >= 0 ? `${duration(left)} before` : `${duration(-left)} after`;
}

const HEADS = ["Notice", "Saves", "Copies", "Waits", "Restores", "Runs again", "Copied by the deadline"];

function Waterfall(props: { reclaim: Reclaim; flows: Flow[]; jobs: Job[]; nodes: Node[] }) {
  const { reclaim, flows, jobs, nodes } = props;
  const end = endOf(flows, reclaim);
  const deadline = deadlineOf(reclaim);
  const name = (id: string) => {
    const job = jobs.find((one) => one.id === id);
    return job ? `${job.number} ${nameOf(job)}` : id;
  };
  if (flows.length === 0) return <Empty>No job that you may see had to leave by it.</Empty>;
  return (
    <>
      <figure className="flows">
        {flows.map((flow) => (
          <div key={flow.job}>
            <span>
              {name(flow.job)}
              {flow.to ? <span className="note"> to {hostOf(nodes, flow.to)}</span> : null}
            </span>
            <Bars flow={flow} reclaim={reclaim} end={end} />
          </div>
        ))}
        <figcaption>
          <span>taken back</span>
          <span className="legend">
            {STEPS.map((step) => (
              <span key={step}>
                <i className={`key flow-${step}`} /> {STEP_WORDS[step]}{" "}
              </span>
            ))}
            <i className="key mark-cut" /> network cut{" "}
            {deadline === null ? null : (
              <>
                <i className="key mark-deadline" /> deadline (after {duration(deadline)})
              </>
            )}
          </span>
          <span>after {duration(end)}</span>
        </figcaption>
      </figure>
      <Scroll label="Jobs that had to leave">
        <table>
          <thead>
            <tr>
              <th scope="col">Job</th>
              <th scope="col">To</th>
              {HEADS.map((head) => (
                <th key={head} scope="col" className="number">
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {flows.map((flow) => (
              <tr key={flow.job}>
                <td>{name(flow.job)}</td>
                <td>{flow.to ? hostOf(nodes, flow.to) : "–"}</td>
                {STEPS.map((step) => (
                  <td key={step} className="number">
                    {spanWords(flow, step)}
                  </td>
                ))}
                <td className="number">{marginWords(flow, reclaim)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}

/** Of one that is long over nothing changes any more. */
const SETTLED_MS = 600_000;

export function Waterfalls({ site, state }: { site: Site; state: SiteState }) {
  const [wanted, choose] = useState("");
  const shown = useRef(new Set<string>());
  const offered = [...state.reclaims]
    .filter((one) => one.kind !== "lost")
    .sort((a, b) => b.declared_wall_ms - a.declared_wall_ms)
    .slice(0, RECLAIMS_OFFERED);
  const keyOf = (one: Reclaim) => `${one.node} ${one.id}`;
  const reclaim = offered.find((one) => keyOf(one) === wanted) ?? offered[0];
  const node = state.nodes.find((one) => one.id === reclaim?.node);
  const isSettled = reclaim !== undefined && Date.now() - reclaim.declared_wall_ms > SETTLED_MS;
  const isOfIt = (event: SiteEvent) => event.node === reclaim?.node || shown.current.has(event.job);
  const newest = isSettled ? 0 : (state.events.find((event) => event.job !== "" && isOfIt(event))?.seq ?? 0);
  const key = reclaim ? `${keyOf(reclaim)} ${reclaim.phase} ${newest}` : "";
  const { value, trouble } = useFetched(key, async () => {
    const flows = reclaim ? await loadFlows(site, reclaim, node?.clock_offset_ms ?? 0) : [];
    shown.current = new Set(flows.map((flow) => flow.job));
    return { of: reclaim ? keyOf(reclaim) : "", flows };
  });
  if (!reclaim) return <Empty>No machine has been taken back yet.</Empty>;
  const cleared = since(reclaim, reclaim.cleared_ns);
  return (
    <>
      <p>
        <label>
          Reclaim{" "}
          <select value={keyOf(reclaim)} onChange={(event) => choose(event.target.value)}>
            {offered.map((one) => (
              <option key={keyOf(one)} value={keyOf(one)}>
                {`${dayAndClock(one.declared_wall_ms)} ${hostOf(state.nodes, one.node)}, ${reclaimKind(one.kind)}`}
              </option>
            ))}
          </select>
        </label>
      </p>
      <p>
        <Badge word={reclaimWord(reclaim.phase)} /> declared at {clock(reclaim.declared_wall_ms)}
        {reclaim.gpus.length ? `, GPU ${reclaim.gpus.join(", ")}` : ""}
        {cleared === null ? "" : `, cleared after ${duration(cleared)}`}
      </p>
      {trouble ? <p className="trouble">{wordsOf(trouble)}</p> : null}
      {value && value.of === keyOf(reclaim) ? (
        <Waterfall reclaim={reclaim} flows={value.flows} jobs={state.jobs} nodes={state.nodes} />
      ) : (
        <p role="status">Loading…</p>
      )}
    </>
  );
}
