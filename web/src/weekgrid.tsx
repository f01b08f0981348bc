// SPDX-License-Identifier: Apache-2.0
// The hours of a week, to be painted: by mouse in one stroke, by touch hour for hour, by keyboard with the arrows.
import { KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { Cell, cellOf, withHours } from "./week";
import { DAY_NAMES } from "./words";

const HOURS = Array.from({ length: 24 }, (_, hour) => hour);
const WORDS: Record<Cell, string> = { lent: "lent", part: "lent for a part of it", own: "not lent" };

function clockOf(hour: number): string {
  return `${String(hour).padStart(2, "0")}:00`;
}

function hourName(day: number, hour: number): string {
  return `${DAY_NAMES[day] ?? ""} ${clockOf(hour)} to ${clockOf(hour + 1)}`;
}

/** Where an arrow leads from an hour; null: it is none. */
export function stepFrom(key: string, day: number, hour: number): { day: number; hour: number } | null {
  switch (key) {
    case "ArrowUp":
      return { day, hour: Math.max(0, hour - 1) };
    case "ArrowDown":
      return { day, hour: Math.min(23, hour + 1) };
    case "ArrowLeft":
      return { day: Math.max(0, day - 1), hour };
    case "ArrowRight":
      return { day: Math.min(6, day + 1), hour };
    case "Home":
      return { day: 0, hour };
    case "End":
      return { day: 6, hour };
    case "PageUp":
      return { day, hour: 0 };
    case "PageDown":
      return { day, hour: 23 };
    default:
      return null;
  }
}

export function WeekGrid({
  lent,
  caption,
  onPaint,
}: {
  lent: boolean[];
  caption: string;
  onPaint: (lent: boolean[]) => void;
}) {
  const [here, setHere] = useState({ day: 0, hour: 8 });
  const help = useId(); // two machines may be edited on one page
  const grid = useRef<HTMLTableElement>(null);
  // A stroke of the mouse: what it paints, and the week so far. What is drawn may be older.
  const stroke = useRef<boolean | null>(null);
  const week = useRef(lent);
  const isMouse = useRef(false);
  week.current = lent;

  useEffect(() => {
    const end = () => {
      stroke.current = null;
    };
    window.addEventListener("pointerup", end);
    return () => window.removeEventListener("pointerup", end);
  }, []);

  const paint = (hours: { day: number; hour: number }[], isLent: boolean) => {
    week.current = withHours(week.current, hours, isLent);
    onPaint(week.current);
  };
  const toggle = (hours: { day: number; hour: number }[]) =>
    paint(hours, !hours.every(({ day, hour }) => cellOf(week.current, day, hour) === "lent"));
  const begin = (day: number, hour: number) => {
    stroke.current = cellOf(week.current, day, hour) !== "lent";
    setHere({ day, hour });
    paint([{ day, hour }], stroke.current);
  };

  const onKey = (event: KeyboardEvent) => {
    if (event.key === " " || event.key === "Enter") {
      event.preventDefault();
      return toggle([here]);
    }
    const next = stepFrom(event.key, here.day, here.hour);
    if (!next || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (event.shiftKey) paint([next], cellOf(week.current, here.day, here.hour) === "lent");
    setHere(next);
    const cells = grid.current?.tBodies[0]?.rows[next.hour]?.querySelectorAll<HTMLElement>("td");
    cells?.[next.day]?.focus();
  };

  return (
    <>
      <p className="note" id={help}>
        Tap an hour, a day or an hour of all days. With the keyboard: arrows and space; with shift the arrows paint.
      </p>
      <table className="week-grid" role="grid" aria-multiselectable="true" aria-describedby={help} ref={grid}>
        <caption>{caption}</caption>
        <thead>
          <tr>
            <th scope="col">
              <span className="unseen">Hour</span>
            </th>
            {DAY_NAMES.map((name, day) => (
              <th key={name} scope="col">
                <button
                  type="button"
                  aria-label={`${name.slice(0, 2)}, all of ${name}`}
                  onClick={() => toggle(HOURS.map((hour) => ({ day, hour })))}
                >
                  {name.slice(0, 2)}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {HOURS.map((hour) => (
            <tr key={hour}>
              <th scope="row">
                <button
                  type="button"
                  aria-label={`${clockOf(hour)} of all days`}
                  onClick={() => toggle(DAY_NAMES.map((_, day) => ({ day, hour })))}
                >
                  {String(hour).padStart(2, "0")}
                </button>
              </th>
              {DAY_NAMES.map((name, day) => {
                const cell = cellOf(lent, day, hour);
                return (
                  <td
                    key={name}
                    role="gridcell"
                    className={`hour-${cell}`}
                    tabIndex={here.day === day && here.hour === hour ? 0 : -1}
                    aria-selected={cell === "lent"}
                    aria-label={`${hourName(day, hour)}: ${WORDS[cell]}`}
                    onFocus={() => setHere({ day, hour })}
                    onKeyDown={onKey}
                    onPointerDown={(event) => {
                      isMouse.current = event.pointerType === "mouse";
                      if (isMouse.current && event.button === 0) begin(day, hour);
                    }}
                    onPointerEnter={() => {
                      if (stroke.current !== null) paint([{ day, hour }], stroke.current);
                    }}
                    onClick={() => {
                      // A mouse has painted already.
                      if (!isMouse.current) toggle([{ day, hour }]);
                      isMouse.current = false;
                    }}
                  />
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
