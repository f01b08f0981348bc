// SPDX-License-Identifier: Apache-2.0
// What the page knows of the site. The stream says what has changed; the views are fetched as the coordinator shows
// them to this token, so that there is one place that decides who may see what.
import { useSyncExternalStore } from "react";
import { Api, Refused, wordsOf } from "./api";
import { Draft } from "./plan";
import { Sent } from "./session";
import { LinkState, Message, Stream } from "./stream";
import {
  Contract,
  ContractEdit,
  ContractPreview,
  Health,
  Job,
  Node,
  NotebookAnswer,
  Plan,
  QuotaRequest,
  Reclaim,
  ReclaimOrder,
  SiteEvent,
  SubmitAnswer,
  Whoami,
} from "./types";
import { isOver } from "./words";

export interface SiteState {
  who: Whoami;
  link: LinkState;
  isLoaded: boolean;
  nodes: Node[];
  jobs: Job[];
  reclaims: Reclaim[];
  events: SiteEvent[];
  health: Health | null;
  version: string;
  trouble: string;
  /** Grows with each event of a job: what shows one job fetches its parts again. */
  changes: ReadonlyMap<string, number>;
}

const EVENTS_KEPT = 500;
const ENDED_JOBS_SHOWN = 300;
const LIVE_JOBS_SHOWN = 1_000;
/** Telemetry makes no events. */
const POLL_MS = 10_000;
/** Crowds of events become one look. */
const BETWEEN_LOOKS_MS = 250;
const SINGLE_LOOKS = 12;
/** A notice may be told of before the reclaim that it is of. */
const AGAIN_MS = 2_000;
/** Of a job whose machine is taken back. */
const LEAVING = new Set(["attempt.noticed", "attempt.saving", "attempt.draining"]);

type Part = "nodes" | "jobs" | "reclaims";

/** As POST /v1/nodes/{id}/contract takes it. */
export interface ContractEditRequest {
  edit: string;
  from: string;
  replaces: string;
  contract: Contract;
}

/** As POST /v1/nodes/{id}/reclaim takes it. */
export interface TakeBackOrder {
  order: string;
  kind: "notice" | "announced" | "emergency";
  gpus: number[];
  in_s: number;
}

export class Site {
  state: SiteState;
  /** The job that is being written, while its form is not shown. */
  draft: Draft | null = null;
  private readonly listeners = new Set<() => void>();
  private readonly stream: Stream;
  private readonly staleNodes = new Set<string>();
  private readonly staleJobs = new Set<string>();
  private readonly stale = new Set<Part>();
  private isLooking = false;
  private lookTimer = 0;
  private againTimer = 0;
  private readonly pollTimer: number;

  constructor(
    readonly api: Api,
    who: Whoami,
    private readonly onDenied: (words: string) => void,
  ) {
    this.state = {
      who,
      link: { kind: "connecting" },
      isLoaded: false,
      nodes: [],
      jobs: [],
      reclaims: [],
      events: [],
      health: null,
      version: "",
      trouble: "",
      changes: new Map(),
    };
    this.stream = new Stream(api, {
      onMessage: (message) => this.onMessage(message),
      onLink: (link) => this.set({ link }),
      onDenied: (refusal) => this.deny(refusal),
    });
    this.pollTimer = window.setInterval(() => this.poll(), POLL_MS);
    document.addEventListener("visibilitychange", this.onVisibility);
    window.addEventListener("online", this.onOnline);
    this.stream.open();
  }

