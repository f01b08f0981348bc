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
      export { complaintAbout, takeReturned } from "./session"; export * from "./charts"; export * from "./plan";
      export * from "./hours"; export * from "./waterfall"; export { secondsUntil } from "./reclaim";
      export { Refused } from "./api"; export * from "./week"; export { stepFrom } from "./weekgrid";
      export { datesOf, withWeek } from "./contractedit"; export * from "./quotawords"; export * from "./gpuhours";
      export * from "./insidewords"; export { Site } from "./site";`,
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

test("what comes back from a sign-in leaves the address, and only a provider's word is repeated", () => {
  const before = { location: globalThis.location, history: globalThis.history };
  const back = (hash) => {
    const left = [];
    globalThis.location = { hash, pathname: "/ui/" };
    globalThis.history = { replaceState: (state, title, place) => left.push(place) };
    const returned = dashboard.takeReturned();
    assert.deepEqual(left, returned ? ["/ui/"] : []);
    return returned;
  };
  assert.equal(back("#jobs"), null);
  assert.deepEqual(back("#signin?code=a%2Bb&state=s"), { code: "a+b", state: "s", error: "" });
  assert.equal(back("#signin?error=access_denied").error, "access_denied");
  assert.equal(back("#signin?error=Call+0900+1234+for+your+password").error, "an error without a name");
  Object.assign(globalThis, before);
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

test("a window without days is of every day", () => {
  assert.ok(dashboard.weekOf([{ days: [], from: "08:00", to: "09:00" }]).every((row) => hours(row).length === 2));
});

test("a painted week is said in few windows, and these say the same week", () => {
  const nights = [{ days: ["mon", "tue", "wed", "thu", "fri"], from: "18:00", to: "08:00" }];
  assert.deepEqual(dashboard.windowsOf(dashboard.minutesOf(nights)), nights);
  const weekend = [{ days: ["sat", "sun"], from: "00:00", to: "24:00" }];
  assert.deepEqual(dashboard.windowsOf(dashboard.minutesOf(weekend)), weekend);
  const sunday = [{ days: ["sun"], from: "22:15", to: "01:45" }];
  assert.deepEqual(dashboard.windowsOf(dashboard.minutesOf(sunday)), sunday, "over the end of the week");
  assert.deepEqual(dashboard.windowsOf(dashboard.minutesOf([])), []);
  assert.equal(dashboard.windowsOf(new Array(10_080).fill(false)), null, "windows cannot say that");
});

test("any week that can be painted comes back as it was", () => {
  let seed = 7;
  const random = (below) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return Math.floor((seed / 2 ** 31) * below);
  };
  for (let round = 0; round < 60; round += 1) {
    let lent = dashboard.minutesOf([{ days: ["wed"], from: "10:20", to: "11:05" }]);
    for (let strokes = random(40); strokes >= 0; strokes -= 1) {
      const day = random(7);
      const from = random(24);
      const cells = Array.from({ length: random(24 - from) + 1 }, (_, step) => ({ day, hour: from + step }));
      lent = dashboard.withHours(lent, cells, random(3) > 0);
    }
    const windows = dashboard.windowsOf(lent);
    if (windows === null) continue;
    assert.deepEqual(dashboard.minutesOf(windows), lent, JSON.stringify(windows));
    for (const { from, to, days } of windows) assert.ok(from !== to && days.length > 0, JSON.stringify(windows));
  }
});

test("an hour that is lent in part stays so until it is painted", () => {
  const lent = dashboard.minutesOf([{ days: ["mon"], from: "08:45", to: "10:00" }]);
  assert.equal(dashboard.cellOf(lent, 0, 8), "part");
  assert.equal(dashboard.cellOf(lent, 0, 9), "lent");
  assert.equal(dashboard.cellOf(lent, 1, 9), "own");
  const painted = dashboard.withHours(lent, [{ day: 0, hour: 12 }], true);
  assert.deepEqual(dashboard.windowsOf(painted), [
    { days: ["mon"], from: "08:45", to: "10:00" },
    { days: ["mon"], from: "12:00", to: "13:00" },
  ]);
  assert.equal(dashboard.hoursLent(painted), 2.25);
});

test("a week without an hour lends nothing, and one that is not painted is as it was written", () => {
  const contract = { lends: true, windows: [{ days: ["mon"], from: "08:00", to: "09:00" }], holidays: ["2026-12-24"] };
  assert.equal(dashboard.withWeek(contract, null), contract);
  assert.deepEqual(dashboard.withWeek(contract, new Array(10_080).fill(false)), { ...contract, lends: false });
  assert.deepEqual(dashboard.withWeek(contract, new Array(10_080).fill(true)), {
    lends: true,
    windows: [],
    holidays: [],
  });
});

test("hours that are painted of one GPU are its own, within the machine's", () => {
  const { both, hoursLent, minutesOf, withGpuWeeks, withHours, withOwnHours } = dashboard;
  const night = [{ days: ["mon"], from: "20:00", to: "08:00" }];
  const contract = { lends_gpus: true, gpus: [], windows: night, gpu_windows: [] };
  const own = withOwnHours(contract, 1, true);
  assert.deepEqual(own.gpu_windows, [{ gpu: 1, windows: night, holidays: [] }], "at first the machine's");
  assert.deepEqual(withOwnHours(own, 1, false).gpu_windows, []);

  const evening = withHours(new Array(10_080).fill(false), [{ day: 0, hour: 19 }, { day: 0, hour: 20 }], true);
  const painted = withGpuWeeks(own, [0, 1], { 1: evening });
  assert.deepEqual(painted.gpu_windows, [
    { gpu: 1, windows: [{ days: ["mon"], from: "19:00", to: "21:00" }], holidays: [] },
  ]);
  assert.deepEqual([painted.gpus, painted.lends_gpus], [[], true]);
  assert.equal(hoursLent(both(minutesOf(night), evening)), 1, "where both are lent");
  assert.deepEqual(withGpuWeeks(own, [0, 1], {}).gpu_windows, own.gpu_windows, "what is not painted stays as written");
});

test("a GPU without an hour is not lent, and one that is lent with the machine has no hours of its own", () => {
  const { withGpuWeeks } = dashboard;
  const one = [{ gpu: 0, windows: [{ days: ["mon"], from: "08:00", to: "09:00" }], holidays: ["2026-12-24"] }];
  const contract = { lends_gpus: true, gpus: [], windows: [], gpu_windows: one };
  const never = withGpuWeeks(contract, [0, 1], { 0: new Array(10_080).fill(false) });
  assert.deepEqual(never, { ...contract, gpus: [1], gpu_windows: [] });
  const none = withGpuWeeks(contract, [0], { 0: new Array(10_080).fill(false) });
  assert.deepEqual([none.lends_gpus, none.gpus, none.gpu_windows], [false, [], []]);
  const always = withGpuWeeks(contract, [0, 1], { 0: new Array(10_080).fill(true) });
  assert.deepEqual(always, { ...contract, gpu_windows: [] });
  const others = withGpuWeeks({ ...contract, gpus: [1] }, [0, 1], {});
  assert.deepEqual(others.gpu_windows, [], "of a GPU that is not lent any more nothing is said");
});

test("arrows go through the week and stop at its ends", () => {
  assert.deepEqual(dashboard.stepFrom("ArrowDown", 0, 8), { day: 0, hour: 9 });
  assert.deepEqual(dashboard.stepFrom("ArrowDown", 0, 23), { day: 0, hour: 23 });
  assert.deepEqual(dashboard.stepFrom("ArrowLeft", 0, 8), { day: 0, hour: 8 });
  assert.deepEqual(dashboard.stepFrom("End", 2, 8), { day: 6, hour: 8 });
  assert.equal(dashboard.stepFrom("a", 0, 8), null);
});

test("days are read in any of the ways in which people list them", () => {
  assert.deepEqual(dashboard.datesOf(" 2026-12-24, 2026-12-25\n2027-01-01 "), [
    "2026-12-24",
    "2026-12-25",
    "2027-01-01",
  ]);
  assert.deepEqual(dashboard.datesOf(""), []);
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

const draft = (more) => ({ ...dashboard.NEW_DRAFT, image: "base", command: "true", ...more });

test("a command is split as a shell splits words, and a script is the shell's", () => {
  const { splitCommand, readDraft } = dashboard;
  assert.deepEqual(splitCommand("python3  train.py --lr 1e-3"), ["python3", "train.py", "--lr", "1e-3"]);
  const words = splitCommand(`sh -c 'echo "a b"' "" x\\ y "q\\"\\z"`);
  assert.deepEqual(words, ["sh", "-c", 'echo "a b"', "", "x y", 'q"\\z']);
  assert.equal(splitCommand("echo 'a"), null);
  assert.deepEqual(splitCommand("  "), []);
  const { spec } = readDraft(draft({ isScript: true, script: "a\r\nb\n" }));
  assert.deepEqual(spec.command, ["/bin/sh", "-ec", "a\nb\n"]);
});

