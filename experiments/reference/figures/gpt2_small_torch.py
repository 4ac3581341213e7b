#!/usr/bin/env python3
"""A small GPT-2 (4 layers, width 384) trained by PyTorch alone, on the text of gpt2_loss.lua: is the BF16
of fp8lab where it belongs? Its output stands in gpt2_loss_cause.txt.

    gpt2_small_torch.py bf16|f32 SEED corpus.txt       bf16: autocast over f32 weights; f32: with TF32"""
import math
import sys
import time

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, FFN, VOCAB, LENGTH, BATCH, STEPS, WARMUP = 4, 384, 6, 1536, 256, 1024, 28, 800, 100
HOLDOUT, LR = 0.036, 6e-4
mode, seed, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.manual_seed(seed)
torch.backends.cuda.matmul.allow_tf32 = True
text = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8).cuda()
train_windows = int(len(text) * (1 - HOLDOUT)) // LENGTH
weights = {}


def add(name, *shape, std=0.02, fill=None):
    x = torch.randn(*shape, device="cuda") * std if fill is None else \
        torch.full(shape, float(fill), device="cuda")
    weights[name] = x.requires_grad_()


def add_all():
    add("embed", VOCAB, WIDTH)
    add("position", LENGTH, WIDTH)
    for norm in ["final"] + [f"{i}.norm{j}" for i in range(LAYERS) for j in (1, 2)]:
        add(norm + ".gain", WIDTH, fill=1)
        add(norm + ".bias", WIDTH, fill=0)
    for i in range(LAYERS):
        for name, rows, cols, residual in (("qkv", 3 * WIDTH, WIDTH, False), ("out", WIDTH, WIDTH, True),
                                           ("in", FFN, WIDTH, False), ("down", WIDTH, FFN, True)):
            add(f"{i}.{name}.weight", rows, cols, std=0.02 / math.sqrt(2 * LAYERS) if residual else 0.02)
            add(f"{i}.{name}.bias", rows, fill=0)


def norm(h, name):
    return F.layer_norm(h, (WIDTH,), weights[name + ".gain"], weights[name + ".bias"], 1e-5)


def linear(h, name):
    return F.linear(h, weights[name + ".weight"], weights[name + ".bias"])


def loss_of(x, y):
    h = F.embedding(x, weights["embed"]) + weights["position"]
    for i in range(LAYERS):
        qkv = linear(norm(h, f"{i}.norm1"), f"{i}.qkv")
        q, k, v = qkv.view(len(x), LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + linear(o.transpose(1, 2).reshape(len(x), LENGTH, WIDTH), f"{i}.out")
        h = h + linear(F.gelu(linear(norm(h, f"{i}.norm2"), f"{i}.in"), approximate="tanh"), f"{i}.down")
    return F.cross_entropy(F.linear(norm(h, "final"), weights["embed"]).float().flatten(0, 1), y.flatten())


def batch(windows):
    t = text[windows[:, None].cuda() * LENGTH + torch.arange(LENGTH + 1, device="cuda")].long()
    return t[:, :-1], t[:, 1:]


def rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    return LR * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))))


add_all()
matrices = [p for p in weights.values() if p.ndim > 1]
vectors = [p for p in weights.values() if p.ndim == 1]
optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                               {"params": vectors, "weight_decay": 0.0}],
                              lr=LR, betas=(0.9, 0.95), eps=1e-8, fused=True)
order = torch.randperm(train_windows - 1)
begin, losses = time.time(), []
for step in range(1, STEPS + 1):
    for group in optimizer.param_groups:
        group["lr"] = rate(step)
    with torch.autocast("cuda", torch.bfloat16, enabled=mode == "bf16"):
        loss = loss_of(*batch(order[(step - 1) * BATCH:step * BATCH]))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach())
losses = torch.stack(losses).tolist()
held = torch.arange(train_windows, train_windows + 37 * BATCH).view(37, BATCH)
with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=mode == "bf16"):
    evaluation = sum(loss_of(*batch(windows)).item() for windows in held) / len(held)
by_50 = [round(sum(losses[i:i + 50]) / 50, 4) for i in range(0, STEPS, 50)]
print(mode, seed, "eval", round(evaluation, 5), "last 50", round(sum(losses[-50:]) / 50, 5), "by 50s", by_50,
      round(time.time() - begin, 1), "s", flush=True)
