#!/usr/bin/env python3
"""The memory plan against measured memory: every row of the given suites, six steps each.

    tests/gpu/plan_peak.py FP8LAB FILE.lua[:NAME]... [--set KEY=VALUE]...

For a machine whose GPUs no other process uses. NAME: only the rows of that name (* and ? as in a
shell). With --set hardware.gpus=2 there are two ranks, and the fuller GPU counts. Prints a line for
each row. Exits 1 if the plan is off by more than 3 % and 512 MiB.

NVML, the source of nvidia-smi's numbers, is read about once a millisecond. The operands of GEMMs
that are timed before step 0 exist for less than nvidia-smi's shortest interval. The output has the
number of reads and the longest time between two."""
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
PAUSE_S = 0.001
SETTLE_S = 0.3  # a process that has ended may take a moment to return its memory


class MemoryV1(ctypes.Structure):
    """nvmlMemory_t; `used` includes what the driver reserves."""
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class MemoryV2(ctypes.Structure):
    """nvmlMemory_v2_t; `used` is nvidia-smi's memory.used."""
    _fields_ = [("version", ctypes.c_uint),
                *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used"))]


class Gpus:
    """The GPUs that this process may use."""

    def __init__(self):
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            sys.exit(f"{error}: no NVIDIA driver")
        self.nvml.nvmlErrorString.restype = ctypes.c_char_p
        self.call("nvmlInit_v2")
        self.newer = hasattr(self.nvml, "nvmlDeviceGetMemoryInfo_v2")
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self.handles = [self.handle(i) for i in range(count.value)]
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible:
            self.handles = [self.named(name.strip()) for name in visible.split(",")]
        if not self.handles:
            sys.exit("NVML sees no GPU")

    def call(self, function, *arguments):
        code = getattr(self.nvml, function)(*arguments)
        if code:
            sys.exit(f"{function}: {self.nvml.nvmlErrorString(code).decode()}")

    def handle(self, index):
        device = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
        return device

    def uuid(self, device):
        text = ctypes.create_string_buffer(96)
        self.call("nvmlDeviceGetUUID", device, text, ctypes.c_uint(len(text)))
        return text.value.decode()

    def named(self, name):
        """An entry of CUDA_VISIBLE_DEVICES: an index, or the beginning of a UUID."""
        for index, device in enumerate(self.handles):
            if name == str(index) or name.startswith("GPU-") and self.uuid(device).startswith(name):
                return device
        sys.exit(f"CUDA_VISIBLE_DEVICES: NVML sees no GPU {name!r}")

    def used(self):
        """Bytes in use, of each GPU."""
        seen = []
        for device in self.handles:
            memory = MemoryV2() if self.newer else MemoryV1()
            if self.newer:
                memory.version = ctypes.sizeof(memory) | 2 << 24
            self.call("nvmlDeviceGetMemoryInfo" + ("_v2" if self.newer else ""), device,
                      ctypes.byref(memory))
            seen.append(memory.used)
        return seen


def ask(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.strip():
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return done.stdout


def peak_of(gpus, command):
    """Returns the most memory that one GPU used while the command ran, beyond its use before. Also
    how often it was read, and the longest time between two reads, in seconds."""
    time.sleep(SETTLE_S)
    before = gpus.used()
    peak, looks, longest = 0, 0, 0.0
    with tempfile.TemporaryFile("w+") as said, \
         subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said) as child:
        last = time.monotonic()
        try:
            while child.poll() is None:
                peak = max(peak, *(now - then for now, then in zip(gpus.used(), before)))
                now = time.monotonic()
                looks, longest, last = looks + 1, max(longest, now - last), now
                time.sleep(PAUSE_S)
        finally:  # also if this program is terminated: a run left behind would keep its memory
            child.terminate()
        if child.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command)}: {said.read().strip()[-400:]}")
    return peak, looks, longest


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    gpus, fp8lab, failed = Gpus(), sys.argv[1], False
    at = sys.argv.index("--set") if "--set" in sys.argv else len(sys.argv)
    flags = sys.argv[at:] + ["--backend", "cuda"]
    for argument in sys.argv[2:at]:
        script, _, name = argument.partition(":")
        only = ["--only", name] if name else []
        for plan in json.loads(ask(fp8lab, "plan", "--json", script, *only, *flags))["runs"]:
            with tempfile.TemporaryDirectory() as runs:
                seen, looks, longest = peak_of(
                    gpus, [fp8lab, "run", "-q", script, "--only", plan["name"], "--runs", runs,
                           *flags, "--set", "train.steps=6"])
            if not seen:
                sys.exit(f"{plan['name']}: NVML saw no memory in use beyond what was before")
            off = plan["peak_bytes"] - seen
            good = abs(off) <= max(0.03 * seen, 512 * MIB)
            failed = failed or not good
            beside = ", ".join(f"{row['item']} {row['bytes'] / MIB:.0f}" for row in plan["rows"]
                               if row["arena"] == "beside the arenas")
            print(f"{plan['name']:44} plan {plan['peak_bytes'] / MIB:9.0f} MiB  seen "
                  f"{seen / MIB:9.0f} MiB  {off / MIB:+7.0f} MiB {100 * off / seen:+6.2f} %"
                  f"{'' if good else '  OFF'}\n    beside the arenas: seen "
                  f"{(seen - plan['bytes']) / MIB:.0f} MiB, planned {beside}\n"
                  f"    looked {looks} times, {1000 * longest:.0f} ms apart at most", flush=True)
    sys.exit(failed)


main()
