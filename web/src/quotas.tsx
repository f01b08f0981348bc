// SPDX-License-Identifier: Apache-2.0
// Quotas: what one may have and has, and for administrators everybody's, and setting them (docs/quotas.md).
import { FormEvent, useId, useMemo, useRef, useState } from "react";
import { wordsOf } from "./api";
import { Badge, Empty, Meter, Scroll, useFetched, useNow } from "./parts";
import {
  boundsText,
  draftOf,
  NEW_QUOTA,
  QuotaComplaints,
  QuotaDraft,
  readQuota,
  shareOf,
  sharesOf,
  shareText,
  subjectWords,
  windowText,
} from "./quotawords";
import { Site, SiteState } from "./site";
import { Quota, QuotaList, QuotaUse } from "./types";
import { dayAndClock } from "./words";

/** Hours are used while no event tells of it. */
const LOOK_MS = 30_000;

/**
 * What the coordinator tells the caller of quotas: asked again when `key` is another one, when a quota was changed, and
 * each half a minute.
 */
function useQuotas(site: Site, state: SiteState, key: string): { value: QuotaList | null; trouble: unknown } {
  const look = Math.floor(useNow(LOOK_MS) / LOOK_MS);
  const set = state.events.find((event) => event.kind.startsWith("quota."))?.seq ?? 0;
  return useFetched(`${look} ${set} ${key}`, () => site.api.get<QuotaList>("/v1/quotas"));
}

function Use({ use, me }: { use: QuotaUse; me: string }) {
  const isOfAll = use.rule !== "" && use.rule !== use.subject;
  return (
    <li className="card quota">
      <h3>
        {subjectWords(use.subject, me)}
        {use.gpu_model ? <span className="note">, on {use.gpu_model}</span> : null}
      </h3>
      {sharesOf(use).map((one) => (
        <Meter key={one.label} label={one.label} share={shareOf(one)} text={shareText(one)} />
      ))}
      <p className="note">
        {use.rule === "" ? "No quota is set." : isOfAll ? `By the quota of ${subjectWords(use.rule)}.` : null}
      </p>
    </li>
  );
}

/** What the caller and their lab have, of what they may have. */
export function MyQuotas({ site, state }: { site: Site; state: SiteState }) {
  const { user, lab } = state.who;
  const own = useMemo(
    () => state.jobs.flatMap((job) => (job.owner === user ? [`${job.number}${job.state}`] : [])).join(" "),
    [state.jobs, user],
  );
  const { value, trouble } = useQuotas(site, state, own);
  const mine = (value?.uses ?? []).filter((use) => [`user:${user}`, `lab:${lab}`].includes(use.subject));
  return (
    <section aria-labelledby="quota-title">
      <h2 id="quota-title">Quota</h2>
      {trouble ? (
        <p className="trouble" role="alert">
          {wordsOf(trouble)}
        </p>
      ) : null}
      {value && mine.every((use) => use.rule === "") ? (
        <Empty>Nothing bounds what you or your lab may have.</Empty>
      ) : null}
      <ul className="quotas">
        {mine.map((use) => (
          <Use key={`${use.subject} ${use.gpu_model}`} use={use} me={user} />
        ))}
      </ul>
    </section>
  );
}

// ---- an administrator's

/** Of many users only those who have most of what they may have; of many quotas the first by their names. */
const ROWS_SHOWN = 200;

function fullestOf(use: QuotaUse): number {
  return Math.max(...sharesOf(use).map(shareOf));
}

function UseTable({ uses }: { uses: QuotaUse[] }) {
  const shown = [...uses].sort((a, b) => fullestOf(b) - fullestOf(a)).slice(0, ROWS_SHOWN);
  return (
    <>
      <UseRows uses={shown} />
      {shown.length < uses.length ? (
        <p className="note">
          The {shown.length} of {uses.length} who have most of what they may have; reclaim quota lists all.
        </p>
      ) : null}
    </>
  );
}

