// SPDX-License-Identifier: Apache-2.0
// The dashboard as people use it: real Chromium, a real coordinator. Told by tests/system/dashboard_test.py where the
// site is; asks it for what owners, students and failing cables do (chromium.mjs).
import assert from "node:assert/strict";
import {
  act,
  finish,
  fits,
  isAccessible,
  logIn,
  look,
  newPage,
  PATIENCE_MS,
  PHONE,
  say,
  shoot,
  site,
  step,
  WIDE,
} from "./chromium.mjs";

/** So long what is typed must rest until it is asked for (web/src/plan.ts). */
const PLAN_REST_MS = 400;
const owner = await newPage();
await step("a stranger is asked for a token and told what is wrong with one", async () => {
  await owner.goto(`${site.url}/`);
  assert.equal(new URL(owner.url()).pathname, "/ui/");
  const field = owner.getByLabel("Your token");
  await field.waitFor();
  for (const [token, words] of [
    ["", "Paste your token."],
    ["rn1.t-1.abc.def", "This is a join token"],
    ["password", "This is not a whole token"],
    [site.tokens.expired, "the token has expired"],
  ]) {
    await field.fill(token);
    await owner.keyboard.press("Enter");
    await owner.getByRole("alert").filter({ hasText: words }).waitFor();
  }
  await look(owner, "login");
});

await step("an owner sees to whom the machine is lent, without what runs there", async () => {
  await logIn(owner, site.tokens.owner);
  await owner.getByRole("heading", { level: 1, name: "My machines" }).waitFor();
  const machine = owner.getByRole("article");
  await machine.getByText(`student of lab-s, job ${site.job}`).waitFor();
  await machine.getByText("GPU 0").first().waitFor();
  assert.equal(await owner.getByText("secret-name").count(), 0, "the job's name is its user's");
  await machine.getByText("Contract", { exact: true }).click();
  await machine.getByText("Lent around the clock.").waitFor();
  await machine.getByText("Hours in which it is taken back").click();
  await machine.getByRole("table", { name: /^Chance that/ }).waitFor();
  await look(owner, "owner");
});

const student = await newPage();
await step("a student sees the job, its log as it grows, and where it is", async () => {
  await logIn(student, site.tokens.student);
  await student.getByRole("link", { name: `${site.job} secret-name` }).click();
  await student.getByText(`${site.host} (${site.lab})`).first().waitFor();
  const log = student.getByRole("log");
  await log.filter({ hasText: "step=" }).waitFor();
  const before = (await log.textContent()).length;
  await student.waitForFunction((length) => document.querySelector(".log").textContent.length > length, before);
  await student.getByText(/^number \d+, /).waitFor();
});

const writer = await newPage();
const plans = { open: 0, most: 0, all: 0 };
await writer.route("**/v1/plan", async (route) => {
  plans.all += 1;
  plans.open += 1;
  plans.most = Math.max(plans.most, plans.open);
  const response = await route.fetch();
  plans.open -= 1;
  await route.fulfill({ response });
});
const verdict = writer.getByRole("region", { name: "What would become of it" }).getByRole("status");

await step("while a student writes a job the page says what would become of it", async () => {
  await logIn(writer, site.tokens.student);
  await writer.getByRole("link", { name: "New job" }).click();
  await writer.getByLabel("Memory, GiB", { exact: true }).fill("0.0625");
  await writer.getByLabel("Disk, GiB").fill("0.0625");
  await writer.getByLabel("Cores").fill("0.5");
  await writer.getByLabel("Image").selectOption("base");
  await verdict.getByText("would start now").waitFor();
  await writer.getByText("before it must leave").waitFor();
  await writer.getByText("which is assumed").waitFor();
  await writer.getByLabel("GPUs").fill("64");
  await verdict.getByText("can never run as it is").waitFor();
  await writer.getByText("or ask its owner").waitFor();
  await writer.getByRole("button", { name: "Submit it anyway" }).waitFor();
  await writer.getByLabel("GPUs").fill("0");
  await writer.getByLabel("Notice wanted").fill("20m");
  await writer.getByText("Owners grant at most 15 minutes.").waitFor();
  await writer.getByLabel("Notice wanted").fill("5m");
  await verdict.getByText("would start now").waitFor();
  await writer.getByText("5 min wanted, which not every owner grants").waitFor();
  const [before, begun] = [plans.all, Date.now()];
  await writer.getByLabel("Longest time").pressSequentially("123456789", { delay: 5 });
  await writer.getByText("of running").waitFor();
  const rests = Math.floor((Date.now() - begun) / PLAN_REST_MS); // a busy machine types slowly
  assert.ok(plans.all - before < 5 + rests, `${plans.all - before} questions while nine digits were typed`);
  await writer.getByLabel("Longest time").fill("2h");
  await writer.getByText("expected in 2.0 h of running").waitFor();
  assert.equal(plans.most, 1, "one question at a time");
  await look(writer, "student-new");
});

