// SPDX-License-Identifier: Apache-2.0
// Calls to the coordinator that served this page. The token is kept by session.ts.

/** What the coordinator said instead of an answer: its words and what to do next. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }

  /** Said before anything was done. Others failed on the way, and may have done it. */
  get isDefinite(): boolean {
    return ![500, 502, 503, 504].includes(this.status);
  }

  /** The token opens nothing any more (expired, revoked, unknown), or none was sent. */
  get isAboutToken(): boolean {
    return this.status === 401 || (this.status === 403 && /token/.test(this.message));
  }
}

export async function refusalOf(answer: Response): Promise<Refused> {
  try {
    const { error } = (await answer.json()) as { error: { code: string; message: string; hint: string } };
    return new Refused(answer.status, error.code, error.message, error.hint);
  } catch {
    return new Refused(answer.status, "unavailable", `the coordinator answered ${answer.status}`, "try again");
  }
}

export class Api {
  constructor(readonly token: string) {}

  async fetch(path: string, options: RequestInit = {}): Promise<Response> {
    const headers = new Headers(options.headers);
    headers.set("Authorization", `Bearer ${this.token}`);
    const answer = await fetch(path, {
      ...options,
      headers,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
    if (!answer.ok) throw await refusalOf(answer);
    return answer;
  }

  /** An answer that takes longer than 15 s is none. */
  async get<T>(path: string): Promise<T> {
    const answer = await this.fetch(path, { signal: AbortSignal.timeout(15_000) });
    return (await answer.json()) as T;
  }

  /** The same; who gets none does not know whether it was done. */
  post<T>(path: string, body: object, more: Record<string, string> = {}): Promise<T> {
    return this.send<T>("POST", path, body, more);
  }

  /** The same. */
  put<T>(path: string, body: object): Promise<T> {
    return this.send<T>("PUT", path, body, {});
  }

  /** The same; it has no answer but that it was done. */
  async remove(path: string): Promise<void> {
    await this.fetch(path, { method: "DELETE", signal: AbortSignal.timeout(15_000) });
  }

  private async send<T>(method: string, path: string, body: object, more: Record<string, string>): Promise<T> {
    const answer = await this.fetch(path, {
      method,
      headers: { "Content-Type": "application/json", ...more },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(15_000),
    });
    return (await answer.json()) as T;
  }
}

/** A name for something that is sent, so that sending it again does it once. */
export function newName(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function wordsOf(error: unknown): string {
  if (error instanceof Refused) return error.hint ? `${error.message} (${error.hint})` : error.message;
  if (error instanceof DOMException && error.name === "TimeoutError")
    return "the coordinator does not answer in time";
  return "the coordinator cannot be reached";
}