test("what is written becomes a job in the coordinator's units", () => {
  const { spec, complaints } = dashboard.readDraft(
    draft({ gpus: "2", gpuMemory: "24", cores: "0,5", memory: "1.5", longest: "2h", notice: "90 s", data: ["digits"] }),
  );
  assert.deepEqual(complaints, {});
  assert.deepEqual(spec.resources, {
    gpus: 2,
    gpu_memory_mib: 24_576,
    cpu_milli: 500,
    memory_mib: 1_536,
    disk_mib: 2_048,
  });
  assert.equal(spec.max_duration_s, 7_200);
  assert.equal(spec.notice_s, 90);
  assert.deepEqual(spec.data, ["digits"]);
});

test("what cannot be read is said at its field, and nothing is asked of it", () => {
  const { readDraft, plannedOf } = dashboard;
  const wrong = { gpus: "1.5", cores: "many", memory: "0", longest: "soon", notice: "1h" };
  const { complaints } = readDraft(draft({ ...wrong, command: "echo 'a" }));
  assert.deepEqual(Object.keys(complaints).sort(), ["command", "cores", "gpus", "longest", "memory", "notice"]);
  for (const [field, text] of Object.entries(wrong)) assert.equal(plannedOf(draft({ [field]: text })), null, field);
  assert.deepEqual(plannedOf(draft({ command: "" })).command, ["true"], "its place does not hang on its command");
});

