// SPDX-License-Identifier: Apache-2.0
// What stories of the dashboard stand on: real Chromium, and the test around it (tests/system/lib/browser_story.py),
// which tells in JSON lines where the site is and does by `act` what is done outside of the browser. Environment:
// RN_WEB_BUILD (the folder with node_modules), RN_CHROMIUM, RN_SHOTS (pictures go there; empty: none are kept).
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(join(process.env.RN_WEB_BUILD, "package.json"));
const { chromium } = require("playwright-core");
const axeSource = require("axe-core").source;

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => JSON.parse((await lines.next()).value);
export const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

/** Something that only the test around us can do; answers what it answers. */
export async function act(what, more = {}) {
  say({ act: what, ...more });
  return read();
}

export const site = await read();
export const WIDE = { width: 1280, height: 900 };
export const PHONE = { width: 360, height: 740 };
/** For one thing to be seen; a machine that is full of other tests is slow. */
export const PATIENCE_MS = 60_000;

const browser = await chromium.launch({ executablePath: process.env.RN_CHROMIUM, args: ["--disable-gpu"] });
/** Where pages may be: the site, and whom it sends people to. */
const places = [site.url, ...(site.others ?? [])];
const strangers = [];
const complaints = [];

/** `refusals`: statuses of answers that the story waits for, beside those that are the browser's news anyway. */
export async function newPage(options = {}, refusals = []) {
  // The site's own certificate authority is not this browser's: who opens the page says once that it is the right one.
  const context = await browser.newContext({
    ignoreHTTPSErrors: true,
    viewport: WIDE,
    reducedMotion: "reduce",
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("request", (request) => {
    if (!places.some((one) => request.url().startsWith(`${one}/`))) strangers.push(request.url());
  });
  page.on("console", (message) => {
    // A coordinator that is away and a token that is refused are the browser's news, too, and what we wait for.
    const told = [401, 403, 409, 503, ...refusals].join("|");
    const isExpected = new RegExp(
      `Failed to load resource: (net::ERR_|the server responded with a status of (${told}))`,
    );
    if (message.type() === "error" && !isExpected.test(message.text())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  bearNewInterfaces(page);
  return page;
}

/**
 * Chromium gives up what it loads when an interface or an address comes or goes on its machine, and beside this test
 * other sites are made and removed. People press reload then; so does the story, ten times at most.
 */
function bearNewInterfaces(page) {
  for (const name of ["goto", "reload"]) {
    const once = page[name].bind(page);
    page[name] = async (...told) => {
      for (let turn = 1; ; ++turn) {
        try {
          return await once(...told);
        } catch (error) {
          if (turn === 10 || !String(error).includes("net::ERR_NETWORK_CHANGED")) throw error;
        }
      }
    };
  }
}

export async function step(name, run) {
  const begun = Date.now();
  await run();
  say({ step: name, ms: Date.now() - begun });
}

async function violations(page) {
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map(
    (one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html).join(" | ")}`,
  );
}

/**
 * Nothing that axe-core finds. On a busy machine a browser that has just been told of another color scheme may show
 * links in the colors of the one before for a moment: what is found must still be there after it.
 */
export async function isAccessible(page, what) {
  await page.evaluate(axeSource);
  let told = await violations(page);
  for (let look = 0; look < 4 && told.length > 0; ++look) {
    await page.waitForTimeout(250);
    told = await violations(page);
  }
  assert.deepEqual(told, [], what);
}

export async function fits(page, what) {
  const beyond = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  assert.ok(beyond <= 0, `${what}: ${beyond} px stand out to the side`);
}

/** Those of docs/dashboard.md. */
const KEPT = [
  "connection-lost",
  "operator-quotas",
  "operator-reclaim",
  "operator-wide",
  "owner-contract",
  "owner-phone",
  "owner-reclaim-phone",
  "owner-taken-back",
  "owner-wide",
  "student-inside",
  "student-new-wide",
  "student-wide",
];

/** Of a page, or of a part of it. */
export async function shoot(what, name, more = {}) {
  if (process.env.RN_SHOTS && KEPT.includes(name))
    await what.screenshot({ path: join(process.env.RN_SHOTS, `${name}.png`), ...more });
}

/** The view wide and light, and on a phone in the dark: contrasts and widths have nothing to do with each other. */
export async function look(page, name) {
  for (const [width, viewport, colorScheme] of [
    ["wide", WIDE, "light"],
    ["phone", PHONE, "dark"],
  ]) {
    await page.setViewportSize(viewport);
    await page.emulateMedia({ colorScheme });
    await page.evaluate(() => window.scrollTo(0, 0));
    await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
    await isAccessible(page, `${name}, ${width}, ${colorScheme}`);
    await fits(page, `${name}, ${width}`);
    await shoot(page, `${name}-${width}`, { fullPage: width === "phone" });
  }
  await page.setViewportSize(WIDE);
  await page.emulateMedia({ colorScheme: "light" });
}

export async function logIn(page, token) {
  await page.goto(`${site.url}/ui/`);
  await page.getByLabel("Your token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("Live", { exact: true }).waitFor();
}

/** The story is over: nothing left the site, and the browser had nothing to complain of. */
export async function finish() {
  assert.deepEqual(strangers, [], "requests that left the site");
  assert.deepEqual(complaints, [], "what the browser complained of");
  await browser.close();
  say({ done: true });
  process.exit(0);
}
