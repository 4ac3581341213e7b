#!/usr/bin/env python3
"""Repeats a run's batches and initial weights from model/NUMERICS.md alone; compares to the bit.

    fp8lab run X.lua --set checkpoint.init=true --set archive=weights --set train.optimizer.lr=0
    fp8lab extract RUN && experiments/peers/reproduce.py RUN-ID [--data-root DIR]

Initial weights: compares every tensor of the checkpoint of step 0 (weights, and masters if the
bundle has them). Without that checkpoint it compares the fingerprints of the weights before step 1.
Batches: compares the fingerprint of the embedding's output in each traced step. With a learning
rate above 0 that is step 1 alone, since the weights move.
Exit code 0: equal; 4: different; 2: not such a run.

Nothing of fp8lab is used here: this is a second implementation, with numpy. Random bits, shards and
the order are in batches.py.
"""
import argparse
import json
import math
import os
import struct
import sys

import numpy as np

from batches import draw, make_key, mix, place, read_shard, shuffle, split

EQUAL, USAGE, DIFFERENT = 0, 2, 4
PURPOSE_INIT, PURPOSE_SYNTHETIC = 0, 4
F32, U32, U64 = np.float32, np.uint32, np.uint64


class NoSuchRun(Exception):
    """What is missing for a comparison, and what to do about it."""


# ---- initial weights ----

def exact_log(x):
    u = x.view(U32).astype(np.int64) - 0x3F3504F3
    k = F32(u >> 23)
    m = ((u & 0x7FFFFF) + 0x3F3504F3).astype(U32).view(F32)
    f = m - F32(1)
    s = f / (F32(2) + f)
    z = s * s
    r = F32(2) / F32(11)
    for n in (9, 7, 5, 3):
        r = r * z + F32(2) / F32(n)
    r = r * z
    h = F32(0.5) * (f * f)
    return k * F32(0.693359375) + (f - (h - (s * (h + r) - k * F32(2.12194440e-4))))


def cos_turns(t):
    quadrant = (t + 0x200000) >> 22
    a = F32(t - (quadrant << 22)) * F32(3.74507028e-7)
    z = a * a
    s = F32(1) / F32(362880)
    for n, sign in ((5040, -1), (120, 1), (6, -1)):
        s = s * z + F32(sign) * (F32(1) / F32(n))
    s = a + a * (z * s)
    c = F32(-1) / F32(3628800)
    for n, sign in ((40320, 1), (720, -1), (24, 1)):
        c = c * z + F32(sign) * (F32(1) / F32(n))
    c = (F32(1) - F32(0.5) * z) + (z * z) * c
    y = np.where(quadrant & 1, s, c)
    return np.where((quadrant + 1) & 2, -y, y)


def normal(key, count):
    bits = mix(U64(key) + U64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=U64))
    u = (bits >> U64(40)).astype(np.int64) + 1
    radius = np.sqrt(F32(-2) * exact_log(F32(u) * F32(2.0 ** -24)))
    return radius * cos_turns(((bits & U64(0xFFFFFFFF)) >> U64(8)).astype(np.int64))


def to_bf16(x):
    """The 16 bits of each value, to nearest even."""
    u = x.view(U32)
    return ((u + U32(0x7FFF) + ((u >> U32(16)) & U32(1))) >> U32(16)).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(U32) << U32(16)).view(F32)