const plan = (more) => ({
  verdict: "now",
  sentence: "",
  queue_position: 1,
  starts_in_s: 4,
  horizon_s: 14_400,
  is_horizon_assumed: false,
  interruptions_least: 0.04,
  interruptions_most: 1.26,
  notice_wanted_s: 0,
  notice_least_s: 60,
  notice_most_s: 300,
  warnings: [],
  candidates: [{ hostname: "one", lab: "lab-a", reason: "it has 1 GPU", fit: "fits", rank: 1 }],
  ...more,
});

test("a plan is said in words, with what to do", () => {
  const { verdictWord, startWords, interruptionWords, noticeWords, nextWords } = dashboard;
  assert.equal(verdictWord(plan({})).text, "would start now");
  assert.equal(startWords(plan({})), "in about 4.0 s, as starts on one (lab-a) took lately");
  const waits = plan({ verdict: "waits", queue_position: 3 });
  assert.equal(verdictWord(waits).text, "would wait as number 3");
  assert.match(startWords(waits), /if nobody who waits before it/);
  assert.match(startWords(plan({ starts_in_s: null })), /not known/);
  assert.equal(interruptionWords(plan({})), "0.04 to 1.3 expected in 4.0 h of running");
  assert.match(interruptionWords(plan({ is_horizon_assumed: true })), /assumed/);
  assert.equal(noticeWords(plan({})), "60 s to 5 min before it must leave");
  assert.match(noticeWords(plan({ notice_wanted_s: 120 })), /2 min wanted, which not every owner grants/);
  assert.match(noticeWords(plan({ notice_least_s: 0, notice_most_s: 0 })), /^none/);
  const never = plan({ verdict: "never" });
  assert.match(nextWords(never), /less than one \(lab-a\) lacks.*it has 1 GPU.*or ask its owner/);
  assert.match(nextWords(plan({ verdict: "never", candidates: [] })), /ask an owner to lend one/);
});

