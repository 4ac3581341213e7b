#!/usr/bin/env python3
"""Our training steps against an independent implementation in PyTorch.

    parity_check.py [--spoil delta|lse] llama|gpt2 DIRECTORY...

DIRECTORY: output of parity_dump, one for each seed.

The same weights and batch are computed three times: by us (as dumped), by PyTorch in f32, and by
PyTorch in BF16 as commonly trained. There weights, activations and gradients are BF16, the loss
f32. The distance of a tensor is the Euclidean norm of its difference from f32, over that of f32.
Exit code 0 only if our distance is at most 1.25 x that of PyTorch's own BF16, in the geometric mean
of the seeds. This holds for the losses of the tokens and for every gradient tensor.

Why many seeds: one state says little. Attention's backward takes differences of nearly equal
numbers, and a few rows decide how much of a gradient is left. A test used five neighbours of one
state, with one weight in a hundred moved by one unit in its last place. PyTorch's own BF16 had
distances up to 18 times apart (CPU, 4 layers of 256). A root of the mean square would follow the
worst seed; logarithms weigh all seeds alike. Their standard error is printed with the mean, in per
cent.

--spoil shows that the check can fail. It replaces our values by PyTorch's BF16 with one change: its
attention rounds the backward's delta (sum of dO * O) or log-sum-exp to BF16.

The mean loss is a single number, in which the tokens' BF16 errors cancel by chance. So the losses
are compared token by token; the means are only printed.
"""
import argparse
import json
import math
import statistics
import struct
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

RATIO_MAX = 1.25
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = {  # what parity_dump.c builds; every other size is read from the tensors
    "llama": {"heads": 4, "kv_heads": 2, "theta": 500000.0, "eps": 1e-5},
    "gpt2": {"heads": 8, "kv_heads": 8, "theta": None, "eps": 1e-5},
}
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "I32": torch.int32}


def read_safetensors(path):
    """Name -> tensor on the device. The format: u64 length, JSON header, bytes."""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        data = bytearray(f.read())
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(data, dtype=DTYPES[entry["dtype"]], offset=begin,
                                count=math.prod(entry["shape"]))
        assert flat.numel() * flat.element_size() == end - begin
        out[name] = flat.reshape(entry["shape"]).to(DEVICE)
    return out


def causal(scores):
    beyond = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(beyond, -math.inf)


class SpoiltAttention(torch.autograd.Function):
    """Attention as in GPU kernels: probabilities and score gradients are rounded to BF16 before
    they are multiplied, sums are f32. One number of each row is rounded that should not be."""

    @staticmethod
    def forward(ctx, q, k, v, what):
        scores = causal(q.float() @ k.float().mT / math.sqrt(q.shape[-1]))
        lse = scores.logsumexp(-1, keepdim=True)
        p = (scores - scores.amax(-1, keepdim=True)).exp()
        o = (p.to(q.dtype).float() @ v.float() / p.sum(-1, keepdim=True)).to(q.dtype)
        ctx.save_for_backward(q, k, v, o, scores, lse)
        ctx.what = what
        return o

    @staticmethod
    def backward(ctx, d_o):
        q, k, v, o, scores, lse = ctx.saved_tensors
        delta = (d_o.float() * o.float()).sum(-1, keepdim=True)
        if ctx.what == "delta":
            delta = delta.to(q.dtype).float()
        if ctx.what == "lse":
            lse = lse.to(q.dtype).float()
        p = (scores - lse).exp()
        ds = p * (d_o.float() @ v.float().mT - delta)
        ds, p = ds.to(q.dtype).float(), p.to(q.dtype).float()
        dq, dk, dv = ds @ k.float(), ds.mT @ q.float(), p.mT @ d_o.float()
        dq, dk = (x / math.sqrt(q.shape[-1]) for x in (dq, dk))
        return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype), None


