// SPDX-License-Identifier: Apache-2.0
// The sign-in by an account of an identity provider, as people do it: real Chromium, a real coordinator, and the page
// of a provider that is played. Told by tests/system/sign_in_page_test.py where both are (chromium.mjs).
import assert from "node:assert/strict";
import { act, finish, isAccessible, look, newPage, PHONE, site, step } from "./chromium.mjs";

const page = await newPage({}, [404]);
const button = page.getByRole("button", { name: "Sign in with University" });
const trouble = page.getByRole("alert");

async function toTheProvider(who) {
  await page.goto(`${site.url}/ui/`);
  await button.click();
  await page.getByRole("heading", { name: "University" }).waitFor();
  assert.ok(page.url().startsWith(`${site.others[0]}/auth?`), page.url());
  if (who) await page.getByLabel("User").fill(who);
}

/** What the window keeps. */
const kept = () => page.evaluate(() => ({ ...sessionStorage }));

await step("the button is there, for keyboards and screen readers, too", async () => {
  await page.goto(`${site.url}/ui/`);
  await button.waitFor();
  await look(page, "login-signin");
  await button.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "University" }).waitFor();
});

await step("who signs in there is signed in here, and the address keeps nothing of it", async () => {
  await page.getByLabel("User").fill("ann");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Live", { exact: true }).waitFor();
  await page.getByText("(user, lab-a)").waitFor();
  assert.ok(!/code|state/.test(page.url()), page.url());
  const now = await kept();
  assert.match(now["reclaimnet.token"], /^rnu1\.s-/);
  assert.equal(now["reclaimnet.ticket"], undefined, "a ticket is of use once");
  await page.reload();
  await page.getByText("Live", { exact: true }).waitFor();
});

await step("an address that somebody wrote changes nothing for who is signed in", async () => {
  const before = (await kept())["reclaimnet.token"];
  await page.goto(`${site.url}/signin?code=theirs&state=theirs`);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.getByText("(user, lab-a)").waitFor();
  assert.equal((await kept())["reclaimnet.token"], before);
});

await step("who logs out is out, and stays out", async () => {
  await page.getByRole("button", { name: "Log out" }).click();
  await button.waitFor();
  assert.deepEqual(await kept(), {});
  await page.goto(`${site.url}/ui/`);
  await button.waitFor();
  await page.goBack();
  await page.waitForLoadState();
  assert.equal((await kept())["reclaimnet.token"], undefined);
});

await step("who says no there is told so here", async () => {
  await toTheProvider("");
  await page.getByRole("button", { name: "Cancel" }).click();
  await trouble.filter({ hasText: "the identity provider says access_denied" }).waitFor();
  await page.setViewportSize(PHONE);
  await isAccessible(page, "a refused sign-in");
});

await step("who has no account here is told whom to ask", async () => {
  await toTheProvider("stranger");
  await page.getByRole("button", { name: "Sign in" }).click();
  await trouble.filter({ hasText: "who has no account at this site" }).waitFor();
  await trouble.filter({ hasText: "helpdesk@example.org" }).waitFor();
});

await step("a sign-in that this window did not begin is none", async () => {
  await page.goto("about:blank");
  await page.goto(`${site.url}/signin?code=theirs&state=theirs`);
  await trouble.filter({ hasText: "begun in another window" }).waitFor();
  assert.deepEqual(await kept(), {});
  await page.goto("about:blank");
  await page.goto(`${site.url}/signin?error=call+0900+1234`);
  await trouble.filter({ hasText: "an error without a name" }).waitFor();
});

await step("a provider that is away when people come back is named", async () => {
  await toTheProvider("ann");
  await page.getByRole("button", { name: "Sign in" }).focus();
  await act("token_away");
  await page.keyboard.press("Enter");
  await trouble.filter({ hasText: "the identity provider does not answer as it should" }).waitFor();
  await act("token_back");
});

await step("a terminal on the browser's machine is signed in by it", async () => {
  const { url, word } = await act("terminal");
  await page.goto(url);
  await page.getByLabel("User").fill("ann");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText(word, { exact: true }).waitFor();
  await isAccessible(page, "the page before a terminal");
  await page.getByRole("link", { name: "Go on" }).click();
  await page.getByText("Go back to the terminal").waitFor();
  assert.ok(page.url().startsWith(`${site.others[1]}/signin?`), page.url());
  const { status, said } = await act("terminal_ends");
  assert.equal(status, 0, said);
  assert.match(said, /logged in to .* as ann \(user\)/);
});

await finish();