test("while one types one question at a time is asked, and the answer is to the newest", async () => {
  const asked = [];
  const told = [];
  const ask = (spec) => new Promise((answer) => asked.push({ spec, answer }));
  const rest = () => new Promise((rested) => setTimeout(rested, 20));
  const planner = new dashboard.Planner(ask, (state) => told.push(state), 1);
  planner.want({ name: "a" });
  planner.want({ name: "ab" });
  await rest();
  assert.deepEqual(asked.map((one) => one.spec.name), ["ab"], "what has not rested is not asked");
  planner.want({ name: "abc" });
  planner.want({ name: "abcd" });
  await rest();
  assert.equal(asked.length, 1, "one at a time");
  asked[0].answer("of ab");
  await rest();
  assert.equal(asked[1].spec.name, "abcd");
  assert.ok(!told.some((state) => state.plan === "of ab"), "an answer to what was changed since is not shown");
  asked[1].answer("of abcd");
  await rest();
  assert.deepEqual(told.at(-1), { plan: "of abcd", trouble: "", isAsking: false });
  planner.want({ name: "abcd" });
  await rest();
  assert.equal(asked.length, 2, "the same is not asked twice");
  planner.want(null);
  planner.again();
  await rest();
  assert.equal(asked.length, 2);
  assert.deepEqual(told.at(-1), { plan: null, trouble: "", isAsking: false });
});

test("a refusal is final unless it came on the way", () => {
  const isDefinite = (status) => new dashboard.Refused(status, "", "", "").isDefinite;
  assert.deepEqual([400, 403, 409, 429, 507].filter(isDefinite), [400, 403, 409, 429, 507]);
  assert.deepEqual([500, 502, 503, 504].filter(isDefinite), []);
});

test("what is lent and what its owners keep are parts of the same time", () => {
  const empty = { node: "a", bucket_wall_ms: 0, guests: 0, lending_share: 1, cpu_percent: 0, gpus: [] };
  const point = (more) => ({ ...empty, ...more });
  const [one] = dashboard.lentAndOwn([
    point({ guests: 3, cpu_percent: 80 }),
    point({ guests: 0, lending_share: 0.5, cpu_percent: 20 }),
  ]);
  assert.deepEqual(one, { at: 0, guests: 0.5, free: 0.25, own: 0.25, guestsUse: 0.8, ownUse: 0.2 });
  const [gpus] = dashboard.lentAndOwn([
    point({ guests: 1, cpu_percent: 80, gpus: [{ utilisation_percent: 90 }, { utilisation_percent: 50 }] }),
    point({ lending_share: 0, cpu_percent: 100 }),
  ]);
  assert.deepEqual([gpus.guestsUse, gpus.ownUse], [0.7, null], "processors do not stand for GPUs");
  assert.deepEqual(dashboard.thinned([1, 2, 3, 4, 5], 3), [1, 3, 5], "the newest is kept");
});

test("the hours that stand out are named, and a chance has the same color everywhere", () => {
  const week = new Array(168).fill(0.01);
  week[9] = 0.2;
  week[167] = 0.001;
  assert.equal(dashboard.weekWords(week), "Most often Monday 09:00 (18 %), least Sunday 23:00 (< 1 %).");
  assert.equal(dashboard.weekWords(new Array(168).fill(0.03)), "All hours are alike so far: 3 % in each.");
  assert.deepEqual([0.001, 0.01, 0.05, 0.19, 0.9].map(dashboard.heatOf), [0, 1, 3, 4, 5]);
});

