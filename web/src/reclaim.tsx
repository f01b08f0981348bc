// SPDX-License-Identifier: Apache-2.0
// An owner takes a machine, or one GPU of it, back: two taps, and then what the machine itself says of it.
import { useRef, useState } from "react";
import { newName, Refused, wordsOf } from "./api";
import { Badge } from "./parts";
import { Site, TakeBackOrder } from "./site";
import { Node, Reclaim, ReclaimOrder } from "./types";
import { dayAndClock, duration, orderWord, reclaimChoices, reclaimKind, reclaimWord, since } from "./words";

type Kind = TakeBackOrder["kind"];

const WEEK_S = 7 * 86_400;

/** From now until a moment as its field writes it ("2026-11-26T18:30", this window's clock); null: past, or too far. */
export function secondsUntil(moment: string, now: number): number | null {
  const seconds = Math.round((new Date(moment).getTime() - now) / 1_000);
  return seconds >= 1 && seconds <= WEEK_S ? seconds : null;
}

/** What becomes of it is told there. */
function newsOf(node: Node): string {
  return `news-${node.id}`;
}

/** Whose it is may take it back; the coordinator asks the same again. */
export function isMine(site: Site, node: Node): boolean {
  const { role, lab } = site.state.who;
  return (role === "owner" || role === "admin") && lab === node.lab;
}

/**
 * The first tap shows what there is to choose, below itself, and moves nothing on the page, so that no double tap
 * chooses.
 */
export function TakeBackButton({
  site,
  node,
  gpu,
  open,
}: {
  site: Site;
  node: Node;
  gpu: number | null;
  open: Reclaim[];
}) {
  const [isChoosing, setChoosing] = useState(false);
  const [isSending, setSending] = useState(false);
  const [trouble, setTrouble] = useState("");
  // An order that nobody has answered keeps its name: tapped again it is done once.
  const unanswered = useRef<{ order: TakeBackOrder; moment: string } | null>(null);
  const [moment, setMoment] = useState("");
  const choices = reclaimChoices(open, gpu);
  if (!isMine(site, node) || !choices.now) return null;

  const host = node.facts.hostname;
  const what = gpu === null ? host : `GPU ${gpu} of ${host}`;
  const panel = `take-${node.id}-${gpu ?? "all"}`;
  const take = async (kind: Kind) => {
    const before = unanswered.current;
    const isAgain = before?.order.kind === kind && before.moment === moment;
    const in_s = kind === "announced" ? secondsUntil(moment, Date.now()) : 0;
    if (in_s === null) return setTrouble("That moment is over");
    const order: TakeBackOrder = isAgain
      ? before.order
      : { order: newName(), kind, gpus: gpu === null ? [] : [gpu], in_s };
    setSending(true);
    setTrouble("");
    try {
      await site.takeBack(node.id, order);
      unanswered.current = null;
      setChoosing(false);
      document.getElementById(newsOf(node))?.focus(); // what was tapped is gone
    } catch (error) {
      const isRefused = error instanceof Refused && error.isDefinite;
      unanswered.current = isRefused ? null : { order, moment };
      setTrouble(isRefused ? wordsOf(error) : `${wordsOf(error)}: whether the order was given is not known`);
    }
    setSending(false);
  };
  return (
    <div className="take">
      <button
        type="button"
        className={`${isChoosing ? "" : "danger"} ${gpu === null ? "big" : ""}`}
        aria-expanded={isChoosing}
        aria-controls={isChoosing ? panel : undefined}
        aria-label={isChoosing ? `Cancel: leave ${what} as it is` : `Reclaim ${what}`}
        onClick={() => setChoosing(!isChoosing)}
      >
        {isChoosing ? "Cancel" : gpu === null ? "Reclaim" : `Reclaim GPU ${gpu}`}
      </button>
      {isChoosing ? (
        <div id={panel} role="group" aria-label={`Take ${what} back`}>
          <p>
            Take <strong>{what}</strong> back. It is lent again only by <code>reclaim-agent release</code> on the
            machine.
          </p>
          <div className="actions">
            {choices.notice ? (
              <button type="button" className="danger" disabled={isSending} onClick={() => void take("notice")}>
                With notice ({duration(node.contract.notice_s * 1_000)} to save)
              </button>
            ) : null}
            <button type="button" className="danger" disabled={isSending} onClick={() => void take("emergency")}>
              Now (nothing is saved any more)
            </button>
          </div>
          {choices.notice ? (
            <div className="later">
              <label>
                Or later, within seven days, at{" "}
                <input type="datetime-local" value={moment} onChange={(event) => setMoment(event.target.value)} />
              </label>{" "}
              <button
                type="button"
                className="danger"
                disabled={isSending || secondsUntil(moment, Date.now()) === null}
                onClick={() => void take("announced")}
              >
                At that time
              </button>
            </div>
          ) : null}
        </div>
      ) : null}
      {trouble ? (
        <p className="trouble" role="alert">
          {trouble}. On the machine itself: <code>reclaim-agent reclaim --now</code>
        </p>
      ) : null}
    </div>
  );
}

