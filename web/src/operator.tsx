// SPDX-License-Identifier: Apache-2.0
import { useMemo, useState } from "react";
import { wordsOf } from "./api";
import { LentChart, UseChart, useOverTime } from "./charts";
import { HoursOfWeek } from "./hours";
import { Ago, Badge, Empty, Scroll, Tile, useFetched, useNow } from "./parts";
import { SiteQuotas } from "./quotas";
import { Site, SiteState } from "./site";
import { Hazard, HistoryPoint, Job, Node, SiteEvent } from "./types";
import { Waterfalls } from "./waterfall";
import {
  bytes,
  clock,
  dayAndClock,
  duration,
  gpuOf,
  hostOf,
  isGpuLent,
  isOver,
  isOwnersOwn,
  jobWord,
  lendingWord,
  nameOf,
  share,
  Word,
} from "./words";

const DAY_MS = 86_400_000;

function Forecast({ site, node }: { site: Site; node: Node }) {
  const { value, trouble } = useFetched(node.id, () =>
    site.api.get<Hazard>(`/v1/nodes/${encodeURIComponent(node.id)}/hazard`),
  );
  if (trouble) return <p className="trouble">{wordsOf(trouble)}</p>;
  if (!value) return <p role="status">Loading…</p>;
  return (
    <>
      <p>
        Taken back within{" "}
        {value.reclaimed_within.map((one, index) => (
          <span key={one.horizon_s}>
            {index ? ", " : ""}
            {duration(one.horizon_s * 1_000)}: <strong>{share(one.probability)}</strong>{" "}
            <span className="note">
              ({share(one.low)} to {share(one.high)})
            </span>
          </span>
        ))}
        . {value.prior}
      </p>
      <p className="note">
        {value.factors.map((factor) => `${factor.name} × ${factor.value.toFixed(2)}`).join(", ")}
      </p>
      <HoursOfWeek hazard={value} name={node.facts.hostname} />
    </>
  );
}

function factsOf(node: Node): string {
  const mib = (count: number) => bytes(count * 1_048_576);
  const { facts, telemetry } = node;
  return [
    `${facts.cpu_milli / 1_000} cores at ${telemetry.cpu_percent} %`,
    `${mib(telemetry.memory_used_mib)} of ${mib(facts.memory_mib)}`,
    `${mib(telemetry.disk_free_mib)} of disk free`,
    `${telemetry.guests} guests`,
    `version ${node.version || "?"}`,
    `id ${node.id}`,
  ].join(", ");
}

function gpuChip(node: Node, index: number): Word {
  const now = gpuOf(node, index);
  if (!now || !node.is_connected) return { tone: "quiet", text: "?" };
  const text = now.is_unseen ? "?" : `${now.utilisation_percent} %`;
  if (now.is_wedged) return { tone: "bad", text: "not verified free" };
  if (now.sickness) return { tone: "bad", text: "sick" };
  if (isOwnersOwn(node.contract, now)) return { tone: "warn", text: `${text}, its owner's` };
  if (now.is_outside_window) return { tone: "quiet", text: `${text}, outside its hours` };
  return { tone: isGpuLent(node.contract, index) ? "good" : "quiet", text };
}

function MapOfNode({ site, node }: { site: Site; node: Node }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <li className={`node ${lendingWord(node).tone}`}>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <span className="node-name">{node.facts.hostname}</span> <Badge word={lendingWord(node)} />
          <span className="chips">
            {node.facts.gpus.map((gpu) => {
              const { tone, text } = gpuChip(node, gpu.index);
              return (
                <span key={gpu.index} className={`chip ${tone}`}>
                  GPU {gpu.index}: {text}
                </span>
              );
            })}
          </span>
        </summary>
        {isOpen ? (
          <>
            <p>{factsOf(node)}</p>
            {node.facts.warnings.map((warning) => (
              <p key={warning} className="trouble">
                {warning}
              </p>
            ))}
            <Forecast site={site} node={node} />
          </>
        ) : null}
      </details>
    </li>
  );
}

function CampusMap({ site, nodes }: { site: Site; nodes: Node[] }) {
  const labs = [...new Set(nodes.map((node) => node.lab))].sort();
  if (labs.length === 0) return <Empty>No machine has joined yet.</Empty>;
  return (
    <div className="labs">
      {labs.map((lab) => {
        const own = nodes.filter((node) => node.lab === lab);
        const busy = own.filter((node) => node.telemetry.guests > 0).length;
        return (
          <section key={lab} className="card" aria-labelledby={`lab-${lab}`}>
            <h3 id={`lab-${lab}`}>
              {lab}{" "}
              <span className="note">
                {busy} of {own.length} lent
              </span>
            </h3>
            <ul className="nodes">
              {own.map((node) => (
                <MapOfNode key={node.id} site={site} node={node} />
              ))}
            </ul>
          </section>
        );
      })}
    </div>
  );
}