await step("a job whose answer is lost is one job, also after a reload", async () => {
  const keys = [];
  let isAnswerLost = true;
  await writer.route("**/v1/jobs", async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    keys.push(route.request().headers()["idempotency-key"]);
    if (!isAnswerLost) return route.continue();
    await route.fetch(); // it arrives, and nobody hears of it
    await route.abort();
  });
  await writer.getByLabel("Name").fill("written-here");
  await writer.keyboard.press("Enter");
  await writer.getByText("Say what to run").waitFor();
  assert.equal(await writer.evaluate(() => document.activeElement.id), "new-command");
  await writer.keyboard.type("true");
  await writer.keyboard.press("Enter");
  await writer.getByRole("alert").filter({ hasText: "Not known yet whether written-here was taken" }).waitFor();
  await isAccessible(writer, "a job that is not known to be taken");
  await writer.reload();
  await writer.getByRole("alert").filter({ hasText: "Not known yet" }).waitFor();
  isAnswerLost = false;
  await writer
    .getByRole("button", { name: "Send again now" })
    .click({ timeout: 1_000 })
    .catch(() => {}); // it may have been sent by itself just now
  await writer.getByRole("heading", { name: /^Job \d+ is submitted$/ }).waitFor();
  assert.ok(keys.length >= 3, `sent ${keys.length} times`);
  assert.equal(new Set(keys).size, 1, "under one key");
  assert.deepEqual(await act("count_jobs", { name: "written-here" }), { count: 1 });
  await isAccessible(writer, "a job that is submitted");
  await writer.getByRole("link", { name: /^See job \d+$/ }).click();
  await writer.getByText("done", { exact: true }).first().waitFor();
  assert.equal(await writer.evaluate(() => sessionStorage.length), 1, "nothing is left of it but the token");
});

const operator = await newPage();
await step("an operator sees every lab, a machine's forecast, and events that fit", async () => {
  await logIn(operator, site.tokens.admin);
  await operator.getByRole("heading", { level: 1, name: "Site" }).waitFor();
  for (const lab of ["lab-a", "lab-b"]) await operator.getByRole("heading", { level: 3, name: lab }).waitFor();
  await operator.locator(".node summary").first().click();
  await operator.getByText("Taken back within").waitFor();
  const hours = operator.getByRole("table", { name: /^Chance that/ });
  assert.equal(await hours.locator("td").count(), 168);
  assert.match(await hours.locator("td").first().textContent(), /%$/);
  await operator.getByLabel("Only with the words").fill("node.joined");
  const rows = operator.getByRole("region", { name: "Events" }).locator("tbody tr");
  await operator.waitForFunction(() => document.querySelectorAll("[aria-label=Events] tbody tr").length === 2);
  for (const kind of await rows.locator("td:nth-child(2)").allTextContents()) assert.equal(kind, "node.joined");
  await operator.getByLabel("Only with the words").fill("");
});

