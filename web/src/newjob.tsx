// SPDX-License-Identifier: Apache-2.0
// A student writes a job, reads what would become of it, and submits it once, whatever happens to the connection.
import { FormEvent, ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { newName, Refused, wordsOf } from "./api";
import { Badge, Scroll, useFetched, useNow } from "./parts";
import {
  Complaints,
  Draft,
  fitWords,
  interruptionWords,
  NEW_DRAFT,
  nextWords,
  noticeWords,
  plannedOf,
  Planner,
  PlanState,
  readDraft,
  startWords,
  verdictWord,
} from "./plan";
import { forgetSent, savedSent, saveSent, Sent } from "./session";
import { Site, SiteState } from "./site";
import { Image, Plan, SubmitAnswer } from "./types";
import { duration, share } from "./words";

/** A plan is of a moment. */
const ASKED_AGAIN_MS = 30_000;
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 15_000;

interface FieldProps {
  field: keyof Draft;
  label: string;
  help?: string;
  complaints: Complaints;
  children: (props: { id: string; "aria-invalid": boolean; "aria-describedby": string | undefined }) => ReactNode;
}

function Field({ field, label, help, complaints, children }: FieldProps) {
  const id = `new-${field}`;
  const complaint = complaints[field];
  const told = [help ? `${id}-help` : "", complaint ? `${id}-complaint` : ""].filter(Boolean).join(" ");
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({ id, "aria-invalid": complaint !== undefined, "aria-describedby": told || undefined })}
      {help ? (
        <span id={`${id}-help`} className="note">
          {help}
        </span>
      ) : null}
      {complaint ? (
        <span id={`${id}-complaint`} className="trouble">
          {complaint}
        </span>
      ) : null}
    </div>
  );
}

