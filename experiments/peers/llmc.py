#!/usr/bin/env python3
"""llm.c's speed on GPT-2 124M, by its own program: what bench_gpt2_124m.lua is measured beside.

    beside.py experiments/bench_gpt2_124m.lua --peer "experiments/peers/llmc.py --llmc PATH"

PATH, or LLMC in the environment, is train_gpt2cu of karpathy/llm.c, built with USE_CUDNN=1,
NO_MULTI_GPU=1, NO_USE_MPI=1 and PRECISION=BF16. (With CUDA 13 one call in it, cudaMemAdvise, must
be given a cudaMemLocation.) It has BF16 alone; of other recipes this program says that it lacks
them.

A measurement is one run of it from random weights (-e d12) over random tokens, drawn as often as
words are in text (Zipf's law: with tokens drawn uniformly its step was longer; it sorts a step's
tokens on the host), without validation, samples and checkpoints: the tokens of a step over the
median of the times that it prints of its steps, without the first --warmup. Those times are of the
GPU between two events, so what it does between steps is not in them; in ours it is. Weights are
BF16 without f32 masters (-w 0), as the experiment's; its moments are f32, which it cannot change.
Nothing is recomputed (-r 0), and of its ways to fuse GELU (-ge) that one is taken which a short run
of each found fastest.

Prints JSON lines and nothing else on stdout, as torch_train.py: "ready" after the short runs, with
the flags chosen, then "measured" for each measurement, one or, with --resident, one for each line
"measure" on stdin until "quit" or its end; "lacks" for another recipe. What llm.c itself prints
goes to stderr.

Exit codes: 0, 1 llm.c failed, 2 usage, 6 it cannot be started, 128+N signal N.
"""
import argparse
import array
import dataclasses
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # nothing appears in the source tree
from experiment import (FAILED, STEP, SYSTEM, USAGE, Failure, Known, add_experiment_flags,
                        common_task, experiment_flags, last_words, program_at, requests, rows_of)

NAME = "llm.c"
# Its -e d12 is this and nothing else. It pads the vocabulary to 50304 by itself.
GPT2_124M = Known("llmc.py", {
    "model.layers": 12, "model.width": 768, "model.heads": 12, "model.kv_heads": 12,
    "model.head_dim": 64, "model.ffn": 3072, "model.vocab": 50257, "model.seq_len": 1024,
    "model.norm": "layernorm", "model.activation": "gelu", "model.positions": "learned",
    "model.bias": True, "model.tied": True, "model.qk_norm": False,
    "train.optimizer.master": "none", "hardware.gpus": 1, **STEP})
FUSIONS = (0, 1, 2)  # of GELU into the GEMM before it: none, forward, backward too
# llmc/dataloader.h: a header of 256 i32 {magic, version, tokens}, then u16 tokens.
HEADER, MAGIC, VERSION = 256, 20240520, 1
# train_gpt2.cu: "step %4d/%d | loss %7.6f (%+.2fz)| norm ... | lr %.2e | %.2f ms | ... tok/s".
# The tokens/s in it are a moving average, so the time is taken.
STEP_LINE = re.compile(r"step +(\d+)/\d+ \| loss +(\S+) .*\| +(\S+) ms \| .* tok/s$")
DEVICE_LINE = re.compile(r"\| device +\| (.*?) +\|$")


class Stopped(BaseException):
    """A signal asked us to stop; the run and its files are cleared away on the way out."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What one run of llm.c printed."""

    device: str
    loss: float  # of the last step
    times_ms: list  # of each step


def write_tokens(path, task, count):
    """A token file of llm.c's, the same every time: the k-th token as often as 1/k says."""
    weights = list(itertools.accumulate(1 / (k + 1) for k in range(task.vocab)))
    tokens = random.Random(1).choices(range(task.vocab), cum_weights=weights, k=count)
    with open(path, "wb") as file:
        array.array("i", [MAGIC, VERSION, count] + [0] * (HEADER - 3)).tofile(file)
        array.array("H", tokens).tofile(file)


