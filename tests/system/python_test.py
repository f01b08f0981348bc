#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package against a real coordinator, agents, wardens and engines: a job's life, a function that runs
elsewhere, and a script that is asked to save by an owner's notice and goes on on another machine."""
import os
import pathlib
import re
import shutil
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from guests import GUESTS  # noqa: E402
from labs import ROOT  # noqa: E402
from rn_site import python_image  # noqa: E402
from stories import Site  # noqa: E402

sys.path.insert(0, str(ROOT / "python"))
import reclaimnet  # noqa: E402

SMALL = {"cpus": 0.5, "cpus_min": 0.1, "memory": "128MB", "disk": "64MB"}
NOTICE_S = 40


@reclaimnet.remote(image="python", checkpoint=["state.ckpt"], **SMALL)
def count(step_s):
    """Where it began at last, and ten steps later."""
    import pathlib
    import time
    state = pathlib.Path("state.ckpt")
    step = first = int(state.read_text()) if state.exists() else 0
    print(f"begin step={step}", flush=True)
    while not first or step < first + 10:
        time.sleep(step_s)
        step += 1
        if reclaimnet.should_save():
            with reclaimnet.saving(state) as path:
                pathlib.Path(path).write_text(str(step))
    return first, step


def counts_memory_by_groups():
    top = pathlib.Path("/sys/fs/cgroup")
    controllers = top / "cgroup.controllers"
    return (top / "memory").is_dir() or controllers.exists() and "memory" in controllers.read_text().split()


class PythonPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lends = {"guest_disk_mib": 1024, "guest_memory_mib": 1024, "notice_s": NOTICE_S}
        cls.site = Site({"lab-a": lends, "lab-b": lends}, disk="4G")
        cls.addClassCleanup(cls.site.down)
        cls.site.cli("image", "add", "python", python_image(), timeout_s=300)
        login = {"RECLAIM_URL": cls.site.coordinator.url, "RECLAIM_TOKEN": cls.site.rest.token}
        before = {name: os.environ.get(name) for name in login}
        cls.addClassCleanup(lambda: [os.environ.pop(name) if value is None else os.environ.update({name: value})
                                     for name, value in before.items()])
        os.environ.update(login)  # as a student's shell has it
        cls.client = reclaimnet.Client()
        cls.addClassCleanup(cls.client.close)
        cls.site.nodes["lab-b"].owner("pause")  # until somebody has to go there
        cls.trainer = cls.client.submit(  # the image takes its time to the first node; the others run meanwhile
            ["python3", "told_in_python.py", "0.2"], folder=cls.folder_with_package(), image="python",
            checkpoint=["state.ckpt"], temporary=["*.saving"], outputs=["answer"], tell_api=True, **SMALL)
        cls.counting = count.submit(0.2)

    @classmethod
    def folder_with_package(cls):
        folder = cls.site.labs.dir / "student-trainer"
        folder.mkdir()
        shutil.copy(GUESTS / "told_in_python.py", folder)
        shutil.copytree(ROOT / "python" / "reclaimnet", folder / "reclaimnet")
        return folder

    def test_a_files_go_there_the_log_is_followed_and_outputs_come_home(self):
        folder = self.site.labs.dir / "student-plain"
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "question").write_text("6 times 7\n")
        (folder / "run.sh").write_text(
            "cat sub/question; ls; until [ -e /tmp/go ]; do sleep 0.1; done; echo last; echo 42 > sub/answer; "
            "ln -s sub/answer a; cp kept.bin copy.bin")
        (folder / "run.sh").chmod(0o755)
        (folder / ".gitignore").write_text("*.bin\n!kept.bin\n")
        (folder / "left.bin").write_bytes(b"x")
        pieces = bytes(range(256)) * 20000  # two of them
        (folder / "kept.bin").write_bytes(pieces)

        job = self.client.submit("sh run.sh", folder=folder, stateless=True, name="plain", **SMALL)
        seen = []
        for line in job.logs(follow=True):  # it comes while the job runs, which waits for this
            seen.append(line)
            if line == "sub\n":
                self.site.cli("exec", job.id, "--", "touch", "/tmp/go")
        job.wait(30)

        self.assertEqual(seen, ["6 times 7\n", "kept.bin\n", "run.sh\n", "sub\n", "last\n"])
        self.assertEqual((job.state, job.exit_code), ("succeeded", 0))
        home = self.site.labs.dir / "home"
        self.assertIn("sub/answer", job.fetch(home))
        self.assertEqual((home / "sub" / "answer").read_text(), "42\n")
        self.assertEqual(os.readlink(home / "a"), "sub/answer")
        self.assertEqual((home / "copy.bin").read_bytes(), pieces)
        self.assertEqual(job.read_output("sub/answer"), b"42\n")
        with self.assertRaisesRegex(reclaimnet.NotFoundError, "no output 'nothing'"):
            job.read_output("nothing")

    def test_b_a_function_runs_elsewhere_and_its_result_comes_back(self):
        @reclaimnet.remote(image="python", **SMALL)
        def where(numbers, *, factor=2):
            return {"sum": factor * sum(numbers), "folder": os.getcwd(), "user": os.getuid(),
                    "in_job": reclaimnet.in_job(), "pattern": re.sub("a", "b", "aa")}

        call = where.submit([1, 2, 3], factor=7)

        self.assertEqual(
            call.result(90), {"sum": 42, "folder": "/work", "user": 10001, "in_job": True, "pattern": "bb"})
        self.assertTrue(call.done())

    def test_c_what_a_function_raises_comes_back_with_the_traceback_of_where_it_ran(self):
        @reclaimnet.remote(image="python", **SMALL)
        def fails(what):
            print("before it")
            return {}[what]

        with self.assertRaises(reclaimnet.RemoteError) as raised:
            fails("nothing")

        self.assertEqual((raised.exception.type_name, raised.exception.message), ("KeyError", "KeyError: 'nothing'"))
        self.assertIn("return {}[what]\n", raised.exception.remote_traceback)
        self.assertNotIn("_call.py", raised.exception.remote_traceback)

    def test_d_a_notice_is_answered_with_a_save_and_script_and_function_go_on_elsewhere(self):
        site, job = self.site, self.trainer
        for one in (job, self.counting.job):
            site.wait("it to compute", lambda one=one: "begin step=0\n" in one.logs(), 60)
        time.sleep(1)  # some steps of its own
        site.nodes["lab-b"].owner("resume")
        site.wait("lab-b to lend", lambda: site.rest.nodes()["lab-b"]["lending"] == "open", 30)

        site.nodes["lab-a"].owner("reclaim", "-m", "a lecture")
        job.wait(100)
        first, last = self.counting.result(100)

        def ran(job):  # a node that is late may refuse what it was just given
            return [one for one in job.attempts() if one["started_wall_ms"]]
        self.assertEqual(([one["end"] for one in ran(self.counting.job)], last), (
            ["reclaimed", "succeeded"], first + 10))

        first, second = ran(job)
        self.assertEqual((first["end"], second["end"]), ("reclaimed", "succeeded"))
        self.assertNotEqual(first["node"], second["node"])
        if counts_memory_by_groups():
            self.assertGreater(first["memory_peak_mib"], 0, "nobody saw what it held")
            self.assertLessEqual(first["memory_peak_mib"], 128, "more than it may hold")
        self.assertEqual(first["gpu_memory_peak_mib"], 0)
        first, second = (int(one["epoch"].split(".")[1]) for one in (first, second))
        told = "".join(job.logs(attempt=first))
        saved = [int(step) for step in re.findall(r"saves step=(\d+) reason=a lecture left=[1-9]\d*\n", told)]
        self.assertTrue(saved, told)
        self.assertIn("::reclaimnet checkpoint-complete::\n", told)
        began = int(re.match(r"begin step=(\d+)\n", "".join(job.logs(attempt=second)))[1])
        self.assertGreaterEqual(began, saved[-1], "not from what it saved at the notice")
        self.assertEqual(job.read_output("answer").decode(), f"{began + 10}\n")
        site.nodes["lab-a"].owner("release")

    def test_e_a_running_job_is_explained_listed_and_cancelled(self):
        job = self.client.submit(["sleep", "1000"], stateless=True, **SMALL)
        followed = []
        follower = threading.Thread(target=lambda: followed.extend(job.logs(follow=True)), daemon=True)
        self.site.wait("the job to run", lambda: job.refresh().state == "running", 60)
        follower.start()

        self.assertRegex(job.why(), "lab-[ab]")
        self.assertIn(job.id, [one.id for one in self.client.jobs()])
        self.assertEqual({node["lab"] for node in reclaimnet.nodes()}, {"lab-a", "lab-b"})
        with self.assertRaisesRegex(reclaimnet.TimedOutError, "it is running.*goes on"):
            job.wait(0.2)
        job.cancel("enough")
        with self.assertRaises(reclaimnet.JobFailedError) as failed:
            job.wait(30)

        self.assertEqual((failed.exception.job.state, job.has_ended), ("cancelled", True))
        follower.join(20)
        self.assertFalse(follower.is_alive(), "who follows it never learns of its end")

    def test_f_who_may_not_or_asks_for_nonsense_is_told_what_to_do(self):
        url, token = self.site.coordinator.url, self.site.rest.token
        other_site = token.rpartition(".")[0] + "." + 64 * "0"
        with self.assertRaisesRegex(reclaimnet.DeniedError, "another CA than this site's; next: check the address"):
            reclaimnet.Client(url, other_site).nodes()
        ca = str(self.site.coordinator.state / "pki" / "ca.pem")
        self.assertEqual(reclaimnet.Client(url, token, ca_file=ca).whoami()["role"], "admin")
        head, _, tail = token.partition(".")
        with self.assertRaises(reclaimnet.DeniedError) as denied:
            reclaimnet.Client(url, f"{head}.x{tail}").nodes()
        self.assertEqual((denied.exception.status, bool(denied.exception.hint)), (403, True))
        with self.assertRaises(reclaimnet.NotFoundError):
            self.client.job("j-none")
        with self.assertRaisesRegex(reclaimnet.InvalidError, "memory"):
            self.client.submit(["true"], memory="4MB")
        once = [self.client.submit(["true"], stateless=True, key="one-key", **SMALL) for _ in range(2)]
        self.assertEqual(once[0].id, once[1].id, "a repeated submit has made a second job")

    def test_g_an_array_takes_turns_and_who_waits_for_it_begins_when_all_are_over(self):
        array = self.client.submit("echo index $SLURM_ARRAY_TASK_ID", array="1,4", throttle=1, stateless=True, **SMALL)
        then = self.client.submit(["true"], after=array, stateless=True, **SMALL)
        never = self.client.submit(["true"], after=("fail", array), stateless=True, **SMALL)
        self.assertEqual(array[0].refresh().info["array"]["array"], array.id)

        array.wait(120)
        then.wait(60)
        never.wait(60, check=False)

        self.assertEqual([list(job.logs()) for job in array], [["index 1\n"], ["index 4\n"]])
        first, second = (job.refresh() for job in array)
        self.assertLessEqual(first.info["finished_wall_ms"], second.attempts()[0]["started_wall_ms"], "not in turn")
        self.assertLessEqual(second.info["finished_wall_ms"], then.attempts()[0]["started_wall_ms"], "did not wait")
        self.assertEqual((then.state, never.state), ("succeeded", "cancelled"))
        self.assertEqual([job.id for job in second.tasks()], [job.id for job in array])
        self.assertEqual(([job.index for job in array], then.index, then.tasks()), ([1, 4], None, []))
        with self.assertRaisesRegex(reclaimnet.NotFoundError, "after.*no job 999999"):
            self.client.submit(["true"], after=999999, **SMALL)

    def test_h_an_array_is_stopped_at_once_and_a_receiver_that_the_site_cannot_reach_is_a_warning(self):
        array = self.client.submit(["sleep", "1000"], array=range(3), stateless=True, **SMALL)
        array.cancel("enough").wait(60, check=False)
        self.assertEqual({job.state for job in array}, {"cancelled"})

        told = self.client.submit(["true"], notify="ann@example.org", stateless=True, **SMALL)  # no mail server here
        self.assertTrue([one for one in told.warnings if "ann@example.org is not told of it" in one], told.warnings)


if __name__ == "__main__":
    unittest.main(verbosity=2)
