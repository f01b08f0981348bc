#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what NVML answers on this machine, byte by byte, for the tests of those who ask it (replay_nvml.c).

    record_nvml.py FILE [--guest PROGRAM]    needs an NVIDIA GPU and PyTorch with CUDA; about half a minute

A line `state NAME PID…` begins a state of the machine; the pids are the tenants', in the order of the name. The lines
below it are one call each: `CALL DEVICE CODE BYTES`, the bytes in hex as NVML left them, `-` for none. What is a text
ends with its zero; a list of processes is their number (four bytes), then the entries. `#` begins a comment.

The states: nobody; idle (a context, and nothing else); idle_and_training (two tenants, the second one computes);
training (the first one killed, and gone); holding (10,000 MiB); killed_0 … killed_N, as the driver takes that one down,
looked at every 20 ms; after. Nothing in the file names the machine: UUIDs are replaced."""
import argparse
import contextlib
import ctypes
import datetime
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = "libnvidia-ml.so.1"
PROCESSES_MAX = 64
PROCESS_BYTES = 24    # nvmlProcessInfo_t of the _v3 calls
MEMORY_V2_BYTES = 40  # nvmlMemory_v2_t
FUNCTION_NOT_FOUND = 13
LOOKS_AFTER_KILL = 12
LOOK_EVERY_S = 0.02
HOLD_MIB = 10_000


class Recorder:
    def __init__(self, out):
        self.out = out
        try:
            self.nvml = ctypes.CDLL(LIBRARY)
        except OSError as error:
            sys.exit(f"record_nvml: no NVIDIA driver here: {error}")
        self.must("nvmlInit_v2")
        count = ctypes.c_uint()
        self.must("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self.handles = [ctypes.c_void_p() for _ in range(count.value)]
        for index, handle in enumerate(self.handles):
            self.must("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        print(f"# What NVML answered: {self.about()}; {datetime.date.today()}; by tests/gpu/record_nvml.py, UUIDs "
              "replaced.", file=out)
        self.put("nvmlDeviceGetCount_v2", 0, 0, bytes(count))

    def about(self):
        """The first device's model, and the driver's version."""
        model, driver = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        self.must("nvmlDeviceGetName", self.handles[0], model, len(model))
        version = getattr(self.nvml, "nvmlSystemGetDriverVersion", None)
        if version is None or version(driver, len(driver)) != 0:
            driver.value = b"unknown"
        return f"{model.value.decode()}, driver {driver.value.decode()}"

    def must(self, call, *given):
        code = getattr(self.nvml, call)(*given)
        if code != 0:
            sys.exit(f"record_nvml: {call} answers {code}\n  next: look at `nvidia-smi`")

    def put(self, call, device, code, data):
        print(call, device, code, data.hex() or "-", file=self.out, flush=True)

    def ask(self, call, device, *given):
        """The call's code; that of an older library, which lacks the call, is its own word for that."""
        function = getattr(self.nvml, call, None)
        return FUNCTION_NOT_FOUND if function is None else function(self.handles[device], *given)

    def text(self, call, device, replaced=None):
        data = ctypes.create_string_buffer(96)
        code = self.ask(call, device, data, len(data))
        text = data.value if replaced is None else replaced
        self.put(call, device, code, text + b"\0" if code == 0 else b"")

    def struct(self, call, device, size, *given, version=0):
        data = ctypes.create_string_buffer(size)
        if version:
            data[:4] = (size | version << 24).to_bytes(4, sys.byteorder)
        code = self.ask(call, device, *given, data)
        self.put(call, device, code, data.raw if code == 0 else b"")

    def processes(self, call, device):
        count = ctypes.c_uint(PROCESSES_MAX)
        data = ctypes.create_string_buffer(PROCESSES_MAX * PROCESS_BYTES)
        code = self.ask(call, device, ctypes.byref(count), data)
        self.put(call, device, code, bytes(count) + data.raw[:count.value * PROCESS_BYTES] if code == 0 else b"")

    def capability(self, device):
        parts = (ctypes.c_int(), ctypes.c_int())
        code = self.ask("nvmlDeviceGetCudaComputeCapability", device, *map(ctypes.byref, parts))
        self.put("nvmlDeviceGetCudaComputeCapability", device, code, b"".join(map(bytes, parts)) if code == 0 else b"")

    def remapped_rows(self, device):
        parts = [ctypes.c_uint() for _ in range(4)]
        code = self.ask("nvmlDeviceGetRemappedRows", device, *map(ctypes.byref, parts))
        self.put("nvmlDeviceGetRemappedRows", device, code, b"".join(map(bytes, parts)) if code == 0 else b"")

    def state(self, name, *pids):
        print("state", name, *pids, file=self.out)
        for device in range(len(self.handles)):
            # First who holds what: it is what changes.
            for kind in ("Compute", "Graphics"):
                self.processes(f"nvmlDeviceGet{kind}RunningProcesses_v3", device)
            self.struct("nvmlDeviceGetMemoryInfo_v2", device, MEMORY_V2_BYTES, version=2)
            self.struct("nvmlDeviceGetMemoryInfo", device, 24)
            self.text("nvmlDeviceGetName", device)
            self.text("nvmlDeviceGetUUID", device, b"GPU-00000000-0000-0000-0000-%012d" % device)
            self.capability(device)
            self.struct("nvmlDeviceGetUtilizationRates", device, 8)
            self.struct("nvmlDeviceGetTemperature", device, 4, 0)
            self.struct("nvmlDeviceGetPowerUsage", device, 4)
            self.struct("nvmlDeviceGetTotalEccErrors", device, 8, 1, 0)  # not corrected, since the driver's start
            self.remapped_rows(device)
            self.struct("nvmlDeviceGetRetiredPagesPendingStatus", device, 4)
            self.struct("nvmlDeviceGetCurrentClocksThrottleReasons", device, 8)


