# SPDX-License-Identifier: Apache-2.0
"""Slurm's configuration and scripts, for one machine that plays several. Pure. docs/compare-slurm.md says why each line
that is not Slurm's default is there."""

GUEST_PARTITION, OWNER_PARTITION = "guest", "owner"
CRED_EXPIRE_S = 5  # the least that Slurm takes; a requeued job may not begin before that
RESTART_EXIT = 85  # with which a guest asks to be started again
PYTHON = "/usr/bin/python3"


def slurm_conf(host, controller, nodes, folder, grace_s):
    """`host`: this machine's short name; `controller`: the address of slurmctld; `nodes`: {name: address}; `folder`:
    of state, logs, keys; `grace_s`: between SIGTERM and SIGKILL for guests, 0 for none."""
    lines = [
        "ClusterName=rn",
        f"SlurmctldHost={host}({controller})",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge/socket,cred_expire={CRED_EXPIRE_S}",
        f"StateSaveLocation={folder}/state",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
        "SlurmdParameters=config_overrides",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "JobRequeue=1",
        f"RequeueExit={RESTART_EXIT}",
        "KillWait=2",
        "MinJobAge=36000",
        "ReturnToService=2"]
    lines += [f"NodeName={name} NodeHostname={host} NodeAddr={address} Port=6818 CPUs=1 State=UNKNOWN"
              for name, address in nodes.items()]
    every = f"Nodes={','.join(nodes)} MaxTime=INFINITE State=UP"
    lines += [
        f"PartitionName={GUEST_PARTITION} {every} Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace_s}",
        f"PartitionName={OWNER_PARTITION} {every} Default=NO PriorityTier=10 PreemptMode=OFF"]
    return "\n".join(lines) + "\n"


def cgroup_conf():
    """Nothing of ours is in a control group; the plugin is named so that none is looked for."""
    return "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"


def guest_script(words, handles_term):
    """Of a guest: says where it runs, then becomes it. One that is to hear SIGTERM at the beginning of its grace is a
    step, for Slurm tells steps first and the script at the end."""
    run = f"{PYTHON} -B guest.py {' '.join(map(str, words))}"
    step = "srun --quiet --ntasks=1 --mpi=none " if handles_term else ""
    return ("#!/bin/sh\n"
            "echo \"attempt restart=${SLURM_RESTART_COUNT:-0} node=$SLURMD_NODENAME time=$(date +%s.%3N)\"\n"
            f"exec {step}{run}\n")


def guest_command(name, folder, script):
    return ["sbatch", "--parsable", "--partition", GUEST_PARTITION, "--ntasks", "1", "--requeue", "--open-mode=append",
            "--job-name", name, "--output", f"{folder}/log", "--chdir", str(folder), str(script)]


OWNER_SCRIPT = """#!/bin/sh
date +%s.%N >"$1.part" && mv "$1.part" "$1"
exec sleep 1000000
"""


def owner_command(node, script, mark):
    """The owner's job on that one machine; it writes the time of its start to `mark`."""
    return ["sbatch", "--parsable", "--partition", OWNER_PARTITION, "--nodelist", node, "--ntasks", "1", "--no-requeue",
            "--job-name", f"owner-{node}", "--output", "/dev/null", str(script), str(mark)]
