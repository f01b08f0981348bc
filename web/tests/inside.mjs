// SPDX-License-Identifier: Apache-2.0
// Quotas, idle jobs, notebooks and ports on the dashboard, as a student and an operator use them: real Chromium, a real
// coordinator. Told by tests/system/dashboard_inside_test.py where the site is (chromium.mjs).
import assert from "node:assert/strict";
import { act, finish, fits, isAccessible, logIn, look, newPage, PHONE, shoot, site, step, WIDE } from "./chromium.mjs";

/** Until a job that uses nothing is marked: a minute, and what a busy machine adds. */
const IDLE_MS = 180_000;

const student = await newPage();
await student.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin: site.url });
const operator = await newPage({}, [404]);
const quotaForm = operator.getByRole("form", { name: "Set a quota" });
const write = async (label, text) => quotaForm.getByLabel(label, { exact: true }).fill(text);

await step("an operator is told what is no quota, by the form and by the coordinator", async () => {
  await logIn(operator, site.tokens.admin);
  await operator.getByText("No quota is set: nothing bounds what is used.").waitFor();
  await write("Of whom", "student");
  await write("GPUs at once", "1");
  await quotaForm.getByRole("button", { name: "Set the quota" }).click();
  await quotaForm.getByText("user:NAME or lab:NAME; with *").waitFor();
  assert.equal(await operator.evaluate(() => document.activeElement.name), "subject");
  await isAccessible(operator, "a quota of nobody");
  await write("Of whom", "user:studnet");
  await operator.keyboard.press("Enter");
  await operator.getByRole("alert").filter({ hasText: "no user studnet is known here" }).waitFor();
});

await step("an operator sets quotas of a user and of a lab, and sees who has what of them", async () => {
  await write("Of whom", "user:student");
  await operator.keyboard.press("Enter");
  await operator.getByText("The quota of user:student is set.").waitFor();
  await write("Of whom", "lab:lab-s");
  await write("GPU-hours", "100");
  await write("within the last", "12h");
  await operator.keyboard.press("Enter");
  await operator.getByText("The quota of lab:lab-s is set.").waitFor();
  const set = operator.getByRole("region", { name: "Quotas that are set" });
  await set.getByText("1 GPUs at once").waitFor();
  await set.getByText("100 GPU-hours in 12h").waitFor();
  const used = operator.getByRole("region", { name: "Quotas and their use" }).getByRole("row", { name: /^student/ });
  await used.getByText("1 of 1", { exact: true }).waitFor();
  await used.getByText("reached").waitFor();
  await look(operator, "operator-quotas");
  await shoot(operator.getByRole("region", { name: "Quotas", exact: true }), "operator-quotas");
});

await step("a student sees what is used of their own quota and of the lab's", async () => {
  await logIn(student, site.tokens.student);
  const mine = student.getByRole("region", { name: "Quota" }).getByRole("listitem");
  const own = mine.filter({ hasText: "student (you)" });
  await own.getByText("1 of 1", { exact: true }).waitFor();
  const ofLab = mine.filter({ hasText: "lab lab-s" });
  await ofLab.getByText("GPU-hours in 12h").waitFor();
  await ofLab.getByText(/ of 100$/).waitFor();
});

await step("a job that waits for the quota says so, in its list and on its page", async () => {
  const { number } = await act("submit_second");
  await student.getByRole("link", { name: `${number} second` }).click();
  await student.locator(".why").filter({ hasText: "student runs 1 of 1 GPU" }).waitFor();
  await look(student, "student-quota");
  await operator
    .getByRole("region", { name: "Queue" })
    .getByRole("row", { name: new RegExp(`^${number} `) })
    .getByText("student runs 1 of 1 GPU")
    .waitFor();
});

await step("without the quota it begins, and the page shows that it does", async () => {
  await operator.getByRole("button", { name: "Remove the quota of user:student" }).click();
  await operator.getByText("The quota of user:student is removed.").waitFor();
  assert.equal(await operator.evaluate(() => document.activeElement.name), "subject");
  await student.getByRole("article").getByText("runs", { exact: true }).first().waitFor();
});

