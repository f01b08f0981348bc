#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that were written for other systems, on real daemons: at an owner's notice they are saved and go on on
another machine, each by the calls and signals that it knows; and a job that asks to be queued again is. A class for
each kind of program. Lightning, submitit, transformers, JAX and Orbax are not in Debian: guests do what their sources
and documents say (tests/guests/frameworks), and nothing here shows that these themselves run."""
import pathlib
import pickle
import re
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from guests import GUESTS  # noqa: E402
from rn_site import python_image  # noqa: E402
from stories import Site  # noqa: E402

LENDS = {"guest_disk_mib": 4096, "guest_memory_mib": 2048, "guest_cpu_each_milli": 150, "notice_s": 40}
SMALL = ["--cpus", "0.2", "--cpus-min", "0.1", "--memory", "64MB", "--disk", "64MB"]
SBATCH = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes=1
#SBATCH --ntasks-per-node={tasks}
#SBATCH --mem=96M
#SBATCH --signal={signal}@90
{command}
"""
SUBMITIT = """export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output %j_%t_log.out --error %j_%t_log.err python3 -u submitit_like.py logs"""
# Counts in steps of a tenth of a second, from the file that it saves; {save} says when and how it saves.
COUNTS = """n=0; [ ! -e state.ckpt ] || read -r n <state.ckpt; echo "rank=0 begin step=$n"
save() {{ echo "saves step=$n"; echo $n >state.tmp; mv state.tmp state.ckpt; }}
{save}"""
LOOP = "while :; do sleep 0.1; n=$((n + 1)); done"
ONCE = """#!/bin/sh
#SBATCH --mem=64M
if [ -e state.ckpt ]; then echo "restart $SLURM_RESTART_COUNT of $SLURM_JOB_ID: $(cat state.ckpt)"; exit 0; fi
sacct -o JobID,State,NodeList --parsable2 -j $SLURM_JOB_ID
squeue -h -j $SLURM_JOB_ID -o '%i %T'
command -v scontrol; command -v srun
sbatch next.sh
scontrol requeue 999999 || echo refused
trap 'echo "ends after SIGTERM"; exit 7' TERM
echo 42 >state.ckpt
scontrol requeue $SLURM_JOB_ID
echo "requeue: $?"
while :; do sleep 0.1; done
"""
SITE, JOBS = None, {}


def folder_of(name, *scripts, **files):
    folder = SITE.labs.dir / f"student-{name}"
    folder.mkdir()
    for script in scripts:
        shutil.copy(GUESTS / "frameworks" / script, folder)
    for file, content in files.items():
        (folder / file).write_text(content)
    return folder


def submit_script(name, text, *scripts, image="python"):
    folder = folder_of(name, *scripts, **{"job.sbatch": text})
    if name == "submitit":
        (folder / "logs").mkdir()
        (folder / "logs" / "first.pkl").write_bytes(pickle.dumps({"step": 1000}))
    JOBS[name] = SITE.cli("submit", "--image", image, "job.sbatch", cwd=folder).stdout.strip()


def run(name, *words, scripts=()):
    done = SITE.cli("run", "--detach", "--name", name, *SMALL, *words, cwd=folder_of(name, *scripts))
    JOBS[name] = done.stdout.strip()


def ran(job):
    """Its attempts that began, with their numbers: one that a node refused has said nothing."""
    return [(number, one) for number, one in enumerate(SITE.rest.attempts(job), 1) if one["started_wall_ms"]]


def log(job, attempt=None):
    """Of an attempt that began (1: the first)."""
    if attempt is not None:
        attempt = dict(enumerate((number for number, _ in ran(job)), 1)).get(attempt)
        if attempt is None:
            return ""
    return SITE.rest.log(job, attempt).decode()


def steps(what, job, attempt):
    return [int(step) for step in re.findall(rf"^{what} step=(\d+)", log(job, attempt), re.MULTILINE)]


