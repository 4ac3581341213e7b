#!/usr/bin/env python3
"""Measures fp8lab and a peer, PyTorch or another program, by turns on one GPU.

    beside.py experiments/bench_llama3_small.lua

Two PyTorch processes (torch_train.py, bf16 and fp8.tensorwise) compile once and stay alive. They
measure before, between and after --suites runs of the whole experiment (`fp8lab run`). So a
warming GPU, or another user of the machine, affects both sides. With --apart they exit after each
measurement, for models that do not fit into memory together. The table at the end has the tokens/s
of each turn, their median and spread, and the ratio of our median to the mean of the peer's turns.
The spread is the maximum minus the minimum, divided by the median. Our BF16 row is compared with
the peer's BF16, each FP8 row with its FP8.

The folder of --out keeps everything: the output of each process, our bundles, table.txt, and
results.json.

--peer COMMAND replaces PyTorch by another program, such as llmc.py. COMMAND gets FILE.lua,
--recipe, --resident, --device, --program and the changes to the experiment. It rejects what it
cannot train, prints one line {"event": "ready", "name": NAME, "tokens_per_step": N}, and for each
line "measure" on its stdin {"event": "measured", "tokens_per_s": X}, until "quit" or the end of
stdin. If it lacks the recipe it prints {"event": "lacks"} instead of "ready"; such rows have no
ratio.

Exit codes: 0, 1 something failed, 2 usage, 3 wrong hardware, 6 the system, 128+N signal N. All
started processes have ended by then.
"""
import argparse
import contextlib
import datetime
import fnmatch
import json
import math
import os
import select
import shlex
import signal
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # nothing appears in the source tree
from experiment import (ANOTHER, FAILED, HARDWARE, PYTORCH, SYSTEM, USAGE, Failure,
                        add_experiment_flags, common_task, experiment_flags, last_words, program_at,
                        rows_of)

PEER_RECIPES = ("bf16", "fp8.tensorwise")
LINE_MAX = 65536  # bytes of a peer's line, ten times the longest
LOOK_S = 0.2  # between checks that it is alive: its children may hold the pipe open
END_S = 20  # from the stop request to the kill: a run writes its bundle in that time


def say(text):
    print(f"beside: {text}", file=sys.stderr, flush=True)


def kind_of(recipe):
    """The one of PEER_RECIPES that a row is compared with."""
    return "bf16" if recipe == "bf16" else "fp8.tensorwise"


# ---- processes -----------------------------------------------------------------------------------
class Stopped(Exception):
    """A signal asked us to stop."""

    def __init__(self, number):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Children:
    """The started processes, each in a process group of its own that is ended as a whole."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self):
        self.running, self.starting, self.asked = [], False, None
        for number in self.SIGNALS:
            signal.signal(number, self.on_signal)

    def on_signal(self, number, _frame):
        """Unwinds to main, but not between the start of a child and its registration."""
        self.asked = number
        if not self.starting:
            raise Stopped(number)

    def start(self, command, **streams):
        self.starting = True
        try:
            child = subprocess.Popen(command, bufsize=0, start_new_session=True, **streams)
            self.running.append(child)
        except OSError as error:
            raise Failure(SYSTEM, f"cannot start {command[0]}: {error.strerror}") from error
        finally:
            self.starting = False
        if self.asked:
            raise Stopped(self.asked)
        return child

    def end(self, child):
        """Asks the process to end, waits, and kills the rest of its group."""
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(END_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        self.running.remove(child)

    def close(self):
        """Ends all processes; further signals do not interrupt this."""
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        for child in list(self.running):
            self.end(child)


def end_of(path):
    """The last words in a log."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return last_words(file.read())


