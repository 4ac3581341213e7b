#!/usr/bin/env python3
"""Measures llmq's own program on a Llama, to compare with bench_llama3_8b.lua.

    beside.py experiments/bench_llama3_8b.lua --peer "experiments/peers/llmq.py --llmq PATH"

PATH, or LLMQ in the environment, is train of IST-DASLab/llmq (b77d969), built for this GPU.
Unchanged it does not train a Llama on an H200 with CUDA 13. It needs two changes of memory layout:
  - A tensor without elements must get a null address, in both commit() of LazyAllocator. (A Llama
    has no bias of Q, K, V.) It had the address of the next tensor, and the norm of its gradient
    was an empty kernel launch, which is an error.
  - FP8: each {largest value, scale} takes 32 bytes, with the scale at byte 16. cuBLASLt rejects a
    scale whose address is not a multiple of 16 bytes; llmq had it 4 bytes behind the largest value.
It has bf16 and fp8.tensorwise (--matmul-dtype=e4m3 --gradient-dtype=e5m2, the head in BF16). For
other recipes this program prints "lacks".

A measurement is one run from random weights over random tokens, as frequent as words in text
(Zipf's law), as for llm.c. The result is the tokens of a step divided by the median time between
the log lines of two steps, without the first --warmup steps. It includes the work between steps, as
ours does. llmq's own figure leaves that out and is in whole ms. Both were within 0.05 % on an 8B
model. Sizes, batch, micro-steps and AdamW are the experiment's. Weights, gradients and moments are
BF16 without f32 masters; nothing is recomputed or offloaded. There are as many positions as a
sequence has tokens; llmq's own llama-3-8b has 4096.

After its steps llmq evaluates and saves the model, and no flag prevents it. So this program ends
llmq when the last step is in the log, while llmq evaluates on all of the training tokens.

peer_program.py describes output and exit codes.
"""
import array
import contextlib
import datetime
import json
import os
import re
import sys

sys.dont_write_bytecode = True  # nothing appears in the source tree
from experiment import FAILED, PYTORCH, USAGE, Failure, Known
from peer_program import Public, run_of, serve, tokens_as_in_text

LLAMA = Known("llmq.py", {**PYTORCH.values, "train.optimizer.master": "none", "hardware.gpus": 1})
RECIPES = {"bf16": [], "fp8.tensorwise": ["--matmul-dtype=e4m3", "--gradient-dtype=e5m2"]}
LLMQ = Public(name="llmq", option="llmq", binary="llmq's train", known=LLAMA,
              recipes=tuple(RECIPES), steps=12, trial_steps=3, warmup=2, run_limit_s=240)
# src/training/dataloader.cpp: a header of 256 i32 {"BIN.TOK\n", version, bytes of a token, tokens,
# vocabulary, masks or not}, then i32 tokens.
MAGIC, HEADER, VERSION, TOKEN_BYTES = b"BIN.TOK\n", 256, 2, 4
# src/training/logging.cpp; a number may be "nan", so the log is not always JSON.
# The time is that of the step's end by the host's clock.
STEP_LINE = re.compile(r'\{"log": "step", "time": "([^"]+)", "step": (\d+), "step_tokens": (\d+), '
                       r'"duration_ms": (\d+), .*?"loss": ([^,]+), .*\},?$')
DEVICE_LINE = re.compile(r'\{"log": "gpu-model", .*?"name": "([^"]*)"')