def submit_all():
    lightning = "lightning_like.py"
    submit_script("lightning", SBATCH.format(
        name="resnet", tasks=1, signal="SIGUSR1", command=f"python3 {lightning} 1"), lightning)
    submit_script("srun", SBATCH.format(
        name="resnet", tasks=2, signal="SIGUSR1", command=f"srun python3 {lightning} 2"), lightning)
    run("spawned", "--image", "python", "--", "python3", lightning, "2", scripts=[lightning])
    submit_script("submitit", SBATCH.format(name="submitit", tasks=1, signal="USR2", command=SUBMITIT),
                  "submitit_like.py")
    for kind in ("jit", "default"):
        run(f"hf-{kind}", "--image", "python", "--", "python3", "hf_like.py", kind, scripts=["hf_like.py"])
    run("orbax", "--image", "python", "--checkpoint", "ckpt/*/", "--", "python3", "orbax_like.py",
        scripts=["orbax_like.py"])
    run("spot", "--image", "python", "--env", "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:1338", "--",
        "python3", "spot_like.py", scripts=["spot_like.py"])
    run("imds", "--image", "python", "--", "python3", "spot_like.py", scripts=["spot_like.py"])
    run("oar", "--signal", "USR2", "--", "sh", "-c",
        COUNTS.format(save="trap 'save; exit 99' USR2; " + LOOP))
    run("plain", "--", "sh", "-c", COUNTS.format(save=LOOP.replace("done", "[ $((n % 20)) != 0 ] || save; done")))


def setUpModule():
    """All run on lab-a, and an owner's notice moves them to lab-b at once."""
    global SITE
    SITE = Site({"lab-a": LENDS, "lab-b": LENDS}, disk="24G")
    unittest.addModuleCleanup(SITE.down)
    SITE.cli("image", "add", "python", python_image(), timeout_s=300)
    SITE.nodes["lab-b"].owner("pause")
    submit_all()
    moving = dict(JOBS)
    SITE.wait("all to compute", lambda: all(
        re.search(r"^rank=0 begin", log(job), re.MULTILINE) for job in moving.values()), 120)
    for name in ("hf-default", "plain"):
        SITE.wait(f"a save of {name}", lambda: SITE.rest.job(JOBS[name])["durable"]["generation"] > 0, 60)  # noqa: B023
    SITE.nodes["lab-b"].owner("resume")
    SITE.nodes["lab-a"].owner("reclaim", "-m", "a lecture")
    run("condor", "--checkpoint", "state.ckpt", "--", "sh", "-c", COUNTS.format(
        save="[ $n -lt 20 ] || exit 0; until [ $((n += 1)) = 10 ] || [ $n = 20 ]; do sleep 0.1; done; save; exit 85"))
    submit_script("once", ONCE, image="base")
    JOBS["forever"] = SITE.rest.post("/v1/jobs", {
        "name": "forever", "image": "base", "max_restarts": 2, "env": {"SLURM_JOB_NAME": "forever"},
        "command": ["sh", "-c", "scontrol requeue $SLURM_JOB_ID; sleep 1000"],
        "resources": {"cpu_milli": 200, "cpu_milli_min": 100, "memory_mib": 64, "disk_mib": 64}})["job"]["id"]
    for name, job in moving.items():
        SITE.wait(f"{name} to have left", lambda: ran(job)[0][1]["end"] == "reclaimed", 90)  # noqa: B023
    for name, job in moving.items():
        SITE.wait(f"{name} to go on", lambda: steps("rank=0 begin", job, 2), 90)  # noqa: B023


class Moved:
    """What holds for each whose machine was taken back."""

    job = None
    since = -1  # which of its saves, from the end, it may go on from at the earliest

    def setUp(self):
        self.id = JOBS[self.job]

    def test_it_was_saved_within_the_notice_and_went_on_from_that_save(self):
        saved, begun = steps("saves", self.id, 1), steps("rank=0 begin", self.id, 2)

        self.assertTrue(saved, log(self.id, 1))
        self.assertIn(begun[0], saved[self.since:], "not from what it saved last")
        self.assertGreater(begun[0], 0)
        self.assertEqual([one["end"] for _, one in ran(self.id)], ["reclaimed", "none"])
        self.assertEqual(SITE.rest.job(self.id)["restarts"], 0, "an owner's notice is no failure of the job")

    def assert_said(self, *words):
        for one in words:
            self.assertIn(one, log(self.id, 1))


class LightningInOneProcess(Moved, unittest.TestCase):
    """Without srun, in a script with --ntasks-per-node=1."""

    job = "lightning"

    def test_it_found_slurm_and_heard_the_signal_of_its_line(self):
        number = SITE.rest.job(self.id)["number"]
        self.assert_said(f"rank=0 of 1 at localhost:{number % 10000 + 15000}\n",
                         "rank=0 Handling auto-requeue signal: 10\n")
        self.assertNotIn("Requeuing failed", log(self.id, 1))


