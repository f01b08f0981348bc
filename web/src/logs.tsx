// SPDX-License-Identifier: Apache-2.0
import { useEffect, useRef, useState } from "react";
import { Api, wordsOf } from "./api";

/** Of a log only its end is kept in the window. */
const KEPT = 200_000;

/** The log of a job's newest attempt while it is written. Bytes are a stranger's: shown as text, nothing else. */
export function Logs({ api, job, epoch }: { api: Api; job: string; epoch: string }) {
  const [text, setText] = useState("");
  const [state, setState] = useState("");
  const box = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);

  useEffect(() => {
    const controller = new AbortController();
    let offset = 0;
    let timer = 0;
    setText("");
    async function follow(): Promise<void> {
      setState("live");
      const attempt = epoch.split(".")[1] ?? "";
      const path = `/v1/jobs/${encodeURIComponent(job)}/logs?follow=1&attempt=${attempt}&offset=${offset}`;
      const answer = await api.fetch(path, { signal: controller.signal });
      const decoder = new TextDecoder();
      const reader = answer.body?.getReader();
      for (;;) {
        const piece = await reader?.read();
        if (!piece || piece.done) break;
        offset += piece.value.length;
        const more = decoder.decode(piece.value, { stream: true });
        setText((old) => (old + more).slice(-KEPT));
      }
      setState("at its end");
    }
    function run(): void {
      follow().catch((error: unknown) => {
        if (controller.signal.aborted) return;
        setState(wordsOf(error));
        // From where it was cut off.
        timer = window.setTimeout(run, 3_000);
      });
    }
    run();
    return () => {
      controller.abort();
      window.clearTimeout(timer);
    };
  }, [api, job, epoch]);

  useEffect(() => {
    if (box.current && isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);

  return (
    <section aria-labelledby="log-title">
      <h3 id="log-title">
        Log <span className="note">({state})</span>
      </h3>
      <pre
        ref={box}
        className="log"
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-labelledby="log-title"
        onScroll={(event) => {
          const at = event.currentTarget;
          isAtEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < 30;
        }}
      >
        {text || "(nothing yet)"}
      </pre>
    </section>
  );
}
