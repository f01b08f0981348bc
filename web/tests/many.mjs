// SPDX-License-Identifier: Apache-2.0
// node many.mjs: how long the dashboard takes with 1,000 machines and 10,000 jobs, in real Chromium, against a server
// here that answers as the coordinator does (made-up content, real forms). Environment as browser.mjs, and RN_DIST (the
// built files). Prints median, least and most of five windows. No test: figures.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const require = createRequire(join(process.env.RN_WEB_BUILD, "package.json"));
const { chromium } = require("playwright-core");
const NODES = Number(process.env.RN_NODES ?? 1_000);
const JOBS = Number(process.env.RN_JOBS ?? 10_000);
const WINDOWS = 5;
const TYPES = { css: "text/css", html: "text/html", js: "text/javascript", svg: "image/svg+xml" };

const contract = {
  lends: true,
  lends_gpus: true,
  gpus: [],
  time_zone: "Europe/Berlin",
  holidays: [],
  notice_s: 60,
  min_free_s: 300,
  windows: [
    { days: ["mon", "tue", "wed", "thu", "fri"], from: "19:00", to: "08:00" },
    { days: ["sat", "sun"], from: "00:00", to: "24:00" },
  ],
  idle: { idle_minutes: 10, foreign_vram_mib: 0 },
  guest_cpu_milli: 0,
  guest_memory_mib: 0,
  guest_disk_mib: 10_240,
  uplink_bps_normal: 0,
  uplink_bps_evacuation: 0,
  max_guests: 16,
  orphan_limit_s: 1_800,
  max_drain_s: 600,
  allow_users: [],
  allow_labs: [],
  own_lab_first: true,
};
const began = Date.now() - 7_200_000;
const node = (n) => ({
  id: `n-${n}`,
  lab: `lab-${n % 40}`,
  state: n % 97 ? "up" : "lost",
  is_connected: n % 97 !== 0,
  is_revoked: false,
  lending: ["open", "open", "open", "outside_window", "owner_present"][n % 5],
  contract,
  silent_ms: 100,
  facts: {
    hostname: `host-${n}`,
    cpu_milli: 16_000,
    memory_mib: 65_536,
    disk_mib: 500_000,
    warnings: [],
    gpus: [0, 1].map((index) => ({
      index,
      uuid: `GPU-${n}-${index}`,
      model: "a card",
      memory_mib: 24_576,
      is_static: false,
    })),
  },
  telemetry: {
    cpu_percent: n % 100,
    memory_used_mib: 20_000,
    disk_free_mib: 100_000,
    guests: n % 3,
    logins: 0,
    gpus: [0, 1].map((index) => ({
      index,
      utilisation_percent: (n * 7) % 100,
      memory_used_mib: 9_000,
      temperature_c: 60,
      power_mw: 200_000,
      foreign_processes: 0,
      foreign_vram_mib: 0,
      is_wedged: false,
    })),
  },
  departures_per_day: 1.5,
  jobs: [],
  orders: [],
  contract_version: "",
  proposal: null,
  edits: [],
  version: "0.1.0",
  joined_wall_ms: began,
  guests:
    n % 3
      ? [
          {
            job_number: n,
            user: `user-${n % 50}`,
            lab: `lab-${(n + 1) % 40}`,
            state: "running",
            gpus: 1,
            since_wall_ms: began,
          },
        ]
      : [],
});
let state = "running";
const job = (n) => ({
  id: `j-${n}`,
  number: n,
  owner: `user-${n % 50}`,
  lab: `lab-${n % 40}`,
  state: n === JOBS ? state : n % 4 ? "succeeded" : "queued",
  spec: {
    name: `train-${n}`,
    command: ["python3", "train.py"],
    priority: 4,
    resources: { gpus: 1, cpu_milli: 4_000, memory_mib: 16_384 },
    checkpoint: { is_stateless: false },
  },
  epoch: "1.1",
  node: `n-${n % NODES}`,
  submitted_wall_ms: began,
  started_wall_ms: began,
  finished_wall_ms: 0,
  exit_code: 0,
  restarts: 0,
  displacements: n % 3,
  reason: "waits for a GPU with 24 GiB: 3 of 1000 nodes match, all lent",
  is_degraded: false,
  durable: { generation: 3, step: 300, bytes: 500_000_000, created_wall_ms: Date.now() - 60_000 },
});
const event = (seq) => ({
  seq,
  kind: "job.state",
  message: "is running",
  job: `j-${JOBS}`,
  node: "n-1",
  lab: "lab-1",
  user: "user-1",
  at_wall_ms: Date.now(),
  data: {},
});