await step("a notebook opens in a window of its own, that has nothing of the dashboard", async () => {
  await student.getByRole("link", { name: `${site.job} book` }).click();
  await student.getByText("nobody has worked in it for 2.0 h").waitFor();
  const opened = student.context().waitForEvent("page");
  await student.getByRole("button", { name: "Open the notebook" }).click();
  const notebook = await opened;
  await notebook.getByText("hello from the notebook").waitFor();
  assert.equal(notebook.url(), `${site.notebooks}/notebooks/${site.job}/`, "the key is gone");
  assert.equal(await notebook.evaluate(() => window.opener), null);
  assert.equal(await notebook.evaluate(() => document.referrer), "");
  assert.equal(await notebook.evaluate(() => sessionStorage.length), 0, "the token is the dashboard's own");
  const token = await student.evaluate(() => sessionStorage.getItem("reclaimnet.token"));
  assert.equal(token, site.tokens.student);
  await notebook.close();
});

await step("its stable address is shown, and opens it again in this browser", async () => {
  const place = student.getByRole("link", { name: `${site.notebooks}/notebooks/${site.job}/` });
  assert.equal(await place.getAttribute("rel"), "noopener noreferrer");
  const opened = student.context().waitForEvent("page");
  await place.click();
  const again = await opened;
  await again.getByText("hello from the notebook").waitFor();
  await again.close();
});

await step("a notebook is nobody else's, an administrator's neither", async () => {
  await operator.goto(`${site.url}/ui/#/jobs/${site.job}`);
  await operator.getByText("It is student's alone").waitFor();
  assert.equal(await operator.getByRole("button", { name: "Open the notebook" }).count(), 0);
});

await step("the command for a port is ready to be copied, by keyboard, and no other than for a port", async () => {
  const port = student.getByLabel("Port inside the job");
  assert.equal(await port.inputValue(), "8000", "the notebook's own");
  await port.fill("99999");
  await student.getByText("A port is a number from 1 to 65535.").waitFor();
  assert.equal(await student.getByText("reclaim forward").count(), 0);
  await port.fill("6006");
  const command = `reclaim forward ${site.job} 6006`;
  await student.getByText(command, { exact: true }).waitFor();
  await student.getByRole("button", { name: `Copy: ${command}` }).focus();
  await student.keyboard.press("Enter");
  await student.getByText("Copied", { exact: true }).waitFor();
  assert.equal(await student.evaluate(() => navigator.clipboard.readText()), command);
  await look(student, "student-inside");
  await shoot(student, "student-inside");
});

await step("a job that uses nothing of its GPU says so, and its operator sees it", async () => {
  const warning = student.locator(".job-idle");
  await warning.getByText("next to nothing of its GPUs").waitFor({ timeout: IDLE_MS });
  await warning.getByText(`reclaim stop ${site.job}`, { exact: true }).waitFor();
  await student.getByRole("article").getByText("runs, idle").waitFor();
  await look(student, "student-idle");
  await operator.getByRole("link", { name: "Site", exact: true }).click();
  const idle = operator.getByRole("region", { name: "Jobs that use nothing of what they hold" });
  await idle.getByRole("link", { name: `${site.job} book` }).waitFor();
  await operator.locator(".tile").filter({ hasText: "GPUs held and not used" }).waitFor();
  await isAccessible(operator, "idle jobs");
  await operator.setViewportSize(PHONE);
  await fits(operator, "idle jobs, on a phone");
  await operator.setViewportSize(WIDE);
});

await step("an owner's notice is on the job's page, with the time that is left", async () => {
  await act("reclaim");
  const notice = student.locator(".job-notice");
  await notice.getByText(/takes its machine back (in|now)/).waitFor();
  await isAccessible(student, "a job that must leave");
  await act("release");
});

await finish();