# ---- the peer ------------------------------------------------------------------------------------
class Peer:
    """One of its processes. peer-RECIPE.jsonl keeps its lines, peer-RECIPE.log its messages."""

    def __init__(self, recipe, tokens, args, children):
        self.recipe, self.tokens, self.children = recipe, tokens, children
        self.command = peer_command(args, recipe)
        self.limits_s = {"ready": args.ready_limit, "measured": args.measure_limit}
        self.lines, self.log = f"{args.out}/peer-{recipe}.jsonl", f"{args.out}/peer-{recipe}.log"
        self.process, self.rest, self.about = None, b"", None
        self.name = "the peer" if args.peer else "PyTorch"  # until "ready" has its name

    def start(self):
        """Starts the peer and waits until it is ready. False: it lacks the recipe and has ended."""
        with open(self.log, "ab") as log:
            self.process = self.children.start(self.command, stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE, stderr=log)
        self.rest = b""
        self.about = self.expect("ready", "tokens_per_step", instead="lacks")
        self.name = str(self.about.get("name", self.name))
        if self.about["event"] == "lacks":
            say(f"{self.name} has no {self.recipe}: its rows have no ratio")
            self.quit()
            return False
        if self.about["tokens_per_step"] != self.tokens:
            raise Failure(FAILED, f"{self.name} ({self.recipe}) takes "
                                  f"{self.about['tokens_per_step']} tokens a step, the experiment "
                                  f"{self.tokens}")
        what = [f", {key} {self.about[key]}" for key in ("torch", "flags") if key in self.about]
        say(f"{self.name} {self.recipe}: ready on {self.about.get('device')}{''.join(what)}")
        return True

    def measure(self):
        """tokens/s now."""
        with contextlib.suppress(BrokenPipeError):  # reading its output reports the end
            self.process.stdin.write(b"measure\n")
        speed = self.expect("measured", "tokens_per_s")["tokens_per_s"]
        say(f"{self.name} {self.recipe}: {speed:,.0f} tokens/s")
        return speed

    def quit(self):
        """Asks the process to quit; Children.end ends it if it does not."""
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        self.process.stdout.close()
        self.children.end(self.process)
        self.process = None

    def expect(self, event, number, instead=None):
        """Reads a line: `event` with a positive number under this name, or the other event."""
        text = self.next_line(event)
        try:
            line = json.loads(text)
            good = (line["event"] == event and 0 < line[number] < math.inf
                    or instead and line["event"] == instead)
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise Failure(FAILED, f"{self.name} ({self.recipe}) printed {text[:200]!r} where "
                                  f"\"{event}\" with a positive {number} was due; see {self.log}")
        return line

    def next_line(self, event):
        limit_s, out = self.limits_s[event], self.process.stdout
        deadline = time.monotonic() + limit_s
        while b"\n" not in self.rest and len(self.rest) < LINE_MAX:
            ended = self.process.poll() is not None  # before reading its last lines
            readable = select.select([out], [], [], 0 if ended else LOOK_S)[0]
            data = os.read(out.fileno(), LINE_MAX) if readable else b""
            if not data and (ended or readable):
                self.died(event)
            if time.monotonic() > deadline:
                raise Failure(FAILED, f"{self.name} ({self.recipe}) was not \"{event}\" within "
                                      f"{limit_s:g} s (--help has the limits); see {self.log}")
            with open(self.lines, "ab") as lines:
                lines.write(data)
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode(errors="replace")

    def died(self, event):
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            code = FAILED
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        raise Failure(code if code in (USAGE, HARDWARE, SYSTEM) else FAILED,
                      f"{self.name} ({self.recipe}) ended with {how} before it was \"{event}\":"
                      f"{end_of(self.log)}")