const nodes = Array.from({ length: NODES }, (_, n) => node(n));
const streams = new Set();
let seq = 1_000;

function answerOf(url) {
  const path = url.pathname;
  if (path === "/v1/whoami") return { user: "admin", lab: "site", role: "admin" };
  if (path === "/version") return { version: "0.1.0" };
  if (path === "/readyz") return { is_ok: true, is_adopting: false, reason: "" };
  if (path === "/v1/nodes") return { nodes };
  if (path.startsWith("/v1/nodes/")) return nodes[Number(path.split("-")[1])];
  if (path === "/v1/jobs")
    return { jobs: Array.from({ length: Number(url.searchParams.get("limit")) }, (_, n) => job(JOBS - n)) };
  if (path.startsWith("/v1/jobs/")) return job(Number(path.split("-")[1]));
  if (path === "/v1/reclaims") return { reclaims: [] };
  if (path === "/v1/events") return { events: Array.from({ length: 200 }, (_, n) => event(seq - n)) };
  if (path === "/v1/telemetry") return { points: [] };
  return undefined;
}

const server = createServer((request, response) => {
  const url = new URL(request.url, "http://127.0.0.1");
  if (url.pathname === "/v1/events/stream") {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(`id: ${seq}\nevent: hello\ndata: {"seq":${seq},"is_complete":true}\n\n`);
    streams.add(response);
    return request.on("close", () => streams.delete(response));
  }
  if (url.pathname.startsWith("/ui/")) {
    const name = url.pathname.slice(4) || "index.html";
    const type = TYPES[name.slice(name.lastIndexOf(".") + 1)];
    response.writeHead(200, { "Content-Type": type, "Content-Encoding": "gzip" });
    return response.end(gzipSync(readFileSync(join(process.env.RN_DIST, name))));
  }
  const answer = answerOf(url);
  response.writeHead(answer ? 200 : 404, { "Content-Type": "application/json" });
  return response.end(JSON.stringify(answer ?? { error: { code: "not_found", message: "no such path", hint: "" } }));
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const base = `http://127.0.0.1:${server.address().port}`;

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const browser = await chromium.launch({ executablePath: process.env.RN_CHROMIUM, args: ["--disable-gpu"] });
const figures = { "first paint": [], "everything there": [], "event to page": [] };
for (let window = 0; window < WINDOWS; window += 1) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  await context.addInitScript(
    (token) => sessionStorage.setItem("reclaimnet.token", token),
    `rnu1.t-1.${"a".repeat(64)}.b`,
  );
  const page = await context.newPage();
  await page.goto(`${base}/ui/#/jobs`);
  await page.waitForFunction(() => document.querySelectorAll("[aria-label=Jobs] tbody tr").length >= 300);
  const [paint, loaded] = await page.evaluate(() => [
    performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0,
    performance.now(),
  ]);
  figures["first paint"].push(paint);
  figures["everything there"].push(loaded);
  state = state === "running" ? "saving" : "running";
  const words = state === "running" ? "runs" : "saves";
  const told = Date.now();
  seq += 1;
  for (const stream of streams) stream.write(`id: ${seq}\nevent: event\ndata: ${JSON.stringify(event(seq))}\n\n`);
  await page.waitForFunction(
    (text) => document.querySelector("[aria-label=Jobs] tbody .badge")?.textContent === text,
    words,
    { polling: 5 },
  );
  figures["event to page"].push(Date.now() - told);
  if (process.env.RN_SHOTS && window === 0)
    await page.screenshot({ path: join(process.env.RN_SHOTS, "many-jobs.png") });
  await page.evaluate(() => {
    location.hash = "#/site";
  });
  await page.getByRole("heading", { level: 2, name: "Labs and machines" }).waitFor();
  if (process.env.RN_SHOTS && window === 0)
    await page.screenshot({ path: join(process.env.RN_SHOTS, "many-site.png") });
  await context.close();
}
await browser.close();
server.closeAllConnections();
server.close();
console.log(`${NODES} machines, ${JOBS} jobs, ${WINDOWS} windows`);
for (const [name, values] of Object.entries(figures))
  console.log(`${name}: ${[median(values), Math.min(...values), Math.max(...values)].map(Math.round).join(", ")} ms`);
