// SPDX-License-Identifier: Apache-2.0
import { FormEvent, useEffect, useRef, useState } from "react";
import { Api, wordsOf } from "./api";
import { complaintAbout, Returned, saveTicket, takeReturned, takeTicket } from "./session";
import { SignInBegun, SignInOffer, Whoami } from "./types";

export function Login({ reason, onIn }: { reason: string; onIn: (token: string, who: Whoami) => void }) {
  const [token, setToken] = useState("");
  const [trouble, setTrouble] = useState("");
  const [isAsking, setAsking] = useState(false);
  const field = useRef<HTMLInputElement>(null);

  const [offer, setOffer] = useState<SignInOffer | null>(null);

  useEffect(() => field.current?.focus(), []);

  // Without an answer there is the token's form.
  useEffect(() => {
    let isWanted = true;
    new Api("").get<SignInOffer>("/v1/signin").then(
      (one) => isWanted && setOffer(one),
      () => undefined,
    );
    return () => {
      isWanted = false;
    };
  }, []);

  useEffect(() => {
    const back = takeReturned();
    if (back) void finish(back);
    // Once, of what this page was opened with.
  }, []);

  async function finish(back: Returned) {
    const ticket = takeTicket();
    if (back.error || !back.code)
      return setTrouble(`You were not signed in: the identity provider says ${back.error || "nothing"}.`);
    if (!ticket) return setTrouble("This sign-in was begun in another window. Begin again here.");
    setAsking(true);
    try {
      const body = { ticket, state: back.state, code: back.code };
      const { token: made } = await new Api("").post<{ token: string }>("/v1/signin/finish", body);
      onIn(made, await new Api(made).get<Whoami>("/v1/whoami"));
    } catch (error) {
      setTrouble(wordsOf(error));
      setAsking(false);
    }
  }

  async function signIn() {
    setTrouble("");
    setAsking(true);
    try {
      const begun = await new Api("").post<SignInBegun>("/v1/signin", {});
      saveTicket(begun.ticket);
      location.assign(begun.url);
    } catch (error) {
      setTrouble(wordsOf(error));
      setAsking(false);
    }
  }

  async function submit(event: FormEvent) {
    event.preventDefault();
    const text = token.trim();
    const complaint = complaintAbout(text);
    setTrouble(complaint);
    if (complaint) return field.current?.focus();
    setAsking(true);
    try {
      onIn(text, await new Api(text).get<Whoami>("/v1/whoami"));
    } catch (error) {
      setTrouble(wordsOf(error));
      setAsking(false);
      field.current?.focus();
    }
  }

  return (
    <main className="login">
      <h1>ReclaimNet</h1>
      <p>Machines of this site, lent and taken back.</p>
      {reason ? (
        <p className="alert" role="alert">
          You were logged out: {reason}. Log in with a token that is valid.
        </p>
      ) : null}
      {offer?.is_offered ? (
        <p>
          <button type="button" className="primary" disabled={isAsking} onClick={() => void signIn()}>
            Sign in with {offer.name}
          </button>
        </p>
      ) : null}
      <form onSubmit={(event) => void submit(event)} noValidate>
        <label htmlFor="token">Your token</label>
        <input
          id="token"
          ref={field}
          type="password"
          value={token}
          onChange={(event) => setToken(event.target.value)}
          autoComplete="current-password"
          spellCheck={false}
          aria-invalid={trouble !== ""}
          aria-describedby="token-help token-trouble"
        />
        <p id="token-help" className="note">
          It begins with rnu1. and is the one that you give to <code>reclaim login</code>. It stays in this window and
          is gone when you close it.
        </p>
        <p id="token-trouble" className="trouble" role="alert">
          {trouble}
        </p>
        <button type="submit" className="primary" disabled={isAsking}>
          {isAsking ? "Asking…" : "Log in"}
        </button>
      </form>
    </main>
  );
}
