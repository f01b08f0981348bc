// SPDX-License-Identifier: Apache-2.0
// Hours of single GPUs in a contract that is edited: painted as the machine's own are, and counted where it is lent.
import { useState } from "react";
import { Contract, Gpu, GpuWindows } from "./types";
import { hoursLent, minutesOf, windowsOf } from "./week";
import { WeekGrid } from "./weekgrid";

/** What was painted, by the GPU's index; of a GPU that is not in it the hours are as they were written. */
export type GpuWeeks = Record<number, boolean[]>;

/**
 * The contract with what was painted of single GPUs. One without an hour is not lent at all, and one that is lent
 * whenever the machine is needs no hours of its own. `gpus`: all of the machine.
 */
export function withGpuWeeks(contract: Contract, gpus: number[], weeks: GpuWeeks): Contract {
  const lent = contract.lends_gpus ? (contract.gpus.length ? contract.gpus : gpus) : [];
  const painted = new Map(Object.entries(weeks).map(([gpu, week]) => [Number(gpu), windowsOf(week)]));
  const still = lent.filter((gpu) => painted.get(gpu) !== null);
  const own = (contract.gpu_windows ?? []).flatMap((one): GpuWindows[] => {
    const windows = painted.get(one.gpu);
    if (!still.includes(one.gpu) || windows === null) return [];
    if (windows === undefined) return [one];
    return windows.length ? [{ ...one, windows }] : [];
  });
  const isLess = still.length < lent.length;
  return {
    ...contract,
    lends_gpus: isLess ? still.length > 0 : contract.lends_gpus,
    gpus: isLess ? still : contract.gpus,
    gpu_windows: own,
  };
}

/** A GPU gets hours of its own, at first the machine's, or loses them. */
export function withOwnHours(contract: Contract, gpu: number, isOwn: boolean): Contract {
  const others = (contract.gpu_windows ?? []).filter((one) => one.gpu !== gpu);
  const own = isOwn ? [{ gpu, windows: contract.windows, holidays: [] }] : [];
  return { ...contract, gpu_windows: [...others, ...own].sort((a, b) => a.gpu - b.gpu) };
}

/** Minutes in which both are lent. */
export function both(machine: boolean[], gpu: boolean[]): boolean[] {
  return machine.map((isLent, minute) => isLent && (gpu[minute] ?? false));
}

function rounded(hours: number): number {
  return Math.round(hours * 10) / 10;
}

function OneGpu({
  gpu,
  own,
  week,
  machine,
  zone,
  onOwn,
  onPaint,
  onHolidays,
}: {
  gpu: Gpu;
  own: GpuWindows | undefined;
  week: boolean[] | undefined;
  machine: boolean[];
  zone: string;
  onOwn: (isOwn: boolean) => void;
  onPaint: (week: boolean[]) => void;
  onHolidays: (days: string) => void;
}) {
  const [holidays, setHolidays] = useState((own?.holidays ?? []).join(", "));
  const lent = week ?? minutesOf(own?.windows ?? []);
  const hours = rounded(hoursLent(both(machine, lent)));
  const words = !own
    ? "the machine's hours"
    : hours === 0
      ? "no hour: it is not lent"
      : `${hours} of the machine's ${rounded(hoursLent(machine))} hours`;
  return (
    <details className="gpu-hours">
      <summary>
        GPU {gpu.index}: {words}
      </summary>
      <label className="tick">
        <input
          type="checkbox"
          checked={own !== undefined}
          onChange={() => {
            setHolidays("");
            onOwn(own === undefined);
          }}
        />{" "}
        GPU {gpu.index} has hours of its own, within the machine&apos;s
      </label>
      {own ? (
        <>
          <WeekGrid
            lent={lent}
            caption={`Hours of GPU ${gpu.index}, where the machine is lent (${zone})`}
            onPaint={onPaint}
          />
          <div className="amounts">
            <label>
              Days on which GPU {gpu.index} is lent whenever the machine is
              <input
                type="text"
                value={holidays}
                onChange={(event) => {
                  setHolidays(event.target.value);
                  onHolidays(event.target.value);
                }}
              />
            </label>
          </div>
        </>
      ) : null}
    </details>
  );
}

/** For each GPU that is lent. `machine`: the minutes of the week in which the machine is. */
export function GpuHours({
  gpus,
  draft,
  machine,
  weeks,
  onDraft,
  onWeeks,
  datesOf,
}: {
  gpus: Gpu[];
  draft: Contract;
  machine: boolean[];
  weeks: GpuWeeks;
  onDraft: (draft: Contract) => void;
  onWeeks: (weeks: GpuWeeks) => void;
  datesOf: (text: string) => string[];
}) {
  if (gpus.length === 0) return null;
  const without = (gpu: number) =>
    Object.fromEntries(Object.entries(weeks).filter(([index]) => Number(index) !== gpu)) as GpuWeeks;
  return (
    <fieldset>
      <legend>Hours of single GPUs</legend>
      {gpus.map((gpu) => (
        <OneGpu
          key={gpu.index}
          gpu={gpu}
          own={draft.gpu_windows?.find((one) => one.gpu === gpu.index)}
          week={weeks[gpu.index]}
          machine={machine}
          zone={draft.time_zone}
          onOwn={(isOwn) => {
            onDraft(withOwnHours(draft, gpu.index, isOwn));
            onWeeks(isOwn ? { ...weeks, [gpu.index]: machine } : without(gpu.index));
          }}
          onPaint={(week) => onWeeks({ ...weeks, [gpu.index]: week })}
          onHolidays={(text) =>
            onDraft({
              ...draft,
              gpu_windows: (draft.gpu_windows ?? []).map((one) =>
                one.gpu === gpu.index ? { ...one, holidays: datesOf(text) } : one,
              ),
            })
          }
        />
      ))}
    </fieldset>
  );
}
