// SPDX-License-Identifier: Apache-2.0
// How long the dashboard takes on a full site, in real Chromium: the browser's part of bench/dashboard.py, which founds
// the site and tells in one JSON line where it is. Each window is a browser of its own, with nothing in its cache.
// Answers lines of {"figure": NAME, "samples": [milliseconds…]}, and {"done": true}. No test: figures.
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(join(process.env.RN_WEB_BUILD, "package.json"));
const { chromium } = require("playwright-core");
const PATIENCE_MS = 120_000;

const told = JSON.parse((await createInterface({ input: process.stdin })[Symbol.asyncIterator]().next()).value);
const { url, token, nodes, rows, windows, updates } = told;
const browser = await chromium.launch({ executablePath: process.env.RN_CHROMIUM, args: ["--disable-gpu"] });
const figures = {
  "first paint": [],
  "all jobs there": [],
  "stop of a job to its answer": [],
  "stop of a job to the page": [],
  "to the site's view": [],
};
/** Of those that wait, the last ones; each is stopped once. */
let next = told.first;

async function stopAndSee(page) {
  const number = next;
  next += 1;
  const begun = performance.now();
  const answer = page.context().request.post(`${url}/v1/jobs/${number}/stop`, {
    headers: { Authorization: `Bearer ${token}` },
    data: {},
    timeout: PATIENCE_MS,
  });
  const seen = page.waitForFunction(
    (job) => {
      const row = document.querySelector(`[aria-label=Jobs] a[href="#/jobs/${job}"]`)?.closest("tr");
      return row?.querySelector(".badge")?.textContent === "stopped";
    },
    number,
    { polling: 5, timeout: PATIENCE_MS },
  );
  const answered = answer.then((done) => {
    if (!done.ok()) throw new Error(`stop of job ${number}: ${done.status()}`);
    figures["stop of a job to its answer"].push(performance.now() - begun);
  });
  const shown = seen.then(() => figures["stop of a job to the page"].push(performance.now() - begun));
  await Promise.all([answered, shown]);
}

for (let window = 0; window < windows; window += 1) {
  // The site's own certificate authority is not this browser's.
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 900 } });
  await context.addInitScript((kept) => sessionStorage.setItem("reclaimnet.token", kept), token);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto(`${url}/ui/#/jobs`);
  await page.waitForFunction(
    (count) => document.querySelectorAll("[aria-label=Jobs] tbody tr").length >= count,
    rows,
    { polling: "raf" },
  );
  const [paint, loaded] = await page.evaluate(() => [
    performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
    performance.now(),
  ]);
  if (paint === undefined) throw new Error("the browser tells no first paint");
  figures["first paint"].push(paint);
  figures["all jobs there"].push(loaded);
  await page.getByText("Live", { exact: true }).waitFor();
  for (let update = 0; update < updates; update += 1) await stopAndSee(page);
  const turned = performance.now();
  await page.evaluate(() => {
    location.hash = "#/site";
  });
  await page.waitForFunction((count) => document.querySelectorAll(".nodes .node").length >= count, nodes);
  figures["to the site's view"].push(performance.now() - turned);
  if (process.env.RN_SHOTS && window === 0)
    await page.screenshot({ path: join(process.env.RN_SHOTS, "many-site.png") });
  await context.close();
}
await browser.close();
for (const [figure, samples] of Object.entries(figures)) console.log(JSON.stringify({ figure, samples }));
console.log(JSON.stringify({ done: true }));
process.exit(0);
