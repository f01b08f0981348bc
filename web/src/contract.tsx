// SPDX-License-Identifier: Apache-2.0
import { ContractEditing } from "./contractedit";
import { isMine } from "./reclaim";
import { Site } from "./site";
import { Contract, GpuWindows, Node } from "./types";
import { consequences, DAY_NAMES, DAYS, weekOf } from "./words";

/** Where a row of half hours is lent: from and until which half hour. */
function spansOf(row: boolean[]): [number, number][] {
  const found: [number, number][] = [];
  for (let half = 0; half < row.length; half += 1) {
    if (!row[half]) continue;
    const from = half;
    while (half < row.length && row[half]) half += 1;
    found.push([from, half]);
  }
  return found;
}

/** "08:00 to 12:00 and 20:00 to 24:00". */
function spans(row: boolean[]): string {
  const text = (half: number) => `${String(Math.floor(half / 2)).padStart(2, "0")}:${half % 2 ? "30" : "00"}`;
  const found = spansOf(row).map(([from, to]) =>
    to - from === row.length ? "all day" : `${text(from)} to ${text(to)}`,
  );
  return found.length ? found.join(" and ") : "not lent";
}

/** Of the machine, or of a GPU with hours of its own: those count where the machine is lent. */
function Week({ contract, own }: { contract: Contract; own?: GpuWindows }) {
  const shown = own ? own.windows : contract.windows;
  const week = weekOf(contract.lends ? shown : [{ days: [], from: "00:00", to: "00:00" }]);
  const what = own ? `Hours of GPU ${own.gpu}, where the machine is lent` : "Hours in which it is lent";
  return (
    <table className="week">
      <caption>
        {what} ({contract.time_zone})
      </caption>
      <thead>
        <tr>
          <th scope="col">Day</th>
          <th scope="col">
            <span className="week-hours" aria-hidden="true">
              <span>0</span>
              <span>6</span>
              <span>12</span>
              <span>18</span>
              <span>24</span>
            </span>
            <span className="unseen">Lent</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {week.map((row, day) => (
          <tr key={DAYS[day]}>
            <th scope="row">
              <abbr title={DAY_NAMES[day]}>{DAY_NAMES[day]?.slice(0, 3)}</abbr>
            </th>
            <td>
              <svg viewBox="0 0 48 4" preserveAspectRatio="none" aria-hidden="true">
                <rect className="week-own" width="48" height="4" />
                {spansOf(row).map(([from, to]) => (
                  <rect key={from} className="week-lent" x={from} width={to - from} height="4" />
                ))}
                {[12, 24, 36].map((half) => (
                  <rect key={`line-${half}`} className="week-line" x={half} width="0.1" height="4" />
                ))}
              </svg>
              <span className="unseen">{spans(row)}</span>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function ContractView({ site, node }: { site: Site; node: Node }) {
  return (
    <details className="contract">
      <summary>Contract</summary>
      <Week contract={node.contract} />
      {(node.contract.gpu_windows ?? []).map((own) => (
        <Week key={own.gpu} contract={node.contract} own={own} />
      ))}
      <ul>
        {consequences(node.contract, node).map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
      {isMine(site, node) && node.contract_version ? <ContractEditing site={site} node={node} /> : null}
      <p className="note">
        On the machine itself: <code>reclaim-agent contract set FILE</code>.
      </p>
    </details>
  );
}