def parameters(m):
    """(name, shape, standard deviation in f64 or the constant as a str) by number."""
    std = m["init_std"]
    residual = std / math.sqrt(2.0 * m["layers"])
    width, heads, bias = m["width"], m["heads"] * m["head_dim"], m["bias"]
    qkv = heads + 2 * m["kv_heads"] * m["head_dim"]
    ffn_in = m["ffn"] * (2 if m["activation"] == "swiglu" else 1)
    rows = [("embed.weight", (m["vocab"], width), std)]

    def norm(name):
        rows.append((name + ".weight", (width,), "1"))
        if bias and m["norm"] == "layernorm":
            rows.append((name + ".bias", (width,), "0"))

    def linear(name, out, inner, value):
        rows.append((name + ".weight", (out, inner), value))
        if bias:
            rows.append((name + ".bias", (out,), "0"))

    if m["positions"] == "learned":
        rows.append(("position.weight", (m["seq_len"], width), std))
    for i in range(m["layers"]):
        layer = f"layers.{i}."
        norm(layer + "norm1")
        linear(layer + "qkv", qkv, width, std)
        if m["qk_norm"]:
            rows.append((layer + "q_norm.weight", (m["head_dim"],), "1"))
            rows.append((layer + "k_norm.weight", (m["head_dim"],), "1"))
        linear(layer + "attn_out", width, heads, residual)
        norm(layer + "norm2")
        linear(layer + "ffn_in", ffn_in, width, std)
        linear(layer + "ffn_out", width, m["ffn"], residual)
    norm("final_norm")
    if not m["tied"]:
        rows.append(("head.weight", (m["vocab"], width), std))
    return rows


def first_weights(config):
    """Of each parameter, in f32: what masters hold."""
    out, seed = {}, config["train"]["seed"]
    for number, (name, shape, value) in enumerate(parameters(config["model"])):
        count = math.prod(shape)
        if isinstance(value, str):
            x = np.full(count, F32(value))
        else:
            x = F32(value) * normal(make_key(seed, PURPOSE_INIT, 0, number), count)
        out[name] = x.reshape(shape)
    return out


# ---- tokens ----

def read_tokens(path, data):
    """The tokens of a file, and the bounds of its documents where its format has them."""
    if data["kind"] == "text":
        return np.fromfile(path, "u1"), np.zeros(1, np.int64)
    if data["format"] == "llmc":
        head = np.fromfile(path, "<i4", 256)
        kind = "<u2" if head[0] == 20240520 else "<u4"
        return np.fromfile(path, kind, offset=1024), np.zeros(1, np.int64)
    return read_shard(path[:-4] if path.endswith((".bin", ".idx")) else path)


class Part:
    """The tokens of a part that training reads, and its documents where they matter."""

    def __init__(self, data, named, number, root):
        self.number, self.layout = number, data.get("layout", "windows")
        self.restarts = data.get("positions") == "document"
        self.shuffled = data.get("order") == "documents"
        streams, starts, begin = [], [np.zeros(1, np.int64)], 0
        for path in named.get("paths") or [named["path"]]:
            tokens, bounds = read_tokens(os.path.join(root, path), data)
            streams.append(tokens)
            starts.append(begin + bounds[1:])
            begin += len(tokens)
        self.tokens, self.bounds = split(
            np.concatenate(streams), np.concatenate(starts),
            0 if data.get("eval_path") else data["holdout"],
            self.shuffled or self.layout != "windows")

    def packed(self, length):
        """The documents of each sequence."""
        sequences, room = [], 0
        for begin, end in zip(self.bounds[:-1], self.bounds[1:]):
            if begin == end:
                continue
            if end - begin > room:
                sequences.append([])
                room = length
            sequences[-1].append(self.tokens[begin:end])
            room = 0 if self.layout == "padded" else room - (end - begin)
        return sequences

    def sequence(self, seed, drawn, length):
        """The tokens of a sequence, and the place in it where the document of each begins."""
        whole = self.packed(length) if self.layout != "windows" else None
        count = (len(self.tokens) - 1) // length if whole is None else len(whole)
        number, epoch = place(seed, self.number, count, drawn)
        if whole is None:
            tokens, bounds = self.tokens, self.bounds
            if self.shuffled:
                tokens, bounds = shuffle(tokens, bounds, seed, self.number, epoch)
            at = np.arange(number * length, (number + 1) * length)
            starts = bounds[np.searchsorted(bounds, at, "right") - 1] - at[0]
            return tokens[at], np.maximum(starts, 0)
        tokens, starts = np.concatenate(whole[number]), []
        for document in whole[number]:
            starts += [len(starts)] * len(document)
        starts += range(len(starts), length)
        return np.append(tokens, [tokens[0]] * (length - len(tokens))), np.array(starts)

    def read(self, seed, drawn, length):
        """The tokens of a sequence and their positions."""
        tokens, starts = self.sequence(seed, drawn, length)
        return tokens, np.arange(length) - (starts if self.restarts else 0)


