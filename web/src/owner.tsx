// SPDX-License-Identifier: Apache-2.0
import { useMemo, useState } from "react";
import { ContractView } from "./contract";
import { WhenTakenBack } from "./hours";
import { Ago, Badge, Empty, Meter, Scroll, Tile } from "./parts";
import { TakeBack, TakeBackButton } from "./reclaim";
import { Site, SiteState } from "./site";
import { Guest, Node, Reclaim } from "./types";
import {
  bytes,
  dayAndClock,
  duration,
  gpuOf,
  isGpuLent,
  isOwnersOwn,
  jobWord,
  lendingWord,
  openReclaims,
  reclaimKind,
  reclaimWord,
  since,
} from "./words";

const DAY_MS = 86_400_000;

/** Those of the caller's lab; an administrator sees every lab's and chooses. */
function useMine(state: SiteState): { labs: string[]; lab: string; choose: (lab: string) => void; nodes: Node[] } {
  const isAdmin = state.who.role === "admin";
  const labs = useMemo(() => [...new Set(state.nodes.map((node) => node.lab))].sort(), [state.nodes]);
  const [chosen, choose] = useState("");
  const lab = isAdmin ? (labs.includes(chosen) ? chosen : (labs[0] ?? "")) : state.who.lab;
  const nodes = state.nodes.filter((node) => node.lab === lab && node.state !== "left");
  return { labs: isAdmin ? labs : [], lab, choose, nodes };
}

function Guests({ guests }: { guests: Guest[] }) {
  if (guests.length === 0) return <p>Nobody is on it.</p>;
  return (
    <ul className="guests">
      {guests.map((guest) => (
        <li key={guest.job_number}>
          <Badge word={jobWord(guest.state)} /> <strong>{guest.user}</strong> of {guest.lab}, job {guest.job_number}
          {guest.gpus ? `, ${guest.gpus} GPU${guest.gpus > 1 ? "s" : ""}` : ""}
          {guest.since_wall_ms ? (
            <>
              , came <Ago ms={guest.since_wall_ms} />
            </>
          ) : null}
        </li>
      ))}
    </ul>
  );
}

function Gpus({ site, node, open }: { site: Site; node: Node; open: Reclaim[] }) {
  if (node.facts.gpus.length === 0) return null;
  return (
    <ul className="gpus">
      {node.facts.gpus.map((gpu) => {
        const now = gpuOf(node, gpu.index);
        const isLent = isGpuLent(node.contract, gpu.index);
        const word = now?.is_wedged
          ? "not verified free"
          : now?.sickness
            ? `sick: ${now.sickness}`
            : now && isOwnersOwn(node.contract, now)
              ? "you use it"
              : !isLent
                ? "not lent"
                : now?.is_outside_window
                  ? "outside its hours"
                  : now?.closes_in_s
                    ? `lent, by its hours for ${Math.ceil(now.closes_in_s / 60)} min more`
                    : "lent";
        return (
          <li key={gpu.index}>
            <strong>GPU {gpu.index}</strong> {gpu.model} <span className="note">({word})</span>
            <Meter
              label="use"
              share={(now?.utilisation_percent ?? 0) / 100}
              text={now && !now.is_unseen ? `${now.utilisation_percent} %` : "not seen"}
            />
            {isLent ? <TakeBackButton site={site} node={node} gpu={gpu.index} open={open} /> : null}
          </li>
        );
      })}
    </ul>
  );
}

function Machine({ site, node, reclaims }: { site: Site; node: Node; reclaims: Reclaim[] }) {
  const open = openReclaims(reclaims, node.id);
  const cores = node.facts.cpu_milli / 1_000;
  return (
    <article className="card machine" aria-labelledby={`machine-${node.id}`}>
      <header>
        <h2 id={`machine-${node.id}`}>{node.facts.hostname}</h2>
        <Badge word={lendingWord(node)} />
      </header>
      {node.is_connected ? null : (
        <p className="trouble">Nothing heard for {duration(node.silent_ms)}: what follows is as of then.</p>
      )}
      <TakeBack site={site} node={node} open={open} />
      <h3>On it now</h3>
      <Guests guests={node.guests} />
      <Meter
        label={`${cores} cores`}
        share={node.telemetry.cpu_percent / 100}
        text={`${node.telemetry.cpu_percent} %`}
      />
      <Meter
        label={bytes(node.facts.memory_mib * 1_048_576)}
        share={node.telemetry.memory_used_mib / Math.max(1, node.facts.memory_mib)}
        text={`${bytes(node.telemetry.memory_used_mib * 1_048_576)} used`}
      />
      <Gpus site={site} node={node} open={open} />
      <ContractView site={site} node={node} />
      <WhenTakenBack site={site} node={node} />
    </article>
  );
}

