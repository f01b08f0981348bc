// SPDX-License-Identifier: Apache-2.0
// The hours of the week in which an owner probably takes a machine back, as a heat map that is a table.
import { useState } from "react";
import { wordsOf } from "./api";
import { useFetched } from "./parts";
import { Site } from "./site";
import { Hazard, Node } from "./types";
import { DAY_NAMES, share } from "./words";

const HOURS = 24;
/** Where the colors begin: the same for all machines, so that these can be compared. */
const LEVELS = [0.01, 0.02, 0.05, 0.1, 0.2];

/** Of an hour of which so many departures are expected: the chance that there is one. */
export function chanceOf(rate: number): number {
  return 1 - Math.exp(-rate);
}

export function heatOf(chance: number): number {
  return LEVELS.filter((level) => chance >= level).length;
}

function hourName(hour: number): string {
  return `${DAY_NAMES[Math.floor(hour / HOURS)] ?? ""} ${String(hour % HOURS).padStart(2, "0")}:00`;
}

/** The hours that stand out, in a sentence. */
export function weekWords(week: number[]): string {
  const most = Math.max(...week);
  const least = Math.min(...week);
  if (week.length === 0 || most < least * 1.05)
    return `All hours are alike so far: ${share(chanceOf(most))} in each.`;
  return (
    `Most often ${hourName(week.indexOf(most))} (${share(chanceOf(most))}), ` +
    `least ${hourName(week.indexOf(least))} (${share(chanceOf(least))}).`
  );
}

export function HoursOfWeek({ hazard, name }: { hazard: Hazard; name: string }) {
  const week = hazard.week_per_hour;
  const days = DAY_NAMES.map((day, index) => ({ day, rates: week.slice(index * HOURS, (index + 1) * HOURS) }));
  return (
    <>
      <p>{weekWords(week)}</p>
      <table className="heat">
        <caption>
          Chance that {name} is taken back in an hour of the week in which it is lent (by the site&apos;s clock)
        </caption>
        <thead>
          <tr>
            <th scope="col">
              <span className="unseen">Day</span>
            </th>
            {Array.from({ length: HOURS }, (_, hour) => (
              <th key={hour} scope="col">
                <span className={hour % 6 === 0 ? undefined : "unseen"}>{hour}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {days.map(({ day, rates }) => (
            <tr key={day}>
              <th scope="row">
                <abbr title={day}>{day.slice(0, 3)}</abbr>
              </th>
              {rates.map((rate, hour) => (
                <td key={hour} className={`heat-${heatOf(chanceOf(rate))}`} title={`${day} ${hour}:00`}>
                  <span className="unseen">{share(chanceOf(rate))}</span>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <p className="legend note">
        {LEVELS.map((level, index) => (
          <span key={level}>
            <i className={`key heat-${index + 1}`} /> from {share(level)}{" "}
          </span>
        ))}
      </p>
      <p className="note">
        From {hazard.base_events.toFixed(1)} departures of the whole site; {hazard.prior}.
      </p>
    </>
  );
}

/** For its owner; asked when it is opened. */
export function WhenTakenBack({ site, node }: { site: Site; node: Node }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details className="contract" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Hours in which it is taken back</summary>
      {isOpen ? <Asked site={site} node={node} /> : null}
    </details>
  );
}

function Asked({ site, node }: { site: Site; node: Node }) {
  const { value, trouble } = useFetched(node.id, () =>
    site.api.get<Hazard>(`/v1/nodes/${encodeURIComponent(node.id)}/hazard`),
  );
  if (trouble) return <p className="trouble">{wordsOf(trouble)}</p>;
  return value ? <HoursOfWeek hazard={value} name={node.facts.hostname} /> : <p role="status">Loading…</p>;
}