  close(): void {
    this.stream.close();
    window.clearInterval(this.pollTimer);
    window.clearTimeout(this.lookTimer);
    window.clearTimeout(this.againTimer);
    document.removeEventListener("visibilitychange", this.onVisibility);
    window.removeEventListener("online", this.onOnline);
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readonly snapshot = (): SiteState => this.state;

  /** The user's word: at once, and not when it is due. */
  readonly reconnect = (): void => this.stream.open();

  /** Orders a machine, or GPUs of it, back. The same name again is the same order, with the same content. */
  async takeBack(node: string, order: TakeBackOrder): Promise<void> {
    const path = `/v1/nodes/${encodeURIComponent(node)}/reclaim`;
    const given = await this.api.post<ReclaimOrder>(path, order);
    const told = (one: Node): Node => ({
      ...one,
      orders: [given, ...one.orders.filter((old) => old.id !== given.id)],
    });
    this.set({ nodes: this.state.nodes.map((one) => (one.id === node ? told(one) : one)) });
  }

  /** What another contract of a machine would mean; nothing is kept of it. */
  checkContract(node: string, contract: Contract): Promise<ContractPreview> {
    return this.api.post<ContractPreview>(`/v1/nodes/${encodeURIComponent(node)}/contract/check`, { contract });
  }

  /** Sends a machine another contract. The same name again is the same edit, with the same content. */
  async editContract(node: string, edit: ContractEditRequest): Promise<void> {
    const path = `/v1/nodes/${encodeURIComponent(node)}/contract`;
    const given = await this.api.post<ContractEdit>(path, edit);
    const told = (one: Node): Node => ({
      ...one,
      edits: [given, ...one.edits.filter((old) => old.id !== given.id)],
    });
    this.set({ nodes: this.state.nodes.map((one) => (one.id === node ? told(one) : one)) });
  }

  /** What would become of a job; nothing is kept of it. */
  plan(spec: object): Promise<Plan> {
    return this.api.post<Plan>("/v1/plan", spec);
  }

  /** The same key again is the same job. */
  async submit(sent: Sent): Promise<SubmitAnswer> {
    const answer = await this.api.post<SubmitAnswer>("/v1/jobs", sent.spec, { "Idempotency-Key": sent.key });
    this.setJobs([answer.job, ...this.state.jobs]);
    return answer;
  }

  /** An address that opens the job's notebook in one browser, once, within ten minutes. */
  openNotebook(job: string): Promise<NotebookAnswer> {
    return this.api.post<NotebookAnswer>(`/v1/jobs/${encodeURIComponent(job)}/notebook`, {});
  }

  /** In place of the whole quota that `subject` has for these GPUs; repeatable. */
  async setQuota(subject: string, request: QuotaRequest): Promise<void> {
    await this.api.put(`/v1/quotas/${encodeURIComponent(subject)}`, request);
  }

  removeQuota(subject: string, model: string): Promise<void> {
    const query = model ? `?model=${encodeURIComponent(model)}` : "";
    return this.api.remove(`/v1/quotas/${encodeURIComponent(subject)}${query}`);
  }

  private set(change: Partial<SiteState>): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener();
  }

  private deny(refusal: Refused): void {
    this.close();
    this.onDenied(refusal.message);
  }

  // A browser opens few connections to one site: a window that nobody sees gives its own up, and is told later what it
  // has missed.
  private readonly onVisibility = (): void => {
    if (document.hidden) this.stream.pause();
    else this.stream.open();
  };

  private readonly onOnline = (): void => this.stream.open();

  private poll(): void {
    if (document.hidden || this.state.link.kind !== "live") return;
    this.stale.add("nodes");
    this.lookSoon();
  }

  private onMessage(message: Message): void {
    if (message.kind === "hello") {
      const hello = JSON.parse(message.data) as { is_complete: boolean };
      if (!this.state.isLoaded || !hello.is_complete) void this.loadAll();
      else this.staleAll();
    } else if (message.kind === "event") {
      this.onEvent(JSON.parse(message.data) as SiteEvent);
    } else if (message.kind === "touched") {
      this.staleNodes.add((JSON.parse(message.data) as { node: string }).node);
      this.lookSoon();
    }
  }

  private onEvent(event: SiteEvent): void {
    const events = [event, ...this.state.events.filter((one) => one.seq !== event.seq)].slice(0, EVENTS_KEPT);
    const changes = event.job
      ? new Map(this.state.changes).set(event.job, (this.state.changes.get(event.job) ?? 0) + 1)
      : this.state.changes;
    this.set({ events, changes });
    if (event.job) this.staleJobs.add(event.job);
    if (event.node) this.staleNodes.add(event.node);
    // Whose job has to leave is not told of the machine's reclaim by an event of its own.
    if (event.kind.startsWith("reclaim.") || LEAVING.has(event.kind)) this.stale.add("reclaims");
    this.lookSoon();
  }

  private staleAll(): void {
    for (const part of ["nodes", "jobs", "reclaims"] as const) this.stale.add(part);
    this.lookSoon();
  }

  private lookSoon(): void {
    if (this.lookTimer || this.isLooking) return;
    this.lookTimer = window.setTimeout(() => {
      this.lookTimer = 0;
      void this.look();
    }, BETWEEN_LOOKS_MS);
  }

