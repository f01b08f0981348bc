#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""reclaim-notebook, in the image of `reclaim notebook`: starts Jupyter on the guest's 127.0.0.1, says when the job's
folder is a whole checkpoint, and ends when nobody has worked for NOTEBOOK_IDLE_S seconds (docs/notebooks.md).

Jupyter asks for no password of its own: the coordinator lets the job's user in and nobody else, and whatever else
reaches 127.0.0.1 of a guest is the guest.
"""
import calendar
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from reclaimnet import injob

SHARE = pathlib.Path("/usr/share/reclaimnet/notebook")
PRIVATE = pathlib.Path("/tmp/reclaim-notebook")  # in memory: nothing of it moves, nothing is uploaded
LOOK_S = 1.0
IDLE_LOOK_S = 10.0
ENTRIES_MAX = 20000
GPU_BUSY_PERCENT = 5
WARN_S = 300
PAGE_SAVES_S = 5.0  # for a page to hear of a notice and save
STOP_S = 15


def picture_of(folder):
    """What tells whether anything in the folder has changed, without reading it; at most ENTRIES_MAX entries."""
    seen = []
    waiting = [str(folder)]
    while waiting and len(seen) < ENTRIES_MAX:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.name == ".ipynb_checkpoints":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    status = entry.stat(follow_symlinks=False)
                    seen.append((entry.path, status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            continue  # it went while it was looked at
    return hash(tuple(sorted(seen)))


class Saver:
    """Says that the folder is a checkpoint: when it has changed and holds still, and when a save is due."""

    def __init__(self, folder, job=injob, clock=time.monotonic):
        self.folder, self.job, self.clock = folder, job, clock
        self.saved = self.last = None
        self.notice = self.answered = None
        self.was_due = False
        self.noticed_at = self.next_look = 0.0

    def look(self):
        """Answers whether it was said."""
        now = self.clock()
        was_due, self.was_due = self.was_due, self.job.should_save()
        is_due = was_due and self.was_due  # a second later: a notice is heard of on another way, and perhaps after it
        notice = self.job.notice()
        if notice != self.notice:
            self.notice, self.noticed_at = notice, now
        is_leaving = notice is not None and notice != self.answered
        if not is_due and not is_leaving and now < self.next_look:
            return False
        picture = picture_of(self.folder)
        self.next_look = now + 20 * (self.clock() - now)  # a large folder is looked at seldom
        is_still, self.last = picture == self.last, picture
        if is_leaving:
            waited = now - self.noticed_at
            patience = max(0.0, notice.grace_s / 2)
            if waited < min(PAGE_SAVES_S, patience) or (not is_still and waited < patience):
                return False
        elif not is_still or (picture == self.saved and not is_due):
            return False
        self.job.checkpoint_saved()
        self.saved, self.answered = picture, notice
        return True


def utc_seconds(text):
    """Of what Jupyter writes: 2024-01-31T10:20:30.123456Z."""
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


def last_activity(status, kernels, is_gpu_busy, now):
    """When somebody or something worked last: a busy kernel, a GPU, an open page and a call count as work."""
    is_active = is_gpu_busy or any(
        kernel.get("execution_state") == "busy" or kernel.get("connections", 0) > 0 for kernel in kernels)
    return now if is_active else utc_seconds(status["last_activity"])


def is_gpu_busy():
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        done = subprocess.run([tool, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10, check=True, text=True)
        return any(int(line) > GPU_BUSY_PERCENT for line in done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return True  # what cannot be seen is not taken for idle


class Idleness:
    """Says when it has been idle for too long, and before that, in a file that the pages read."""

    def __init__(self, port, base_url, limit_s, warning):
        self.port, self.base_url, self.limit_s, self.warning = port, base_url, limit_s, warning
        self.next_look = 0.0
        self.warned = None

    def ask(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", f"{self.base_url}api/{path}?no_track_activity=1")
            answer = connection.getresponse()
            body = answer.read()
            return json.loads(body) if answer.status == 200 else None
        finally:
            connection.close()

    def is_over(self):
        if not self.limit_s or time.monotonic() < self.next_look:
            return False
        self.next_look = time.monotonic() + min(IDLE_LOOK_S, self.limit_s / 4)
        try:
            status, kernels = self.ask("status"), self.ask("kernels")
        except (OSError, http.client.HTTPException, ValueError):
            return False  # it starts, or is busy
        if status is None or kernels is None:
            return False
        now = time.time()
        left_s = last_activity(status, kernels, is_gpu_busy(), now) + self.limit_s - now
        self.warn(int(now + left_s) if left_s <= min(WARN_S, self.limit_s / 2) else None)
        return left_s <= 0

    def warn(self, ends_unix):
        if ends_unix == self.warned and self.warning.exists():
            return
        self.warned = ends_unix
        temporary = self.warning.with_suffix(".new")
        temporary.write_text(json.dumps({"ends_unix": ends_unix, "idle_s": self.limit_s}))
        os.replace(temporary, self.warning)


def number_in(name, least, most):
    """Of the environment; 0: it is not there."""
    text = os.environ.get(name, "")
    if not text:
        return 0
    if not text.isdigit() or not least <= int(text) <= most:
        sys.exit(f"{name}={text}: expected {least} to {most}")
    return int(text)


def command(port, base_url, folder):
    return ["jupyter-notebook", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--NotebookApp.port_retries=0",
            "--NotebookApp.token=", "--NotebookApp.password=", f"--NotebookApp.base_url={base_url}",
            f"--notebook-dir={folder}", "--NotebookApp.allow_remote_access=True", "--NotebookApp.quit_button=False",
            "--FileContentsManager.delete_to_trash=False"]


def start(port, base_url, folder):
    PRIVATE.mkdir(mode=0o700, exist_ok=True)
    config = PRIVATE / "config"
    shutil.copytree(SHARE / "custom", config / "custom", dirs_exist_ok=True)
    (config / "migrated").touch()  # there are no settings of an older version
    environment = {**os.environ, "SHELL": "/bin/bash", "JUPYTER_CONFIG_DIR": str(config)}
    for name, place in (("JUPYTER_DATA_DIR", "data"), ("JUPYTER_RUNTIME_DIR", "runtime"), ("IPYTHONDIR", "ipython")):
        (PRIVATE / place).mkdir(mode=0o700, exist_ok=True)
        environment[name] = str(PRIVATE / place)
    return subprocess.Popen(command(port, base_url, folder), cwd=folder, env=environment, stdin=subprocess.DEVNULL)


def main():
    port = number_in("NOTEBOOK_PORT", 1024, 65535) or 8888
    limit_s = number_in("NOTEBOOK_IDLE_S", 1, 10 ** 9)
    base_url = f"/notebooks/{os.environ.get('RECLAIM_JOB_NUMBER', '0')}/"
    folder = injob.checkpoint_dir()
    jupyter = start(port, base_url, folder)
    signal.signal(signal.SIGTERM, lambda *_: jupyter.terminate())
    saver = Saver(folder)
    idleness = Idleness(port, base_url, limit_s, PRIVATE / "config" / "custom" / "reclaim-idle.json")
    idleness.warn(None)
    while jupyter.poll() is None:
        time.sleep(LOOK_S)
        saver.look()
        if not idleness.is_over():
            continue
        print(f"nobody has worked for {limit_s} s: the notebook ends", flush=True)
        jupyter.terminate()
        try:
            jupyter.wait(STOP_S)
        except subprocess.TimeoutExpired:
            jupyter.kill()
            jupyter.wait()
        return 0
    return jupyter.returncode if jupyter.returncode >= 0 else 128 - jupyter.returncode


if __name__ == "__main__":
    sys.exit(main())
