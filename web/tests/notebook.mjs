// SPDX-License-Identifier: Apache-2.0
// A notebook as people use it: real Chromium, the real Jupyter in a guest, an owner who comes back. Told by
// tests/system/notebook_page_test.py in JSON lines where it is; asks it by `act` for what the owner does. Environment:
// RN_WEB_BUILD (the folder with node_modules), RN_CHROMIUM.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(join(process.env.RN_WEB_BUILD, "package.json"));
const { chromium } = require("playwright-core");

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => JSON.parse((await lines.next()).value);
const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

async function act(what, more = {}) {
  say({ act: what, ...more });
  return read();
}

async function step(name, run) {
  const begun = Date.now();
  try {
    await run();
  } catch (error) {
    process.stderr.write(`in "${name}": ${page.url()} shows\n${(await page.innerText("body")).slice(0, 2000)}\n`);
    process.stderr.write(`under way: ${[...underWay].join(", ")}\nnot got: ${troubles.join("\n")}\n`);
    throw error;
  }
  say({ step: name, ms: Date.now() - begun });
}

const PATIENCE_MS = 120_000; // for what hangs: a page of Jupyter is many files
const MOVES_MS = 150_000;
const told = await read();
const browser = await chromium.launch({ executablePath: process.env.RN_CHROMIUM, args: ["--disable-gpu"] });
// The site's own certificate authority is not this browser's: who opens the page says once that it is the right one.
const context = await browser.newContext({ ignoreHTTPSErrors: true });
const page = await context.newPage();
page.setDefaultTimeout(PATIENCE_MS);
const notice = page.locator("#reclaim-notice");
const troubles = []; // for a failed wait: what the page did not get
page.on("requestfailed", (request) => troubles.push(`${request.url()}: ${request.failure()?.errorText}`));
const underWay = new Set(); // asked for, and neither there nor failed
page.on("request", (request) => underWay.add(request.url()));
page.on("requestfinished", (request) => underWay.delete(request.url()));
page.on("requestfailed", (request) => underWay.delete(request.url()));
page.on("response", (got) => got.status() >= 400 && troubles.push(`${got.url()}: ${got.status()}`));

await step("the address leads to Jupyter, and its key is gone", async () => {
  await page.goto(told.url);
  await page.getByText("data.csv").waitFor();
  assert.ok(page.url().startsWith(told.place), page.url());
  assert.ok(!page.url().includes("key="), page.url());
});

await step("a page of the guest sees neither the session nor the dashboard's origin", async () => {
  const seen = await page.evaluate(() => document.cookie);
  assert.ok(!seen.includes("reclaim-notebook"), seen);
  const failed = await page.evaluate(
    (url) => fetch(`${url}/v1/version`).then(() => "read", () => "failed"), told.dashboard);
  assert.equal(failed, "failed");
  const dashboard = await context.newPage();
  await dashboard.goto(`${told.dashboard}/ui/`);
  await dashboard.evaluate(() => sessionStorage.setItem("probe", "secret"));
  assert.equal(await page.evaluate(() => sessionStorage.getItem("probe")), null);
  await dashboard.close();
});

await step("a notebook opens, and a cell is run", async () => {
  await page.goto(`${told.place}notebooks/thesis.ipynb`);
  await page.waitForFunction(() => globalThis.Jupyter?.notebook?.kernel?.is_connected());
  await page.evaluate(() => {
    const cell = globalThis.Jupyter.notebook.insert_cell_at_bottom("code");
    cell.set_text("print(6 * 7)");
    cell.execute();
  });
  await page.locator(".output_text").filter({ hasText: "42" }).first().waitFor();
  assert.equal(await notice.isVisible(), false);
});

await step("the page says that the owner comes back, and saves", async () => {
  await act("reclaim");
  await notice.filter({ hasText: /takes this machine back at .*\(an exam\)\. Saved at / }).waitFor();
});

await step("the same address shows the notebook again, with what was saved, elsewhere", async () => {
  const is_back = () => {
    const bar = document.getElementById("reclaim-notice");
    return bar && bar.style.display === "none" && globalThis.Jupyter?.notebook?.kernel?.is_connected();
  };
  await page.waitForFunction(is_back, undefined, { timeout: MOVES_MS }).catch(async (error) => {
    const seen = await page.evaluate(() => [document.readyState, globalThis.Jupyter?.notebook?.dirty,
      globalThis.Jupyter?.notebook?.kernel?.is_connected(), document.body.innerText.slice(0, 2000)]);
    const missed = troubles.slice(-30).join("\n");
    throw new Error(`${error.message}\n${page.url()} shows ${JSON.stringify(seen)} and did not get\n${missed}`);
  });
  assert.equal(page.url(), `${told.place}notebooks/thesis.ipynb`);
  await page.locator(".output_text").filter({ hasText: "42" }).first().waitFor();
  const { has_moved } = await act("has_moved");
  assert.ok(has_moved);
});

await browser.close();
say({ done: true });
process.exit(0);
