// SPDX-License-Identifier: Apache-2.0
import { HistoryPoint } from "./types";
import { dayAndClock } from "./words";

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
  );
}
