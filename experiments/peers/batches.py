#!/usr/bin/env python3
"""Prints the tokens of each sequence of one training step, a line a sequence.

    batches.py PREFIX HOLDOUT SEED SEQ_LEN GLOBAL_BATCH STEP [documents]

Of data = tokens { path = PREFIX, holdout = HOLDOUT (0.01) }: PREFIX.bin and .idx. Then train.seed,
model.seq_len, train.global_batch, a step from 1; `documents` is order = "documents". The rules are
those of model/NUMERICS.md, "Which tokens a step reads". reproduce.py knows other data too."""
import sys
import numpy as np
WORD = (1 << 64) - 1

def mix(x):  # an int, or an array of uint64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & WORD
    return x ^ (x >> 31)

def make_key(seed, purpose, step, tensor):
    k = mix(mix((seed + 0x9E3779B97F4A7C15) & WORD) ^ (purpose << 56) ^ step)
    return mix(k ^ (tensor * 0xD1342543DE82EF95 & WORD))

def draw(key, i):
    return mix((key + 0x9E3779B97F4A7C15 * (i + 1)) & WORD)

def permute(key, n, x):
    half = next(h for h in range(1, 33) if 4 ** h >= n)
    left, right = x >> half, x % 2 ** half
    for turn in range(4):
        left, right = right, left ^ (draw(key, right * 4 + turn) % 2 ** half)
    x = left << half | right
    return x if x < n else permute(key, n, x)

def read_shard(prefix):  # the tokens, and the bounds of the documents: 0, ..., the last one's end
    raw = open(prefix + ".idx", "rb").read()
    sequences, ends = np.frombuffer(raw, "<u8", 2, 18).tolist()
    first = np.append(0, np.cumsum(np.frombuffer(raw, "<i4", sequences, 34)))
    tokens = np.fromfile(prefix + ".bin", {1: "u1", 4: "<i4", 8: "<u2"}[raw[17]])
    return tokens, first[np.frombuffer(raw, "<i8", ends, 34 + 12 * sequences)]

def split(tokens, bounds, holdout, whole):  # what is for training; whole: whole documents
    kept = int(len(tokens) * (1 - holdout))
    bounds = bounds[bounds <= kept] if whole else bounds
    return tokens[:bounds[-1] if whole else kept], bounds

def shuffle(tokens, bounds, seed, part, epoch):  # the documents of an epoch, and their bounds
    key, documents = make_key(seed, 5, part, epoch), np.split(tokens, bounds[1:-1])
    rows = [documents[permute(key, len(documents), i)] for i in range(len(documents))]
    return np.concatenate(rows), np.cumsum([0] + [len(row) for row in rows])

def place(seed, part, count, drawn):  # which of `count` sequences it is, and in which epoch
    key = make_key(seed, 3, part, drawn // count)
    return permute(key, count, drawn % count), drawn // count

if __name__ == "__main__":
    seed, T, G, step = map(int, sys.argv[3:7]) if len(sys.argv) in (7, 8) else sys.exit(__doc__)
    tokens, bounds = split(*read_shard(sys.argv[1]), float(sys.argv[2]), sys.argv[7:])
    for position in range((step - 1) * G, step * G):
        j, epoch = place(seed, 0, (len(tokens) - 1) // T, position)
        stream = shuffle(tokens, bounds, seed, 0, epoch)[0] if sys.argv[7:] else tokens
        print(*stream[j * T:(j + 1) * T])