/** What the machine's own clock says of one reclaim, step by step. */
function ReclaimSteps({ reclaim }: { reclaim: Reclaim }) {
  const deadline = reclaim.kind === "emergency" ? null : since(reclaim, reclaim.deadline_ns);
  const steps: [string, number | null][] = [
    ["Network cut", since(reclaim, reclaim.cut_ns)],
    ["Guests ended", since(reclaim, reclaim.killed_ns)],
    ["Cleared", since(reclaim, reclaim.cleared_ns)],
    ["Lent again", since(reclaim, reclaim.returned_ns)],
  ];
  return (
    <ol className="steps">
      <li className="done">
        <span>
          Taken back {reclaimKind(reclaim.kind)}
          {deadline ? `, until ${dayAndClock(reclaim.declared_wall_ms + deadline)}` : ""}
        </span>
        <span className="when">{dayAndClock(reclaim.declared_wall_ms)}</span>
      </li>
      {steps.map(([what, after]) => (
        <li key={what} className={after === null ? "open" : "done"}>
          <span>{what}</span>
          <span className="when">{after === null ? "not yet" : `after ${duration(after)}`}</span>
        </li>
      ))}
    </ol>
  );
}

/** Of what has begun the machine's own record says more. */
function OrderNews({ order }: { order: ReclaimOrder | undefined }) {
  if (!order || order.state === "taken") return null;
  return (
    <p>
      <Badge word={orderWord(order.state)} />{" "}
      {order.gpus.length ? `GPU ${order.gpus.join(", ")}: ` : ""}
      {order.message}
    </p>
  );
}

export function TakeBack({ site, node, open }: { site: Site; node: Node; open: Reclaim[] }) {
  return (
    <section className="take-back" aria-label={`Taking ${node.facts.hostname} back`}>
      <TakeBackButton site={site} node={node} gpu={null} open={open} />
      <div role="status" id={newsOf(node)} tabIndex={-1}>
        <OrderNews order={node.orders[0]} />
        {open.map((reclaim) => (
          <div key={reclaim.id}>
            <p>
              <Badge word={reclaimWord(reclaim.phase)} />
              {reclaim.gpus.length ? ` GPU ${reclaim.gpus.join(", ")}` : " the whole machine"}
              {reclaim.message ? `: “${reclaim.message}”` : ""}
            </p>
            <ReclaimSteps reclaim={reclaim} />
            {reclaim.remains.length ? <p className="trouble">Still there: {reclaim.remains.join("; ")}</p> : null}
          </div>
        ))}
      </div>
      {open.length ? (
        <p className="note">
          To lend it again, on the machine: <code>reclaim-agent release</code>
        </p>
      ) : (
        <details>
          <summary>Without this page</summary>
          <p>On the machine, also when the network or the coordinator is down:</p>
          <dl className="commands">
            <dt>with notice, at most {duration(node.contract.notice_s * 1_000)}</dt>
            <dd>
              <code>reclaim-agent reclaim</code>
            </dd>
            <dt>at once</dt>
            <dd>
              <code>reclaim-agent reclaim --now</code>
            </dd>
            {node.facts.gpus.length > 1 ? (
              <>
                <dt>one GPU</dt>
                <dd>
                  <code>reclaim-agent reclaim --gpu 0</code>
                </dd>
              </>
            ) : null}
          </dl>
        </details>
      )}
    </section>
  );
}
