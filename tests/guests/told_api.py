# SPDX-License-Identifier: Apache-2.0
"""A training that asks whether a save is due, and goes on: docs/guests.md, "Told by the API".

reclaim run --tell-api --checkpoint state.ckpt -- python3 told_api.py STEP_S"""
import http.client
import os
import socket
import sys
import time


class Api(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["RECLAIM_API"])


def ask(method, path):
    """What is answered; empty if that is nothing."""
    api = Api("localhost")
    api.request(method, path)
    answer = api.getresponse()
    words = answer.read().decode()
    if answer.status not in (200, 204):
        raise RuntimeError(words)
    return words


step = int(open("state.ckpt").read()) if os.path.exists("state.ckpt") else 0
print(f"begin step={step}", flush=True)
while True:
    time.sleep(float(sys.argv[1]))
    step += 1
    why = ask("GET", "/v1/notice")
    if not why:
        continue
    with open("state.tmp", "w") as file:
        file.write(f"{step}\n")
    # Before it is there: at a notice the machine is left at once after that.
    print(f"saves step={step} told={why}", end="", flush=True)
    os.rename("state.tmp", "state.ckpt")
    ask("POST", "/v1/saved")
