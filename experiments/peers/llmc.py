#!/usr/bin/env python3
"""Measures llm.c's own program on GPT-2 124M, to compare with bench_gpt2_124m.lua.

    beside.py experiments/bench_gpt2_124m.lua --peer "experiments/peers/llmc.py --llmc PATH"

PATH, or LLMC in the environment, is train_gpt2cu of karpathy/llm.c, built with USE_CUDNN=1,
NO_MULTI_GPU=1, NO_USE_MPI=1 and PRECISION=BF16. (With CUDA 13 its call of cudaMemAdvise needs a
cudaMemLocation.) llm.c has BF16 only; for other recipes this program prints "lacks".

A measurement is one run from random weights (-e d12) over random tokens, without validation,
samples and checkpoints. Tokens are as frequent as words in text (Zipf's law). llm.c sorts a step's
tokens on the host, and its step is longer with uniform ones. The result is the tokens of a step
divided by the median step time that llm.c prints, without the first --warmup steps. llm.c takes
that time between two events on the GPU. So it leaves out the work between steps; ours includes it.
Weights are BF16 without f32 masters (-w 0), as the experiment's. llm.c's moments are always f32.
Nothing is recomputed (-r 0). Of llm.c's ways to fuse GELU (-ge) a short run of each picks the
fastest.

peer_program.py describes output and exit codes.
"""
import array
import re
import sys

sys.dont_write_bytecode = True  # nothing appears in the source tree
from experiment import STEP, Failure, Known
from peer_program import Public, run_of, serve, tokens_as_in_text

# llm.c's -e d12 is exactly this model. llm.c itself pads the vocabulary to 50304.
GPT2_124M = Known("llmc.py", {
    "model.layers": 12, "model.width": 768, "model.heads": 12, "model.kv_heads": 12,
    "model.head_dim": 64, "model.ffn": 3072, "model.vocab": 50257, "model.seq_len": 1024,
    "model.norm": "layernorm", "model.activation": "gelu", "model.positions": "learned",
    "model.bias": True, "model.tied": True, "model.qk_norm": False, "model.window": None,
    "train.optimizer.master": "none", "hardware.gpus": 1, **STEP})
FUSIONS = (0, 1, 2)  # of GELU into the GEMM before it: none, forward, backward too
# llmc/dataloader.h: a header of 256 i32 {magic, version, tokens}, then u16 tokens.
HEADER, MAGIC, VERSION = 256, 20240520, 1
# train_gpt2.cu: "step %4d/%d | loss %7.6f (%+.2fz)| norm ... | lr %.2e | %.2f ms | ... tok/s".
# The tokens/s of that line are a moving average, so we use its time.
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
        """A Run of this many steps; Failure with llm.c's last lines if it is incomplete."""
        task = self.task
        words = ["-e", "d12", "-i", self.tokens, "-j", self.tokens, "-b", str(task.micro_batch),
                 "-t", str(task.seq_len), "-d", str(task.tokens), "-x", str(steps),
                 "-l", str(task.lr), "-c", str(task.weight_decay), *flags.split(),
                 "-v", str(steps), "-m", "0", "-s", "0", "-h", "0", "-n", "0"]
        return parsed(self.program.run(words, flags), steps, flags)

    def run(self, steps):
        return self.run_with(self.flags, steps)

    def prepare(self, steps):
        """Picks the fastest fusion. A fusion that fails is reported and left out."""
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
    """Reads a Run from llm.c's output."""
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
