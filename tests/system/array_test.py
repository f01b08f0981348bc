#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arrays and jobs that wait for others, as `reclaim submit` takes them, on real machines that are lent: a coordinator
that dies while they wait, a task that fails, an owner who takes a machine back in the middle, and a user who stops all
of an array. Who ran beside whom is read from the guests' own words: all laboratories have this machine's clock."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import chain  # noqa: E402
from stories import Site  # noqa: E402

LENDS = {"guest_disk_mib": 2560, "guest_memory_mib": 1024, "guest_cpu_each_milli": 150, "notice_s": 8}
CONFLICT, USAGE = 5, 2
TASKS, AT_MOST, FAILING = 5, 2, 1
STEPS, FAILS_AFTER, SAVE_EVERY, STEP_S = 60, 40, 10, 0.2
SWEEP = f"""#!/bin/sh
#SBATCH --job-name=sweep
#SBATCH --array=0-{TASKS - 1}%{AT_MOST}
#SBATCH --mem=64M
#SBATCH --no-requeue
[ "$SLURM_ARRAY_TASK_ID" != {FAILING} ] || {{ sh chain.sh {FAILS_AFTER} {SAVE_EVERY} {STEP_S}; exit 3; }}
sh chain.sh {STEPS} {SAVE_EVERY} {STEP_S}
"""
SHORT = "#!/bin/sh\n#SBATCH --job-name={name}\n#SBATCH --mem=64M\n{line}echo ran\n"
LONG = "#!/bin/sh\n#SBATCH --job-name=long\n#SBATCH --array=0-5%2\n#SBATCH --mem=64M\nsleep 1000\n"
ENDED = ("succeeded", "failed", "cancelled")


def most_at_once(spans):
    """Of (begin, end) that overlap; one that ends when another begins is beside it no more."""
    edges = sorted([(end, -1) for _, end in spans] + [(begin, 1) for begin, _ in spans])
    most = now = 0
    for _, change in edges:
        now += change
        most = max(most, now)
    return most