await step("a machine that is taken back shows cut, cleared and returned as they happen", async () => {
  await act("reclaim");
  const steps = owner.getByRole("status").locator(".steps");
  for (const what of ["Network cut", "Cleared"])
    await steps.getByRole("listitem").filter({ hasText: what }).filter({ hasText: "after" }).waitFor();
  await owner.getByText("cleared: all yours").first().waitFor();
  await owner.getByText("Nobody is on it.").waitFor();
  await shoot(owner, "owner-taken-back");
  const { shown_ms } = await act("cleared_ago");
  say({ figure: "from the node's record of `cleared` at the coordinator until the page shows it", ms: shown_ms });
});

await step("the student's job goes on elsewhere, and what was lost is told", async () => {
  const rows = student.getByRole("region", { name: "Attempts" }).locator("tbody tr");
  await student.waitForFunction(() => document.querySelectorAll("[aria-label=Attempts] tbody tr").length === 2);
  await rows.first().getByText("running").waitFor();
  await rows.last().getByText("reclaimed").waitFor();
  await student.locator(".tile").filter({ hasText: "Had to move" }).getByText("once").waitFor();
  await student.locator(".run-lost").waitFor({ state: "attached" });
  await student.getByRole("log").filter({ hasText: "step=" }).waitFor();
  await look(student, "student");
});

await step("the operator sees the migration, and all of it is accessible", async () => {
  await operator.getByRole("region", { name: "Migrations" }).locator("tbody tr").first().waitFor();
  const left = operator.getByRole("region", { name: "Jobs that had to leave" }).locator("tbody tr");
  await left.getByText(/^after /).waitFor(); // it runs again
  assert.match(await left.locator("td").first().textContent(), new RegExp(`^${site.job} `));
  await operator.locator(".flows .flow-runs").first().waitFor({ state: "attached" });
  await left.scrollIntoViewIfNeeded();
  await shoot(operator, "operator-reclaim");
  await operator.getByText("Lent and own, as a table").click();
  await operator.getByRole("region", { name: "Lent and own" }).locator("tbody tr").first().waitFor();
  await look(operator, "operator");
});

await step("a machine that is lent again is so on the page", async () => {
  await act("release");
  await owner.getByText("free to borrow").waitFor();
  await owner.getByRole("region", { name: "What was taken back" }).getByText("lent again").waitFor();
});

await step("an evacuation is told with its deadline, bytes and rate, and that it was met", async () => {
  const { number, to } = await act("evacuate");
  const rows = operator
    .getByRole("region", { name: "Migrations" })
    .getByRole("row")
    .filter({ has: operator.getByRole("cell", { name: `${number} evacuee`, exact: true }) });
  const cellsOf = async (verdict) => {
    const row = rows.filter({ has: operator.getByRole("cell", { name: verdict, exact: true }) }).first();
    await row.waitFor();
    return row.getByRole("cell").allTextContents();
  };
  const shown = { "evacuation.admitted": await cellsOf("promised"), "evacuation.in_time": await cellsOf("met") };
  const told = await act("evacuated");
  for (const [kind, cells] of Object.entries(shown)) {
    const { bytes, rate_bps, deadline_ms } = told[kind];
    say({ step: `  ${kind}: ${cells.slice(2, 7).join(", ")}`, ms: 0 });
    assert.equal(cells[3], to);
    assert.ok(Number(bytes) >= 1 << 20, `${bytes} bytes`); // what is not known yet counts as so much
    assert.match(cells[4], /^\d+(\.\d+)? MiB$/);
    assert.ok(Math.abs(parseFloat(cells[4]) * (1 << 20) - bytes) < 0.06 * (1 << 20), `${cells[4]} for ${bytes}`);
    assert.equal(cells[5], `${(rate_bps / 1e6).toFixed(1)} Mbit/s`);
    assert.ok(rate_bps > 0, `${rate_bps} bit/s`);
    assert.match(cells[6], /^\d+(\.\d)? s$/);
    const left = Math.max(0, deadline_ms);
    assert.ok(Math.abs(parseFloat(cells[6]) * 1_000 - left) <= 500, `${cells[6]} for ${deadline_ms} ms`);
    assert.ok(deadline_ms < 20_000, `${deadline_ms} ms, of a notice of 20 s`);
  }
  const granted = Number(told["evacuation.admitted"].rate_bps);
  assert.ok(granted <= 8e6, `${granted} bit/s, of 8 million that the owner grants`);
  assert.ok(Number(told["evacuation.in_time"].deadline_ms) < Number(told["evacuation.admitted"].deadline_ms));
  await shoot(operator, "operator-evacuation");
  await act("end_evacuee");
  await owner.getByText("free to borrow").waitFor();
});