const taken = {
  id: "r",
  node: "n-a",
  kind: "notice",
  phase: "cleared",
  gpus: [],
  declared_ns: 1e12,
  deadline_ns: 1e12 + 20e9,
  cut_ns: 1e12 + 9e9,
  cleared_ns: 1e12 + 9.5e9,
  declared_wall_ms: 500_000,
};
const told = (seq, kind, s, more) => ({
  seq,
  kind,
  job: "j",
  node: "n-a",
  epoch: "1.1",
  at_wall_ms: 501_000 + s * 1_000 + 40, // the coordinator's clock is a second ahead, and it hears later
  data: { at_boot_ns: String(1e12 + s * 1e9) },
  ...more,
});
const OFFSET_MS = 1_000;
const story = [
  told(11, "attempt.noticed", 0.1),
  told(12, "attempt.saving", 2),
  told(13, "attempt.draining", 3),
  told(15, "attempt.ended", 8, { data: { end: "reclaimed" } }),
  told(16, "job.displaced", 8, { data: {} }),
  told(17, "job.placed", 8.5, { node: "n-b", epoch: "1.2", data: {} }),
  told(20, "attempt.running", 12, { node: "n-b", epoch: "1.2" }),
];

test("a displaced job's steps follow each other, by the machine's clock as long as it is there", () => {
  const flow = dashboard.flowOf(taken, "j", [...story].reverse(), OFFSET_MS);
  assert.equal(flow.to, "n-b");
  assert.deepEqual(flow.spans, [
    { step: "notice", from: 100, to: 2_000 },
    { step: "save", from: 2_000, to: 3_000 },
    { step: "copy", from: 3_000, to: 8_040 },
    { step: "waits", from: 8_040, to: 8_540 },
    { step: "restore", from: 8_540, to: 12_040 },
    { step: "runs", from: 12_040, to: null },
  ]);
  assert.equal(dashboard.marginWords(flow, taken), "12 s before");
  assert.equal(dashboard.marginWords(flow, { ...taken, deadline_ns: 1e12 + 5e9 }), "3.0 s after");
  const open = dashboard.flowOf(taken, "j", story.slice(0, 3), OFFSET_MS);
  assert.deepEqual(open.spans.at(-1), { step: "copy", from: 3_000, to: null });
  assert.equal(dashboard.marginWords(open, taken), "still");
});

test("only jobs that had to leave by this reclaim are its own", () => {
  const of = (events) => [...dashboard.displacedBy(taken, events, OFFSET_MS).keys()];
  assert.deepEqual([...dashboard.displacedBy(taken, story, OFFSET_MS)], [["j", 11]]);
  assert.deepEqual(of([told(1, "attempt.noticed", -30)]), [], "an earlier one's");
  assert.deepEqual(of([told(99, "attempt.draining", 300)]), [], "a later one's");
  assert.deepEqual(of([told(12, "attempt.ended", 5, { data: { end: "succeeded" } })]), [], "done by itself");
  assert.deepEqual(of([told(12, "attempt.running", 5)]), []);
  const another = told(12, "attempt.noticed", 1, { data: { at_boot_ns: "5" } });
  assert.deepEqual(of([another]), ["j"], "of another boot: then the coordinator's clock counts");
});

test("a machine can be taken back at a moment of the next seven days", () => {
  const now = new Date("2026-11-26T18:00:00").getTime();
  assert.equal(dashboard.secondsUntil("2026-11-26T18:30", now), 1_800);
  assert.equal(dashboard.secondsUntil("2026-11-26T17:59", now), null);
  assert.equal(dashboard.secondsUntil("2026-12-04T18:00", now), null);
  assert.equal(dashboard.secondsUntil("", now), null);
});

const use = (more) => ({
  subject: "user:anna",
  rule: "user:*",
  gpu_model: "",
  gpus_used: 3,
  gpus: 4,
  running_used: 3,
  running: null,
  jobs_used: 12,
  jobs: 0,
  gpu_hours_used: 12.34,
  gpu_hours: 200,
  window_s: 604_800,
  ...more,
});

