#!/usr/bin/env python3
"""The memory plan beside what nvidia-smi sees: every row of the suites given, six steps each.

    tests/gpu/plan_peak.py FP8LAB FILE.lua[:NAME]... [--set KEY=VALUE]...

On a machine whose GPUs nobody else uses. NAME: only the rows called so (* and ? as in a shell).
With --set hardware.gpus=2 it is two ranks, and the fuller GPU counts. Prints a line a row and
exits 1 where the plan is off by more than 3 % and 512 MiB."""
import json
import os
import subprocess
import sys
import tempfile
import threading

MIB = 1 << 20


def ask(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.strip():
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return done.stdout


def query():
    """Memory in use, a line a GPU: of those that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits",
            *(["-i", visible] if visible else [])]


def peak_of(command):
    """The most that nvidia-smi reported of one GPU while the command ran, ten times a second,
    beyond what was in use before. The GPUs take turns in its output."""
    before = [int(line) for line in ask(*query()).split()]
    smi = subprocess.Popen(query() + ["-lms", "100"], stdout=subprocess.PIPE, text=True)
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(int(line) for line in smi.stdout))
    reader.start()
    done = subprocess.run(command, capture_output=True, text=True)
    smi.terminate()
    reader.join()
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return max(mib - before[i % len(before)] for i, mib in enumerate(seen)) * MIB


def main():
    fp8lab, failed = sys.argv[1], False
    at = sys.argv.index("--set") if "--set" in sys.argv else len(sys.argv)
    flags = sys.argv[at:] + ["--backend", "cuda"]
    for argument in sys.argv[2:at]:
        script, _, name = argument.partition(":")
        only = ["--only", name] if name else []
        for plan in json.loads(ask(fp8lab, "plan", "--json", script, *only, *flags))["runs"]:
            with tempfile.TemporaryDirectory() as runs:
                seen = peak_of([fp8lab, "run", "-q", script, "--only", plan["name"], "--runs", runs,
                                *flags, "--set", "train.steps=6"])
            off = plan["peak_bytes"] - seen
            good = abs(off) <= max(0.03 * seen, 512 * MIB)
            failed = failed or not good
            beside = ", ".join(f"{row['item']} {row['bytes'] / MIB:.0f}" for row in plan["rows"]
                               if row["arena"] == "beside the arenas")
            print(f"{plan['name']:44} plan {plan['peak_bytes'] / MIB:9.0f} MiB  seen "
                  f"{seen / MIB:9.0f} MiB  {off / MIB:+7.0f} MiB {100 * off / seen:+6.2f} %"
                  f"{'' if good else '  OFF'}\n    beside the arenas: seen "
                  f"{(seen - plan['bytes']) / MIB:.0f} MiB, planned {beside}", flush=True)
    sys.exit(failed)


main()