class Array(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Site({"lab-a": LENDS, "lab-b": LENDS, "storage": {"lends": False}}, disk="16G")
        cls.addClassCleanup(cls.site.down)
        cls.rest = cls.site.rest

    def submit(self, name, text, *after, status=0):
        """What the submit answered; of a refused one its words."""
        folder = self.site.labs.dir / f"student-{name}"
        if not folder.exists():
            chain.make_folder(folder)
        (folder / "job.sbatch").write_text(text)
        waits = [word for one in after for word in ("--after", one)]
        done = self.site.cli("submit", "--image", "base", "--json", *waits, "job.sbatch", cwd=folder, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout) if status == 0 else done.stderr

    def submit_short(self, name, *after, line="", status=0):
        """The job's id."""
        answer = self.submit(name, SHORT.format(name=name, line=line), *after, status=status)
        return answer["job"]["id"] if status == 0 else answer

    def state(self, job):
        return self.rest.job(job)["state"]

    def wait_for_end(self, job, state, timeout_s=120):
        self.site.wait(f"{job} to end", lambda: self.state(job) in ENDED, timeout_s)
        self.assertEqual(self.state(job), state, self.rest.job(job)["reason"])

    def told(self, job):
        """What each attempt of it that began said, oldest first."""
        numbers = [int(one["epoch"].split(".")[1]) for one in self.rest.attempts(job) if one["started_wall_ms"]]
        return [chain.read(self.rest.log(job, number).decode(errors="replace")) for number in numbers]

    def lab_of(self, job):
        return self.site.lab_of_node(self.rest.job(job)["node"])

    def take_back_the_machine_of(self, job):
        """In the middle: when there is something to go on from."""
        self.site.wait("a durable generation", lambda: self.state(job) == "running" and
                       self.rest.job(job)["durable"]["generation"] > 0, 90)
        lab = self.lab_of(job)
        self.site.nodes[lab].owner("reclaim", "--now")
        return lab

    def check_that_no_more_ran_than_may(self, tasks):
        rows = [self.rest.job(job) for job in tasks]
        self.assertLessEqual(most_at_once([(row["started_wall_ms"], row["finished_wall_ms"]) for row in rows]), AT_MOST)
        spans = [(told.began_at, max(told.steps.values())) for job in tasks for told in self.told(job) if told.steps]
        self.assertGreater(len(spans), TASKS, "of the one that moved two attempts spoke")
        self.assertEqual(most_at_once(spans), AT_MOST, spans)

    def test_a_a_chain_around_an_array_bears_a_dead_coordinator_and_an_owner(self):
        site = self.site
        prepare = site.submit_command("prepare", 1, ["sh", "-c", "until [ -e go ]; do sleep 0.2; done"],
                                      flags=["--stateless"]).job
        number = self.rest.job(prepare)["number"]
        answer = self.submit("sweep", SWEEP, str(number))
        array, tasks = answer["array"], [task["job"] for task in answer["tasks"]]
        self.assertEqual([task["index"] for task in answer["tasks"]], list(range(TASKS)))
        good = self.submit_short("good", array)
        report = self.submit_short("report", f"any:{array}")
        mend = self.submit_short("mend", line=f"#SBATCH --dependency=afternotok:{answer['tasks'][0]['number']}\n")
        begun = self.submit_short("begun", f"started:{number}")
        after_good = self.submit_short("after-good", f"any:{good}", f"fail:{good}")

        told = site.cli("why", tasks[0]).stdout
        self.assertIn(f"waits until job {number} (prepare) has succeeded", told)
        site.coordinator.kill()
        site.coordinator.start()
        self.wait_for_end(begun, "succeeded", 60)
        self.assertEqual([self.rest.attempts(job) for job in (*tasks, good, report, mend, after_good)],
                         [[]] * (TASKS + 4), "one began before what it waits for")
        site.wait("it to be told that it may end", lambda: site.cli(
            "exec", prepare, "--", "touch", "go", check=False).returncode == 0)
        self.wait_for_end(prepare, "succeeded", 60)

        site.wait("its first task to run", lambda: self.state(tasks[0]) == "running", 60)
        self.assertIn(f"waits for its turn: at most {AT_MOST} of the {TASKS} tasks", site.cli("why", tasks[-1]).stdout)
        self.assertIn(f"sweep[{TASKS - 1}]", site.cli("ps").stdout)
        lab = self.take_back_the_machine_of(tasks[0])
        site.wait("it to run elsewhere", lambda: self.state(tasks[0]) == "running" and self.lab_of(tasks[0]) != lab, 90)
        site.nodes[lab].owner("release")
        for index, job in enumerate(tasks):
            self.wait_for_end(job, "failed" if index == FAILING else "succeeded", 180)

        self.check_that_no_more_ran_than_may(tasks)
        self.assertEqual(self.rest.job(tasks[FAILING])["exit_code"], 3)
        self.assertGreater(self.rest.job(tasks[0])["displacements"], 0)
        moved = self.told(tasks[0])
        self.assertTrue(moved[-1].is_resumed, "it began from nothing")
        self.assertEqual((moved[-1].last, [one.wrong for one in moved]), (STEPS, [[]] * len(moved)))
        self.wait_for_end(report, "succeeded")
        self.wait_for_end(mend, "succeeded")
        self.wait_for_end(after_good, "succeeded")
        self.wait_for_end(good, "cancelled")
        self.assertIn("it can never begin", self.rest.job(good)["reason"])
        self.assertEqual(self.rest.attempts(good), [])
        last = max(self.rest.job(job)["finished_wall_ms"] for job in tasks)
        for job in (report, mend):
            self.assertGreaterEqual(self.rest.job(job)["started_wall_ms"], last, "it began before the array was over")
        self.assertIn("it could never begin", self.submit_short("late", array, status=CONFLICT))

    def test_b_all_of_an_array_is_stopped_in_the_middle_and_who_waits_for_that_runs(self):
        site = self.site
        answer = self.submit("long", LONG)
        array, tasks = answer["array"], [task["job"] for task in answer["tasks"]]
        mend = self.submit_short("mend-long", f"fail:{array}")
        site.wait("two of it to run", lambda: [self.state(job) for job in tasks].count("running") == AT_MOST, 90)

        self.assertIn("6 jobs stopping, 0 were over", site.cli("stop", array).stdout)

        for job in tasks:
            self.wait_for_end(job, "cancelled", 60)
        self.assertEqual([len(self.rest.attempts(job)) for job in tasks[AT_MOST:]], [0] * (len(tasks) - AT_MOST))
        self.wait_for_end(mend, "succeeded")
        site.wait("the machines to be empty", lambda: not any(map(site.guest_processes, ("lab-a", "lab-b"))), 30)
        self.assertIn("0 jobs stopping, 6 were over", site.cli("stop", array).stdout)

    def test_c_what_slurm_has_and_we_have_not_is_refused_with_the_line(self):
        for what in ("singleton", "aftercorr:1"):
            said = self.submit_short("refused", line=f"#SBATCH --dependency={what}\n", status=USAGE)
            self.assertIn(f"line 4: --dependency={what}", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
