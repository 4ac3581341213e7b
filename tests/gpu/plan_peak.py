#!/usr/bin/env python3
"""The memory plan beside what nvidia-smi sees: every row of the suites given, three steps each.

    tests/gpu/plan_peak.py FP8LAB FILE.lua[:WORD]...      on a machine whose GPU nobody else uses

WORD: only rows with it in their name. Prints a line a row and exits 1 where the plan is off by more
than 3 % and 512 MiB. Of several GPUs it looks at the one that CUDA_VISIBLE_DEVICES names first."""
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
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return ["nvidia-smi", "-i", gpu, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]


def peak_of(run):
    """The most that nvidia-smi reported while `run` was called, ten times a second, beyond what was
    in use before."""
    before = int(ask(*query()))
    smi = subprocess.Popen(query() + ["-lms", "100"], stdout=subprocess.PIPE, text=True)
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(int(line) for line in smi.stdout))
    reader.start()
    run()
    smi.terminate()
    reader.join()
    return (max(seen) - before) * MIB


def train(fp8lab, config, directory):
    """A worker as `fp8lab run` starts one; its events are thrown away but for an error."""
    os.makedirs(directory + "/data/checkpoints")
    config["train"]["steps"] = 3
    path = directory + "/config.json"
    with open(path, "w") as out:
        json.dump(config, out)
    with open(directory + "/events", "w+") as events:
        number = events.fileno()
        subprocess.run([fp8lab, "worker", "--config", path, "--run", directory, "--backend", "cuda",
                        "--events-fd", str(number)], pass_fds=[number], stderr=subprocess.DEVNULL)
        events.seek(0)
        for line in events:
            event = json.loads(line)
            if event["event"] == "error":
                sys.exit(f"{directory}: {event['text']}")


def main():
    fp8lab, failed = sys.argv[1], False
    for argument in sys.argv[2:]:
        script, _, word = argument.partition(":")
        rows = json.loads(ask(fp8lab, "check", "--json", script))["runs"]
        plans = json.loads(ask(fp8lab, "plan", "--json", "--backend", "cuda", script))["runs"]
        for row, plan in ((r, p) for r, p in zip(rows, plans) if word in p["name"]):
            with tempfile.TemporaryDirectory() as directory:
                run = directory + "/" + plan["name"]
                seen = peak_of(lambda: train(fp8lab, row["config"], run))
            off = plan["peak_bytes"] - seen
            good = abs(off) <= max(0.03 * seen, 512 * MIB)
            failed = failed or not good
            beside = {r["item"]: r["bytes"] // MIB for r in plan["rows"]
                      if r["arena"] == "beside the arenas"}
            print(f"{plan['name']:44} plan {plan['peak_bytes'] / MIB:9.0f} MiB  seen "
                  f"{seen / MIB:9.0f} MiB  {off / MIB:+7.0f} MiB {100 * off / seen:+6.2f} %"
                  f"{'' if good else '  OFF'}", flush=True)
            print(f"    beside {plan['bytes'] / MIB:.0f} MiB of arenas: seen "
                  f"{(seen - plan['bytes']) / MIB:.0f}, planned {beside}", flush=True)
    sys.exit(failed)


main()
