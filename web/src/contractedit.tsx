// SPDX-License-Identifier: Apache-2.0
// An owner changes a machine's contract: what it would mean is asked before anything is sent, and the machine decides
// whether it takes effect or waits for somebody there (ADR 0024).
import { useEffect, useMemo, useRef, useState } from "react";
import { newName, Refused, wordsOf } from "./api";
import { GpuHours, GpuWeeks, withGpuWeeks } from "./gpuhours";
import { Ago, Badge } from "./parts";
import { Site } from "./site";
import { Contract, ContractPreview, Node } from "./types";
import { hoursLent, minutesOf, windowsOf } from "./week";
import { WeekGrid } from "./weekgrid";
import { editWord, isGpuLent } from "./words";

/** A pause in typing or painting, after which the coordinator is asked. */
const ASKED_AFTER_MS = 400;

/** What an edit is made from. */
interface Base {
  version: string;
  waits: string;
}

export function baseOf(node: Node): Base {
  return { version: node.contract_version, waits: node.proposal?.id ?? "" };
}

/** The contract with the week that was painted; a week without an hour is what lending nothing is for. */
export function withWeek(contract: Contract, week: boolean[] | null): Contract {
  if (week === null) return contract;
  const windows = windowsOf(week);
  if (windows === null) return { ...contract, lends: false };
  // Days that are lent as a whole say nothing where all days are.
  return { ...contract, windows, holidays: windows.length ? contract.holidays : [] };
}

/** "2026-12-24, 2026-12-25" or one a line. */
export function datesOf(text: string): string[] {
  return text.split(/[\s,;]+/).filter(Boolean);
}

function numberOf(text: string): number {
  const value = Number(text);
  return Number.isFinite(value) && value >= 0 ? Math.round(value) : 0;
}

/** What the coordinator says that the draft would do; asked when it has stood still for a moment. */
function usePreview(site: Site, node: Node, draft: Contract): { preview: ContractPreview | null; trouble: string } {
  const [state, setState] = useState<{ preview: ContractPreview | null; trouble: string }>({
    preview: null,
    trouble: "",
  });
  const key = JSON.stringify(draft);
  useEffect(() => {
    let isWanted = true;
    const timer = window.setTimeout(() => {
      site.checkContract(node.id, draft).then(
        (preview) => isWanted && setState({ preview, trouble: "" }),
        (error: unknown) => isWanted && setState({ preview: null, trouble: wordsOf(error) }),
      );
    }, ASKED_AFTER_MS);
    return () => {
      isWanted = false;
      window.clearTimeout(timer);
    };
    // Asked again when the machine's contract is another one, too.
  }, [key, node.id, node.contract_version]);
  return state;
}

function Lines({ lines }: { lines: string[] }) {
  return (
    <ul>
      {lines.map((line, index) => (
        <li key={`${index} ${line}`}>{line}</li>
      ))}
    </ul>
  );
}

export function PreviewWords({ preview }: { preview: ContractPreview }) {
  if (preview.problems.length)
    return (
      <>
        <p className="trouble">This is no contract:</p>
        <Lines lines={preview.problems} />
      </>
    );
  if (preview.changes.length === 0) return <p>Nothing is changed.</p>;
  const hours = (minutes: number) => Math.round(minutes / 6) / 10;
  return (
    <>
      <p>
        {preview.narrows
          ? "It only lends less: it takes effect as soon as you save it."
          : "It lends more, or may do so: it waits until somebody at the machine accepts it."}
      </p>
      <Lines lines={preview.changes} />
      <p>
        Lent {hours(preview.lent_minutes_after)} of the week&apos;s 168 hours, and{" "}
        {hours(preview.lent_minutes_before)} now.
      </p>
      {preview.guests.length ? (
        <Lines lines={preview.guests.map((guest) => guest.message)} />
      ) : (
        <p>Nobody is on it now.</p>
      )}
      {preview.notes.length ? <Lines lines={preview.notes} /> : null}
      {preview.widens.length ? (
        <>
          <p>Why it waits:</p>
          <Lines lines={preview.widens} />
        </>
      ) : null}
    </>
  );
}