const machine = owner.getByRole("article");
const reclaim = machine.getByRole("button", { name: `Reclaim ${site.host}`, exact: true });
await step("on a phone one tap takes nothing back, two take the machine", async () => {
  await owner.setViewportSize(PHONE);
  await reclaim.dblclick();
  const choice = machine.locator(".take [role=group]");
  assert.equal(await choice.count(), 0, "a double tap opens and leaves");
  await reclaim.click();
  await machine.getByRole("button", { name: "With notice" }).waitFor();
  await fits(owner, "what there is to choose, on a phone");
  await isAccessible(owner, "what there is to choose");
  await shoot(owner, "owner-reclaim-phone");
  assert.deepEqual(await act("taken"), []);
  await choice.getByRole("button", { name: /^Now/ }).click();
  const steps = machine.getByRole("status").locator(".steps");
  for (const what of ["Network cut", "Cleared"])
    await steps.getByRole("listitem").filter({ hasText: what }).filter({ hasText: "after" }).waitFor();
  await machine.getByText("Taken back at once").waitFor();
  assert.equal(await reclaim.count(), 0, "there is nothing left to take");
  assert.deepEqual(await act("taken"), ["emergency"]);
  await act("release");
  await machine.getByText("free to borrow").waitFor();
  await owner.setViewportSize(WIDE);
});

await step("by keyboard, one GPU with notice", async () => {
  await machine.getByRole("button", { name: "Reclaim GPU 0" }).focus();
  await owner.keyboard.press("Enter");
  await owner.keyboard.press("Tab");
  assert.match(await owner.evaluate(() => document.activeElement.textContent), /^With notice/);
  await owner.keyboard.press("Enter");
  await machine.getByRole("status").getByText("GPU 0").first().waitFor();
  await machine.getByText("Taken back with notice").waitFor();
  assert.deepEqual(await act("taken"), ["notice"]);
  await reclaim.waitFor();
  await act("release");
  await machine.getByText("Taken back with notice").waitFor({ state: "detached" });
});

await step("at a moment that its owner chooses", async () => {
  await reclaim.click();
  const later = await owner.evaluate(() => {
    const then = new Date(Date.now() + 7_200_000 - new Date().getTimezoneOffset() * 60_000);
    return then.toISOString().slice(0, 16);
  });
  const button = machine.getByRole("button", { name: "At that time" });
  assert.ok(await button.isDisabled());
  await machine.getByLabel("Or later, within seven days, at").fill(later);
  await isAccessible(owner, "a moment to take it back at");
  await button.click();
  await machine.getByText("Taken back at an announced time, until").waitFor();
  assert.deepEqual(await act("taken"), ["announced"]);
  await act("release");
  await machine.getByText("Taken back at an announced time").waitFor({ state: "detached" });
});

const contractForm = machine.getByRole("form", { name: `Contract of ${site.host}` });
const changeIt = machine.getByRole("button", { name: `Change the contract of ${site.host}` });
const contractNews = machine.locator("[id^=contract-news]");
/** A day that is neither today nor tomorrow: its hours are nobody's while this runs. */
const quietDay = new Date(Date.now() + 3 * 86_400_000).toLocaleDateString("en", { weekday: "long", timeZone: "UTC" });
const hourOf = (hour) =>
  contractForm.getByRole("gridcell", { name: new RegExp(`^${quietDay} ${String(hour).padStart(2, "0")}:00 to `) });