function Queue({ jobs }: { jobs: Job[] }) {
  const waiting = jobs
    .filter((job) => job.state === "queued" || job.state === "placing")
    .sort((a, b) => a.spec.priority - b.spec.priority || a.number - b.number);
  if (waiting.length === 0) return <Empty>Nothing waits.</Empty>;
  return (
    <Scroll label="Queue">
      <table>
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">User</th>
            <th scope="col" className="number">
              Priority
            </th>
            <th scope="col">Wants</th>
            <th scope="col">Waits since</th>
            <th scope="col">Why</th>
          </tr>
        </thead>
        <tbody>
          {waiting.slice(0, 100).map((job) => (
            <tr key={job.id}>
              <td>
                <a href={`#/jobs/${job.number}`}>
                  {job.number} {nameOf(job)}
                </a>
              </td>
              <td>
                {job.owner} <span className="note">{job.lab}</span>
              </td>
              <td className="number">{job.spec.priority}</td>
              <td>
                {job.spec.resources.gpus} GPU, {job.spec.resources.cpu_milli / 1_000} cores,{" "}
                {bytes(job.spec.resources.memory_mib * 1_048_576)}
              </td>
              <td>
                <Ago ms={job.submitted_wall_ms} />
              </td>
              <td className="wide">{job.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** They hold GPUs, or cores alone, and use next to nothing of them. */
function isIdle(job: Job): boolean {
  return job.idle_since_wall_ms !== 0 && !isOver(job);
}

function IdleJobs({ state }: { state: SiteState }) {
  const idle = state.jobs.filter(isIdle).sort((a, b) => a.idle_since_wall_ms - b.idle_since_wall_ms);
  if (idle.length === 0) return <Empty>No job holds GPUs or cores without using them.</Empty>;
  return (
    <Scroll label="Jobs that use nothing of what they hold">
      <table>
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">User</th>
            <th scope="col">Machine</th>
            <th scope="col" className="number">
              GPUs
            </th>
            <th scope="col">Idle since</th>
            <th scope="col">Is stopped</th>
          </tr>
        </thead>
        <tbody>
          {idle.slice(0, 100).map((job) => (
            <tr key={job.id}>
              <td>
                <a href={`#/jobs/${job.number}`}>
                  {job.number} {nameOf(job)}
                </a>
              </td>
              <td>
                {job.owner} <span className="note">{job.lab}</span>
              </td>
              <td>{hostOf(state.nodes, job.node)}</td>
              <td className="number">{job.spec.resources.gpus}</td>
              <td>
                <Ago ms={job.idle_since_wall_ms} />
              </td>
              <td>{job.spec.idle_stop_s ? `after ${duration(job.spec.idle_stop_s * 1_000)}` : "by a quota, or not"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

const VERDICTS: Record<string, string> = {
  "evacuation.admitted": "promised",
  "evacuation.refused": "not promised",
  "evacuation.in_time": "met",
  "evacuation.missed": "missed",
  "evacuation.given_up": "given up",
  "evacuation.chosen": "chosen",
  "evacuation.not_chosen": "nowhere to go",
};

function Migrations({ site, state }: { site: Site; state: SiteState }) {
  const newest = state.events.find((event) => event.kind.startsWith("evacuation."))?.seq ?? 0;
  const { value } = useFetched(`${newest}`, () =>
    site.api.get<{ events: SiteEvent[] }>("/v1/events?newest=1&limit=50&kind=evacuation."),
  );
  const events = value?.events ?? [];
  if (events.length === 0) return <Empty>No job has had to leave its machine yet.</Empty>;
  const jobName = (event: SiteEvent) => {
    const job = state.jobs.find((one) => one.id === event.job);
    return job ? `${job.number} ${nameOf(job)}` : event.job || "–";
  };
  const number = (text: string | undefined) => (text === undefined || text === "" ? null : Number(text));
  return (
    <Scroll label="Migrations">
      <table>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Job</th>
            <th scope="col">Verdict</th>
            <th scope="col">To</th>
            <th scope="col" className="number">
              Bytes
            </th>
            <th scope="col" className="number">
              Rate
            </th>
            <th scope="col" className="number">
              Deadline
            </th>
            <th scope="col">In words</th>
          </tr>
        </thead>
        <tbody>
          {events.map((event) => {
            const size = number(event.data["bytes"]);
            const rate = number(event.data["rate_bps"]);
            const left = number(event.data["deadline_ms"]);
            const to = event.data["to"] || event.data["destination"] || event.data["holder"];
            return (
              <tr key={event.seq}>
                <td>{clock(event.at_wall_ms)}</td>
                <td>{jobName(event)}</td>
                <td>{VERDICTS[event.kind] ?? event.kind.slice("evacuation.".length)}</td>
                <td>{to ? hostOf(state.nodes, to) : "–"}</td>
                <td className="number">{size === null ? "–" : bytes(size)}</td>
                <td className="number">{rate ? `${(rate / 1e6).toFixed(1)} Mbit/s` : "–"}</td>
                <td className="number">{left === null ? "–" : duration(left)}</td>
                <td className="wide">{event.message}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}

function Events({ state }: { state: SiteState }) {
  const [words, setWords] = useState("");
  const wanted = words.trim().toLowerCase();
  const shown = state.events
    .filter(
      (event) =>
        wanted === "" ||
        `${event.kind} ${event.message} ${event.user} ${event.lab} ${hostOf(state.nodes, event.node)}`
          .toLowerCase()
          .includes(wanted),
    )
    .slice(0, 100);
  return (
    <>
      <p>
        <label>
          Only with the words <input type="search" value={words} onChange={(event) => setWords(event.target.value)} />
        </label>
      </p>
      {shown.length === 0 ? (
        <Empty>No event of the newest {state.events.length} fits.</Empty>
      ) : (
        <Scroll label="Events">
          <table>
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">What</th>
                <th scope="col">Machine</th>
                <th scope="col">In words</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((event) => (
                <tr key={event.seq}>
                  <td title={dayAndClock(event.at_wall_ms)}>{clock(event.at_wall_ms)}</td>
                  <td>{event.kind}</td>
                  <td>{event.node ? hostOf(state.nodes, event.node) : "–"}</td>
                  <td className="wide">{event.message}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </>
  );
}

function Health({ state }: { state: SiteState }) {
  const health = state.health;
  if (!health) return null;
  if (!health.is_ok)
    return (
      <p className="alert" role="alert">
        The coordinator cannot write: {health.reason}
      </p>
    );
  return health.is_adopting ? (
    <p className="alert" role="status">
      The coordinator has just started: it takes running jobs over, and places nothing yet.
    </p>
  ) : null;
}

export function Operator({ site, state }: { site: Site; state: SiteState }) {
  const minute = Math.floor(useNow(60_000) / 60_000);
  const nodes = useMemo(() => state.nodes.filter((node) => node.state !== "left"), [state.nodes]);
  const history = useFetched(`${minute}`, () =>
    site.api.get<{ points: HistoryPoint[] }>(`/v1/telemetry?from=${Date.now() - DAY_MS}`),
  );
  const points = useMemo(() => history.value?.points ?? [], [history.value]);
  const use = useMemo(() => useOverTime(points), [points]);
  const gpus = nodes.reduce((sum, node) => sum + node.facts.gpus.length, 0);
  const count = (test: (node: Node) => boolean) => nodes.filter(test).length;
  const inState = (wanted: Node["state"]) => count((node) => node.state === wanted);
  const running = state.jobs.filter(
    (job) => !["queued", "placing", "succeeded", "failed", "cancelled"].includes(job.state),
  );
  const queued = state.jobs.filter((job) => job.state === "queued" || job.state === "placing");
  const idle = state.jobs.filter((job) => isIdle(job) && job.spec.resources.gpus > 0);
  const isAdmin = state.who.role === "admin";
  const bad = nodes.flatMap((node) => node.telemetry.gpus.filter((gpu) => gpu.is_wedged || gpu.sickness)).length;
  return (
    <>
      <Health state={state} />
      <dl className="tiles">
        <Tile
          label="Machines"
          value={count((node) => node.state === "up" && node.is_connected)}
          note={`${inState("lost")} not reached, ${inState("suspect")} silent`}
        />
        <Tile label="Lent right now" value={count((node) => node.telemetry.guests > 0)} note={`of ${nodes.length}`} />
        <Tile label="GPUs" value={gpus} note={bad ? `${bad} sick or not verified free` : undefined} />
        <Tile
          label={isAdmin ? "Jobs that run" : "My jobs that run"}
          value={running.length}
          note={
            running.some((job) => job.state !== "running")
              ? running.map((job) => jobWord(job.state).text).join(", ")
              : undefined
          }
        />
        <Tile label={isAdmin ? "Jobs that wait" : "My jobs that wait"} value={queued.length} />
        {idle.length ? (
          <Tile
            label="GPUs held and not used"
            value={idle.reduce((sum, job) => sum + job.spec.resources.gpus, 0)}
            note={idle.length === 1 ? "by 1 job" : `by ${idle.length} jobs`}
          />
        ) : null}
      </dl>
      <h2>Labs and machines</h2>
      <CampusMap site={site} nodes={nodes} />
      <h2>Use, last 24 hours</h2>
      <UseChart points={use} />
      <h2>Lent and own, last 24 hours</h2>
      <LentChart history={points} />
      <h2>Queue</h2>
      <Queue jobs={state.jobs} />
      <h2>Idle jobs</h2>
      <IdleJobs state={state} />
      {isAdmin || state.who.role === "owner" ? <SiteQuotas site={site} state={state} /> : null}
      <h2>Migrations</h2>
      <Migrations site={site} state={state} />
      <h2>Reclaims, step by step</h2>
      <Waterfalls site={site} state={state} />
      <h2>Events</h2>
      <Events state={state} />
    </>
  );
}