class Blend:
    """The parts of the data, and which of them a position draws from."""

    def __init__(self, data, root):
        named = data.get("parts") or [data]
        largest = max(part.get("weight", 1) for part in named)
        self.parts = [Part(data, part, i, root) for i, part in enumerate(named)]
        self.weights = [max(1, int(part.get("weight", 1) / largest * 2.0 ** 32 + 0.5))
                        for part in named]

    def draw(self, position):
        """(part, how many of its sequences were drawn before)"""
        for i, weight in enumerate(self.weights[:-1]):
            rest = sum(self.weights[i:])
            before = position * weight // rest
            if (position + 1) * weight // rest > before:
                return self.parts[i], before
            position -= before
        return self.parts[-1], position


def training_part(data, root):
    """What training reads; None for generated tokens."""
    return None if data["kind"] == "synthetic" else Blend(data, root)


def below(bits, n):
    return ((bits >> 32) * n) >> 32


def generated(data, config, sequence):
    key = make_key(data["seed"], PURPOSE_SYNTHETIC, 0, sequence)
    vocab = config["model"]["vocab"]
    tokens = [below(draw(key, 0), vocab)]
    for i in range(config["model"]["seq_len"] - 1):
        bits = draw(key, i + 1)
        tokens.append((tokens[-1] * 5 + 7) % vocab if bits % 8 else below(bits, vocab))
    return tokens


def micro_batch(config, part, first):
    """The tokens and positions [M, T] at `first` and the places in the order behind it."""
    train, length = config["train"], config["model"]["seq_len"]
    rows = []
    for position in range(first, first + train["micro_batch"]):
        if part is None:
            rows.append((generated(config["data"], config, position % (1 << 31)),
                         np.arange(length)))
            continue
        source, drawn = part.draw(position)
        rows.append(source.read(train["seed"], drawn, length))
    return [np.array(column, dtype=np.int64) for column in zip(*rows)]


# ---- what the run recorded ----

def fingerprint(bits):
    index = np.arange(bits.size, dtype=U64)
    with np.errstate(over="ignore"):
        terms = (bits.ravel().astype(U64) + U64(1)) * (U64(2) * mix(index) + U64(1))
        return int(terms.sum(dtype=U64))