test("a quota's use is said bound by bound, and what is not bounded says so", () => {
  const { sharesOf, shareText, shareOf, subjectWords, windowText } = dashboard;
  const said = sharesOf(use({})).map((one) => `${one.label}: ${shareText(one)}`);
  assert.deepEqual(said, [
    "GPUs at once: 3 of 4",
    "GPU-hours in 7d: 12.3 of 200",
    "jobs that run: 3, no bound",
    "jobs that wait or run: 12 of 0",
  ]);
  assert.deepEqual(sharesOf(use({})).map(shareOf), [0.75, 12.34 / 200, 0, 1]);
  assert.equal(sharesOf(use({ gpu_model: "H100" })).length, 2, "jobs have no model");
  assert.equal(subjectWords("user:anna", "anna"), "anna (you)");
  assert.equal(subjectWords("lab:vision"), "lab vision");
  assert.match(subjectWords("lab:*"), /each lab that has none/);
  assert.deepEqual([3_600, 129_600, 604_800, 5_400, 61].map(windowText), ["1h", "36h", "7d", "90m", "61s"]);
});

const quota = (more) => ({ ...dashboard.NEW_QUOTA, subject: "user:anna", gpus: "4", ...more });

test("a quota that is written becomes what the coordinator takes, and comes back as it was", () => {
  const { readQuota, draftOf, boundsText } = dashboard;
  const written = quota({ hours: "200,5", window: "12h", running: "", jobs: "9" });
  const { request, complaints } = readQuota(written);
  assert.deepEqual(complaints, {});
  assert.deepEqual(request, {
    gpu_model: "",
    gpus: 4,
    running: null,
    jobs: 9,
    gpu_hours: 200.5,
    window_s: 43_200,
    idle_stop_s: null,
  });
  const set = { ...request, subject: "user:anna", set_by: "root", set_wall_ms: 1 };
  assert.deepEqual(readQuota(draftOf(set)).request, request);
  assert.equal(boundsText(set), "4 GPUs at once, 9 jobs that wait or run, 200.5 GPU-hours in 12h");
  const stops = { ...set, idle_stop_s: 5_400 };
  assert.equal(readQuota(draftOf(stops)).request.idle_stop_s, 5_400, "what is not changed is kept");
  assert.equal(readQuota(draftOf({ ...set, idle_stop_s: 61 })).request.idle_stop_s, 61, "also by the second");
  assert.match(boundsText(stops), /, jobs that use nothing are stopped after 90m$/);
});

test("what is no quota is said at its field", () => {
  const wrong = (more) => Object.keys(dashboard.readQuota(quota(more)).complaints);
  assert.deepEqual(wrong({ subject: "anna" }), ["subject"]);
  assert.deepEqual(wrong({ subject: "user:*" }), []);
  assert.deepEqual(wrong({ gpus: "-1" }), ["gpus"]);
  assert.deepEqual(wrong({ gpus: "1e3" }), ["gpus"]);
  assert.deepEqual(wrong({ hours: "many" }), ["hours"]);
  assert.deepEqual(wrong({ window: "59m" }), ["window"]);
  assert.deepEqual(wrong({ window: "32d" }), ["window"]);
  assert.deepEqual(wrong({ gpus: "" }), ["gpus"], "it bounds nothing");
  assert.deepEqual(wrong({ gpus: "", idleStop: "2h" }), []);
  assert.deepEqual(wrong({ idleStop: "soon" }), ["idleStop"]);
  assert.deepEqual(wrong({ model: "H100", idleStop: "2h" }), ["idleStop"]);
  assert.deepEqual(wrong({ gpus: "0" }), [], "none at all is a bound");
  assert.deepEqual(wrong({ model: "H100", running: "1", jobs: "2" }), ["running", "jobs"]);
});

const inside = (more) => ({
  number: 7,
  node: "n-a",
  state: "running",
  idle_since_wall_ms: 0,
  spec: { env: {}, idle_stop_s: 0, resources: { gpus: 1 } },
  ...more,
});