await step("an owner paints the week by mouse and keyboard, and reads first what it would mean", async () => {
  await changeIt.click();
  await hourOf(8).hover();
  await owner.mouse.down();
  await hourOf(9).hover();
  await owner.mouse.up();
  assert.equal(await hourOf(9).getAttribute("aria-selected"), "false");
  await owner.keyboard.press("ArrowDown"); // from where the stroke began
  await owner.keyboard.press("ArrowDown");
  await owner.keyboard.press(" ");
  assert.equal(await hourOf(10).getAttribute("aria-selected"), "false");
  await contractForm.getByText("It only lends less").waitFor();
  await contractForm.getByText("Lent 165 of the week's 168 hours, and 168 now.").waitFor();
  await look(owner, "owner-contract");
  await shoot(contractForm, "owner-contract");
  await contractForm.getByLabel("Notice that guests have").fill("901");
  await contractForm.getByText("notice_s: is more than 900").waitFor();
  assert.ok(await contractForm.getByRole("button", { name: "Save" }).isDisabled());
  await contractForm.getByLabel("Notice that guests have").fill("20");
  await contractForm.getByText("It only lends less").waitFor();
  await contractForm.getByRole("button", { name: "Save" }).click();
  await contractNews.getByText("in force", { exact: true }).waitFor();
  await machine.getByText("00:00 to 08:00 and 11:00 to 24:00").waitFor({ state: "attached" });
  const { contract } = await act("contract");
  assert.ok(contract.windows.length > 0, "the machine itself has it");
  const isCut = contract.windows.some((one) => one.from === "00:00" && one.to === "08:00");
  assert.ok(isCut, JSON.stringify(contract.windows));
});

await step("the hours of one GPU are painted, and are its own within the machine's", async () => {
  await changeIt.click();
  await contractForm.getByText("GPU 0: the machine's hours").click();
  await contractForm.getByLabel("GPU 0 has hours of its own").check();
  const grid = contractForm.getByRole("grid", { name: /^Hours of GPU 0, where the machine is lent/ });
  const cell = (hour) => grid.getByRole("gridcell", { name: new RegExp(`^${quietDay} ${hour}:00 to `) });
  assert.equal(await cell("08").getAttribute("aria-selected"), "false", "as the machine's at first");
  await contractForm.getByText("GPU 0: 165 of the machine's 165 hours").waitFor();
  await cell("12").hover();
  await owner.mouse.down();
  await cell("13").hover();
  await owner.mouse.up();
  await contractForm.getByText("GPU 0: 163 of the machine's 165 hours").waitFor();
  await contractForm.getByText("It only lends less").waitFor();
  await look(owner, "owner-gpu-hours");
  await contractForm.getByRole("button", { name: "Save" }).click();
  await contractNews.getByText("in force", { exact: true }).waitFor();
  await machine.getByText("GPU 0 is lent in 163 hours of the week of its own").waitFor({ state: "attached" });
  const { contract } = await act("contract");
  assert.deepEqual([contract.gpu_windows.length, contract.gpu_windows[0].gpu], [1, 0]);
  const isCut = contract.gpu_windows[0].windows.some((one) => one.from === "11:00" && one.to === "12:00");
  assert.ok(isCut, JSON.stringify(contract.gpu_windows));
});

await step("what lends more waits until somebody at the machine accepts it", async () => {
  const before = await act("contract");
  await owner.setViewportSize(PHONE);
  await changeIt.click();
  await contractForm.getByRole("button", { name: `All of ${quietDay}` }).click();
  await contractForm.getByText("it waits until somebody at the machine accepts it").waitFor();
  await contractForm.getByRole("button", { name: "Send it to the machine" }).click();
  await machine.getByText("waits for somebody at the machine").waitFor();
  await fits(owner, "a change that waits, on a phone");
  await isAccessible(owner, "a change that waits");
  assert.deepEqual(await act("contract"), before, "nothing is changed by it");
  await act("accept");
  await contractNews.getByText("accepted at the machine").waitFor();
  assert.deepEqual((await act("contract")).contract.windows, []);
  await owner.setViewportSize(WIDE);
});

