# SPDX-License-Identifier: Apache-2.0
"""A training for AWS's spot instances: it asks the instance's metadata as AWS documents it, with a token (IMDSv2),
where AWS's libraries are told to look, or where it always is, saves when an action is announced, and ends.

AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:1338 python3 spot_like.py
python3 spot_like.py"""
import json
import os
import time
import urllib.error
import urllib.request

BASE = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")


def ask(path, method="GET", **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    with urllib.request.urlopen(urllib.request.Request(BASE + path, headers=headers, method=method)) as answer:
        return answer.read().decode()


def instance_action():
    token = ask("/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="21600")
    try:
        return json.loads(ask("/latest/meta-data/spot/instance-action", X_aws_ec2_metadata_token=token))
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
        return None


step = 0
if os.path.exists("state.ckpt"):
    with open("state.ckpt") as file:
        step = int(file.read())
print(f"rank=0 begin step={step}", flush=True)
while not (action := instance_action()):
    time.sleep(0.5)
    step += 1
print(f"{action['action']} at {action['time']}", flush=True)
print(f"saves step={step}", flush=True)
with open("state.tmp", "w") as file:
    file.write(f"{step}\n")
os.rename("state.tmp", "state.ckpt")
