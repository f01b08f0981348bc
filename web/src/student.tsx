// SPDX-License-Identifier: Apache-2.0
import { useState } from "react";
import { wordsOf } from "./api";
import { Inside, Warnings } from "./inside";
import { Logs } from "./logs";
import { NewJob } from "./newjob";
import { Ago, Badge, Empty, Scroll, Tile, useFetched, useNow } from "./parts";
import { MyQuotas } from "./quotas";
import { savedSent } from "./session";
import { Site, SiteState } from "./site";
import { lostMs, runsOf, Timeline } from "./timeline";
import { Attempt, Generation, Job, Why } from "./types";
import { bytes, dayAndClock, duration, hostOf, isOver, nameOf, wordOfJob } from "./words";

interface Parts {
  why: Why;
  attempts: Attempt[];
  generations: Generation[];
}

async function loadParts(site: Site, id: string): Promise<Parts> {
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const [why, attempts, generations] = await Promise.all([
    site.api.get<Why>(`${path}/why`),
    site.api.get<{ attempts: Attempt[] }>(`${path}/attempts`),
    site.api.get<{ generations: Generation[] }>(`${path}/generations`),
  ]);
  return { why, attempts: attempts.attempts, generations: generations.generations };
}

function times(count: number): string {
  return count === 0 ? "never" : count === 1 ? "once" : `${count} times`;
}

function Facts({ job, parts, state }: { job: Job; parts: Parts; state: SiteState }) {
  const now = useNow(1_000);
  const runs = runsOf(parts.attempts, parts.generations, now);
  const lost = lostMs(runs);
  const ran = runs.reduce((sum, run) => sum + Math.max(0, run.to - run.started), 0);
  const saved = job.durable.generation > 0;
  return (
    <dl className="tiles">
      <Tile
        label="Where"
        value={job.node && !isOver(job) && job.state !== "queued" ? hostOf(state.nodes, job.node) : "nowhere"}
        note={parts.why.queue_position ? `place ${parts.why.queue_position} in the queue` : undefined}
      />
      <Tile
        label="Saved state"
        value={saved ? `${duration(now - job.durable.created_wall_ms)} old` : "none yet"}
        note={
          saved
            ? `number ${job.durable.generation}, ${bytes(job.durable.bytes)}` +
              (job.durable.step >= 0 ? `, step ${job.durable.step}` : "")
            : undefined
        }
      />
      <Tile
        label="Work done again"
        value={lost > 0 ? duration(lost) : "none"}
        note={ran > 0 ? `of ${duration(ran)} that it ran` : undefined}
      />
      <Tile
        label="Had to move"
        value={times(job.displacements)}
        note={job.restarts ? `${job.restarts} crashes` : undefined}
      />
    </dl>
  );
}