class Llmc:
    """llm.c's program on a task, in a folder that has nothing but our tokens."""

    def __init__(self, program, task, folder, args):
        self.program, self.task, self.folder = program, task, folder
        self.warmup, self.limit_s = args.warmup, args.run_limit
        write_tokens(f"{folder}/tokens.bin", task, args.steps * task.tokens + 1)

    def flags(self, fusion):
        return f"-w 0 -r 0 -ge {fusion}"

    def command(self, fusion, steps):
        task, tokens = self.task, f"{self.folder}/tokens.bin"
        return [self.program, "-e", "d12", "-i", tokens, "-j", tokens, "-b", str(task.micro_batch),
                "-t", str(task.seq_len), "-d", str(task.tokens), "-x", str(steps),
                "-l", str(task.lr), "-c", str(task.weight_decay), *self.flags(fusion).split(),
                "-v", str(steps), "-m", "0", "-s", "0", "-h", "0", "-n", "0"]

    def run(self, fusion, steps):
        """A Run of this many steps; Failure with llm.c's last words if it is not whole."""
        command = self.command(fusion, steps)
        print(" ".join(command), file=sys.stderr, flush=True)
        try:
            done = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", timeout=self.limit_s, check=False)
        except OSError as error:
            raise Failure(SYSTEM, f"cannot start {self.program}: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise Failure(FAILED, f"{self.flags(fusion)}: not done within {self.limit_s:g} s "
                                  "(--run-limit)") from None
        print(done.stdout, file=sys.stderr, flush=True)
        if done.returncode:
            how = (f"exit code {done.returncode}" if done.returncode > 0
                   else f"signal {-done.returncode}")
            raise Failure(FAILED, f"{self.flags(fusion)}: it ended with {how}:"
                                  f"{last_words(done.stdout)}")
        return parsed(done.stdout, steps, self.flags(fusion))

    def median_ms(self, run):
        return statistics.median(run.times_ms[self.warmup:])

    def fastest(self, steps):
        """Its fusion and the Run that found it; one that fails is told of and left out."""
        runs, failure = {}, None
        for fusion in FUSIONS:
            try:
                runs[fusion] = self.run(fusion, steps)
            except Failure as failed:
                print(f"llmc: {failed}", file=sys.stderr, flush=True)
                failure = failed
        if not runs:
            raise failure
        best = min(runs, key=lambda fusion: self.median_ms(runs[fusion]))
        return best, runs[best]


def parsed(text, steps, flags):
    """The Run that an output tells of, if it has a time and a loss of every step, all numbers."""
    lines = [line.strip() for line in text.split("\n")]
    found = [match.groups() for match in map(STEP_LINE.match, lines) if match]
    devices = [match[1] for match in map(DEVICE_LINE.match, lines) if match]
    try:
        numbers = [int(number) for number, _, _ in found]
        losses = [float(loss) for _, loss, _ in found]
        times_ms = [float(time_ms) for _, _, time_ms in found]
    except ValueError:
        numbers, losses, times_ms = [], [], []
    if (numbers != list(range(1, steps + 1)) or not all(map(math.isfinite, losses))
            or not all(0 < time_ms < math.inf for time_ms in times_ms)):
        raise Failure(FAILED, f"{flags}: not {steps} steps, each with a loss and a time, are in "
                              f"what it printed:{last_words(text)}")
    return Run(devices[0] if devices else "", losses[-1], times_ms)


def train(args, task, say):
    """Says "ready", and "measured" on request."""
    program = shutil.which(args.llmc or os.environ.get("LLMC", ""))
    if not program:
        raise Failure(USAGE, f"there is no program {args.llmc or os.environ.get('LLMC', '')!r}: "
                             "--llmc or LLMC in the environment names llm.c's train_gpt2cu")
    with tempfile.TemporaryDirectory(prefix="fp8lab-llmc-") as folder:
        llmc = Llmc(os.path.abspath(program), task, folder, args)
        fusion, trial = llmc.fastest(args.trial_steps)
        say({"event": "ready", "name": NAME, "recipe": args.recipe, "device": trial.device,
             "tokens_per_step": task.tokens, "flags": llmc.flags(fusion)})
        for _ in requests(args.resident):
            run = llmc.run(fusion, args.steps)
            steady_ms, median_ms = run.times_ms[args.warmup:], llmc.median_ms(run)
            say({"event": "measured", "recipe": args.recipe,
                 "tokens_per_s": task.tokens / median_ms * 1e3, "step_ms_median": median_ms,
                 "step_ms_min": min(steady_ms), "step_ms_max": max(steady_ms), "loss": run.loss})


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_experiment_flags(parser)
    parser.add_argument("--llmc", metavar="PATH", help="its train_gpt2cu (default: $LLMC)")
    parser.add_argument("--recipe", default="bf16", help="it has bf16 alone")
    parser.add_argument("--resident", action="store_true", help="measure on request, until quit")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    for name, default, text in (("steps", 40, "steps of a measurement"),
                                ("trial-steps", 20, "steps of a short run"),
                                ("warmup", 10, "steps of either that do not count")):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N",
                            help=f"{text} (%(default)s)")
    parser.add_argument("--run-limit", type=float, default=120, metavar="SECONDS",
                        help="for one run of llm.c (%(default)s)")
    args = parser.parse_args()
    if not 0 <= args.warmup < min(args.steps, args.trial_steps):
        parser.error("--warmup is at least 0, and less than --steps and --trial-steps")
    return args


def main():
    args = parse()

    def say(line):
        print(json.dumps(line), flush=True)

    def stop(number, _frame):
        raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        _, rows = rows_of(program_at(args.program), args.script, experiment_flags(args))
        task = common_task(rows, GPT2_124M)
        if args.recipe != "bf16":
            say({"event": "lacks", "name": NAME, "recipe": args.recipe})
        elif args.device != "cuda":
            raise Failure(USAGE, "llm.c's program has no --device cpu")
        else:
            train(args, task, say)
    except Failure as failure:
        print(f"llmc: {failure}", file=sys.stderr)
        return failure.code
    except Stopped as stopped:
        return 128 + stopped.args[0]
    return 0


if __name__ == "__main__":
    sys.exit(main())