function Candidates({ plan }: { plan: Plan }) {
  if (plan.candidates.length === 0) return null;
  return (
    <details>
      <summary>Machine by machine</summary>
      <Scroll label="Machines for this job">
        <table>
          <thead>
            <tr>
              <th scope="col">Machine</th>
              <th scope="col">Now</th>
              <th scope="col">Undisturbed</th>
              <th scope="col" className="number">
                Notice
              </th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {plan.candidates.slice(0, 20).map((one) => (
              <tr key={one.node}>
                <td>
                  {one.hostname || one.node} <span className="note">{one.lab}</span>
                </td>
                <td>{fitWords(one)}</td>
                <td>
                  {one.fit === "never"
                    ? "–"
                    : `${share(one.stays)} (${share(one.stays_low)} to ${share(one.stays_high)})`}
                </td>
                <td className="number">{duration(one.notice_s * 1_000)}</td>
                <td className="wide">{one.reason}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </details>
  );
}

/** What would become of it. Only the verdict is read out by itself, and not at each letter. */
function Forecast({ state }: { state: PlanState }) {
  const { plan, trouble, isAsking } = state;
  return (
    <section className={`card plan ${isAsking ? "asking" : ""}`} aria-labelledby="plan-title" aria-busy={isAsking}>
      <h3 id="plan-title">What would become of it</h3>
      <div role="status">
        {plan ? (
          <p>
            <Badge word={verdictWord(plan)} /> {plan.sentence}
          </p>
        ) : trouble ? (
          <p className="trouble">{trouble}</p>
        ) : (
          <p className="note">{isAsking ? "Asking…" : "Told as soon as all fields can be read."}</p>
        )}
      </div>
      {plan ? (
        <>
          {plan.verdict === "never" ? null : (
            <dl className="facts">
              <dt>Start</dt>
              <dd>{startWords(plan)}</dd>
              <dt>Interruptions</dt>
              <dd>{interruptionWords(plan)}</dd>
              <dt>Notice</dt>
              <dd>{noticeWords(plan)}</dd>
            </dl>
          )}
          {plan.warnings.map((warning) => (
            <p key={warning} className="alert">
              {warning}
            </p>
          ))}
          <p>{nextWords(plan)}</p>
          <Candidates plan={plan} />
        </>
      ) : null}
    </section>
  );
}

function usePlan(site: Site, draft: Draft): PlanState {
  const [state, setState] = useState<PlanState>({ plan: null, trouble: "", isAsking: false });
  const planner = useRef<Planner | null>(null);
  const tick = Math.floor(useNow(ASKED_AGAIN_MS) / ASKED_AGAIN_MS);
  useEffect(() => {
    const one = new Planner(
      (spec) => site.plan(spec),
      (now) => setState((old) => (now.isAsking ? { ...now, plan: old.plan } : now)),
    );
    planner.current = one;
    return () => one.close();
  }, [site]);
  useEffect(() => planner.current?.want(plannedOf(draft)), [draft]);
  useEffect(() => {
    if (!document.hidden) planner.current?.again();
  }, [tick]);
  return state;
}

type Sending =
  | { kind: "writing"; trouble: string }
  | { kind: "sending"; sent: Sent }
  | { kind: "unsure"; sent: Sent; why: string }
  | { kind: "done"; answer: SubmitAnswer };

/**
 * Sends a job until somebody answers. Its key is kept in the window before the first try, so that it is one job however
 * often it is sent, also after a reload.
 */
function useSending(site: Site): [Sending, (sent: Sent) => void, () => void] {
  const [state, setState] = useState<Sending>({ kind: "writing", trouble: "" });
  const timer = useRef(0);
  const wait = useRef(FIRST_RETRY_MS);
  const isHere = useRef(true);
  const isBusy = useRef(false);

  const send = async (sent: Sent) => {
    window.clearTimeout(timer.current);
    if (isBusy.current) return;
    isBusy.current = true;
    saveSent(sent);
    setState((old) => (old.kind === "unsure" ? old : { kind: "sending", sent }));
    try {
      const answer = await site.submit(sent);
      forgetSent();
      if (isHere.current) setState({ kind: "done", answer });
    } catch (error) {
      const isDefinite = error instanceof Refused && error.isDefinite;
      if (isDefinite) forgetSent();
      if (isHere.current) {
        setState(
          isDefinite ? { kind: "writing", trouble: wordsOf(error) } : { kind: "unsure", sent, why: wordsOf(error) },
        );
        if (!isDefinite) timer.current = window.setTimeout(() => void send(sent), wait.current);
        wait.current = Math.min(wait.current * 2, LONGEST_RETRY_MS);
      }
    }
    isBusy.current = false;
  };

  const leave = () => {
    window.clearTimeout(timer.current);
    forgetSent();
    setState({ kind: "writing", trouble: "" });
  };

  // What was on its way when the page was loaded anew.
  useEffect(() => {
    isHere.current = true;
    const sent = savedSent();
    if (sent) void send(sent);
    return () => {
      isHere.current = false;
      window.clearTimeout(timer.current);
    };
  }, []);

  const begin = (sent: Sent) => {
    wait.current = FIRST_RETRY_MS;
    void send(sent);
  };
  return [state, begin, leave];
}

function Done({ answer, onAnother }: { answer: SubmitAnswer; onAnother: () => void }) {
  const box = useRef<HTMLElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    <section ref={box} className="card" tabIndex={-1} aria-labelledby="done-title">
      <h2 id="done-title">Job {answer.job.number} is submitted</h2>
      {answer.warnings.map((warning) => (
        <p key={warning} className="alert">
          {warning}
        </p>
      ))}
      <p>
        <a href={`#/jobs/${answer.job.number}`}>See job {answer.job.number}</a>
      </p>
      <button type="button" onClick={onAnother}>
        Write another one
      </button>
    </section>
  );
}

function Unsure({ sent, why, onNow, onLeave }: { sent: Sent; why: string; onNow: () => void; onLeave: () => void }) {
  return (
    <div className="lost">
      <p role="alert">
        <strong>Not known yet whether {sent.spec.name || "the job"} was taken</strong>: {why}. It is sent again by
        itself, also after a reload, under the same key: it becomes one job, however often it arrives.
      </p>
      <p>
        <button type="button" onClick={onNow}>
          Send again now
        </button>{" "}
        <button type="button" onClick={onLeave}>
          Stop sending (it may be among your jobs)
        </button>
      </p>
    </div>
  );
}

interface EditorProps {
  draft: Draft;
  complaints: Complaints;
  change: (change: Partial<Draft>) => void;
}

function What({ draft, complaints, change, images }: EditorProps & { images: string[] }) {
  return (
    <fieldset>
      <legend>What runs</legend>
      <Field field="name" label="Name" complaints={complaints}>
        {(props) => (
          <input {...props} type="text" value={draft.name} onChange={(event) => change({ name: event.target.value })} />
        )}
      </Field>
      <Field field="image" label="Image" complaints={complaints} help="Of the site's list (reclaim image ls)">
        {(props) => (
          <select {...props} value={draft.image} onChange={(event) => change({ image: event.target.value })}>
            {draft.image && !images.includes(draft.image) ? <option>{draft.image}</option> : null}
            {images.map((image) => (
              <option key={image}>{image}</option>
            ))}
          </select>
        )}
      </Field>
      <div className="choice" role="radiogroup" aria-label="What it is given as">
        {[false, true].map((isScript) => (
          <label key={String(isScript)}>
            <input
              type="radio"
              name="new-kind"
              checked={draft.isScript === isScript}
              onChange={() => change({ isScript })}
            />{" "}
            {isScript ? "a script" : "a command"}
          </label>
        ))}
      </div>
      {draft.isScript ? (
        <Field field="script" label="Script" complaints={complaints} help="For /bin/sh -e: ends where a line fails">
          {(props) => (
            <textarea
              {...props}
              rows={6}
              spellCheck={false}
              value={draft.script}
              onChange={(event) => change({ script: event.target.value })}
            />
          )}
        </Field>
      ) : (
        <Field
          field="command"
          label="Command"
          complaints={complaints}
          help="Words and quotes; && and | are a script's. Its folder is empty: to send files along, use reclaim run."
        >
          {(props) => (
            <input
              {...props}
              type="text"
              spellCheck={false}
              autoCapitalize="off"
              value={draft.command}
              onChange={(event) => change({ command: event.target.value })}
            />
          )}
        </Field>
      )}
    </fieldset>
  );
}

type Typed = "gpus" | "gpuMemory" | "cores" | "memory" | "disk" | "longest" | "notice";

const NUMBERS: { field: Typed; label: string }[] = [
  { field: "gpus", label: "GPUs" },
  { field: "gpuMemory", label: "Memory of each, GiB" },
  { field: "cores", label: "Cores" },
  { field: "memory", label: "Memory, GiB" },
  { field: "disk", label: "Disk, GiB" },
];

function Needs({ draft, complaints, change, sets }: EditorProps & { sets: string[] }) {
  const enter = (field: Typed, text: string) => {
    const some: Partial<Draft> = {};
    some[field] = text;
    change(some);
  };
  const toggle = (set: string) =>
    change({ data: draft.data.includes(set) ? draft.data.filter((one) => one !== set) : [...draft.data, set] });
  return (
    <fieldset>
      <legend>What it needs</legend>
      <div className="fields">
        {NUMBERS.filter(({ field }) => field !== "gpuMemory" || Number(draft.gpus) > 0).map(({ field, label }) => (
          <Field key={field} field={field} label={label} complaints={complaints}>
            {(props) => (
              <input
                {...props}
                type="text"
                inputMode="decimal"
                value={draft[field]}
                onChange={(event) => enter(field, event.target.value)}
              />
            )}
          </Field>
        ))}
        <Field field="longest" label="Longest time" complaints={complaints} help="As 90m, 2h, 1d; empty: any">
          {(props) => (
            <input
              {...props}
              type="text"
              value={draft.longest}
              onChange={(event) => enter("longest", event.target.value)}
            />
          )}
        </Field>
        <Field field="notice" label="Notice wanted" complaints={complaints} help="As 90s, 5m; owners decide">
          {(props) => (
            <input
              {...props}
              type="text"
              value={draft.notice}
              onChange={(event) => enter("notice", event.target.value)}
            />
          )}
        </Field>
      </div>
      {sets.length ? (
        <div className="choice" role="group" aria-label="Data sets, read-only below /data">
          <span aria-hidden="true">Data sets (/data/…):</span>
          {sets.map((set) => (
            <label key={set}>
              <input type="checkbox" checked={draft.data.includes(set)} onChange={() => toggle(set)} /> {set}
            </label>
          ))}
        </div>
      ) : null}
    </fieldset>
  );
}

/** Shows what is wrong with what was typed; with what is empty yet only once it is to be sent. */
function complaintsShown(draft: Draft, isTried: boolean): Complaints {
  const { complaints } = readDraft(draft);
  if (isTried) return complaints;
  const shown: Complaints = {};
  for (const [field, words] of Object.entries(complaints) as [keyof Draft, string][])
    if (draft[field] !== "") shown[field] = words;
  return shown;
}

export function NewJob({ site, state }: { site: Site; state: SiteState }) {
  const [draft, setDraft] = useState<Draft>(() => site.draft ?? NEW_DRAFT);
  const [isTried, setTried] = useState(false);
  const [sending, begin, leave] = useSending(site);
  const form = useRef<HTMLFormElement>(null);
  const images = useFetched("", () => site.api.get<{ images: Image[] }>("/v1/images"));
  const names = useMemo(() => images.value?.images.map((image) => image.name).sort() ?? [], [images.value]);
  const sets = useMemo(
    () => [...new Set(state.nodes.flatMap((node) => node.facts.data_sets))].sort(),
    [state.nodes],
  );
  const plan = usePlan(site, draft);
  const change = (some: Partial<Draft>) => setDraft((old) => ({ ...old, ...some }));
  useEffect(() => {
    site.draft = draft;
  }, [site, draft]);
  useEffect(() => {
    const first = names.includes("base") ? "base" : names[0];
    if (first) setDraft((old) => (old.image === "" ? { ...old, image: first } : old));
  }, [names]);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    setTried(true);
    const { spec, complaints } = readDraft(draft);
    const wrong = Object.keys(complaints)[0];
    if (wrong) return form.current?.querySelector<HTMLElement>(`#new-${wrong}`)?.focus();
    if (sending.kind === "writing") begin({ key: newName(), spec });
  };
  if (sending.kind === "done")
    return (
      <Done
        answer={sending.answer}
        onAnother={() => {
          setTried(false);
          leave();
        }}
      />
    );
  const isWriting = sending.kind === "writing";
  const complaints = complaintsShown(draft, isTried);
  return (
    <article className="card" aria-labelledby="new-title">
      <h2 id="new-title">New job</h2>
      {images.trouble ? <p className="trouble">The images cannot be listed: {wordsOf(images.trouble)}</p> : null}
      {images.value && names.length === 0 ? (
        <p className="alert">No image is on the site&apos;s list: an administrator adds one by reclaim image add.</p>
      ) : null}
      <form ref={form} className="new" onSubmit={submit} noValidate>
        <fieldset className="all" disabled={!isWriting}>
          <legend className="unseen">The job</legend>
          <What draft={draft} complaints={complaints} change={change} images={names} />
          <Needs draft={draft} complaints={complaints} change={change} sets={sets} />
        </fieldset>
        <Forecast state={plan} />
        {sending.kind === "unsure" ? (
          <Unsure sent={sending.sent} why={sending.why} onNow={() => begin(sending.sent)} onLeave={leave} />
        ) : null}
        {isWriting && sending.trouble ? (
          <p className="trouble" role="alert">
            It was not taken: {sending.trouble}
          </p>
        ) : null}
        <button type="submit" className="primary" disabled={!isWriting}>
          {isWriting ? (plan.plan?.verdict === "never" ? "Submit it anyway" : "Submit") : "Sending…"}
        </button>
      </form>
    </article>
  );
}
