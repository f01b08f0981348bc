// SPDX-License-Identifier: Apache-2.0
import { useMemo } from "react";
import { Scroll } from "./parts";
import { HistoryPoint } from "./types";
import { dayAndClock, share } from "./words";

export interface UsePoint {
  at: number;
  /** Of all machines, how many had guests, 0 to 1. */
  lent: number;
  /** Mean of the machines' processors, 0 to 1. */
  cpu: number;
  /** Mean of the GPUs; null where there are none. */
  gpu: number | null;
}

/** Means over all machines, one for each bucket of time. */
export function useOverTime(points: HistoryPoint[]): UsePoint[] {
  const buckets = new Map<number, HistoryPoint[]>();
  for (const point of points) {
    const bucket = buckets.get(point.bucket_wall_ms);
    if (bucket) bucket.push(point);
    else buckets.set(point.bucket_wall_ms, [point]);
  }
  const mean = (values: number[]) => values.reduce((sum, one) => sum + one, 0) / Math.max(1, values.length);
  return [...buckets.entries()]
    .sort(([a], [b]) => a - b)
    .map(([at, all]) => {
      const gpus = all.flatMap((one) => one.gpus.map((gpu) => gpu.utilisation_percent / 100));
      return {
        at,
        lent: mean(all.map((one) => Math.min(1, one.guests))),
        cpu: mean(all.map((one) => one.cpu_percent / 100)),
        gpu: gpus.length ? mean(gpus) : null,
      };
    });
}

const WIDTH = 600;
const HEIGHT = 120;