def write_config(path, task):
    """The model's config in Hugging Face's format. Its begin and end tokens are unused."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "bos_token_id": 0, "eos_token_id": 1,
                   "hidden_size": task.width, "intermediate_size": task.ffn,
                   "vocab_size": task.vocab, "num_attention_heads": task.heads,
                   "num_key_value_heads": task.kv_heads, "num_hidden_layers": task.layers,
                   "max_position_embeddings": task.seq_len, "rope_theta": task.rope_theta,
                   "rms_norm_eps": task.norm_eps, "tie_word_embeddings": False}, file)


def write_tokens(path, task, sequences):
    """A token file of llmq's. A sequence's last target is the next one's first token."""
    count = sequences * task.seq_len + 1
    with open(path, "wb") as file:
        file.write(MAGIC)
        header = [VERSION, TOKEN_BYTES, count, task.vocab]
        array.array("i", header + [0] * (HEADER - len(MAGIC) // 4 - len(header))).tofile(file)
        array.array("i", tokens_as_in_text(task.vocab, count)).tofile(file)


class Llmq:
    """llmq's program on a task."""

    def __init__(self, program, task, args):
        if task.width != task.heads * task.head_dim:
            raise Failure(USAGE, f"{task.heads} heads of {task.head_dim} are not the width, "
                                 f"{task.width}, and llmq has no other heads: --set model.head_dim")
        self.program, self.task, self.folder = program, task, program.folder
        self.log, self.tokens = f"{self.folder}/log.json", f"{self.folder}/tokens.bin"
        self.flags = " ".join(["--model-dtype=bf16", "--opt-m-dtype=bf16", "--opt-v-dtype=bf16",
                               *RECIPES[args.recipe]])
        os.mkdir(f"{self.folder}/model")
        write_config(f"{self.folder}/model/config.json", task)
        # llmq starts over when no more than one step of tokens is left.
        write_tokens(self.tokens, task, args.steps * task.global_batch + 1)

    def words(self, steps):
        task, folder = self.task, self.folder
        return [f"--model={folder}/model", "--from-scratch",
                f"--train-file={self.tokens}", f"--eval-file={self.tokens}",
                f"--batch-size={task.micro_batch}", f"--seq-len={task.seq_len}",
                f"--grad-accumulation={task.global_batch // task.micro_batch}",
                f"--steps={steps}", *self.flags.split(),
                f"--learning-rate={task.lr}", f"--warmup={task.lr_warmup}",
                f"--beta-1={task.betas[0]}", f"--beta-2={task.betas[1]}",
                f"--adam-epsilon={task.eps}", f"--weight-decay={task.weight_decay}", "--gpus=1",
                "--log-gpu-util=0", "--eval-every-n-steps=0", "--ckpt-interval=0",
                f"--out-dir={folder}/out", f"--checkpoint-dir={folder}/checkpoints",
                f"--log-file={self.log}"]

    def logged(self, pattern):
        """The matches of the pattern in the log, as far as it is written."""
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return [match for match in map(pattern.match, map(str.strip, file)) if match]
        except FileNotFoundError:
            return []

    def run(self, steps):
        """A Run of this many steps; Failure with llmq's last lines if it is incomplete."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.log)
        printed = self.program.run(self.words(steps), self.flags,
                                   finished=lambda: len(self.logged(STEP_LINE)) >= steps)
        devices = [match[1] for match in self.logged(DEVICE_LINE)]
        try:
            found = figures(self.logged(STEP_LINE), self.task.tokens)
        except ValueError:
            found = []
        return run_of(found, range(steps), devices[0] if devices else "", self.flags, printed)

    def prepare(self, steps):
        """A short run shows that llmq trains this model. llmq has no flags to choose."""
        return self.run(steps)


def figures(lines, tokens):
    """(number, loss, ms) of each step. No line precedes the first step: it has llmq's time."""
    found, before = [], None
    for line in lines:
        if int(line[3]) != tokens:
            raise Failure(FAILED, f"its log has steps of {line[3]} tokens, the experiment's have "
                                  f"{tokens}: is this llmq's commit b77d969?")
        now = datetime.datetime.fromisoformat(line[1])
        time_ms = (now - before).total_seconds() * 1e3 if before else float(line[4])
        found.append((int(line[2]), float(line[5]), time_ms))
        before = now
    return found


if __name__ == "__main__":
    sys.exit(serve(LLMQ, Llmq, __doc__))