await step("two windows that edit one contract are told of each other, and nothing is lost silently", async () => {
  const other = await newPage();
  await logIn(other, site.tokens.owner);
  const there = other.getByRole("article");
  await there.getByText("Contract", { exact: true }).click();
  await there.getByRole("button", { name: `Change the contract of ${site.host}` }).click();
  await there.getByLabel("Guests at the same time").fill("3");
  await there.getByText("max_guests: 3, and it was 16").waitFor();
  await changeIt.click();
  await contractForm.getByLabel("Notice that guests have").fill("10");
  await contractForm.getByText("notice_s: 10, and it was 20").waitFor();
  await contractForm.getByRole("button", { name: "Save" }).click();
  await there.getByRole("alert").filter({ hasText: "Meanwhile the contract was changed" }).waitFor();
  await there.getByText("notice_s: 20, and it was 10").waitFor(); // what theirs would undo is shown
  assert.ok(await there.locator("button[type=submit]").isDisabled());
  await isAccessible(other, "a contract that another one has changed");
  await there.getByRole("button", { name: "Begin again with the one in force" }).click();
  await there.getByLabel("Guests at the same time").fill("3");
  await there.getByText("It only lends less").waitFor();
  await there.getByRole("button", { name: "Save" }).click();
  await there.getByRole("button", { name: `Change the contract of ${site.host}` }).waitFor();
  let contract = {};
  for (const end = Date.now() + PATIENCE_MS; contract.max_guests !== 3 && Date.now() < end; ) {
    await other.waitForTimeout(200);
    contract = (await act("contract")).contract;
  }
  assert.deepEqual([contract.notice_s, contract.max_guests], [10, 3]);
  await other.context().close();
});

await step("a machine that is away is not taken back, then or later, and the page says what to do", async () => {
  await act("stop_agent");
  await machine.getByText("Nothing heard for").waitFor();
  await reclaim.click();
  await machine.getByRole("button", { name: /^Now/ }).click();
  const news = machine.getByRole("status");
  await news.getByText("does not answer now").waitFor();
  await news.getByText("on the machine itself: reclaim-agent reclaim --now").waitFor();
  await isAccessible(owner, "a machine that does not answer");
  await news.getByText("nothing was done").waitFor();
  await act("start_agent");
  await machine.getByText("free to borrow").waitFor();
  assert.deepEqual(await act("taken"), []);
});

await step("by keyboard alone: past the menu, and from view to view", async () => {
  await owner.reload();
  await owner.getByText("Live", { exact: true }).waitFor();
  await owner.keyboard.press("Tab");
  assert.equal(await owner.evaluate(() => document.activeElement.textContent), "To the content");
  await owner.keyboard.press("Enter");
  assert.equal(await owner.evaluate(() => document.activeElement.id), "main");
  await owner.getByRole("link", { name: "My jobs" }).focus();
  await owner.keyboard.press("Enter");
  await owner.getByRole("heading", { level: 1, name: "My jobs" }).waitFor();
});

await step("a lost connection is said, and what came meanwhile is there afterwards", async () => {
  await act("stop_coordinator");
  await student.getByRole("alert").filter({ hasText: "Connection lost" }).waitFor();
  await isAccessible(student, "connection lost");
  await shoot(student, "connection-lost");
  await act("start_coordinator");
  await student
    .getByRole("button", { name: "Try now" })
    .click({ timeout: 1_000 })
    .catch(() => {});
  await student.getByText("Live", { exact: true }).waitFor();
  const { number } = await act("submit");
  await student.getByRole("link", { name: `${number} another` }).waitFor();
});

await step("a token that is revoked ends the window with a word", async () => {
  await act("revoke_student");
  await student.getByRole("alert").filter({ hasText: "You were logged out: the token was revoked" }).waitFor();
  assert.equal(await student.evaluate(() => sessionStorage.length), 0);
  await student.reload();
  await student.getByLabel("Your token").waitFor();
});

await step("logging out forgets the token", async () => {
  await owner.getByRole("button", { name: "Log out" }).click();
  await owner.getByLabel("Your token").waitFor();
  assert.equal(await owner.evaluate(() => sessionStorage.length), 0);
});

await finish();