class LightningBySrun(Moved, unittest.TestCase):
    """Two ranks: both hear the signal, and the first one saves."""

    job = "srun"

    def test_each_rank_knew_itself_and_heard_the_signal_of_the_line(self):
        for rank in range(2):
            self.assert_said(f"rank={rank} of 2 at localhost:", f"rank={rank} Handling auto-requeue signal: 10\n")
        self.assertNotIn("Requeuing failed", log(self.id, 1))


class LightningThatSpawns(Moved, unittest.TestCase):
    """Not told of Slurm, so that it starts its ranks itself. The second one may hear SIGTERM twice, from the warden
    and from the first one, which its handler is made for."""

    job = "spawned"

    def test_it_found_no_slurm_and_its_ranks_heard_sigterm(self):
        self.assert_said("rank=0 of 2 without Slurm\n", *(f"rank={rank} Received SIGTERM: 15\n" for rank in range(2)))


class Submitit(Moved, unittest.TestCase):
    """What runs in the job. Its client, which needs sbatch where one is logged in, is not in this."""

    job = "submitit"

    def test_it_heard_sigusr2_alone_and_wrote_its_pickle(self):
        self.assert_said("Caught signal SIGUSR2: this job is preempted.\n")
        self.assertNotIn("Bypassing signal SIGTERM", log(self.id, 1).partition("Caught")[0])
        self.assertGreater(steps("rank=0 begin", self.id, 2)[0], 1000)


class TrainerWithJitCheckpoint(Moved, unittest.TestCase):
    job = "hf-jit"

    def test_it_heard_sigterm(self):
        self.assert_said("SIGTERM received, initiating JIT checkpoint\n")


class TrainerByDefault(Moved, unittest.TestCase):
    """It catches nothing, and is left alone until its next save, while which it may begin another one."""

    job = "hf-default"
    since = -2


class OrbaxOnOneHost(Moved, unittest.TestCase):
    """SIGTERM, on which it saves at the next step and ends by itself."""

    job = "orbax"


class SpotPoller(Moved, unittest.TestCase):
    """It catches nothing, asks the instance's metadata, saves, and ends with 0, which is no success here."""

    job = "spot"

    def test_it_was_told_when_the_machine_has_to_be_left(self):
        self.assertRegex(log(self.id, 1), r"terminate at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n")


class SpotPollerThatKnowsTheAddress(SpotPoller):
    """The same with 169.254.169.254 written into it."""

    job = "imds"


class Oar(Moved, unittest.TestCase):
    """SIGUSR2, and exit code 99."""

    job = "oar"


class PlainScript(Moved, unittest.TestCase):
    """It knows of nothing, saves each two seconds, and looks for its file."""

    job = "plain"
    since = -2


class SelfCheckpointing(unittest.TestCase):
    """As HTCondor's self-checkpointing programs: exit code 85 after each checkpoint."""

    def test_it_was_started_again_after_each_checkpoint_and_that_counted_as_no_restart(self):
        job = JOBS["condor"]
        SITE.wait("its end", lambda: SITE.rest.job(job)["state"] == "succeeded", 60)

        self.assertEqual([steps("rank=0 begin", job, attempt) for attempt in (1, 2, 3)], [[0], [10], [20]])
        self.assertEqual(SITE.rest.job(job)["restarts"], 0)


class Requeue(unittest.TestCase):
    def test_a_job_that_asks_to_be_queued_again_is_and_goes_on_from_what_it_saved(self):
        job = JOBS["once"]
        SITE.wait("its end", lambda: SITE.rest.job(job)["state"] == "succeeded", 60)

        number = SITE.rest.job(job)["number"]
        self.assertEqual(log(job, 2), f"restart 1 of {number}: 42\n")
        first = log(job, 1)
        for words in (f"JobID|State|NodeList\n{number}|RUNNING|localhost\n", f"{number} RUNNING\n",
                      "/reclaim-slurm/scontrol\n/reclaim-slurm/srun\n", "a job cannot submit another one; next: ",
                      "Invalid job id specified: 999999", "refused\n", "requeue: 0\n", "ends after SIGTERM\n"):
            self.assertIn(words, first)
        self.assertEqual([one["end"] for _, one in ran(job)], ["migrated", "succeeded"])

    def test_one_that_asks_for_ever_is_stopped_with_the_reason(self):
        job = JOBS["forever"]
        SITE.wait("its end", lambda: SITE.rest.job(job)["state"] == "failed", 60)

        self.assertIn("2 restarts are used up", SITE.rest.job(job)["reason"])
        self.assertEqual(len(ran(job)), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