  private async look(): Promise<void> {
    this.isLooking = true;
    const nodes = [...this.staleNodes];
    const jobs = [...this.staleJobs];
    const parts = new Set(this.stale);
    this.staleNodes.clear();
    this.staleJobs.clear();
    this.stale.clear();
    if (nodes.length > SINGLE_LOOKS) parts.add("nodes");
    if (jobs.length > SINGLE_LOOKS) parts.add("jobs");
    try {
      await Promise.all([
        parts.has("nodes") ? this.loadNodes() : Promise.all(nodes.map((id) => this.loadNode(id))),
        parts.has("jobs") ? this.loadJobs() : Promise.all(jobs.map((id) => this.loadJob(id))),
        parts.has("reclaims") ? this.loadReclaims() : null,
      ]);
      if (this.state.trouble) this.set({ trouble: "" });
    } catch (error) {
      this.onTrouble(error);
    }
    this.isLooking = false;
    if (this.staleNodes.size + this.staleJobs.size + this.stale.size > 0) this.lookSoon();
    else if (this.awaitsReclaim()) this.lookAgain();
  }

  private awaitsReclaim(): boolean {
    const open = this.state.reclaims.filter((one) => one.phase === "declared" || one.phase === "evacuating");
    return this.state.jobs.some((job) => job.state === "noticed" && open.every((one) => one.node !== job.node));
  }

  private lookAgain(): void {
    if (this.againTimer) return;
    this.againTimer = window.setTimeout(() => {
      this.againTimer = 0;
      this.stale.add("reclaims");
      this.lookSoon();
    }, AGAIN_MS);
  }

  private async loadAll(): Promise<void> {
    try {
      const [, , , events, version, health] = await Promise.all([
        this.loadNodes(),
        this.loadJobs(),
        this.loadReclaims(),
        this.api.get<{ events: SiteEvent[] }>("/v1/events?newest=1&limit=200"),
        this.api.get<{ version: string }>("/version"),
        this.api.get<Health>("/readyz"),
      ]);
      this.set({ events: events.events, version: version.version, health, isLoaded: true, trouble: "" });
    } catch (error) {
      this.onTrouble(error);
      if (!(error instanceof Refused && error.isAboutToken)) window.setTimeout(() => this.stream.open(), 2_000);
    }
  }

  private onTrouble(error: unknown): void {
    if (error instanceof Refused && error.isAboutToken) return this.deny(error);
    this.set({ trouble: wordsOf(error) });
  }

  private async loadNodes(): Promise<void> {
    this.set({ nodes: (await this.api.get<{ nodes: Node[] }>("/v1/nodes")).nodes });
  }

  private async loadNode(id: string): Promise<void> {
    const node = await this.api.get<Node>(`/v1/nodes/${encodeURIComponent(id)}`);
    const others = this.state.nodes.filter((one) => one.id !== id);
    this.set({ nodes: [...others, node].sort((a, b) => (a.id < b.id ? -1 : 1)) });
  }

  /** All that are not over, however old, and the newest of those that are. */
  private async loadJobs(): Promise<void> {
    const [live, newest] = await Promise.all([
      this.api.get<{ jobs: Job[] }>(`/v1/jobs?limit=${LIVE_JOBS_SHOWN}`),
      this.api.get<{ jobs: Job[] }>(`/v1/jobs?all=1&limit=${ENDED_JOBS_SHOWN}`),
    ]);
    this.setJobs([...live.jobs, ...newest.jobs]);
  }

  private async loadJob(id: string): Promise<void> {
    try {
      const job = await this.api.get<Job>(`/v1/jobs/${encodeURIComponent(id)}`);
      this.setJobs([...this.state.jobs, job]); // what others brought meanwhile stays
    } catch (error) {
      if (!(error instanceof Refused && error.status === 404)) throw error;
    }
  }

  /** Of a job that is in twice the later one counts. */
  private setJobs(jobs: Job[]): void {
    const byNumber = new Map(jobs.map((job) => [job.number, job]));
    const sorted = [...byNumber.values()].sort((a, b) => b.number - a.number);
    let ended = 0;
    this.set({ jobs: sorted.filter((job) => !isOver(job) || ++ended <= ENDED_JOBS_SHOWN) });
  }

  private async loadReclaims(): Promise<void> {
    this.set({ reclaims: (await this.api.get<{ reclaims: Reclaim[] }>("/v1/reclaims?limit=200")).reclaims });
  }
}

export function useSite(site: Site): SiteState {
  return useSyncExternalStore(site.subscribe, site.snapshot);
}
