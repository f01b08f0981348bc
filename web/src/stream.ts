// SPDX-License-Identifier: Apache-2.0
// Server-sent events by fetch. EventSource cannot send a token in a header, and a token in an address would stand in
// logs and histories.
import { Api, Refused, refusalOf } from "./api";

export interface Message {
  id: string;
  kind: string;
  data: string;
}

/** Takes text as it arrives, gives whole messages. `lastId` moves on also without a message. */
export class Parser {
  lastId = "";
  private rest = "";

  push(text: string): Message[] {
    this.rest += text;
    const messages: Message[] = [];
    for (let end = this.rest.indexOf("\n\n"); end >= 0; end = this.rest.indexOf("\n\n")) {
      const message = this.read(this.rest.slice(0, end));
      this.rest = this.rest.slice(end + 2);
      if (message) messages.push(message);
    }
    return messages;
  }

  private read(block: string): Message | null {
    let kind = "message";
    const data: string[] = [];
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      if (colon <= 0) continue;
      const value = line.slice(colon + 1).replace(/^ /, "");
      const field = line.slice(0, colon);
      if (field === "id") this.lastId = value;
      else if (field === "event") kind = value;
      else if (field === "data") data.push(value);
    }
    return data.length ? { id: this.lastId, kind, data: data.join("\n") } : null;
  }
}

export type LinkState =
  { kind: "connecting" } | { kind: "live" } | { kind: "lost"; why: string; since: number; retryAt: number };

/** The coordinator says something each 10 s; who is silent for longer is gone. */
const SILENCE_MS = 25_000;
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 30_000;

export interface StreamEvents {
  onMessage(message: Message): void;
  onLink(state: LinkState): void;
  /** The token is not taken any more: nothing is tried again. */
  onDenied(refusal: Refused): void;
}

/** A stream that comes back by itself, each time after a longer wait, with the number of what it heard last. */
export class Stream {
  private lastId = "";
  private waitMs = FIRST_WAIT_MS;
  private lostSince = 0;
  private timer = 0;
  private isClosed = false;
  private current: AbortController | null = null;

  constructor(
    private readonly api: Api,
    private readonly events: StreamEvents,
  ) {}

  open(): void {
    window.clearTimeout(this.timer);
    this.current?.abort();
    if (this.isClosed) return;
    const controller = new AbortController();
    this.current = controller;
    if (!this.lostSince) this.events.onLink({ kind: "connecting" });
    this.run(controller).then(
      () => this.onEnd(controller, "the coordinator ended the connection"),
      (error: unknown) => {
        if (error instanceof Refused && error.isAboutToken) return this.deny(error);
        this.onEnd(controller, error instanceof Refused ? error.message : "the coordinator cannot be reached");
      },
    );
  }

  /** Gives the connection up for a while (a window that nobody sees). */
  pause(): void {
    window.clearTimeout(this.timer);
    this.current?.abort();
    this.current = null;
  }

  close(): void {
    this.isClosed = true;
    this.pause();
  }

  private async run(controller: AbortController): Promise<void> {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (this.lastId) headers["Last-Event-ID"] = this.lastId;
    let silence = window.setTimeout(() => controller.abort(), SILENCE_MS);
    try {
      const answer = await this.api.fetch("/v1/events/stream", { headers, signal: controller.signal });
      if (!answer.body) throw await refusalOf(answer);
      const parser = new Parser();
      parser.lastId = this.lastId;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        window.clearTimeout(silence);
        silence = window.setTimeout(() => controller.abort(), SILENCE_MS);
        const messages = parser.push(value);
        this.lastId = parser.lastId;
        for (const message of messages) this.take(message);
      }
    } finally {
      window.clearTimeout(silence);
    }
  }

  private take(message: Message): void {
    if (message.kind === "denied") {
      const { error } = JSON.parse(message.data) as { error: { code: string; message: string; hint: string } };
      throw new Refused(403, error.code, error.message, error.hint);
    }
    if (message.kind === "hello") {
      this.waitMs = FIRST_WAIT_MS;
      this.lostSince = 0;
      this.events.onLink({ kind: "live" });
    }
    this.events.onMessage(message);
  }

  private deny(refusal: Refused): void {
    this.close();
    this.events.onDenied(refusal);
  }

  private onEnd(controller: AbortController, why: string): void {
    if (this.isClosed || this.current !== controller) return;
    this.lostSince ||= Date.now();
    // Not all windows of a campus at the same moment.
    const wait = this.waitMs * (0.75 + Math.random() / 2);
    this.waitMs = Math.min(this.waitMs * 2, LONGEST_WAIT_MS);
    this.events.onLink({ kind: "lost", why, since: this.lostSince, retryAt: Date.now() + wait });
    this.timer = window.setTimeout(() => this.open(), wait);
  }
}
