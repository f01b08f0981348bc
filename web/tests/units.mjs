// SPDX-License-Identifier: Apache-2.0
// What the dashboard computes, without a browser. RN_WEB_BUILD: the folder with node_modules.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const folder = process.env.RN_WEB_BUILD;
const { build } = createRequire(join(folder, "package.json"))("esbuild");
const source = join(dirname(fileURLToPath(import.meta.url)), "..", "src");
const { outputFiles } = await build({
  stdin: {
    contents: `export * from "./words"; export { runsOf, lostMs } from "./timeline"; export { Parser } from "./stream";
      export { complaintAbout } from "./session"; export { useOverTime } from "./charts";`,
    resolveDir: source,
  },
  bundle: true,
  format: "esm",
  jsx: "automatic",
  nodePaths: [join(folder, "node_modules")],
  write: false,
  logLevel: "silent",
});
const code = Buffer.from(outputFiles[0].text).toString("base64");
const dashboard = await import(`data:text/javascript;base64,${code}`);

const hours = (row) => row.flatMap((isLent, half) => (isLent ? [half / 2] : []));

test("a stream that arrives in any pieces gives the same messages", () => {
  const text = ': beat\nid: 7\n\nid: 8\nevent: event\ndata: {"a":1}\n\nid: 9\nevent: touched\ndata: x\ndata: y\n\n';
  const expected = [
    { id: "8", kind: "event", data: '{"a":1}' },
    { id: "9", kind: "touched", data: "x\ny" },
  ];
  for (let size = 1; size <= text.length; size += 1) {
    const parser = new dashboard.Parser();
    const messages = [];
    for (let at = 0; at < text.length; at += size) messages.push(...parser.push(text.slice(at, at + size)));
    assert.deepEqual(messages, expected, `pieces of ${size}`);
    assert.equal(parser.lastId, "9");
  }
});

test("a number without a message moves the stream on", () => {
  const parser = new dashboard.Parser();
  assert.deepEqual(parser.push(": beat\nid: 41\n\n"), []);
  assert.equal(parser.lastId, "41");
});

test("a window that crosses midnight is lent in the next day's morning", () => {
  const week = dashboard.weekOf([{ days: ["fri", "sun"], from: "22:00", to: "01:30" }]);
  assert.deepEqual(hours(week[4]), [22, 22.5, 23, 23.5]);
  assert.deepEqual(hours(week[5]), [0, 0.5, 1]);
  assert.deepEqual(hours(week[6]), [22, 22.5, 23, 23.5]);
  assert.deepEqual(hours(week[0]), [0, 0.5, 1], "sunday night goes on in the week's first day");
  assert.deepEqual(hours(week[1]), []);
});

test("a contract without windows lends always, and one to 24:00 until the day ends", () => {
  assert.ok(dashboard.weekOf([]).every((row) => row.every(Boolean)));
  assert.deepEqual(hours(dashboard.weekOf([{ days: ["mon"], from: "23:00", to: "24:00" }])[0]), [23, 23.5]);
});

const attempt = (more) => ({
  job: "j",
  epoch: "1.1",
  node: "n",
  state: "ended",
  end: "reclaimed",
  leased_wall_ms: 1_000,
  started_wall_ms: 2_000,
  ended_wall_ms: 10_000,
  exit_code: 0,
  detail: "",
  resumed_generation: 0,
  placed_because: "",
  ...more,
});
const saved = (generation, created_wall_ms) => ({
  generation: { generation, created_wall_ms },
  source: "n",
  holders: [],
});
const next = (resumed_generation) =>
  attempt({
    epoch: "1.2",
    state: "running",
    end: "none",
    leased_wall_ms: 11_000,
    started_wall_ms: 12_000,
    resumed_generation,
  });

test("what is done again is what came after the state from which the next attempt went on", () => {
  const lost = (attempts, generations) => dashboard.lostMs(dashboard.runsOf(attempts, generations, 20_000));
  assert.equal(lost([attempt({}), next(3)], [saved(3, 7_000)]), 3_000);
  assert.equal(lost([attempt({}), next(0)], []), 8_000, "from the start: all that it ran");
  assert.equal(lost([attempt({}), next(3)], [saved(3, 1_500)]), 8_000, "a state of an earlier attempt");
  assert.equal(lost([attempt({}), next(3)], []), 0, "of a state whose row is gone nothing is claimed");
  assert.equal(lost([attempt({ end: "succeeded" })], [saved(3, 7_000)]), 0);
  assert.equal(lost([attempt({ state: "running", end: "none" })], []), 0, "it still runs");
});

test("use is the mean over machines, and a site without GPUs has no line for them", () => {
  const point = (node, at, guests, cpu_percent) => ({ node, bucket_wall_ms: at, guests, cpu_percent, gpus: [] });
  assert.deepEqual(dashboard.useOverTime([point("a", 60, 2, 100), point("b", 60, 0, 0), point("a", 0, 0, 10)]), [
    { at: 0, lent: 0, cpu: 0.1, gpu: null },
    { at: 60, lent: 0.5, cpu: 0.5, gpu: null },
  ]);
});

test("a pasted text that is no token is told apart", () => {
  const { complaintAbout } = dashboard;
  assert.equal(complaintAbout(`rnu1.t-1.${"0".repeat(64)}.abc`), "");
  assert.match(complaintAbout("rn1.t-1.x.y"), /join token/);
  assert.match(complaintAbout(`rnu1.t-1.${"0".repeat(63)}.abc`), /not a whole token/);
  assert.match(complaintAbout(""), /Paste/);
});

test("what is taken back already can only be had earlier", () => {
  const reclaim = (more) => ({ node: "n", kind: "notice", phase: "evacuating", gpus: [], ...more });
  const { reclaimChoices, openReclaims } = dashboard;
  assert.deepEqual(reclaimChoices([], null), { notice: true, now: true });
  assert.deepEqual(reclaimChoices([reclaim({})], null), { notice: false, now: true }, "its guests still leave");
  assert.deepEqual(reclaimChoices([reclaim({})], 1), { notice: false, now: true }, "all of it, so this GPU too");
  assert.deepEqual(reclaimChoices([reclaim({ phase: "cleared" })], null), { notice: false, now: false });
  assert.deepEqual(reclaimChoices([reclaim({ kind: "emergency" })], null), { notice: false, now: false });
  const gpu = reclaim({ gpus: [1], phase: "cleared" });
  assert.deepEqual(reclaimChoices([gpu], 0), { notice: true, now: true });
  assert.deepEqual(reclaimChoices([gpu], 1), { notice: false, now: false });
  assert.deepEqual(reclaimChoices([gpu], null), { notice: true, now: true }, "the rest of the machine");
  const over = [reclaim({ phase: "returned" }), reclaim({ kind: "lost" }), reclaim({ node: "another" }), gpu];
  assert.deepEqual(openReclaims(over, "n"), [gpu]);
});

test("lengths of time are said in one unit", () => {
  const said = [3, 4_500, 65_000, 600_000, 9_000_000, 300_000_000].map(dashboard.duration);
  assert.deepEqual(said, ["3 ms", "4.5 s", "65 s", "10 min", "2.5 h", "3 days"]);
});