export function UseChart({ points }: { points: UsePoint[] }) {
  const first = points[0];
  const last = points[points.length - 1];
  if (!first || !last) return <p className="empty">No history yet: the first bucket of telemetry is still open.</p>;
  const span = Math.max(1, last.at - first.at);
  const place = (point: UsePoint, value: number) =>
    `${(((point.at - first.at) / span) * WIDTH).toFixed(1)},${((1 - value) * HEIGHT).toFixed(1)}`;
  const line = (of: (point: UsePoint) => number | null) =>
    points
      .flatMap((point) => {
        const value = of(point);
        return value === null ? [] : [place(point, value)];
      })
      .join(" ");
  const percent = (value: number | null) => (value === null ? "none" : `${Math.round(value * 100)} %`);
  return (
    <>
      <figure className="chart">
        <svg
          viewBox={`0 -2 ${WIDTH} ${HEIGHT + 4}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={
            `From ${dayAndClock(first.at)} to ${dayAndClock(last.at)}. At the end: machines with guests ` +
            `${percent(last.lent)}, processors ${percent(last.cpu)}, GPUs ${percent(last.gpu)}.`
          }
        >
          {[0, 0.5, 1].map((value) => (
            <line key={value} className="grid" x1="0" x2={WIDTH} y1={(1 - value) * HEIGHT} y2={(1 - value) * HEIGHT} />
          ))}
          <polyline className="line lent" points={line((one) => one.lent)} />
          <polyline className="line cpu" points={line((one) => one.cpu)} />
          <polyline className="line gpu" points={line((one) => one.gpu)} />
        </svg>
        <figcaption>
          <span>{dayAndClock(first.at)}</span>
          <span className="legend">
            <i className="key lent" /> machines with guests <i className="key cpu" /> processors{" "}
            <i className="key gpu" /> GPUs
          </span>
          <span>{dayAndClock(last.at)}</span>
        </figcaption>
      </figure>
      <PlotTable
        label="Use"
        heads={["Machines with guests", "Processors", "GPUs"]}
        rows={points.map((one) => [one.at, one.lent, one.cpu, one.gpu])}
      />
    </>
  );
}

export interface LentPoint {
  at: number;
  /** Shares of the machines' time, together 1: with guests, lent and empty, its owners' own. */
  guests: number;
  free: number;
  own: number;
  /** Use of GPUs (where there are none: of processors) while with guests, and while its owners'; null: never so. */
  guestsUse: number | null;
  ownUse: number | null;
}

/** What is lent against what its owners keep, one point for each bucket of time. */
export function lentAndOwn(points: HistoryPoint[]): LentPoint[] {
  const hasGpus = points.some((point) => point.gpus.length > 0);
  const buckets = new Map<number, HistoryPoint[]>();
  for (const point of points) {
    const bucket = buckets.get(point.bucket_wall_ms);
    if (bucket) bucket.push(point);
    else buckets.set(point.bucket_wall_ms, [point]);
  }
  const useOf = (point: HistoryPoint) => {
    if (!hasGpus) return point.cpu_percent / 100;
    const sum = point.gpus.reduce((all, gpu) => all + gpu.utilisation_percent / 100, 0);
    return point.gpus.length ? sum / point.gpus.length : null;
  };
  return [...buckets.entries()]
    .sort(([a], [b]) => a - b)
    .map(([at, all]) => {
      const sums = { guests: 0, free: 0, own: 0, guestsUse: 0, guestsUsed: 0, ownUse: 0, ownUsed: 0 };
      for (const point of all) {
        const guests = Math.min(1, point.guests);
        const free = Math.max(0, Math.min(1, point.lending_share) - guests);
        const own = Math.max(0, 1 - guests - free);
        sums.guests += guests;
        sums.free += free;
        sums.own += own;
        const use = useOf(point);
        if (use === null) continue;
        sums.guestsUse += use * guests;
        sums.guestsUsed += guests;
        sums.ownUse += use * own;
        sums.ownUsed += own;
      }
      return {
        at,
        guests: sums.guests / all.length,
        free: sums.free / all.length,
        own: sums.own / all.length,
        guestsUse: sums.guestsUsed > 0 ? sums.guestsUse / sums.guestsUsed : null,
        ownUse: sums.ownUsed > 0 ? sums.ownUse / sums.ownUsed : null,
      };
    });
}

/** At most so many rows, evenly over the time: for a table. */
export function thinned<T>(rows: T[], most: number): T[] {
  const step = Math.max(1, Math.ceil(rows.length / most));
  return rows.filter((_, index) => (rows.length - 1 - index) % step === 0);
}

const TABLE_ROWS = 24;

function PlotTable({ label, heads, rows }: { label: string; heads: string[]; rows: [number, ...(number | null)[]][] }) {
  return (
    <details>
      <summary>{label}, as a table</summary>
      <Scroll label={label}>
        <table>
          <thead>
            <tr>
              <th scope="col">Time</th>
              {heads.map((head) => (
                <th key={head} scope="col" className="number">
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {thinned(rows, TABLE_ROWS).map(([at, ...values]) => (
              <tr key={at}>
                <td>{dayAndClock(at)}</td>
                {values.map((value, column) => (
                  <td key={heads[column]} className="number">
                    {value === null ? "–" : share(value)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </details>
  );
}

export function LentChart({ history }: { history: HistoryPoint[] }) {
  const points = useMemo(() => lentAndOwn(history), [history]);
  const first = points[0];
  const last = points[points.length - 1];
  if (!first || !last) return null; // the other plot says so
  const what = history.some((point) => point.gpus.length > 0) ? "Use of GPUs" : "Use of processors";
  const span = Math.max(1, last.at - first.at);
  const x = (point: LentPoint) => (((point.at - first.at) / span) * WIDTH).toFixed(1);
  const y = (value: number) => ((1 - value) * HEIGHT).toFixed(1);
  const area = (from: (point: LentPoint) => number, to: (point: LentPoint) => number) =>
    [
      ...points.map((point) => `${x(point)},${y(to(point))}`),
      ...[...points].reverse().map((point) => `${x(point)},${y(from(point))}`),
    ].join(" ");
  const line = (of: (point: LentPoint) => number | null) =>
    points
      .flatMap((point) => {
        const value = of(point);
        return value === null ? [] : [`${x(point)},${y(value)}`];
      })
      .join(" ");
  const mean = (of: (point: LentPoint) => number) =>
    `${Math.round((points.reduce((sum, point) => sum + of(point), 0) / points.length) * 100)} %`;
  return (
    <>
      <figure className="chart">
        <svg
          viewBox={`0 -2 ${WIDTH} ${HEIGHT + 4}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={
            `Of the machines' time from ${dayAndClock(first.at)} to ${dayAndClock(last.at)}: with guests ` +
            `${mean((one) => one.guests)}, lent and empty ${mean((one) => one.free)}, their owners' own ` +
            `${mean((one) => one.own)}. The table below says more.`
          }
        >
          <polygon
            className="area guests"
            points={area(
              () => 0,
              (one) => one.guests,
            )}
          />
          <polygon
            className="area free"
            points={area(
              (one) => one.guests,
              (one) => one.guests + one.free,
            )}
          />
          {[0, 0.5, 1].map((value) => (
            <line key={value} className="grid" x1="0" x2={WIDTH} y1={y(value)} y2={y(value)} />
          ))}
          <polyline className="line guests-use" points={line((one) => one.guestsUse)} />
          <polyline className="line own-use" points={line((one) => one.ownUse)} />
        </svg>
        <figcaption>
          <span>{dayAndClock(first.at)}</span>
          <span className="legend">
            <i className="key guests" /> with guests <i className="key free" /> lent, empty{" "}
            <i className="key own" /> own; {what}: <i className="key guests-use" /> with guests{" "}
            <i className="key own-use" /> own
          </span>
          <span>{dayAndClock(last.at)}</span>
        </figcaption>
      </figure>
      <PlotTable
        label="Lent and own"
        heads={["With guests", "Lent, empty", "Own", `${what} with guests`, `${what}, own`]}
        rows={points.map((one) => [one.at, one.guests, one.free, one.own, one.guestsUse, one.ownUse])}
      />
    </>
  );
}
