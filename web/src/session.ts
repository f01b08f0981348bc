// SPDX-License-Identifier: Apache-2.0
// Where the token is: in this window's sessionStorage, which other sites and other windows cannot read and which ends
// with the window. Nothing is sent by itself, as a cookie would be, so no other page can act in its user's name.
// docs/adr/0016 weighs both.
import { JobSpec } from "./types";

const KEY = "reclaimnet.token";
const SENT = "reclaimnet.sent";
const TICKET = "reclaimnet.ticket";

export function savedToken(): string {
  return sessionStorage.getItem(KEY) ?? "";
}

export function saveToken(token: string): void {
  sessionStorage.setItem(KEY, token);
}

export function forgetToken(): void {
  sessionStorage.removeItem(KEY);
  forgetSent();
}

/** Of a sign-in that this window began at the identity provider: what comes back counts only with it. */
export function saveTicket(ticket: string): void {
  sessionStorage.setItem(TICKET, ticket);
}

/** Once. Empty if none was begun here. */
export function takeTicket(): string {
  const ticket = sessionStorage.getItem(TICKET) ?? "";
  sessionStorage.removeItem(TICKET);
  return ticket;
}

export interface Returned {
  state: string;
  code: string;
  error: string;
}

/** An address may be anybody's writing: nothing but a provider's word (RFC 6749, 4.1.2.1) is shown as one. */
function plainWord(text: string): string {
  return text === "" || /^[a-z_]{1,40}$/.test(text) ? text : "an error without a name";
}

/** What the identity provider sent back by the address, which loses it. Once; null if there is nothing. */
export function takeReturned(): Returned | null {
  const mark = "#signin?";
  if (!location.hash.startsWith(mark)) return null;
  const words = new URLSearchParams(location.hash.slice(mark.length));
  history.replaceState(null, "", location.pathname);
  return { state: words.get("state") ?? "", code: words.get("code") ?? "", error: plainWord(words.get("error") ?? "") };
}

/** A job on its way: nobody knows yet whether it was taken. Sent again under the same key it is done once. */
export interface Sent {
  key: string;
  spec: JobSpec;
}

/** Outlives a reload of the page. */
export function saveSent(sent: Sent): void {
  sessionStorage.setItem(SENT, JSON.stringify(sent));
}

export function savedSent(): Sent | null {
  const text = sessionStorage.getItem(SENT);
  return text ? (JSON.parse(text) as Sent) : null;
}

export function forgetSent(): void {
  sessionStorage.removeItem(SENT);
}

/** What a pasted text is not; empty if it looks like a user's token. */
export function complaintAbout(token: string): string {
  if (token === "") return "Paste your token.";
  if (token.startsWith("rn1."))
    return "This is a join token, which is for machines. You need one that begins with rnu1.";
  if (!/^rnu1\.[^.]+\.[0-9a-f]{64}\.[^.]+$/.test(token))
    return "This is not a whole token. It begins with rnu1. and has three dots.";
  return "";
}