class Tenants:
    def __init__(self, program):
        self.words = program.split() if program else [sys.executable, "-B", str(HERE / "gpu_guest.py")]
        self.all = []

    def start(self, kind):
        popen = subprocess.Popen([*self.words, kind, "--mib", str(HOLD_MIB)], stdout=subprocess.PIPE, text=True)
        self.all.append(popen)
        line = popen.stdout.readline()
        if not line.startswith("ready"):
            sys.exit(f"record_nvml: the tenant {kind} did not come up: {line.strip() or popen.wait()}")
        return popen

    def end(self):
        for popen in self.all:
            with contextlib.suppress(ProcessLookupError):
                popen.send_signal(signal.SIGKILL)
            popen.wait()


def record(recorder, tenants, settle_s):
    recorder.state("nobody")
    idle = tenants.start("idle")
    recorder.state("idle", idle.pid)
    training = tenants.start("training")
    time.sleep(settle_s)  # that its load is in the averages
    recorder.state("idle_and_training", idle.pid, training.pid)
    idle.send_signal(signal.SIGKILL)
    idle.wait()
    recorder.state("training", training.pid)
    training.send_signal(signal.SIGKILL)
    training.wait()
    holding = tenants.start("holding")
    recorder.state("holding", holding.pid)
    killed_at = time.monotonic()
    holding.send_signal(signal.SIGKILL)
    for number in range(LOOKS_AFTER_KILL):
        print(f"# {1000 * (time.monotonic() - killed_at):.0f} ms after the kill", file=recorder.out)
        recorder.state(f"killed_{number}", holding.pid)
        time.sleep(LOOK_EVERY_S)
    holding.wait()
    time.sleep(0.5)  # what the driver does later is done, too
    recorder.state("after", holding.pid)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--guest", help="another program with gpu_guest.py's words")
    parser.add_argument("--settle-s", type=float, default=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    tenants = Tenants(options.guest)
    with open(options.file, "w", encoding="ascii") as out:
        try:
            record(Recorder(out), tenants, options.settle_s)
        finally:
            tenants.end()


if __name__ == "__main__":
    main()
