#!/usr/bin/env python3
"""Measures PyTorch on the model and batch of an experiment, to compare with fp8lab.

    torch_train.py experiments/bench_llama3_small.lua --recipe fp8.tensorwise
    torchrun --nproc-per-node 4 torch_train.py experiments/h200_tensorwise.lua --recipe bf16 \\
        --set hardware.gpus=4 --set train.global_batch=64

A step goes from data to updated weights: forward, loss over the whole vocabulary, backward, fused
AdamW; with torch.compile and cuDNN's attention. The recipe is bf16 or fp8.tensorwise: every GEMM
of the blocks in E4M3, gradients in E5M2, one scale a tensor, the head in BF16. Without f32
masters, as in bench_*.lua, weights, gradients and moments are BF16 on one GPU. With f32 masters
FSDP2 shards f32 weights and moments over torchrun's processes, computes in BF16 and sums gradients
in f32. There is no clipping, schedule, metrics, evaluation or bundle, all of which an fp8lab run
has. Each step draws new tokens.

stdout has JSON lines only. "ready", after compilation, says what runs where. Then follows
"measured" for each measurement: one, or with --resident one for each line "measure" on stdin,
until "quit" or the end. Between measurements the process holds only its weights and moments. Times
are in ms an optimizer step: median, minimum and maximum of --blocks averages over --steps steps.

Needs PyTorch 2.6 or later. Exit codes: 0, 1 it failed, 2 usage, 3 no such GPU, 6 no PyTorch, 130
interrupted.
"""
import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import time

sys.dont_write_bytecode = True  # nothing appears in the source tree
from experiment import (FAILED, HARDWARE, PYTORCH, SYSTEM, USAGE, Failure,
                        add_experiment_flags, common_task, experiment_flags, program_at, requests,
                        rows_of)

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import torch_llama
    NO_TORCH = None
except ImportError as missing:
    NO_TORCH = missing


class Place:
    """Where this process trains: its device, its rank and the number of ranks."""

    def __init__(self, kind):
        self.ranks, self.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        self.launched = "WORLD_SIZE" in os.environ
        if kind == "cuda":
            if not torch.cuda.is_available():
                raise Failure(HARDWARE, f"PyTorch {torch.__version__} sees no GPU; --device cpu is "
                                        "good for trying out this program only")
            local = int(os.environ.get("LOCAL_RANK", 0))
            if local >= torch.cuda.device_count():
                raise Failure(HARDWARE, f"rank {self.rank} has no GPU of its own: PyTorch sees "
                                        f"{torch.cuda.device_count()}")
            torch.cuda.set_device(local)
        self.device = torch.device(kind)
        if self.launched:
            dist.init_process_group("nccl" if kind == "cuda" else "gloo")

    @property
    def cuda(self):
        return self.device.type == "cuda"

    def wait(self):
        """Waits until everything queued is done, on every rank."""
        if self.cuda:
            torch.cuda.synchronize()
        if self.launched:
            dist.barrier()

    def give_back(self):
        """Returns the allocator's unused memory to the GPU."""
        if self.cuda:
            torch.cuda.empty_cache()

    def attention(self):
        """cuDNN's attention on a GPU, PyTorch's default on a CPU."""
        return sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if self.cuda else contextlib.nullcontext()

    def describe(self):
        """Names and versions of this machine's device and libraries."""
        about = {"torch": torch.__version__, "ranks": self.ranks, "device": "cpu"}
        if self.cuda:
            about.update(device=torch.cuda.get_device_name(), cuda=torch.version.cuda,
                         cudnn=torch.backends.cudnn.version(), driver=driver_version())
        return about

    def close(self):
        if self.launched:
            dist.destroy_process_group()


def driver_version():
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def build(task, fp8, place):
    """The model on its device, compiled: as a whole on one GPU, block by block under FSDP2."""
    torch.set_default_dtype(torch.float32 if task.masters else torch.bfloat16)
    with place.device:
        model = torch_llama.Llama(task, fp8)
    torch.set_default_dtype(torch.float32)
    if not task.masters:
        return model, torch.compile(model)
    # The RoPE tables stay f32. Gathered weights stay for the backward.
    sharding = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                                  reduce_dtype=torch.float32,
                                                  cast_forward_inputs=False),
                "reshard_after_forward": False}
    for block in model.blocks:
        block.compile()
        fully_shard(block, **sharding)
    fully_shard(model, **sharding)
    model.loss = torch.compile(torch_llama.loss_of)
    return model, model