function Attempts({ attempts, state, parts }: { attempts: Attempt[]; state: SiteState; parts: Parts }) {
  const now = useNow(5_000);
  const runs = runsOf(attempts, parts.generations, now);
  return (
    <Scroll label="Attempts">
      <table>
        <caption className="unseen">Attempts, newest first</caption>
        <thead>
          <tr>
            <th scope="col">Attempt</th>
            <th scope="col">Machine</th>
            <th scope="col">State</th>
            <th scope="col">From</th>
            <th scope="col" className="number">
              Ran
            </th>
            <th scope="col" className="number">
              Done again
            </th>
            <th scope="col">Went on from</th>
            <th scope="col">Why there</th>
          </tr>
        </thead>
        <tbody>
          {[...runs].reverse().map((run) => (
            <tr key={run.attempt.epoch}>
              <td>{run.attempt.epoch.split(".")[1]}</td>
              <td>{hostOf(state.nodes, run.attempt.node)}</td>
              <td>{run.isLive ? run.attempt.state : run.attempt.end.replace("_", " ")}</td>
              <td>{dayAndClock(run.from)}</td>
              <td className="number">{run.attempt.started_wall_ms ? duration(run.to - run.started) : "–"}</td>
              <td className="number">{run.lostFrom === null ? "–" : duration(run.to - run.lostFrom)}</td>
              <td>{run.attempt.resumed_generation ? `save ${run.attempt.resumed_generation}` : "the start"}</td>
              <td className="wide">{run.attempt.detail || run.attempt.placed_because}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Detail({ site, state, job }: { site: Site; state: SiteState; job: Job }) {
  const changes = state.changes.get(job.id) ?? 0;
  const { value: parts, trouble } = useFetched(`${job.id} ${changes} ${job.state}`, () => loadParts(site, job.id));
  return (
    <article className="card" aria-labelledby="job-title">
      <header>
        <h2 id="job-title">
          {nameOf(job)} <span className="note">job {job.number}</span>
        </h2>
        <Badge word={wordOfJob(job)} />
      </header>
      {trouble ? (
        <p className="alert" role="alert">
          {wordsOf(trouble)}
        </p>
      ) : null}
      {parts ? (
        <>
          <p className="why" role="status">
            {parts.why.sentence}
            {parts.why.evacuation ? ` ${parts.why.evacuation.sentence}` : ""}
          </p>
          <Warnings state={state} job={job} />
          <Facts job={job} parts={parts} state={state} />
          <Inside site={site} state={state} job={job} />
          <h3>Attempts</h3>
          <Timeline
            job={job}
            attempts={parts.attempts}
            generations={parts.generations}
            host={(id) => hostOf(state.nodes, id)}
          />
          {parts.attempts.length ? <Attempts attempts={parts.attempts} state={state} parts={parts} /> : null}
          {parts.attempts.length ? <Logs api={site.api} job={job.id} epoch={job.epoch} /> : null}
        </>
      ) : (
        <p role="status">Loading…</p>
      )}
    </article>
  );
}

function JobTable({ jobs, chosen, state }: { jobs: Job[]; chosen: Job | undefined; state: SiteState }) {
  const isAdmin = state.who.role === "admin";
  return (
    <Scroll label="Jobs">
      <table>
        <caption className="unseen">Jobs, newest first</caption>
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            {isAdmin ? <th scope="col">User</th> : null}
            <th scope="col">Machine</th>
            <th scope="col" className="number">
              Moved
            </th>
            <th scope="col">Saved</th>
            <th scope="col">Submitted</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.id} className={job === chosen ? "chosen" : undefined}>
              <td>
                <a href={`#/jobs/${job.number}`} aria-current={job === chosen ? "true" : undefined}>
                  {job.number} {nameOf(job)}
                </a>
              </td>
              <td>
                <Badge word={wordOfJob(job)} />
              </td>
              {isAdmin ? <td>{job.owner}</td> : null}
              <td>{job.node && !isOver(job) && job.state !== "queued" ? hostOf(state.nodes, job.node) : "–"}</td>
              <td className="number">{job.displacements}</td>
              <td>{job.durable.generation ? <Ago ms={job.durable.created_wall_ms} /> : "–"}</td>
              <td>{dayAndClock(job.submitted_wall_ms)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

export function Student({ site, state, detail }: { site: Site; state: SiteState; detail: string }) {
  const [withEnded, setWithEnded] = useState(true);
  const chosen = state.jobs.find((job) => String(job.number) === detail || job.id === detail);
  const shown = state.jobs.filter((job) => withEnded || !isOver(job) || job === chosen);
  const maySubmit = state.who.role !== "viewer";
  if (detail === "new" && maySubmit)
    return (
      <>
        <p>
          <a href="#/jobs">All jobs</a>
        </p>
        <NewJob site={site} state={state} />
      </>
    );
  const begin = maySubmit ? (
    <p>
      <a href="#/jobs/new">New job</a>
      {savedSent() ? " (one was sent and has no answer yet: it is sent again there)" : ""}
    </p>
  ) : null;
  if (state.jobs.length === 0)
    return (
      <>
        {begin}
        <Empty>
          No jobs yet. <code>reclaim run -- python3 train.py</code> in your project's folder makes one with its files.
        </Empty>
        <MyQuotas site={site} state={state} />
      </>
    );
  return (
    <>
      {begin}
      {chosen ? <Detail key={chosen.id} site={site} state={state} job={chosen} /> : null}
      {detail && !chosen ? <p className="alert">There is no job {detail} among yours.</p> : null}
      <MyQuotas site={site} state={state} />
      <h2>All jobs</h2>
      <p>
        <label>
          <input type="checkbox" checked={withEnded} onChange={(event) => setWithEnded(event.target.checked)} /> also
          those that are over
        </label>
      </p>
      <JobTable jobs={shown} chosen={chosen} state={state} />
    </>
  );
}
