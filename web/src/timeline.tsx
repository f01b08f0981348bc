// SPDX-License-Identifier: Apache-2.0
import { useNow } from "./parts";
import { Attempt, Generation, Job } from "./types";
import { clock, dayAndClock, duration } from "./words";

/** Ends after which the job goes on elsewhere. */
const MOVED = new Set(["reclaimed", "migrated", "lost", "fenced", "holder_away", "crashed", "refused"]);

export interface Run {
  attempt: Attempt;
  from: number;
  started: number;
  to: number;
  isLive: boolean;
  /** From where on its work was done again by the next run; null: nothing was. */
  lostFrom: number | null;
}

/** The runs of a job with what each of them lost: what it did after the state from which the next one went on. */
export function runsOf(attempts: Attempt[], generations: Generation[], now: number): Run[] {
  const made = new Map(generations.map((one) => [one.generation.generation, one.generation.created_wall_ms]));
  return attempts.map((attempt, index) => {
    const isLive = attempt.state !== "ended";
    const from = attempt.leased_wall_ms;
    const to = isLive ? now : attempt.ended_wall_ms || from;
    const started = attempt.started_wall_ms || to;
    const next = attempts[index + 1];
    let lostFrom: number | null = null;
    if (next && !isLive && attempt.started_wall_ms > 0 && MOVED.has(attempt.end)) {
      const saved = next.resumed_generation ? made.get(next.resumed_generation) : undefined;
      // A generation whose row was collected says nothing any more: nothing is claimed.
      if (saved !== undefined || next.resumed_generation === 0)
        lostFrom = Math.min(to, Math.max(started, saved ?? 0));
    }
    return { attempt, from, started, to, isLive, lostFrom };
  });
}

export function lostMs(runs: Run[]): number {
  return runs.reduce((sum, run) => sum + (run.lostFrom === null ? 0 : run.to - run.lostFrom), 0);
}

function words(run: Run, host: (id: string) => string): string {
  const number = run.attempt.epoch.split(".")[1] ?? run.attempt.epoch;
  const how = run.isLive ? run.attempt.state : `ended: ${run.attempt.end}`;
  const long = duration(run.to - run.from);
  return `Attempt ${number} on ${host(run.attempt.node)}, from ${clock(run.from)}, ${long}, ${how}`;
}

const ROW = 26;
const WIDTH = 1_000;

export function Timeline(props: {
  job: Job;
  attempts: Attempt[];
  generations: Generation[];
  host: (id: string) => string;
}) {
  const { job, attempts, generations, host } = props;
  const now = useNow(2_000);
  const runs = runsOf(attempts, generations, now);
  if (runs.length === 0) return <p>It has not been placed yet.</p>;
  const begin = job.submitted_wall_ms;
  const end = Math.max(job.finished_wall_ms || 0, ...runs.map((run) => run.to), begin + 1_000);
  const x = (ms: number) => ((Math.max(begin, ms) - begin) / (end - begin)) * WIDTH;
  const height = runs.length * ROW + 4;
  return (
    <figure className="timeline">
      <svg
        viewBox={`0 0 ${WIDTH} ${height}`}
        preserveAspectRatio="none"
        height={height}
        role="img"
        aria-label={`${runs.length} attempts since ${dayAndClock(begin)}; the table below says the same`}
      >
        {runs.map((run, row) => {
          const y = row * ROW + 4;
          const width = (from: number, to: number) => Math.max(1.5, x(to) - x(from));
          return (
            <g key={run.attempt.epoch}>
              <title>{words(run, host)}</title>
              <rect
                className="run-start"
                x={x(run.from)}
                y={y}
                width={width(run.from, run.started)}
                height={ROW - 8}
              />
              {run.attempt.started_wall_ms ? (
                <rect
                  className={run.isLive ? `run-live run-${run.attempt.state}` : `run-end end-${run.attempt.end}`}
                  x={x(run.started)}
                  y={y}
                  width={width(run.started, run.to)}
                  height={ROW - 8}
                />
              ) : null}
              {run.lostFrom !== null ? (
                <rect
                  className="run-lost"
                  x={x(run.lostFrom)}
                  y={y}
                  width={width(run.lostFrom, run.to)}
                  height={ROW - 8}
                />
              ) : null}
              {generations
                .filter(
                  (one) => one.generation.created_wall_ms >= run.from && one.generation.created_wall_ms <= run.to,
                )
                .map((one) => (
                  <rect
                    key={one.generation.generation}
                    className="run-save"
                    x={x(one.generation.created_wall_ms) - 1}
                    y={y - 3}
                    width={2}
                    height={ROW - 2}
                  />
                ))}
            </g>
          );
        })}
      </svg>
      <figcaption>
        <span>{dayAndClock(begin)}</span>
        <span className="legend">
          <i className="key start" /> starts <i className="key run" /> runs <i className="key lost" /> done again{" "}
          <i className="key save" /> saved
        </span>
        <span>{job.finished_wall_ms ? dayAndClock(end) : "now"}</span>
      </figcaption>
    </figure>
  );
}