function UseRows({ uses }: { uses: QuotaUse[] }) {
  return (
    <Scroll label="Quotas and their use">
      <table>
        <caption className="unseen">Who has how much of their quota</caption>
        <thead>
          <tr>
            <th scope="col">Who</th>
            <th scope="col">GPUs of model</th>
            <th scope="col">GPUs at once</th>
            <th scope="col">GPU-hours</th>
            <th scope="col">Jobs that run</th>
            <th scope="col">Wait or run</th>
            <th scope="col">By the quota of</th>
            <th scope="col">Full</th>
          </tr>
        </thead>
        <tbody>
          {uses.map((use) => {
            const [gpus, hours, running, jobs] = sharesOf(use);
            const isFull = fullestOf(use) >= 1;
            return (
              <tr key={`${use.subject} ${use.gpu_model}`}>
                <td>{subjectWords(use.subject)}</td>
                <td>{use.gpu_model || "all"}</td>
                <td>{gpus ? shareText(gpus) : "–"}</td>
                <td>
                  {hours ? shareText(hours) : "–"} <span className="note">in {windowText(use.window_s)}</span>
                </td>
                <td>{running ? shareText(running) : "–"}</td>
                <td>{jobs ? shareText(jobs) : "–"}</td>
                <td>{use.rule === "" ? "none" : use.rule === use.subject ? "their own" : use.rule}</td>
                <td>{isFull ? <Badge word={{ text: "reached", tone: "warn" }} /> : "–"}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}

function SetTable({
  quotas,
  onChange,
  onRemove,
}: {
  quotas: Quota[];
  onChange: (quota: Quota) => void;
  onRemove: (quota: Quota) => void;
}) {
  return (
    <Scroll label="Quotas that are set">
      <table>
        <caption className="unseen">Quotas that are set</caption>
        <thead>
          <tr>
            <th scope="col">Of</th>
            <th scope="col">GPUs of model</th>
            <th scope="col">At most</th>
            <th scope="col">Set</th>
            <th scope="col">Change</th>
          </tr>
        </thead>
        <tbody>
          {quotas.slice(0, ROWS_SHOWN).map((quota) => {
            const name = quota.subject + (quota.gpu_model ? ` on ${quota.gpu_model}` : "");
            return (
              <tr key={`${quota.subject} ${quota.gpu_model}`}>
                <td>{quota.subject}</td>
                <td>{quota.gpu_model || "all"}</td>
                <td className="wide">{boundsText(quota)}</td>
                <td>
                  {dayAndClock(quota.set_wall_ms)} by {quota.set_by}
                </td>
                <td>
                  <button type="button" aria-label={`Change the quota of ${name}`} onClick={() => onChange(quota)}>
                    Change
                  </button>{" "}
                  <button type="button" aria-label={`Remove the quota of ${name}`} onClick={() => onRemove(quota)}>
                    Remove
                  </button>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}

const FIELDS: { field: keyof QuotaDraft; label: string; help?: string }[] = [
  { field: "subject", label: "Of whom", help: "user:NAME, lab:NAME; user:* and lab:* are of all others" },
  { field: "model", label: "GPUs of the model", help: "part of its name, H100; empty: all GPUs" },
  { field: "gpus", label: "GPUs at once" },
  { field: "hours", label: "GPU-hours" },
  { field: "window", label: "within the last", help: "12h, 7d" },
  { field: "running", label: "Jobs that run" },
  { field: "jobs", label: "Jobs that wait or run" },
  {
    field: "idleStop",
    label: "Stop jobs that use nothing after",
    help: "30m, 2h; a job's own idle_stop counts before it; empty: only those that ask for it",
  },
];

function Fields({
  draft,
  complaints,
  change,
}: {
  draft: QuotaDraft;
  complaints: QuotaComplaints;
  change: (field: keyof QuotaDraft, text: string) => void;
}) {
  const id = useId();
  return (
    <div className="fields">
      {FIELDS.map(({ field, label, help }) => (
        <div key={field} className="field">
          <label htmlFor={`${id}-${field}`}>{label}</label>
          <input
            id={`${id}-${field}`}
            name={field}
            type="text"
            autoComplete="off"
            spellCheck={false}
            value={draft[field]}
            aria-invalid={complaints[field] !== undefined}
            aria-describedby={`${id}-${field}-help`}
            onChange={(event) => change(field, event.target.value)}
          />
          <span id={`${id}-${field}-help`} className={complaints[field] ? "trouble" : "note"}>
            {complaints[field] ?? help ?? "empty: no bound"}
          </span>
        </div>
      ))}
    </div>
  );
}

/** An administrator sets them. */
function SetQuota({ site, quotas, onDone }: { site: Site; quotas: Quota[]; onDone: () => void }) {
  const [draft, setDraft] = useState<QuotaDraft>(NEW_QUOTA);
  const [isTried, setTried] = useState(false);
  const [isSending, setSending] = useState(false);
  const [news, setNews] = useState<{ words: string; isTrouble: boolean }>({ words: "", isTrouble: false });
  const form = useRef<HTMLFormElement>(null);
  const { request, complaints } = readQuota(draft);
  const focus = (field: string) => form.current?.querySelector<HTMLElement>(`[name=${field}]`)?.focus();
  const write = (next: QuotaDraft) => {
    setDraft(next);
    setTried(false);
  };

  /** What was refused stays in the form. */
  const send = (what: Promise<void>, words: string, then: () => void) => {
    setSending(true);
    what
      .then(
        () => {
          setNews({ words, isTrouble: false });
          onDone();
          then();
        },
        (error: unknown) => setNews({ words: wordsOf(error), isTrouble: true }),
      )
      .finally(() => setSending(false));
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setTried(true);
    const wrong = FIELDS.find(({ field }) => complaints[field] !== undefined);
    if (wrong) return focus(wrong.field);
    const subject = draft.subject.trim();
    send(site.setQuota(subject, request), `The quota of ${subject} is set.`, () => write(NEW_QUOTA));
  };
  const remove = (quota: Quota) => {
    // Its button goes with it.
    const then = () => focus("subject");
    send(site.removeQuota(quota.subject, quota.gpu_model), `The quota of ${quota.subject} is removed.`, then);
  };
  return (
    <>
      {quotas.length ? (
        <SetTable
          quotas={quotas}
          onChange={(quota) => {
            write(draftOf(quota));
            focus("gpus");
          }}
          onRemove={remove}
        />
      ) : null}
      <h3 id="quota-form">Set a quota</h3>
      <form ref={form} className="card" aria-labelledby="quota-form" onSubmit={submit} noValidate>
        <p className="note">
          It bounds who begins: what runs goes on. It takes the place of the whole quota that they have for these GPUs.
        </p>
        <Fields
          draft={draft}
          complaints={isTried ? complaints : {}}
          change={(field, text) => setDraft((old) => ({ ...old, [field]: text }))}
        />
        <button type="submit" className="primary" disabled={isSending}>
          {isSending ? "Sending…" : "Set the quota"}
        </button>
      </form>
      <p className={news.isTrouble ? "trouble" : ""} role={news.isTrouble ? "alert" : "status"}>
        {news.words}
      </p>
    </>
  );
}

/** For administrators everybody's, and to be set; for owners their lab's and its users'. */
export function SiteQuotas({ site, state }: { site: Site; state: SiteState }) {
  const [turn, setTurn] = useState(0);
  const { value, trouble } = useQuotas(site, state, `${turn}`);
  return (
    <section aria-labelledby="quotas-title">
      <h2 id="quotas-title">Quotas</h2>
      {trouble ? (
        <p className="trouble" role="alert">
          {wordsOf(trouble)}
        </p>
      ) : null}
      {value && value.quotas.length === 0 ? <Empty>No quota is set: nothing bounds what is used.</Empty> : null}
      {value?.uses.length ? <UseTable uses={value.uses} /> : null}
      {value && state.who.role === "admin" ? (
        <SetQuota site={site} quotas={value.quotas} onDone={() => setTurn((old) => old + 1)} />
      ) : null}
    </section>
  );
}