test("a notebook is known by its port, and says when it ends by itself", () => {
  const { notebookPort, notebookIdleWords, portOf } = dashboard;
  const notebook = (env) => inside({ spec: { env, idle_stop_s: 0 } });
  assert.equal(notebookPort(notebook({ NOTEBOOK_PORT: "8888" })), 8888);
  for (const env of [{}, { NOTEBOOK_PORT: "0" }, { NOTEBOOK_PORT: "65536" }, { NOTEBOOK_PORT: "x" }])
    assert.equal(notebookPort(notebook(env)), null, JSON.stringify(env));
  assert.deepEqual([" 80 ", "", "-1", "8.5", "1e3"].map(portOf), [80, null, null, null, null]);
  assert.match(notebookIdleWords(notebook({ NOTEBOOK_IDLE_S: "7200" })), /worked in it for 2\.0 h/);
  assert.match(notebookIdleWords(notebook({})), /until it is stopped/);
});

test("only a page of another origin is opened as a notebook", () => {
  const own = "https://campus:7443";
  const is = (url, place = "https://campus:7446/notebooks/7/") =>
    dashboard.isNotebookAddress({ url, place, lives_s: 600, port: 8888 }, own);
  assert.ok(is("https://campus:7446/notebooks/7/?key=abc"));
  for (const bad of [
    "javascript:alert(1)",
    "http://campus:7446/notebooks/7/",
    "https://campus:7443/notebooks/7/",
    "https://campus:7446/ui/",
    "",
  ])
    assert.ok(!is(bad), bad);
  assert.ok(!is("https://campus:7446/notebooks/7/?key=abc", "data:text/html,x"));
});

test("an owner who comes back is told with the time that is left, by the coordinator's clock", () => {
  const job = inside({ state: "noticed" });
  const declared = { ...taken, phase: "evacuating", declared_wall_ms: 500_000, deadline_ns: taken.declared_ns + 60e9 };
  const nodes = [{ id: "n-a", clock_offset_ms: 1_000 }];
  const notice = dashboard.noticeOf(job, [declared], nodes, 521_000);
  assert.equal(notice.deadline, 561_000);
  assert.match(notice.words, /takes its machine back in 40 s/);
  assert.match(dashboard.noticeOf(job, [declared], nodes, 600_000).words, /back now/);
  assert.equal(dashboard.noticeOf(job, [], nodes, 0).deadline, null);
  assert.equal(dashboard.noticeOf(inside({}), [declared], nodes, 0), null, "it stays: the reclaim is not of its GPU");
  const elsewhere = { ...declared, node: "n-b" };
  assert.equal(dashboard.noticeOf(inside({ state: "draining" }), [elsewhere], nodes, 0), null);
});

test("a job that uses nothing of its GPUs says since when, and what becomes of it", () => {
  const { idleWords, wordOfJob } = dashboard;
  const idle = inside({ idle_since_wall_ms: 1_000 });
  assert.equal(idleWords(inside({}), 5_000), "");
  assert.match(idleWords(idle, 3_601_000), /next to nothing of its GPUs for 60 min\. It does not ask to be stopped/);
  const none = { ...idle, spec: { env: {}, idle_stop_s: 0, resources: { gpus: 0 } } };
  assert.match(idleWords(none, 3_601_000), /next to nothing of its cores for 60 min.*leave the cores to others/);
  const stops = { ...idle, spec: { env: {}, idle_stop_s: 7_200, resources: { gpus: 1 } } };
  assert.match(idleWords(stops, 3_601_000), /stopped after 2\.0 h of that/);
  assert.equal(wordOfJob(idle).text, "runs, idle");
  assert.equal(wordOfJob({ ...idle, state: "saving" }).text, "saves");
});

test("two jobs that change at once are both shown as they are now", async () => {
  const job = (number, state) => ({ id: `j-${number}`, number, state });
  const site = Object.assign(Object.create(dashboard.Site.prototype), {
    api: { get: async (path) => job(Number(path.at(-1)), "noticed") },
    listeners: new Set(),
    state: { jobs: [job(2, "running"), job(1, "running")] },
  });

  await Promise.all([site.loadJob("1"), site.loadJob("2")]);

  assert.deepEqual(
    site.state.jobs.map((one) => one.state),
    ["noticed", "noticed"],
  );
});