function Amounts({ draft, change }: { draft: Contract; change: (more: Partial<Contract>) => void }) {
  const fields: [string, number, (value: number) => Partial<Contract>][] = [
    ["Notice that guests have, seconds", draft.notice_s, (notice_s) => ({ notice_s })],
    [
      "Only when nobody was at it for, minutes (0: always)",
      draft.idle.idle_minutes,
      (idle_minutes) => ({ idle: { ...draft.idle, idle_minutes } }),
    ],
    [
      "Cores for all guests, thousandths (0: all)",
      draft.guest_cpu_milli,
      (guest_cpu_milli) => ({ guest_cpu_milli }),
    ],
    [
      "Memory for all guests, MiB (0: three quarters)",
      draft.guest_memory_mib,
      (guest_memory_mib) => ({ guest_memory_mib }),
    ],
    ["Guests at the same time", draft.max_guests, (max_guests) => ({ max_guests })],
  ];
  return (
    <div className="amounts">
      {fields.map(([label, value, made]) => (
        <label key={label}>
          {label}
          <input
            type="text"
            inputMode="numeric"
            value={String(value)}
            onChange={(event) => change(made(numberOf(event.target.value)))}
          />
        </label>
      ))}
    </div>
  );
}

function Gpus({ node, draft, change }: { node: Node; draft: Contract; change: (more: Partial<Contract>) => void }) {
  if (node.facts.gpus.length === 0) return null;
  const all = node.facts.gpus.map((gpu) => gpu.index);
  const lent = draft.lends_gpus ? (draft.gpus.length ? draft.gpus : all) : [];
  const toggle = (gpu: number) => {
    const next = lent.includes(gpu) ? lent.filter((one) => one !== gpu) : [...lent, gpu].sort((a, b) => a - b);
    const isAll = all.every((one) => next.includes(one));
    // As it was, if all were lent without being named.
    change({ lends_gpus: next.length > 0, gpus: isAll && draft.gpus.length === 0 ? [] : next });
  };
  return (
    <fieldset>
      <legend>GPUs that are lent</legend>
      {node.facts.gpus.map((gpu) => (
        <label key={gpu.index} className="tick">
          <input type="checkbox" checked={lent.includes(gpu.index)} onChange={() => toggle(gpu.index)} /> GPU{" "}
          {gpu.index} {gpu.model}
        </label>
      ))}
    </fieldset>
  );
}

function Editor({ site, node, onDone }: { site: Site; node: Node; onDone: () => void }) {
  const [draft, setDraft] = useState<Contract>(node.contract);
  const [base, setBase] = useState(() => baseOf(node));
  const [holidays, setHolidays] = useState(node.contract.holidays.join(", "));
  const [isSending, setSending] = useState(false);
  const [trouble, setTrouble] = useState("");
  // An edit that nobody has answered keeps its name: sent again it is done once.
  const unanswered = useRef<{ name: string; content: string } | null>(null);
  // What is painted; null: the windows are as they were written.
  const [week, setWeek] = useState<boolean[] | null>(null);
  const lent = useMemo(() => week ?? minutesOf(draft.windows), [week, draft.windows]);
  const [gpuWeeks, setGpuWeeks] = useState<GpuWeeks>({});
  const gpus = node.facts.gpus;
  const wanted = useMemo(() => {
    const indices = gpus.map((gpu) => gpu.index);
    return withGpuWeeks(withWeek(draft, week), indices, gpuWeeks);
  }, [draft, week, gpus, gpuWeeks]);
  const { preview, trouble: checkTrouble } = usePreview(site, node, wanted);
  const now = baseOf(node);
  const isOvertaken = now.version !== base.version || now.waits !== base.waits;

  const change = (more: Partial<Contract>) => setDraft((old) => ({ ...old, ...more }));
  const beginAgain = () => {
    setDraft(node.contract);
    setHolidays(node.contract.holidays.join(", "));
    setWeek(null);
    setGpuWeeks({});
    setBase(now);
  };
  const save = async () => {
    const content = JSON.stringify([wanted, base]);
    const name = unanswered.current?.content === content ? unanswered.current.name : newName();
    setSending(true);
    setTrouble("");
    try {
      await site.editContract(node.id, {
        edit: name,
        from: base.version,
        replaces: base.waits,
        contract: wanted,
      });
      onDone();
      document.getElementById(contractNewsOf(node))?.focus();
      return;
    } catch (error) {
      const isRefused = error instanceof Refused && error.isDefinite;
      unanswered.current = isRefused ? null : { name, content };
      setTrouble(isRefused ? wordsOf(error) : `${wordsOf(error)}: whether it was sent is not known`);
    }
    setSending(false);
  };
  const isGood = preview !== null && preview.problems.length === 0 && preview.changes.length > 0;

  return (
    <form
      className="contract-edit"
      aria-label={`Contract of ${node.facts.hostname}`}
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      {isOvertaken ? (
        <div className="alert" role="alert">
          <p>
            Meanwhile the contract was changed, or another change waits. What you see below is what yours would change
            in the one in force now.
          </p>
          <button type="button" onClick={() => setBase(now)}>
            Keep mine, and send it instead
          </button>{" "}
          <button type="button" onClick={beginAgain}>
            Begin again with the one in force
          </button>
        </div>
      ) : null}
      <label className="tick">
        <input type="checkbox" checked={draft.lends} onChange={() => change({ lends: !draft.lends })} /> It runs guests
        at all
      </label>
      {draft.lends ? (
        <>
          <WeekGrid lent={lent} caption={`Hours in which it is lent (${draft.time_zone})`} onPaint={setWeek} />
          <p className="note">
            {hoursLent(lent) === 0
              ? "No hour is lent: it runs no guests."
              : `${Math.round(hoursLent(lent) * 10) / 10} of 168 hours`}
          </p>
        </>
      ) : null}
      <Gpus node={node} draft={draft} change={change} />
      {draft.lends ? (
        <GpuHours
          key={base.version} // begun again: what was typed is gone
          gpus={gpus.filter((gpu) => isGpuLent(draft, gpu.index))}
          draft={draft}
          machine={lent}
          weeks={gpuWeeks}
          onDraft={setDraft}
          onWeeks={setGpuWeeks}
          datesOf={datesOf}
        />
      ) : null}
      <Amounts draft={draft} change={change} />
      <div className="amounts">
        <label>
          Time zone of these hours
          <input
            type="text"
            value={draft.time_zone}
            onChange={(event) => change({ time_zone: event.target.value.trim() })}
          />
        </label>
        <label>
          Days lent as a whole, such as 2026-12-24
          <input
            type="text"
            value={holidays}
            onChange={(event) => {
              setHolidays(event.target.value);
              change({ holidays: datesOf(event.target.value) });
            }}
          />
        </label>
      </div>
      <section className="preview" aria-label="What it would mean">
        <h4>What it would mean</h4>
        <div role="status">
          {checkTrouble ? <p className="trouble">{checkTrouble}</p> : null}
          {preview ? <PreviewWords preview={preview} /> : checkTrouble ? null : <p>Asking…</p>}
          {node.proposal ? <p>It takes the place of the change that waits at the machine.</p> : null}
        </div>
      </section>
      {trouble ? (
        <p className="trouble" role="alert">
          {trouble}
        </p>
      ) : null}
      <div className="actions">
        <button type="submit" className="primary" disabled={isSending || isOvertaken || !isGood}>
          {isGood && !preview.narrows ? "Send it to the machine" : "Save"}
        </button>
        <button type="button" onClick={onDone}>
          Leave it as it is
        </button>
      </div>
    </form>
  );
}

