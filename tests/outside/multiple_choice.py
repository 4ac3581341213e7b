#!/usr/bin/env python3
"""Multiple choice in llm.c's file format: makes a file, or answers one by the rule in numpy.

    multiple_choice.py make FILE TEXT COUNT    COUNT questions about the bytes of TEXT
    multiple_choice.py score FILE RUN STEP     of a run's folder; prints "RIGHT LOSS"

A question is a piece of the text; one completion is what follows, the others are from elsewhere.
"""
import json
import os
import struct
import sys

COMPLETIONS = 4


def numbers(seed):
    """A fixed sequence, the same in every version of Python."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        yield seed >> 33


def make(path, text, count):
    text, draw = open(text, "rb").read(), numbers(7)
    below = lambda n: next(draw) % n
    rows = []
    for i in range(int(count)):
        label, size = below(COMPLETIONS), 8 + below(10)
        at = below(len(text) - size - 10)
        words = [label, COMPLETIONS, size, *text[at:at + size]]
        for k in range(COMPLETIONS):
            n = 2 + below(8)
            begin = at + size if k == label else below(len(text) - n)
            words += [n, *text[begin:begin + n]]
        rows.append(struct.pack(f"<{len(words) + 3}H", 65535, 2 * len(words) + 6, i, *words))
    head = struct.pack("<256i", 20240522, 1, len(rows), max(map(len, rows)), *[0] * 252)
    open(path, "wb").write(head + b"".join(rows))


def questions(path):
    """[(label, context, [completions])]"""
    data = open(path, "rb").read()
    count = struct.unpack_from("<i", data, 8)[0]
    words = struct.unpack(f"<{(len(data) - 1024) // 2}H", data[1024:])
    at = 0
    for _ in range(count):
        label, many, pieces, next_ = words[at + 3], words[at + 4], [], at + 5
        for _ in range(1 + many):
            n = words[next_]
            pieces.append(words[next_ + 1:next_ + 1 + n])
            next_ += 1 + n
        yield label, pieces[0], pieces[1:]
        at = next_


def score(path, run, step):
    import numpy as np
    from greedy import hidden, weights
    m = json.load(open(os.path.join(run, "data/experiment/resolved.json")))["model"]
    w = weights(os.path.join(step, "model.safetensors"))
    right, total, asked = 0, 0.0, 0
    for label, context, completions in questions(path):
        means = []
        for completion in completions:
            row = np.array([[*context, *completion]])
            x = (hidden(w, m, row)[0] @ w["head.weight"].T).astype(np.float64)
            largest = x.max(axis=-1, keepdims=True)
            log_p = x - largest - np.log(np.exp(x - largest).sum(axis=-1, keepdims=True))
            at = np.arange(len(context) - 1, row.shape[1] - 1)
            means.append(-log_p[at, row[0, 1:][at]].mean())
        right += int(np.argmin(means)) == label
        total += means[label]
        asked += 1
    print(f"{right} {total / asked:.7f}")


if __name__ == "__main__":
    {"make": make, "score": score}[sys.argv[1]](*sys.argv[2:])
