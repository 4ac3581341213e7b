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

What it prints and how it exits: peer_program.py.
"""
import array
import re
import sys

sys.dont_write_bytecode = True  # nothing appears in the source tree
from experiment import STEP, Failure, Known
from peer_program import Public, run_of, serve, tokens_as_in_text

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
LLMC = Public(name="llm.c", option="llmc", binary="llm.c's train_gpt2cu", known=GPT2_124M,
              recipes=("bf16",), steps=40, trial_steps=20, warmup=10, run_limit_s=120)


def write_tokens(path, task, count):
    """A token file of llm.c's."""
    with open(path, "wb") as file:
        array.array("i", [MAGIC, VERSION, count] + [0] * (HEADER - 3)).tofile(file)
        array.array("H", tokens_as_in_text(task.vocab, count)).tofile(file)


class Llmc:
    """llm.c's program on a task."""

    def __init__(self, program, task, args):
        self.program, self.task, self.warmup = program, task, args.warmup
        self.tokens, self.flags = f"{program.folder}/tokens.bin", None
        write_tokens(self.tokens, task, args.steps * task.tokens + 1)

    def run_with(self, flags, steps):
        """A Run of this many steps; Failure with llm.c's last words if it is not whole."""
        task = self.task
        words = ["-e", "d12", "-i", self.tokens, "-j", self.tokens, "-b", str(task.micro_batch),
                 "-t", str(task.seq_len), "-d", str(task.tokens), "-x", str(steps),
                 "-l", str(task.lr), "-c", str(task.weight_decay), *flags.split(),
                 "-v", str(steps), "-m", "0", "-s", "0", "-h", "0", "-n", "0"]
        return parsed(self.program.run(words, flags), steps, flags)

    def run(self, steps):
        return self.run_with(self.flags, steps)

    def prepare(self, steps):
        """Takes its fastest fusion; one that fails is told of and left out."""
        runs, failure = {}, None
        for fusion in FUSIONS:
            flags = f"-w 0 -r 0 -ge {fusion}"
            try:
                runs[flags] = self.run_with(flags, steps)
            except Failure as failed:
                print(f"llmc: {failed}", file=sys.stderr, flush=True)
                failure = failed
        if not runs:
            raise failure
        self.flags = min(runs, key=lambda flags: runs[flags].median_ms(self.warmup))
        return runs[self.flags]


def parsed(printed, steps, flags):
    """The Run that an output tells of."""
    lines = [line.strip() for line in printed.split("\n")]
    devices = [match[1] for match in map(DEVICE_LINE.match, lines) if match]
    try:
        found = [(int(match[1]), float(match[2]), float(match[3]))
                 for match in map(STEP_LINE.match, lines) if match]
    except ValueError:
        found = []
    return run_of(found, range(1, steps + 1), devices[0] if devices else "", flags, printed)


if __name__ == "__main__":
    sys.exit(serve(LLMC, Llmc, __doc__))
