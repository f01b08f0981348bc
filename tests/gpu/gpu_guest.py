#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tenants of scripts/gpu-check.sh, on PyTorch. Each prints one line `ready PID` when it holds what it is to hold.

    gpu_guest.py idle                     a context, and nothing else
    gpu_guest.py training                 steps of a small network, one after another
    gpu_guest.py holding --mib N          N MiB of memory, filled
    gpu_guest.py endless                  a kernel that does not end by itself (Python waits for it)
    gpu_guest.py leave --mib N            N MiB filled with a pattern that `seek` knows; then it waits
    gpu_guest.py seek --mib N             takes N MiB without initializing them; prints `found BYTES of TAKEN`
    gpu_guest.py control --mib N          the same of memory that it has filled itself and given back
    gpu_guest.py scrub                    overwrites all memory that is free, and looks; prints `scrubbed BYTES`
    gpu_guest.py selftest --device cpu    all of these, quickly
    gpu_guest.py train --steps N --save-every K --checkpoint FILE [--stop-at M] [--again-at M]
                                          a training that resumes from FILE; prints `weights SHA-256` at its end.
                                          --stop-at: ends itself by SIGKILL after step M. --again-at: after step M it
                                          forgets everything and resumes from FILE in the same process and context

    gpu_guest.py wait                     reads its words from a line of standard input, and is that tenant then

--device cpu does the same without a GPU, where memory is the process's own: for tests of this file."""
import argparse
import hashlib
import os
import signal
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: sums in one order
import torch  # noqa: E402

PATTERN = b"ReclaimNet was here: this is the memory of the tenant before. ##"  # 64 bytes
MIB = 1 << 20
CHUNK_MIB = 256


def ready():
    print("ready", os.getpid(), flush=True)


def wait_for_the_end():
    while True:
        time.sleep(3600)  # until it is killed


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def chunks_of(mib):
    while mib > 0:
        yield min(mib, CHUNK_MIB)
        mib -= CHUNK_MIB


def idle(device, _):
    torch.zeros(1, device=device)
    synchronize(device)
    ready()
    wait_for_the_end()


def training(device, _):
    network, step = make_network(device)
    for number in range(1 << 62):
        step(number)
        if number == 3:
            synchronize(device)
            ready()
    del network


def holding(device, options):
    held = [torch.ones(mib * MIB, dtype=torch.uint8, device=device) for mib in chunks_of(options.mib)]
    synchronize(device)
    ready()
    wait_for_the_end()
    del held


def endless(device, _):
    torch.zeros(1, device=device)
    synchronize(device)
    ready()
    if device.type == "cuda":
        torch.cuda._sleep(1 << 62)  # cycles: one kernel, for longer than anybody waits
        torch.cuda.synchronize(device)
    numbers = torch.ones(1 << 16)
    while True:
        numbers = numbers * 1.0


def pattern(device, mib):
    one = torch.frombuffer(bytearray(PATTERN), dtype=torch.uint8).to(device)
    return one.repeat(mib * MIB // len(PATTERN))


def known_rows(block):
    one = torch.frombuffer(bytearray(PATTERN), dtype=torch.uint8).to(block.device)
    return int((block.view(-1, len(PATTERN)) == one).all(1).sum())


def leave(device, options):
    held = [pattern(device, mib) for mib in chunks_of(options.mib)]
    synchronize(device)
    ready()
    wait_for_the_end()
    del held


def seek(device, options):
    """As far as memory goes: a tenant that takes less than it asked for says so."""
    found = taken = 0
    held = []
    for mib in chunks_of(options.mib):
        try:
            block = torch.empty(mib * MIB, dtype=torch.uint8, device=device)
        except RuntimeError:
            break
        held.append(block)
        taken += block.numel()
        found += known_rows(block) * len(PATTERN)
    print("found", found, "of", taken, flush=True)


def control(device, options):
    """What `seek` must find: PyTorch's allocator gives the same memory again, as it is."""
    taken = found = 0
    for mib in chunks_of(options.mib):
        one = pattern(device, mib)
        synchronize(device)
        place = one.data_ptr()
        if device.type == "cuda":
            del one
            one = torch.empty(mib * MIB, dtype=torch.uint8, device=device)
        taken += one.numel()
        found += known_rows(one) * len(PATTERN) if one.data_ptr() == place else 0
    print("found", found, "of", taken, flush=True)


def scrub(device, options):
    """All that is free, in ever smaller pieces; the last pieces are of one MiB."""
    spare = torch.zeros(32 * MIB, dtype=torch.uint8, device=device)  # where the look at its end has room
    held, mib, done = [], CHUNK_MIB, 0
    limit = options.mib * MIB if options.mib else None
    while mib >= 1:
        if limit is not None and done + mib * MIB > limit:
            mib //= 2
            continue
        try:
            block = torch.zeros(mib * MIB, dtype=torch.uint8, device=device)
        except RuntimeError:
            mib //= 2
            continue
        held.append(block)
        done += block.numel()
    synchronize(device)
    if device.type == "cuda":
        done += spare.numel()
        del spare
        torch.cuda.empty_cache()
    if any(int(block[:: 4096].max()) != 0 for block in held):
        print("not scrubbed: memory does not hold what was written", flush=True)
        sys.exit(1)
    print("scrubbed", done, flush=True)


def make_network(device):
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 16 * 16, 10)
    ).to(device)
    network.optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

    def step(number):
        # Of the step alone, on the CPU: the same after a resume, whatever had been drawn before.
        random = torch.Generator().manual_seed(number)
        images = torch.randn(32, 3, 16, 16, generator=random).to(device)
        labels = torch.randint(0, 10, (32,), generator=random).to(device)
        network.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        network.optimizer.step()

    return network, step