def peer_command(args, recipe):
    command = shlex.split(args.peer) if args.peer else [
        args.python, os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_train.py")]
    return [*command, args.script, "--recipe", recipe, "--resident", "--device", args.backend,
            "--program", args.program, *experiment_flags(args)]


# ---- fp8lab --------------------------------------------------------------------------------------
def run_suite(args, rows, turn, children):
    """The experiment once, into a folder of its own: tokens/s by row name."""
    runs, log = f"{args.out}/suite-{turn}", f"{args.out}/suite-{turn}.log"
    command = [args.program, "run", "--backend", args.backend, "--runs", runs]
    command += experiment_flags(args)
    command += [word for name in args.only for word in ("--only", name)]
    command += ["--anywhere"] * args.anywhere
    with open(log, "wb") as file:
        child = children.start([*command, args.script], stdin=subprocess.DEVNULL, stdout=file,
                               stderr=file)
    try:
        code = child.wait(args.suite_limit)
    except subprocess.TimeoutExpired:
        raise Failure(FAILED, f"fp8lab's suite was not done within {args.suite_limit:g} s "
                              f"(--suite-limit); see {log}") from None
    children.end(child)
    if code:
        raise Failure(code if code in (USAGE, HARDWARE, SYSTEM) else FAILED,
                      f"fp8lab run ended with {code}:{end_of(log)}")
    found = dict(speed_of(args.program, f"{runs}/{name}") for name in sorted(os.listdir(runs))
                 if name.endswith(".tar.zst"))
    missing = [row.full_name for row in rows if row.full_name not in found]
    if missing:
        raise Failure(FAILED, f"fp8lab's suite left no figure of {', '.join(missing)}; see {log}")
    return {row.name: found[row.full_name] for row in rows}


def speed_of(program, bundle):
    """The name of a bundle's run, and its median tokens/s in the steady window."""
    done = subprocess.run([program, "show", "--json", bundle], stdout=subprocess.PIPE, text=True,
                          check=False)
    try:
        shown = json.loads(done.stdout)
        name, speed = shown["run"]["name"], shown["summary"]["tokens_per_s_median"]
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(FAILED, f"{bundle} cannot be shown ({error!r})") from error
    if shown["run"]["status"] != "done" or not speed or speed <= 0:
        raise Failure(FAILED, f"{bundle} is {shown['run']['status']}, with {speed} tokens/s: it "
                              "must run for long enough to have a steady window")
    return name, speed


# ---- the table -----------------------------------------------------------------------------------
def summarise(turns):
    """One line of the table: its turns, their median, mean and spread."""
    median = statistics.median(turns)
    return {"tokens_per_s": turns, "median": median, "mean": statistics.fmean(turns),
            "spread": (max(turns) - min(turns)) / median}


def results_of(rows, peers, peer_turns, suite_turns):
    """Every line of the table, as results.json has them."""
    theirs = {peer.recipe: {**summarise([turn[peer.recipe] for turn in peer_turns]),
                            "about": peer.about}
              for peer in peers if peer.recipe in peer_turns[0]}
    ours = {}
    for row in rows:
        line = ours[row.name] = summarise([turn[row.name] for turn in suite_turns])
        if kind_of(row.kind) in theirs:
            line["beside"] = kind_of(row.kind)
            line["ratio"] = line["median"] / theirs[line["beside"]]["mean"]
    return {"peer": peers[0].name, "peers": theirs, "fp8lab": ours}


def table_of(results):
    lines = [f"{'tokens/s':34} {'median':>11} {'spread':>8} {'ratio':>9}   turn by turn"]

    def add(name, line):
        spread = f"{100 * line['spread']:.2f} %"
        ratio = f"{line['ratio']:.3f} x" if "ratio" in line else ""
        turns = "  ".join(f"{speed:,.0f}" for speed in line["tokens_per_s"])
        lines.append(f"{name:34} {line['median']:11,.0f} {spread:>8} {ratio:>9}   {turns}")

    means = []
    for recipe, line in results["peers"].items():
        add(f"{results['peer']} {recipe}", line)
        means.append(f"{line['mean']:,.0f} ({recipe})")
    for name, line in results["fp8lab"].items():
        add(f"fp8lab {name}", line)
    lines.append(f"ratio: to the mean of {results['peer']}'s turns, {', '.join(means)}")
    return "\n".join(lines)


# ---- main ----------------------------------------------------------------------------------------
def measured(peers, args, last):
    """Measures every peer: tokens/s by recipe. With --apart a peer lives for one measurement."""
    speeds = {}
    for peer in peers:
        if args.apart and not peer.start():
            continue
        speeds[peer.recipe] = peer.measure()
        if args.apart or last:
            peer.quit()
    if not speeds:
        raise Failure(USAGE, "the peer lacks the recipes of all these rows")
    return speeds


def alternate(args, rows, task, children):
    """The peer before, between and after the suites: every line of the table."""
    kinds = [recipe for recipe in PEER_RECIPES if any(kind_of(row.kind) == recipe for row in rows)]
    peers = [Peer(recipe, task.tokens, args, children) for recipe in kinds]
    peers = [peer for peer in peers if args.apart or peer.start()]
    peer_turns, suite_turns = [measured(peers, args, last=False)], []
    for turn in range(1, args.suites + 1):
        suite_turns.append(run_suite(args, rows, turn, children))
        say(f"fp8lab: suite {turn} of {args.suites} done")
        peer_turns.append(measured(peers, args, last=turn == args.suites))
    return results_of(rows, peers, peer_turns, suite_turns)


def one_gpu():
    """The environment of both sides: only the first visible GPU, no colours in logs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    os.environ.update(CUDA_VISIBLE_DEVICES=visible.split(",")[0], NO_COLOR="1")


def make_out(args, suite):
    if not args.out:
        now = datetime.datetime.now(datetime.timezone.utc)
        args.out = f"runs/beside/{now:%Y%m%dT%H%M%SZ}-{suite}"
    try:
        os.makedirs(args.out, exist_ok=True)
        taken = bool(os.listdir(args.out))
    except OSError as error:
        raise Failure(SYSTEM, f"cannot make the folder {args.out}: {error.strerror}") from error
    if taken:
        raise Failure(USAGE, f"--out {args.out} is not empty; name another folder")


def chosen(rows, names):
    """The rows that --only names, or all without it. Each name must be a row's."""
    wanted = [[row for row in rows if fnmatch.fnmatchcase(row.full_name, name)] for name in names]
    for name, found in zip(names, wanted):
        if not found:
            raise Failure(USAGE, f"--only {name}: the rows are "
                                 f"{', '.join(row.full_name for row in rows)}")
    return [row for row in rows if not names or any(row in found for found in wanted)]


def run(args, children):
    args.program = program_at(args.program)
    suite, rows = rows_of(args.program, args.script, experiment_flags(args))
    rows = chosen(rows, args.only)
    task = common_task(rows, ANOTHER if args.peer else PYTORCH)
    if task.gpus != 1 or task.masters:
        raise Failure(USAGE, f"{suite} is not for one GPU with BF16 weights: torch_train.py under "
                             "torchrun measures it, in a turn of its own")
    one_gpu()
    make_out(args, suite)
    results = alternate(args, rows, task, children)
    table = table_of(results)
    with open(f"{args.out}/table.txt", "w", encoding="utf-8") as file:
        print(table, file=file)
    with open(f"{args.out}/results.json", "w", encoding="utf-8") as file:
        json.dump({"experiment": suite, "tokens_per_step": task.tokens, **results}, file, indent=1)
    print(table)
    say(f"everything is in {args.out}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_experiment_flags(parser)
    parser.add_argument("--suites", type=int, default=2, metavar="N",
                        help="runs of the experiment (%(default)s)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="only rows of this name, * and ? (may repeat)")
    parser.add_argument("--out", metavar="DIR", help="an empty folder (runs/beside/<time>-<name>)")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--anywhere", action="store_true",
                        help="run even where the hardware differs")
    parser.add_argument("--python", default=sys.executable, help="with PyTorch (default: this one)")
    parser.add_argument("--peer", metavar="COMMAND", help="another program in PyTorch's place")
    parser.add_argument("--apart", action="store_true", help="end the peer after each measurement")
    for name, default, text in (("ready", 900, "for the peer to be ready, PyTorch to compile"),
                                ("measure", 300, "for one of its measurements"),
                                ("suite", 1800, "for one run of the experiment")):
        parser.add_argument(f"--{name}-limit", type=float, default=default, metavar="SECONDS",
                            help=f"{text} (%(default)s)")
    args = parser.parse_args()
    if args.suites < 1:
        parser.error("--suites is at least 1")
    return args


def main():
    args, children = parse(), Children()
    try:
        run(args, children)
    except Failure as failure:
        say(str(failure))
        return failure.code
    except Stopped as stopped:
        say(str(stopped))
        return 128 + stopped.number
    finally:
        children.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