class Trainer:
    """The model, its optimizer, and one step of them."""

    def __init__(self, task, fp8, place):
        self.task, self.place = task, place
        self.micro_steps = task.global_batch // (task.micro_batch * place.ranks)
        torch.manual_seed(0)  # the same weights on every rank, before they are sharded
        model, self.forward = build(task, fp8, place)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=task.lr, betas=task.betas,
                                           eps=task.eps, weight_decay=task.weight_decay, fused=True)
        self.parameters = sum(weight.numel() for weight in model.parameters())
        torch.manual_seed(1 + place.rank)  # other tokens on every rank

    def step(self):
        """From data to updated weights; returns the loss of the last micro-step."""
        shape = (self.task.micro_batch, self.task.seq_len + 1)
        for _ in range(self.micro_steps):
            text = torch.randint(self.task.vocab, shape, device=self.place.device)
            with self.place.attention():
                loss = self.forward(text[:, :-1], text[:, 1:])
            (loss / self.micro_steps).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def checked_step(self):
        """Runs a step and waits; returns its loss, which must be finite."""
        loss = self.step().item()
        self.place.wait()
        if not math.isfinite(loss):
            raise Failure(FAILED, f"the loss is {loss}")
        return loss


def check_ranks(task, place):
    """Fails unless the experiment's sharding, batch and GPUs match this start."""
    if task.masters != place.launched:
        raise Failure(USAGE, "the experiment has %s, and this is%s torchrun"
                      % (("f32 masters, which are sharded", " not started by") if task.masters
                         else ("no f32 masters, which is for one GPU", "")))
    if place.launched and task.gpus != place.ranks:
        raise Failure(USAGE, f"the experiment is for {task.gpus} GPUs, torchrun started "
                             f"{place.ranks} processes: --set hardware.gpus={place.ranks}, and a "
                             "batch for them")
    if task.global_batch % (task.micro_batch * place.ranks):
        raise Failure(USAGE, f"{task.global_batch} sequences a step are no multiple of "
                             f"{task.micro_batch} on each of {place.ranks}")


def measure(trainer, args):
    """The line "measured": BLOCKS averages over STEPS steps, after the warm-up."""
    place = trainer.place
    for _ in range(args.warmup):
        trainer.step()
    place.wait()
    times_ms = []
    for _ in range(args.blocks):
        begin = time.perf_counter()
        for _ in range(args.steps):
            loss = trainer.step()
        place.wait()
        times_ms.append((time.perf_counter() - begin) * 1e3 / args.steps)
    median_ms = statistics.median(times_ms)
    out = {"event": "measured", "recipe": args.recipe,
           "tokens_per_s": trainer.task.tokens / median_ms * 1e3, "step_ms_median": median_ms,
           "step_ms_min": min(times_ms), "step_ms_max": max(times_ms), "loss": loss.item(),
           "peak_bytes": torch.cuda.max_memory_allocated() if place.cuda else None}
    place.give_back()
    return out


def run(args, say):
    flags = experiment_flags(args)
    suite, rows = rows_of(program_at(args.program), args.script, flags)
    task = common_task(rows, PYTORCH)
    place = Place(args.device)
    try:
        check_ranks(task, place)
        begin = time.perf_counter()
        trainer = Trainer(task, args.recipe == "fp8.tensorwise", place)
        loss = trainer.checked_step()
        for _ in range(args.warmup):
            trainer.step()
        place.wait()
        place.give_back()
        if place.rank:
            say = lambda line: None  # noqa: E731  only rank 0 prints
        say({"event": "ready", "experiment": suite, "recipe": args.recipe, **place.describe(),
             "parameters": trainer.parameters, "tokens_per_step": task.tokens,
             "micro_steps": trainer.micro_steps, "loss_first": loss,
             "compile_s": round(time.perf_counter() - begin, 1)})
        for _ in requests(args.resident):
            say(measure(trainer, args))
    finally:
        place.close()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_experiment_flags(parser)
    parser.add_argument("--recipe", choices=("bf16", "fp8.tensorwise"), default="bf16")
    parser.add_argument("--resident", action="store_true", help="measure on request, until quit")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    for name, default, text in (("warmup", 3, "steps before each measurement"),
                                ("blocks", 3, "averages in a measurement"),
                                ("steps", 5, "steps in an average")):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} (%(default)s)")
    args = parser.parse_args()
    if args.warmup < 0 or args.blocks < 1 or args.steps < 1:
        parser.error("--blocks and --steps are at least 1, --warmup at least 0")
    if args.resident and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        parser.error("--resident is for one process: only one of torchrun's has a stdin")
    return args


def main():
    # Compilers and libraries may print; stdout is for our lines alone.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    args = parse()
    os.dup2(2, 1)

    def say(line):
        print(json.dumps(line), file=lines, flush=True)

    try:
        if NO_TORCH:
            raise Failure(SYSTEM, f"no PyTorch 2.6 or later in {sys.executable} ({NO_TORCH}): "
                                  "start this with the python3 of an environment that has it")
        run(args, say)
    except Failure as failure:
        print(f"torch_train: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return 130
    except torch.OutOfMemoryError as error:
        print(f"torch_train: the GPU's memory is not enough: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