def save(network, number, path):
    torch.save({"step": number, "network": network.state_dict(), "optimizer": network.optimizer.state_dict()},
               path + ".tmp")
    os.replace(path + ".tmp", path)


def load(network, path, device):
    if not os.path.exists(path):
        return 0
    state = torch.load(path, map_location=device)
    network.load_state_dict(state["network"])
    network.optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def train(device, options):
    network, step = make_network(device)
    number = load(network, options.checkpoint, device)
    print("from", number, flush=True)
    again_at = options.again_at
    while number < options.steps:
        number += 1
        step(number)
        if number % options.save_every == 0:
            save(network, number, options.checkpoint)
        if number == options.stop_at:
            synchronize(device)
            os.kill(os.getpid(), signal.SIGKILL)
            os._exit(128 + signal.SIGKILL)  # a container's first process is not killed by itself
        if number == again_at:
            again_at = 0
            network, step = make_network(device)
            number = load(network, options.checkpoint, device)
            print("from", number, flush=True)
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode() + value.cpu().numpy().tobytes())
    print("weights", digest.hexdigest(), flush=True)


def selftest(device, options):
    """Each tenant in a process forked from this one, on the CPU: one import of PyTorch, a few seconds."""
    if device.type != "cpu":
        sys.exit("gpu_guest: selftest is for --device cpu")

    def run(kind, is_ending=True, **given):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(write, 1)
            TENANTS[kind](device, argparse.Namespace(**{**vars(options), **given}))
            sys.stdout.flush()
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            lines = pipe.read().splitlines() if is_ending else [pipe.readline().strip()]
            if not is_ending:
                os.kill(pid, signal.SIGKILL)
        return lines, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def expect(what, is_so):
        print("ok" if is_so else "NOT OK", what, flush=True)
        if not is_so:
            sys.exit(1)

    for kind in ("idle", "training", "holding", "endless", "leave"):
        lines, status = run(kind, is_ending=False, mib=3)
        expect(f"{kind} comes up and is killed", lines[0].startswith("ready ") and status == -signal.SIGKILL)
    expect("scrub overwrites what it is told", run("scrub", mib=5) == ([f"scrubbed {5 * MIB}"], 0))
    expect("seek looks at what it takes", run("seek", mib=3)[0][0].endswith(f" of {3 * MIB}"))
    expect("and finds what is there", run("control", mib=3)[0] == [f"found {3 * MIB} of {3 * MIB}"])
    expect("the pattern is known", known_rows(pattern(device, 1)) == MIB // len(PATTERN))
    few = {"steps": 12, "save_every": 3}
    whole, _ = run("train", checkpoint="whole.pt", **few)
    same, _ = run("train", checkpoint="same.pt", again_at=8, **few)
    expect("a training resumes in its own process", same == ["from 0", "from 6", whole[1]])
    stopped, status = run("train", checkpoint="new.pt", stop_at=8, **few)
    expect("one that ends itself is killed", (stopped, status) == (["from 0"], -signal.SIGKILL))
    expect("and resumes in another process", run("train", checkpoint="new.pt", **few)[0] == ["from 6", whole[1]])


TENANTS = {one.__name__: one for one in (
    idle, training, holding, endless, leave, seek, control, scrub, train, selftest)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tenant", choices=[*TENANTS, "wait"])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--mib", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--checkpoint", default="gpu_guest.pt")
    parser.add_argument("--stop-at", type=int, default=0)
    parser.add_argument("--again-at", type=int, default=0)
    options = parser.parse_args()
    if options.tenant == "wait":
        options = parser.parse_args([*sys.stdin.readline().split(), "--device", options.device])
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("gpu_guest: PyTorch sees no CUDA device here; --device cpu runs without one")
    if device.type == "cpu":
        torch.set_num_threads(1)
    TENANTS[options.tenant](device, options)


if __name__ == "__main__":
    main()
