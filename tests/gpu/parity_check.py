#!/usr/bin/env python3
"""Steps of ours beside an independent implementation in PyTorch, on one GPU.

    parity_check.py llama|gpt2 DIRECTORY...     what parity_dump wrote, a seed each

The same weights and batch go through the model below three times: ours (as dumped), PyTorch in f32
and PyTorch in BF16 as it is commonly trained (weights, activations and gradients BF16, the loss in
f32). The distance of a tensor is the Euclidean norm of its difference from f32, over that of f32;
of several seeds the root of the mean square, since one distance is the outcome of one set of
roundings. Exit code 0 only if, for the losses of the tokens and for every gradient tensor, our
distance is at most 1.25 x that of PyTorch's own BF16.

The mean loss is one number: BF16 errors of the tokens cancel in it, and how far they do is chance.
So the losses are compared token by token; the means are printed beside.
"""
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

RATIO_MAX = 1.25
SIZES = {  # what parity_dump.c builds; every other size is read from the tensors
    "llama": {"heads": 8, "kv_heads": 2, "theta": 500000.0, "eps": 1e-5},
    "gpt2": {"heads": 12, "kv_heads": 12, "theta": None, "eps": 1e-5},
}
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "I32": torch.int32}


def read_safetensors(path):
    """Name -> tensor on the GPU. The format: u64 length, JSON header, bytes."""
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
        out[name] = flat.reshape(entry["shape"]).cuda()
    return out


class Model:
    """Llama or GPT-2, told apart by which weights there are."""

    def __init__(self, weights, sizes, dtype):
        self.w = {name: x.to(dtype).requires_grad_(True) for name, x in weights.items()}
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
        cos = angle.cos().float().cuda()[None, :, None]
        sin = angle.sin().float().cuda()[None, :, None]
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
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv)
        return self.linear(o.transpose(1, 2).reshape(batch, length, -1), f"layers.{layer}.attn_out")

    def ffn(self, x, layer):
        h = self.linear(x, f"layers.{layer}.ffn_in")
        if self.llama:
            gate, up = h.chunk(2, -1)
            h = F.silu(gate) * up
        else:
            h = F.gelu(h, approximate="tanh")  # GPT-2's, not the one by erf
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
        # In f32 the attention that writes its sums out; in BF16 what PyTorch picks.
        exact = [SDPBackend.MATH]
        usual = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
        with sdpa_kernel(exact if self.dtype == torch.float32 else usual):
            losses = self.losses(tokens, targets)
            losses.mean().backward()
        return losses.detach().float(), {n: x.grad.float() for n, x in self.w.items()}


def distance(x, truth):
    return (torch.linalg.vector_norm((x.double() - truth.double()))
            / torch.linalg.vector_norm(truth.double())).item()


def compare(name, directory):
    """Tensor -> (ours, PyTorch's BF16): distances from f32 in one sample."""
    weights = read_safetensors(f"{directory}/step-000030/model.safetensors")
    step = read_safetensors(f"{directory}/step.safetensors")
    ours = read_safetensors(f"{directory}/gradients.safetensors")
    tokens, targets = step["tokens"].long(), step["targets"].long()
    assert sorted(ours) == sorted(weights), "gradients and weights have different names"
    true_losses, truth = Model(weights, SIZES[name], torch.float32).step(tokens, targets)
    bf16_losses, bf16 = Model(weights, SIZES[name], torch.bfloat16).step(tokens, targets)
    means = [x.double().mean().item() for x in (step["losses"], bf16_losses, true_losses)]
    print("# mean loss: ours %.7f, PyTorch bf16 %.7f, f32 %.7f" % tuple(means))
    rows = {"losses of the tokens": (distance(step["losses"].flatten(), true_losses),
                                     distance(bf16_losses, true_losses))}
    rows.update(("grad:" + n, (distance(ours[n], truth[n]), distance(bf16[n], truth[n])))
                for n in sorted(ours))
    return rows


def main():
    name, directories = sys.argv[1], sys.argv[2:]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    print(f"# {name}: {len(directories)} seeds, PyTorch {torch.__version__}, "
          f"{torch.cuda.get_device_name()}; distances from PyTorch in f32")
    samples = [compare(name, directory) for directory in directories]
    print("%-32s %10s %12s %7s   ratio of each seed" % ("tensor", "ours", "torch bf16", "ratio"))
    failed, worst = 0, 0.0
    for what in samples[0]:
        a, b = (math.sqrt(sum(s[what][i] ** 2 for s in samples) / len(samples)) for i in (0, 1))
        fails = not a <= RATIO_MAX * b
        failed += fails
        worst = max(worst, a / b)
        each = " ".join("%.3f" % (s[what][0] / s[what][1]) for s in samples)
        print("%-32s %10.3e %12.3e %7.3f   %s%s"
              % (what, a, b, a / b, each, "  FAILED" if fails else ""))
    print(f"# {len(samples[0])} tensors, {failed} beyond {RATIO_MAX} x PyTorch's own BF16; "
          f"worst ratio {worst:.3f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