class Model:
    """Llama or GPT-2, recognised by its weights. spoilt: as in --spoil, or None."""

    def __init__(self, weights, sizes, dtype, spoilt=None):
        self.spoilt = spoilt
        self.w = {n: x.detach().to(dtype).requires_grad_(True) for n, x in weights.items()}
        self.sizes, self.dtype = sizes, dtype
        self.layers = 1 + max(int(n.split(".")[1]) for n in weights if n.startswith("layers."))
        self.llama = "head.weight" in weights

    def norm(self, x, name):
        gain, width = self.w[name + ".weight"], x.shape[-1]
        if self.llama:
            return F.rms_norm(x, (width,), gain, self.sizes["eps"])
        return F.layer_norm(x, (width,), gain, self.w[name + ".bias"], self.sizes["eps"])

    def linear(self, x, name):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def rotate(self, x):
        """x [B,T,heads,D]; pairs (i, i + D/2), angles in f64."""
        length, dim = x.shape[1], x.shape[3]
        frequency = self.sizes["theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency)
        cos = angle.cos().float().to(DEVICE)[None, :, None]
        sin = angle.sin().float().to(DEVICE)[None, :, None]
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    def attention(self, x, layer):
        batch, length, _ = x.shape
        heads, kv = self.sizes["heads"], self.sizes["kv_heads"]
        qkv = self.linear(x, f"layers.{layer}.qkv").view(batch, length, heads + 2 * kv, -1)
        q, k, v = qkv.split([heads, kv, kv], 2)
        if self.sizes["theta"]:
            q, k = self.rotate(q), self.rotate(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if self.spoilt:
            k, v = (t.repeat_interleave(heads // kv, 1) for t in (k, v))
            o = SpoiltAttention.apply(q, k, v, self.spoilt)
        else:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv)
        return self.linear(o.transpose(1, 2).reshape(batch, length, -1), f"layers.{layer}.attn_out")

    def ffn(self, x, layer):
        h = self.linear(x, f"layers.{layer}.ffn_in")
        if self.llama:
            gate, up = h.chunk(2, -1)
            h = F.silu(gate) * up
        else:
            h = F.gelu(h, approximate="tanh")  # GPT-2's form, not the erf form
        return self.linear(h, f"layers.{layer}.ffn_out")

    def losses(self, tokens, targets):
        x = F.embedding(tokens, self.w["embed.weight"])
        if "position.weight" in self.w:
            x = x + self.w["position.weight"][None, : tokens.shape[1]]
        for layer in range(self.layers):
            x = x + self.attention(self.norm(x, f"layers.{layer}.norm1"), layer)
            x = x + self.ffn(self.norm(x, f"layers.{layer}.norm2"), layer)
        x = self.norm(x, "final_norm")
        head = self.w["head.weight" if self.llama else "embed.weight"]
        logits = F.linear(x, head).float().flatten(0, 1)
        return F.cross_entropy(logits, targets.flatten(), reduction="none")

    def step(self, tokens, targets):
        """Losses of the tokens, and the gradients of their mean, both f32."""
        # f32: the attention that stores its scores; BF16: PyTorch's own choice.
        exact = [SDPBackend.MATH]
        usual = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
        with sdpa_kernel(exact if self.dtype == torch.float32 else usual):
            losses = self.losses(tokens, targets)
            losses.mean().backward()
        return losses.detach().float(), {n: x.grad.float() for n, x in self.w.items()}


def distance(x, truth):
    return (torch.linalg.vector_norm((x.double() - truth.double()))
            / torch.linalg.vector_norm(truth.double())).item()


def compare(name, directory, spoilt):
    """Tensor -> (ours, PyTorch's BF16): distances from f32 in one sample."""
    weights = read_safetensors(f"{directory}/weights.safetensors")
    step = read_safetensors(f"{directory}/step.safetensors")
    losses, ours = step["losses"].flatten(), read_safetensors(f"{directory}/gradients.safetensors")
    tokens, targets = step["tokens"].long(), step["targets"].long()
    assert sorted(ours) == sorted(weights), "gradients and weights have different names"
    true_losses, truth = Model(weights, SIZES[name], torch.float32).step(tokens, targets)
    bf16_losses, bf16 = Model(weights, SIZES[name], torch.bfloat16).step(tokens, targets)
    if spoilt:
        losses, ours = Model(weights, SIZES[name], torch.bfloat16, spoilt).step(tokens, targets)
    norm = math.sqrt(sum(x.double().square().sum().item() for x in truth.values()))
    means = [x.double().mean().item() for x in (losses, bf16_losses, true_losses)]
    print("# mean loss: ours %.7f, PyTorch bf16 %.7f, f32 %.7f; gradient norm %.3f"
          % (*means, norm))
    rows = {"losses of the tokens": (distance(losses, true_losses),
                                     distance(bf16_losses, true_losses))}
    rows.update(("grad:" + n, (distance(ours[n], truth[n]), distance(bf16[n], truth[n])))
                for n in sorted(ours))
    return rows


def report(samples):
    """Prints the table; returns how many tensors are beyond the bound."""
    heads = ("tensor", "ours", "torch bf16", "ratio", "error")
    print("%-32s %10s %12s %7s %6s   of one seed" % heads)
    failed, worst = 0, 0.0
    for what in samples[0]:
        ours, theirs = ([math.log(s[what][i]) for s in samples] for i in (0, 1))
        logs = [a - b for a, b in zip(ours, theirs)]
        a, b, ratio = (math.exp(statistics.fmean(x)) for x in (ours, theirs, logs))
        error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
        fails = not ratio <= RATIO_MAX
        failed += fails
        worst = max(worst, ratio)
        print("%-32s %10.3e %12.3e %7.3f %5.1f%%   %.3f to %.3f%s"
              % (what, a, b, ratio, 100 * error, math.exp(min(logs)), math.exp(max(logs)),
                 "  FAILED" if fails else ""))
    print(f"# {len(samples[0])} tensors, {failed} beyond {RATIO_MAX} x PyTorch's own BF16; "
          f"worst ratio {worst:.3f}")
    return failed


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--spoil", choices=["delta", "lse"])
    options.add_argument("model", choices=sorted(SIZES))
    options.add_argument("directory", nargs="+")
    o = options.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    where = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    print(f"# {o.model}: {len(o.directory)} seeds, PyTorch {torch.__version__}, {where}; geometric "
          "means of distances from PyTorch in f32")
    if o.spoil:
        print(f"# not ours, but PyTorch's BF16 with attention's {o.spoil} rounded to BF16")
    return 1 if report([compare(o.model, d, o.spoil) for d in o.directory]) else 0


if __name__ == "__main__":
    sys.exit(main())
