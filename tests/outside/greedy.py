#!/usr/bin/env python3
"""Asks a model of a run its questions, and prints the share of answers in the wanted format.

    greedy.py RUN STEP QUESTIONS PATTERN [COUNT]

RUN: a run's folder, whose last or first checkpoint the bundle keeps. STEP: of the checkpoint.
QUESTIONS: JSON lines with `messages`. PATTERN: a regular expression for the whole answer. An answer
is decoded greedily, byte by byte, up to <|im_end|>, by a Llama of its own in numpy.
"""
import json
import os
import re
import sys

import numpy as np
import safetensors

END = b"<|im_end|>"


def norm(x, gain, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * gain


def rotate(x, theta):
    """x [B,heads,T,D]: the pairs (i, i + D/2) of each vector, by its position."""
    t, d = x.shape[-2:]
    angle = (np.arange(t)[:, None] * theta ** (-2 * np.arange(d // 2) / d)).astype(np.float32)
    low, high, c, s = x[..., :d // 2], x[..., d // 2:], np.cos(angle), np.sin(angle)
    return np.concatenate([low * c - high * s, high * c + low * s], axis=-1)


def attention(qkv, heads, kv_heads, theta):
    """qkv [B,T,H+2G,D] -> [B,T,H*D]; a query sees its own key and those before it."""
    b, t, _, d = qkv.shape
    q, k, v = np.split(qkv.transpose(0, 2, 1, 3), [heads, heads + kv_heads], axis=1)
    k, v = (np.repeat(part, heads // kv_heads, axis=1) for part in (rotate(k, theta), v))
    score = rotate(q, theta) @ k.swapaxes(-1, -2) / np.float32(np.sqrt(d))
    score = np.where(np.tril(np.ones((t, t), bool)), score, np.float32(-np.inf))
    p = np.exp(score - score.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return (p @ v).transpose(0, 2, 1, 3).reshape(b, t, heads * d)


def hidden(w, m, tokens):
    """tokens [B,T] -> what the head reads, [B,T,C]. m: `model` of the resolved configuration."""
    b, t = tokens.shape
    x = w["embed.weight"][tokens]
    for layer in range(m["layers"]):
        own = {k: w[f"layers.{layer}.{k}.weight"]
               for k in ("norm1", "qkv", "attn_out", "norm2", "ffn_in", "ffn_out")}
        qkv = norm(x, own["norm1"], m["norm_eps"]) @ own["qkv"].T
        qkv = qkv.reshape(b, t, m["heads"] + 2 * m["kv_heads"], -1)
        o = attention(qkv, m["heads"], m["kv_heads"], m["rope"]["theta"])
        x = x + o @ own["attn_out"].T
        gate, up = np.split(norm(x, own["norm2"], m["norm_eps"]) @ own["ffn_in"].T, 2, axis=-1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ own["ffn_out"].T
    return norm(x, w["final_norm.weight"], m["norm_eps"])


def logits(w, m, tokens, last):
    """tokens [B,T], last [B] -> logits [B,V] of these."""
    return hidden(w, m, tokens)[np.arange(len(tokens)), last] @ w["head.weight"].T


def answers(w, m, prompts, longest):
    """Greedy answers of up to `longest` bytes. Prompts are padded behind their ends."""
    text = [bytearray(p) for p in prompts]
    begin = [len(p) for p in prompts]
    for _ in range(longest):
        open_ = [i for i, p in enumerate(text) if END not in p[begin[i]:]]
        if not open_:
            break
        width = max(len(text[i]) for i in open_)
        tokens = np.array([list(text[i]) + [0] * (width - len(text[i])) for i in open_])
        out = logits(w, m, tokens, [len(text[i]) - 1 for i in open_])
        for i, row in zip(open_, out):
            text[i].append(int(row.argmax()))
    return [bytes(p[begin[i]:]) for i, p in enumerate(text)]


def weights(path):
    """All tensors as f32; BF16 is the upper half of one."""
    out = {}
    for name, tensor in safetensors.deserialize(open(path, "rb").read()):
        if tensor["dtype"] == "BF16":
            bits = np.frombuffer(tensor["data"], "<u2").astype(np.uint32) << 16
            value = bits.view(np.float32)
        else:
            value = np.frombuffer(tensor["data"], "<f4")
        out[name] = value.reshape(tensor["shape"])
    return out


def main(run, step, questions, pattern, count=100):
    m = json.load(open(os.path.join(run, "data/experiment/resolved.json")))["model"]
    folder = os.path.join(run, "data/checkpoints", f"step-{int(step):06}")
    w = weights(os.path.join(folder, "model.safetensors"))
    rows = [json.loads(line)["messages"] for line in open(questions)][:int(count)]
    prompts = [f"<|im_start|>user\n{r[0]['content']}<|im_end|>\n<|im_start|>assistant\n".encode()
               for r in rows]
    found = answers(w, m, prompts, 32)
    good = sum(bool(re.fullmatch(pattern.encode() + re.escape(END), a)) for a in found)
    right = sum(a == r[1]["content"].encode() + END for a, r in zip(found, rows))
    print(f"{100 * good // len(rows)} % of {len(rows)} answers are in the format, "
          f"{100 * right // len(rows)} % are right; the first: {found[0][:40]!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
