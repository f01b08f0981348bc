// SPDX-License-Identifier: Apache-2.0
// The contract's weekly windows as the minutes of a week, from Monday on, and back: what is painted in hours leaves
// windows that begin at other minutes as they are.
import { LendingWindow } from "./types";
import { DAYS } from "./words";

const DAY = 24 * 60;
const WEEK = 7 * DAY;

function minuteOf(text: string): number {
  const [hours = "0", rest = "0"] = text.split(":");
  return Number(hours) * 60 + Number(rest);
}

function textOf(minute: number): string {
  return `${String(Math.floor(minute / 60)).padStart(2, "0")}:${String(minute % 60).padStart(2, "0")}`;
}

/** For each minute of the week: lent or not. No windows lend always; a window without days is of every day. */
export function minutesOf(windows: LendingWindow[]): boolean[] {
  const lent = new Array<boolean>(WEEK).fill(windows.length === 0);
  for (const window of windows) {
    const from = minuteOf(window.from);
    const to = minuteOf(window.to);
    const length = to > from ? to - from : to + DAY - from;
    DAYS.forEach((name, day) => {
      if (window.days.length > 0 && !window.days.includes(name)) return;
      for (let at = 0; at < length; at += 1) lent[(day * DAY + from + at) % WEEK] = true;
    });
  }
  return lent;
}

/** Stretches of lent minutes: where each begins, and how long it is. One that goes over Sunday's end is one. */
function stretchesOf(lent: boolean[]): { at: number; length: number }[] {
  const first = lent.findIndex((isLent, at) => isLent && !lent[(at + WEEK - 1) % WEEK]);
  const found: { at: number; length: number }[] = [];
  for (let step = 0; step < WEEK; step += 1) {
    const at = (first + step) % WEEK;
    if (!lent[at]) continue;
    const last = found[found.length - 1];
    if (last && (last.at + last.length) % WEEK === at) last.length += 1;
    else found.push({ at, length: 1 });
  }
  return found;
}

/** A stretch in pieces that a window can say: none is longer than a day. */
function piecesOf(at: number, length: number): { day: number; from: number; to: number }[] {
  const day = Math.floor(at / DAY);
  const from = at % DAY;
  if (length < DAY) return [{ day, from, to: from + length > DAY ? from + length - DAY : from + length }];
  const here = DAY - from;
  const rest = length - here;
  const pieces = [{ day, from, to: DAY }];
  for (let left = rest, next = day + 1; left > 0; left -= DAY, next += 1)
    pieces.push({ day: next % 7, from: 0, to: Math.min(left, DAY) });
  return pieces;
}

/** The fewest windows by days that say it; none for a week that is lent as a whole. Null: no minute is lent. */
export function windowsOf(lent: boolean[]): LendingWindow[] | null {
  if (lent.every(Boolean)) return [];
  if (!lent.some(Boolean)) return null;
  const days = new Map<string, number[]>();
  for (const stretch of stretchesOf(lent)) {
    for (const piece of piecesOf(stretch.at, stretch.length)) {
      const hours = `${textOf(piece.from)} ${textOf(piece.to)}`;
      days.set(hours, [...(days.get(hours) ?? []), piece.day]);
    }
  }
  return [...days].map(([hours, list]) => {
    const [from = "", to = ""] = hours.split(" ");
    return { days: DAYS.filter((_, day) => list.includes(day)), from, to };
  });
}

export type Cell = "lent" | "part" | "own";

export function cellOf(lent: boolean[], day: number, hour: number): Cell {
  const begin = day * DAY + hour * 60;
  const minutes = lent.slice(begin, begin + 60).filter(Boolean).length;
  return minutes === 60 ? "lent" : minutes === 0 ? "own" : "part";
}

/** The same week with these hours lent, or not. */
export function withHours(lent: boolean[], hours: { day: number; hour: number }[], isLent: boolean): boolean[] {
  const next = [...lent];
  for (const { day, hour } of hours) next.fill(isLent, day * DAY + hour * 60, day * DAY + hour * 60 + 60);
  return next;
}

export function hoursLent(lent: boolean[]): number {
  return lent.filter(Boolean).length / 60;
}