function contractNewsOf(node: Node): string {
  return `contract-news-${node.id}`;
}

/** What waits there, and what it would do. */
function Waiting({ site, node }: { site: Site; node: Node }) {
  const [trouble, setTrouble] = useState("");
  const [preview, setPreview] = useState<ContractPreview | null>(null);
  const proposal = node.proposal;
  useEffect(() => {
    let isWanted = true;
    setPreview(null);
    if (!proposal) return undefined;
    site.checkContract(node.id, proposal.contract).then(
      (answer) => isWanted && setPreview(answer),
      () => {}, // the words above say what there is to do
    );
    return () => {
      isWanted = false;
    };
  }, [proposal?.id, node.id, node.contract_version]);
  if (!proposal) return null;
  const takeBack = async () => {
    setTrouble("");
    try {
      await site.editContract(node.id, {
        edit: newName(),
        from: node.contract_version,
        replaces: proposal.id,
        contract: node.contract,
      });
    } catch (error) {
      setTrouble(wordsOf(error));
    }
  };
  return (
    <div className="waiting">
      <p>
        <Badge word={editWord("pending")} /> A change by <strong>{proposal.user}</strong>, made{" "}
        <Ago ms={proposal.came_wall_ms + node.clock_offset_ms} />, waits for somebody at the machine:{" "}
        <code>reclaim-agent contract accept</code>
      </p>
      {preview ? <Lines lines={preview.changes} /> : null}
      <button type="button" onClick={() => void takeBack()}>
        Take this change back
      </button>
      {trouble ? (
        <p className="trouble" role="alert">
          {trouble}
        </p>
      ) : null}
    </div>
  );
}

export function ContractEditing({ site, node }: { site: Site; node: Node }) {
  const [isEditing, setEditing] = useState(false);
  const newest = node.edits[0];
  return (
    <>
      <div role="status" id={contractNewsOf(node)} tabIndex={-1}>
        {newest && newest.state !== "pending" ? (
          <p>
            <Badge word={editWord(newest.state)} /> {newest.message}
          </p>
        ) : null}
      </div>
      <Waiting site={site} node={node} />
      {isEditing ? (
        <Editor site={site} node={node} onDone={() => setEditing(false)} />
      ) : (
        <button type="button" onClick={() => setEditing(true)}>
          Change the contract of {node.facts.hostname}
        </button>
      )}
    </>
  );
}