function Returned({ reclaims, nodes }: { reclaims: Reclaim[]; nodes: Node[] }) {
  if (reclaims.length === 0) return <Empty>You have taken nothing back yet.</Empty>;
  return (
    <Scroll label="What was taken back">
      <table>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Machine</th>
            <th scope="col">How</th>
            <th scope="col">State</th>
            <th scope="col" className="number">
              Cut after
            </th>
            <th scope="col" className="number">
              Cleared after
            </th>
            <th scope="col" className="number">
              Processes ended
            </th>
          </tr>
        </thead>
        <tbody>
          {reclaims.slice(0, 50).map((one) => {
            const cut = since(one, one.cut_ns);
            const cleared = since(one, one.cleared_ns);
            return (
              <tr key={`${one.node} ${one.id}`}>
                <td>{dayAndClock(one.declared_wall_ms)}</td>
                <td>
                  {nodes.find((node) => node.id === one.node)?.facts.hostname ?? one.node}
                  {one.gpus.length ? `, GPU ${one.gpus.join(", ")}` : ""}
                </td>
                <td>{reclaimKind(one.kind)}</td>
                <td>
                  <Badge word={reclaimWord(one.phase)} />
                </td>
                <td className="number">{cut === null ? "–" : duration(cut)}</td>
                <td className="number">{cleared === null ? "–" : duration(cleared)}</td>
                <td className="number">{one.processes_killed}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}

export function Owner({ site, state }: { site: Site; state: SiteState }) {
  const { labs, lab, choose, nodes } = useMine(state);
  const ids = new Set(nodes.map((node) => node.id));
  const mine = state.reclaims
    .filter((one) => ids.has(one.node))
    .sort((a, b) => b.declared_wall_ms - a.declared_wall_ms);
  const guests = nodes.flatMap((node) => node.guests);
  const borrowers = [...new Set(guests.map((guest) => guest.lab))].sort();
  const asked = mine.filter((one) => one.kind !== "lost" && Date.now() - one.declared_wall_ms < 30 * DAY_MS);
  const clearing = asked
    .map((one) => (one.kind === "emergency" ? since(one, one.cleared_ns) : null))
    .filter((one): one is number => one !== null);
  return (
    <>
      {labs.length ? (
        <p>
          <label>
            Lab{" "}
            <select value={lab} onChange={(event) => choose(event.target.value)}>
              {labs.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
        </p>
      ) : null}
      <dl className="tiles">
        <Tile label="Machines" value={nodes.length} note={`of ${lab}`} />
        <Tile
          label="Lent right now"
          value={nodes.filter((node) => node.guests.length > 0).length}
          note={borrowers.length ? `to ${borrowers.join(", ")}` : "to nobody"}
        />
        <Tile label="Guests" value={guests.length} />
        <Tile
          label="Taken back, 30 days"
          value={asked.length}
          note={clearing.length ? `at once: cleared within ${duration(Math.max(...clearing))}` : undefined}
        />
      </dl>
      {nodes.length === 0 ? (
        <Empty>
          No machine of {lab} has joined. An owner makes a join token by <code>reclaim token create --lab {lab}</code>
          ; docs/lending.md goes on from there.
        </Empty>
      ) : (
        <div className="cards">
          {nodes.map((node) => (
            <Machine key={node.id} site={site} node={node} reclaims={mine} />
          ))}
        </div>
      )}
      <h2>What I got back</h2>
      <Returned reclaims={mine} nodes={nodes} />
    </>
  );
}
