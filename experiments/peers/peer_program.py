"""Shared by peers that run a public program: llmc.py and llmq.py, which know its flags and output.

stdout has JSON lines only, as with torch_train.py: "ready" after a short run, with the chosen
flags, then "measured" for each measurement; "lacks" for a recipe that the program does not have.
There is one measurement or, with --resident, one for each line "measure" on stdin, until "quit" or
the end.
The program's own output goes to stderr.

Exit codes: 0, 1 the program failed, 2 usage, 6 it cannot be started, 128+N signal N.
"""
import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from experiment import (FAILED, SYSTEM, USAGE, Failure, Known, add_experiment_flags, common_task,
                        experiment_flags, last_words, program_at, requests, rows_of)

LOOK_S = 0.05  # between checks whether it has finished


class Stopped(BaseException):
    """A signal asked us to stop. Unwinding ends the run and removes its files."""


@dataclasses.dataclass(frozen=True)
class Public:
    """A public program: how it is called, what it can train, how long it is measured."""

    name: str
    option: str  # --OPTION PATH, $OPTION in capitals; our messages begin with it
    binary: str  # what PATH is
    known: Known
    recipes: tuple
    steps: int  # in a measurement
    trial_steps: int  # in a short run
    warmup: int  # first steps of either that do not count
    run_limit_s: int


@dataclasses.dataclass(frozen=True)
class Run:
    """The figures of one run of the program."""

    device: str
    loss: float  # of the last step
    times_ms: list  # of each step

    def median_ms(self, warmup):
        return statistics.median(self.times_ms[warmup:])


def run_of(found, numbers, device, flags, printed):
    """The Run of steps (number, loss, ms). Fails unless all steps are there with finite figures."""
    if ([number for number, _, _ in found] != list(numbers)
            or not all(math.isfinite(loss) and 0 < time_ms < math.inf
                       for _, loss, time_ms in found)):
        raise Failure(FAILED, f"{flags}: not {len(numbers)} steps, each with a loss and a time, "
                              f"are in its output:{last_words(printed)}")
    return Run(device, found[-1][1], [time_ms for _, _, time_ms in found])


def tokens_as_in_text(vocab, count):
    """Random tokens, always the same; token k is as frequent as 1/k says (Zipf's law)."""
    weights = list(itertools.accumulate(1 / (k + 1) for k in range(vocab)))
    return random.Random(1).choices(range(vocab), cum_weights=weights, k=count)


class Program:
    """The program, run in a folder that contains only our files."""

    def __init__(self, path, folder, limit_s):
        self.path, self.folder, self.limit_s = path, folder, limit_s

    def run(self, words, flags, finished=lambda: False):
        """Runs the program and returns its output. Ends the program when finished() is true."""
        command = [self.path, *words]
        print(" ".join(command), file=sys.stderr, flush=True)
        with open(f"{self.folder}/printed", "w+b") as out:
            try:
                process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                                           stdout=out, stderr=subprocess.STDOUT)
            except OSError as error:
                raise Failure(SYSTEM, f"cannot start {self.path}: {error.strerror}") from error
            try:
                in_time = self.wait(process, finished)
            finally:
                process.kill()
                process.wait()
            out.seek(0)
            printed = out.read().decode(errors="replace")
        print(printed, file=sys.stderr, flush=True)
        if not in_time:
            raise Failure(FAILED, f"{flags}: not done within {self.limit_s:g} s (--run-limit)")
        if process.returncode and not finished():
            how = (f"exit code {process.returncode}" if process.returncode > 0
                   else f"signal {-process.returncode}")
            raise Failure(FAILED, f"{flags}: it ended with {how}:{last_words(printed)}")
        return printed

    def wait(self, process, finished):
        """Waits until the program ends or finished() is true. False: the limit came first."""
        deadline = time.monotonic() + self.limit_s
        while process.poll() is None and not finished():
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
        return True


def path_of(public, args):
    """The program that --OPTION or the environment names."""
    named = getattr(args, public.option) or os.environ.get(public.option.upper(), "")
    found = shutil.which(named)
    if not found:
        raise Failure(USAGE, f"there is no program {named!r}: --{public.option} or "
                             f"{public.option.upper()} in the environment names {public.binary}")
    return os.path.abspath(found)


def measure(public, trainer_of, task, args, say):
    """Says "ready", and "measured" on request."""
    path = path_of(public, args)
    with tempfile.TemporaryDirectory(prefix=f"fp8lab-{public.option}-") as folder:
        trainer = trainer_of(Program(path, folder, args.run_limit), task, args)
        device = trainer.prepare(args.trial_steps).device
        say({"event": "ready", "name": public.name, "recipe": args.recipe, "device": device,
             "tokens_per_step": task.tokens, "flags": trainer.flags})
        for _ in requests(args.resident):
            run = trainer.run(args.steps)
            steady_ms, median_ms = run.times_ms[args.warmup:], run.median_ms(args.warmup)
            say({"event": "measured", "recipe": args.recipe,
                 "tokens_per_s": task.tokens / median_ms * 1e3, "step_ms_median": median_ms,
                 "step_ms_min": min(steady_ms), "step_ms_max": max(steady_ms), "loss": run.loss})


def parse(public, about):
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    add_experiment_flags(parser)
    parser.add_argument(f"--{public.option}", metavar="PATH",
                        help=f"{public.binary} (default: ${public.option.upper()})")
    parser.add_argument("--recipe", default="bf16", help=f"it has {', '.join(public.recipes)}")
    parser.add_argument("--resident", action="store_true", help="measure on request, until quit")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    for name, default, text in (("steps", public.steps, "steps of a measurement"),
                                ("trial-steps", public.trial_steps, "steps of a short run"),
                                ("warmup", public.warmup, "steps of either that do not count")):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N",
                            help=f"{text} (%(default)s)")
    parser.add_argument("--run-limit", type=float, default=public.run_limit_s, metavar="SECONDS",
                        help=f"for one run of {public.name} (%(default)s)")
    args = parser.parse_args()
    if not 0 <= args.warmup < min(args.steps, args.trial_steps):
        parser.error("--warmup is at least 0, and less than --steps and --trial-steps")
    return args


def serve(public, trainer_of, about):
    """A peer's main: its exit code.

    trainer_of(program, task, args) trains the task by the program. Its prepare(steps) chooses its
    flags by short runs and gives the Run that found them; run(steps) gives a Run with them.
    """
    args = parse(public, about)

    def say(line):
        print(json.dumps(line), flush=True)

    def stop(number, _frame):
        raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        _, rows = rows_of(program_at(args.program), args.script, experiment_flags(args))
        task = common_task(rows, public.known)
        if args.recipe not in public.recipes:
            say({"event": "lacks", "name": public.name, "recipe": args.recipe})
        elif args.device != "cuda":
            raise Failure(USAGE, f"{public.name}'s program has no --device cpu")
        else:
            measure(public, trainer_of, task, args, say)
    except Failure as failure:
        print(f"{public.option}: {failure}", file=sys.stderr)
        return failure.code
    except Stopped as stopped:
        return 128 + stopped.args[0]
    return 0
