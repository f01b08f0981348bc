#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long the dashboard takes on a full site: the real coordinator, played nodes (bench/played_nodes), jobs that wait
and run on them, and real Chromium, all on this machine.

    bench/dashboard.py [--nodes 1000] [--jobs 10000] [--windows 100] [--updates 4]

Each window is a new browser without a cache, logged in as the administrator: first paint, until all its jobs are there
(those of the list: the newest 1000 that are not over), from the stop of a job that waits until the page shows it, and
until the whole site is drawn. Needs the programs of RN_BUILD (by default build/release), built with the dashboard, and
Chromium; no root. About ten minutes on a quiet machine of two cores."""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("RN_BUILD", str(ROOT / "build" / "release"))
sys.path.insert(0, str(ROOT / "tests" / "system" / "lib"))
import figures  # noqa: E402
import rest  # noqa: E402
from labs import wait_until  # noqa: E402
from rn_site import program  # noqa: E402

LABS = 40
USERS = 10
GUESTS = 4  # of a node
LISTED = 1_000  # jobs that are not over, on the page
TASKS_MOST = 1_000  # of an array
USERS_JOBS_MOST = 2_000
ARCHIVE = b"\x1f\x8b, an archive"
LONG_S = 900


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def running(command, **options):
    """The process; told to end afterwards, and killed if it does not."""
    process = subprocess.Popen([str(word) for word in command], **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def coordinator(folder):
    port = free_port()
    state = folder / "state"
    command = [program("reclaim-coordinator"), "serve", "--state", state, "--listen", f"127.0.0.1:{port}", "--url",
               f"https://127.0.0.1:{port}", "--name", "127.0.0.1"]
    with open(folder / "coordinator.log", "wb") as log, running(command, stdout=log, stderr=log) as process:
        def is_ready():
            if process.poll() is not None:
                raise SystemExit(f"the coordinator ended:\n{(folder / 'coordinator.log').read_text()[-3000:]}")
            token = state / "admin.token"
            return token.exists() and token.read_text() and rest.from_state(state, "127.0.0.1", port).is_ready()
        wait_until("the coordinator to be ready", is_ready, 60)
        site = rest.from_state(state, "127.0.0.1", port)
        site.timeout_s = 120
        wait_until("it to place jobs", lambda: not site.get("/readyz")["is_adopting"], 60)
        yield site


def add_image(site):
    """One that only played nodes have."""
    name = hashlib.sha256(ARCHIVE).hexdigest()
    site.call("PUT", f"/v1/blobs/{name}", ARCHIVE)
    site.post("/v1/images", {"name": "base", "digest": f"sha256:{name}", "bytes": len(ARCHIVE), "blobs": [name]})
    return f"sha256:{name}"


def gauge(site, name):
    found = re.search(rf"^{name} (\S+)$", site.call("GET", "/metrics").decode(), re.M)
    if found is None:
        raise SystemExit(f"the coordinator has no metric {name}")
    return float(found[1])


def submit(site, count):
    """Arrays of several users; the highest numbers are of those that wait longest."""
    users = [site.with_token(site.post("/v1/tokens", {
        "kind": "user", "user": f"user-{n}", "lab": f"lab-{n}", "role": "user"})["token"]) for n in range(USERS)]
    left = count
    for turn in range(0, count, TASKS_MOST):
        tasks = min(TASKS_MOST, left)
        user = users[turn // TASKS_MOST % USERS]
        user.post("/v1/arrays", {"indices": list(range(tasks)), "spec": {
            "name": f"train-{turn // TASKS_MOST}", "command": ["python3", "train.py"]}})
        left -= tasks


def settle(site, nodes, jobs):
    """All places are taken, or nothing begins any more."""
    wanted = min(jobs, nodes * GUESTS)
    before, since, until = -1, time.monotonic(), time.monotonic() + LONG_S
    while time.monotonic() < until:
        now = gauge(site, "reclaimnet_running_jobs")
        if now >= wanted:
            return
        if now != before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > 60:
            raise SystemExit(f"{now:.0f} jobs run, and {wanted} should: nothing has begun for a minute")
        time.sleep(1)  # between two looks
    raise SystemExit(f"not all jobs began within {LONG_S} s")


def look(site, options):
    """What the browser's part has measured."""
    web = pathlib.Path(os.environ["RN_BUILD"]) / "web"
    chromium, node = shutil.which("chromium"), shutil.which("node") or shutil.which("nodejs")
    if not (web / "dashboard.stamp").exists() or not chromium or not node:
        raise SystemExit(f"it needs the dashboard in {web}, node and chromium (scripts/install-deps.sh)")
    told = {"url": f"https://127.0.0.1:{site.port}", "token": site.token, "nodes": options.nodes,
            "rows": min(LISTED, options.jobs), "windows": options.windows, "updates": options.updates,
            "first": options.jobs - options.windows * options.updates + 1}
    environment = {**os.environ, "RN_WEB_BUILD": str(web), "RN_CHROMIUM": chromium}
    done = subprocess.run([node, str(ROOT / "web" / "tests" / "many.mjs")], input=json.dumps(told) + "\n", text=True,
                          stdout=subprocess.PIPE, env=environment, timeout=3 * 3600)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or not lines or lines[-1] != {"done": True}:
        raise SystemExit("the browser's part failed: its words stand above")
    for line in lines[:-1]:
        figures.line(line["figure"], line["samples"], "ms")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("nodes", 1000), ("jobs", 10_000), ("windows", 100), ("updates", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    waiting = options.jobs - options.nodes * GUESTS
    if min(options.nodes, options.jobs, options.windows, options.updates) < 1:
        parser.error("all of them are at least 1")
    if options.jobs > USERS * min(USERS_JOBS_MOST, TASKS_MOST):
        parser.error(f"--jobs: a coordinator bears {USERS * TASKS_MOST} that are not over")
    if options.windows * options.updates > min(waiting // 2, LISTED // 2):
        parser.error("--windows times --updates: each update stops a job that waits and is listed; of these jobs at "
                     f"most {max(0, min(waiting // 2, LISTED // 2))} can be")
    return options


def main():
    options = read_options()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection for each node
    with tempfile.TemporaryDirectory(prefix="rn-dashboard-") as scratch, coordinator(pathlib.Path(scratch)) as site:
        digest = add_image(site)
        command = [pathlib.Path(os.environ["RN_BUILD"]) / "bench" / "played_nodes", f"https://127.0.0.1:{site.port}",
                   options.nodes, LABS, GUESTS, digest]
        environment = {**os.environ, "RECLAIM_TOKEN": site.token}
        with running(command, stdout=subprocess.PIPE, text=True, env=environment) as nodes:
            if nodes.stdout.readline() != "ready\n":
                raise SystemExit("the nodes did not come: why stands above")
            submit(site, options.jobs)
            settle(site, options.nodes, options.jobs)
            figures.heading(f"the dashboard with {options.nodes} nodes and {options.jobs} jobs, "
                            f"{options.windows} windows, one after the other")
            look(site, options)


if __name__ == "__main__":
    main()