def read_json(run, path):
    try:
        with open(os.path.join(run, "data", path), encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise NoSuchRun(f"{error.strerror}: {error.filename}; name a run's folder, such as "
                        "`fp8lab extract RUN` makes") from error


def read_columns(path):
    """The columns of a .cols file: bundle format 1."""
    with open(path, "rb") as file:
        raw = file.read()
    size, = struct.unpack_from("<Q", raw)
    head = json.loads(raw[8:8 + size])
    kinds = {"i64": "<i8", "f64": "<f8", "u32": "<u4", "u64": "<u8"}
    return {c["name"]: np.frombuffer(raw, kinds[c["type"]], head["rows"] * c["width"],
                                     8 + size + c["offset"]).reshape(head["rows"], c["width"])
            for c in head["columns"]}


def read_trace(run):
    """Fingerprints by step and name."""
    path = os.path.join(run, "data", "metrics", "trace.npy")
    old = os.path.join(run, "data", "trace.cols")
    if os.path.exists(path):
        columns = np.load(path)
    elif os.path.exists(old):
        columns = read_columns(old)
    else:
        raise NoSuchRun(f"there is no {path}: the run traced no step (trace.first, trace.every)")
    names = read_json(run, "metrics/trace_tensors.json")
    return {int(step): dict(zip(names, map(int, row)))
            for step, row in zip(columns["step"].ravel(), columns["fingerprints"])}


def read_safetensors(path):
    """Bits by name: uint16 of BF16, uint32 of F32."""
    with open(path, "rb") as file:
        raw = file.read()
    size, = struct.unpack_from("<Q", raw)
    kinds = {"BF16": "<u2", "F32": "<u4"}
    out = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__" or entry["dtype"] not in kinds:
            continue
        begin, end = (8 + size + at for at in entry["data_offsets"])
        out[name] = np.frombuffer(raw[begin:end], kinds[entry["dtype"]]).reshape(entry["shape"])
    return out


# ---- comparing ----

def compare_tensor(name, wanted, found):
    """A line that names the first difference; None: there is none."""
    if found is None:
        return f"{name} is not in the checkpoint"
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        return f"{name}: {found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    unlike = np.flatnonzero(wanted.ravel() != found.ravel())
    if not unlike.size:
        return None
    at = unlike[0]
    return (f"{name}, element {at}: {found.ravel()[at]:#x}, not {wanted.ravel()[at]:#x}; "
            f"{unlike.size} of {wanted.size} differ")


def compare_weights(run, weights, wide, trace):
    """Lines of what differs, and what was compared."""
    bits = {name: x.view(U32) if wide else to_bf16(x) for name, x in weights.items()}
    folder = os.path.join(run, "data", "checkpoints", "step-000000")
    if not os.path.isdir(folder):
        step = trace.get(1)
        if not step:
            raise NoSuchRun("neither a checkpoint of step 0 (checkpoint.init) nor a trace of "
                            "step 1 has the initial weights")
        lines = [f"{name}: fingerprint {step[name]:#x}, not {fingerprint(x):#x}"
                 for name, x in bits.items() if step[name] != fingerprint(x)]
        return lines, f"{len(bits)} weights, by fingerprint before step 1"
    found = read_safetensors(os.path.join(folder, "model.safetensors"))
    lines = [compare_tensor(name, x, found.get(name)) for name, x in bits.items()]
    lines += [f"{name} is unknown" for name in found if name not in bits]
    state, what = os.path.join(folder, "state.safetensors"), "weights"
    if os.path.exists(state):
        found = read_safetensors(state)
        masters = {"master:" + name: x.view(U32) for name, x in weights.items()
                   if "m:" + name in found}  # a frozen parameter has no state
        if any(name in found for name in masters):
            lines += [compare_tensor(name, x, found.get(name)) for name, x in masters.items()]
            what = "weights and their masters"
    return [line for line in lines if line], f"{len(bits)} {what}, each bit"


def embedding(weights, wide, tokens, positions):
    """The bits of the embedding's output: [M * T, width]."""
    keep = (lambda x: x) if wide else (lambda x: from_bf16(to_bf16(x)))
    out = keep(weights["embed.weight"])[tokens]
    if "position.weight" in weights:
        out = out + keep(weights["position.weight"])[positions]
    return out.view(U32) if wide else to_bf16(np.ascontiguousarray(out))


def compare_batches(config, world, part, weights, wide, trace):
    train = config["train"]
    stride = train["micro_batch"] * world
    last = (train["global_batch"] // stride - 1) * stride
    steps = [s for s in sorted(trace) if s == 1 or train["optimizer"]["lr"] == 0]
    lines = []
    for step in steps:
        read = micro_batch(config, part, (step - 1) * train["global_batch"] + last)
        wanted = fingerprint(embedding(weights, wide, *read))
        if wanted != trace[step]["out:embed"]:
            lines.append(f"step {step}: the embedding's output is {trace[step]['out:embed']:#x}, "
                         f"and {wanted:#x} with the batch that was expected")
    return lines, f"{len(steps)} of {len(trace)} traced steps, the last micro-batch of rank 0"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a run's folder: `fp8lab extract RUN` makes one")
    parser.add_argument("--data-root", default=".", help="where paths of data count from")
    options = parser.parse_args()
    config = read_json(options.run, "experiment/resolved.json")
    world = read_json(options.run, "decisions.json")["world"]
    trace = read_trace(options.run)
    wide = config["recipe"]["kind"] == "f32"
    weights = first_weights(config)
    part = training_part(config["data"], options.data_root)
    code = EQUAL
    for what, (lines, scope) in (
            ("initial weights", compare_weights(options.run, weights, wide, trace)),
            ("batches", compare_batches(config, world, part, weights, wide, trace))):
        print(f"{what}: {'different' if lines else 'equal'} ({scope})")
        for line in lines:
            print("  " + line)
            code = DIFFERENT
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (NoSuchRun, OSError) as failure:
        print(f"reproduce.py: {failure}", file=sys.stderr)
        sys.exit(USAGE)
