// SPDX-License-Identifier: Apache-2.0
import { ReactNode, useEffect, useState } from "react";
import { duration, Word } from "./words";

/** The time, again each `everyMs`. */
export function useNow(everyMs = 1_000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), everyMs);
    return () => window.clearInterval(timer);
  }, [everyMs]);
  return now;
}

export function Badge({ word }: { word: Word }) {
  return <span className={`badge ${word.tone}`}>{word.text}</span>;
}

export function Ago({ ms }: { ms: number }) {
  const now = useNow(5_000);
  return (
    <time dateTime={new Date(ms).toISOString()} title={new Date(ms).toLocaleString()}>
      {duration(Math.max(0, now - ms))} ago
    </time>
  );
}

/** A part of a whole, as a bar and in words. */
export function Meter({ label, share, text }: { label: string; share: number; text: string }) {
  const width = Math.max(0, Math.min(100, share * 100));
  return (
    <div className="meter">
      <span className="meter-label">{label}</span>
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect className="meter-back" width="100" height="6" rx="1" />
        <rect className="meter-front" width={width} height="6" rx="1" />
      </svg>
      <span className="meter-text">{text}</span>
    </div>
  );
}

export function Tile({ label, value, note }: { label: string; value: ReactNode; note?: ReactNode }) {
  return (
    <div className="tile">
      <dt>{label}</dt>
      <dd>
        <strong>{value}</strong>
        {note ? <span className="note">{note}</span> : null}
      </dd>
    </div>
  );
}

/** A table that scrolls by itself when the window is narrow, also by keyboard. */
export function Scroll({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div className="scroll" role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className="empty">{children}</p>;
}

/** Fetches when `key` changes; keeps the last answer while a new one is on its way. */
export function useFetched<T>(key: string, load: () => Promise<T>): { value: T | null; trouble: unknown } {
  const [state, setState] = useState<{ value: T | null; trouble: unknown }>({ value: null, trouble: null });
  useEffect(() => {
    let isWanted = true;
    load().then(
      (value) => isWanted && setState({ value, trouble: null }),
      (trouble: unknown) => isWanted && setState((old) => ({ value: old.value, trouble })),
    );
    return () => {
      isWanted = false;
    };
    // `load` is made anew with each drawing; `key` says whether it would answer something else.
  }, [key]);
  return state;
}
