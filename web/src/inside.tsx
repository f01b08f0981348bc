// SPDX-License-Identifier: Apache-2.0
// On a job's page: the way into it (notebook, ports), and what hangs over it (idleness, an owner's notice).
import { useEffect, useId, useState } from "react";
import { wordsOf } from "./api";
import { Command } from "./copied";
import {
  idleWords,
  isInside,
  isNotebookAddress,
  notebookIdleWords,
  notebookPort,
  noticeOf,
  portOf,
} from "./insidewords";
import { useNow } from "./parts";
import { Site, SiteState } from "./site";
import { Job, NotebookAnswer } from "./types";
import { clock, isOver } from "./words";

/** That the owner comes, and that GPUs are held and not used. */
export function Warnings({ state, job }: { state: SiteState; job: Job }) {
  const now = useNow(1_000);
  const notice = noticeOf(job, state.reclaims, state.nodes, now);
  const idle = isOver(job) ? "" : idleWords(job, now);
  return (
    <>
      {notice ? (
        // Said once, and not each second anew: the time that is left is for the eye.
        <p className="alert job-notice" role="status">
          <span className="unseen">
            The owner takes this job&apos;s machine back
            {notice.deadline === null ? "" : ` at ${clock(notice.deadline)}`}.
          </span>
          <span aria-hidden="true">
            {notice.words}
            {notice.deadline === null ? "" : ` (${clock(notice.deadline)})`}
          </span>
        </p>
      ) : null}
      {idle ? (
        <div className="alert job-idle">
          <p>{idle}</p>
          <Command text={`reclaim stop ${job.number}`} />
        </div>
      ) : null}
    </>
  );
}

type Opening =
  | { kind: "closed" }
  | { kind: "asking" }
  | { kind: "open"; answer: NotebookAnswer; until: number }
  | { kind: "trouble"; words: string };

/**
 * Opens the notebook as `reclaim notebook JOB` does: a key for one browser, of use once, that the coordinator gives to
 * the job's user alone. Its page is a stranger's: it gets neither a handle of this window (noopener) nor its address
 * (noreferrer), and is never of this window's origin.
 */
function useOpening(site: Site, job: Job): [Opening, () => void] {
  const [opening, setOpening] = useState<Opening>({ kind: "closed" });
  useEffect(() => {
    if (opening.kind !== "open") return;
    // What is too old, or was used, is not kept on the page.
    const timer = window.setTimeout(() => setOpening({ kind: "closed" }), Math.max(0, opening.until - Date.now()));
    return () => window.clearTimeout(timer);
  }, [opening]);
  const open = () => {
    setOpening({ kind: "asking" });
    site.openNotebook(job.id).then(
      (answer) => {
        if (!isNotebookAddress(answer, location.origin))
          return setOpening({ kind: "trouble", words: "the coordinator named no address of a notebook" });
        window.open(answer.url, "_blank", "noopener,noreferrer");
        setOpening({ kind: "open", answer, until: Date.now() + answer.lives_s * 1_000 });
      },
      (error: unknown) => setOpening({ kind: "trouble", words: wordsOf(error) }),
    );
  };
  return [opening, open];
}

function OpenNotebook({ site, job }: { site: Site; job: Job }) {
  const [opening, open] = useOpening(site, job);
  return (
    <>
      <p className="actions">
        <button type="button" className="primary" disabled={opening.kind === "asking"} onClick={open}>
          {opening.kind === "asking" ? "Asking for an address…" : "Open the notebook"}
        </button>
      </p>
      <div role="status">
        {opening.kind === "open" ? (
          <>
            <p>
              It opens in a window of its own, and stays in this browser. If none came,{" "}
              <a href={opening.answer.url} target="_blank" rel="noopener noreferrer">
                open it by this link
              </a>{" "}
              (of use once, until {clock(opening.until)}).
            </p>
            <p>
              From then on it is at{" "}
              <a className="place" href={opening.answer.place} target="_blank" rel="noopener noreferrer">
                {opening.answer.place}
              </a>{" "}
              in this browser, wherever the job runs: bookmark that.
            </p>
          </>
        ) : null}
        {opening.kind === "trouble" ? <p className="trouble">It was not opened: {opening.words}</p> : null}
      </div>
    </>
  );
}

function Notebook({ site, state, job }: { site: Site; state: SiteState; job: Job }) {
  const isMine = job.owner === state.who.user && state.who.role !== "viewer";
  return (
    <section aria-labelledby="notebook-title">
      <h3 id="notebook-title">Notebook</h3>
      {!isMine ? (
        <p>It is {job.owner}&apos;s alone: nobody else opens it, administrators neither.</p>
      ) : isInside(job) ? (
        <OpenNotebook site={site} job={job} />
      ) : (
        <>
          <p>It answers when the job runs; a page that is open already waits for it by itself.</p>
          <OpenNotebook site={site} job={job} />
        </>
      )}
      <p className="note">
        {notebookIdleWords(job)} When the owner takes the machine back, its page says so, saves, and shows the notebook
        again where the job goes on; what kernels hold in memory does not move.
      </p>
    </section>
  );
}

/** Ports are reached from a terminal of the user's own machine: a browser cannot. */
function Ports({ job }: { job: Job }) {
  const known = notebookPort(job);
  const [text, setText] = useState(known === null ? "8080" : String(known));
  const id = useId();
  const port = portOf(text);
  return (
    <section aria-labelledby={`${id}-title`}>
      <h3 id={`${id}-title`}>From your own machine</h3>
      <p className="field port">
        <label htmlFor={id}>Port inside the job</label>
        <input
          id={id}
          type="text"
          inputMode="numeric"
          autoComplete="off"
          value={text}
          aria-invalid={port === null}
          aria-describedby={`${id}-help`}
          onChange={(event) => setText(event.target.value)}
        />
        <span id={`${id}-help`} className={port === null ? "trouble" : "note"}>
          {port === null ? "A port is a number from 1 to 65535." : "It must listen on 127.0.0.1 in the job."}
        </span>
      </p>
      <dl className="commands">
        {port === null ? null : (
          <>
            <dt>Reach that port at 127.0.0.1:{port} of your machine</dt>
            <dd>
              <Command text={`reclaim forward ${job.number} ${port}`} />
            </dd>
          </>
        )}
        <dt>A shell in the job</dt>
        <dd>
          <Command text={`reclaim exec ${job.number} -- sh`} />
        </dd>
      </dl>
    </section>
  );
}

/** Whose job it is goes into it; an administrator by a terminal, too, as the coordinator lets them. */
export function Inside({ site, state, job }: { site: Site; state: SiteState; job: Job }) {
  if (isOver(job)) return null;
  const { user, role } = state.who;
  const mayEnter = role === "admin" || (job.owner === user && role !== "viewer");
  return (
    <>
      {notebookPort(job) === null ? null : <Notebook site={site} state={state} job={job} />}
      {mayEnter && isInside(job) ? <Ports job={job} /> : null}
    </>
  );
}
