#!/usr/bin/env python3
"""Compares `fp8lab data tokenise` with the packages tokenizers and tiktoken, token by token.

    compare_packages.py [--vocab 1000] [--mb 2] [--strings 20000] [--family NAME]... [--seed 1]

`make test-venv` installs the packages in build/venv.

For each family it trains a small tokenizer, makes text in many scripts, encodes it with both, and
compares all ids. Then it does the same with short random strings, each a document of its own, and
with texts that are no UTF-8, as whole files. It also decodes. Exit code 1, with the first
difference, if there is one. FP8LAB names the program; default build/release/fp8lab.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import families  # noqa: E402
import tiktoken  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

FP8LAB = os.environ.get("FP8LAB", "build/release/fp8lab")
TIKTOKEN = {"cl100k": families.CL100K, "o200k": families.O200K, "gpt2": families.GPT2}


def tokenise(folder, tokenizer, paths, *flags):
    """The ids of each document, by fp8lab."""
    prefix = os.path.join(folder, "out")
    for suffix in ("bin", "idx", "json"):
        if os.path.exists(f"{prefix}.{suffix}"):
            os.remove(f"{prefix}.{suffix}")
    subprocess.run([FP8LAB, "data", "tokenise", "-q", "--tokenizer", tokenizer, "--to", prefix,
                    "--eod", "none", *flags, *paths], check=True, stdout=subprocess.DEVNULL)
    with open(prefix + ".idx", "rb") as f:
        index = f.read()
    count = int.from_bytes(index[18:26], "little")
    lengths = np.frombuffer(index, "<i4", count, 34)
    ids = np.fromfile(prefix + ".bin", {8: "<u2", 4: "<i4"}[index[17]]).astype(np.int64)
    assert lengths.sum() == len(ids)
    return ids, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def write_lines(path, texts):
    with open(path, "w", encoding="utf-8") as f:
        for text in texts:
            f.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def check(what, texts, ours, theirs):
    """All ids; theirs is a list of lists."""
    ids, ends = ours
    assert len(ends) - 1 == len(texts), (what, len(ends) - 1, len(texts))
    flat = np.fromiter((i for t in theirs for i in t), np.int64)
    if len(flat) == len(ids) and (flat == ids).all():
        return
    for i, want in enumerate(theirs):
        got = ids[ends[i]:ends[i + 1]].tolist()
        if got != want:
            at = next((k for k in range(min(len(got), len(want))) if got[k] != want[k]),
                      min(len(got), len(want)))
            sys.exit(f"DIFFERENT: {what}, document {i}, token {at} of {len(want)}\n"
                     f"  text   {texts[i][:300]!r}\n  fp8lab {got[max(0, at - 5):at + 8]}\n"
                     f"  theirs {want[max(0, at - 5):at + 8]}")


def encode_all(tok, texts):
    out = []
    for at in range(0, len(texts), 20000):
        out += [e.ids for e in tok.encode_batch_fast(texts[at:at + 20000])]
    return out


def one_family(name, args, folder, big, short):
    file = families.make(name, families.mixed(1, int(args.train * 1e6)), args.vocab)
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(file, f, ensure_ascii=False)
    tok = Tokenizer.from_file(path)
    lines = os.path.join(folder, "text.jsonl")
    added = [t["content"] for t in file["added_tokens"]]
    draw = random.Random(args.seed + 7)
    texts = list(big)  # with the added tokens in between
    for _ in range(len(texts) // 20):
        i = draw.randrange(len(texts))
        texts[i] = texts[i][:9] + draw.choice(["", " ", "\n"]) + draw.choice(added) + texts[i][9:]
    write_lines(lines, texts)
    check(f"{name} text", texts, tokenise(folder, path, [lines]), encode_all(tok, texts))
    tok.encode_special_tokens = True
    check(f"{name} ordinary", texts, tokenise(folder, path, [lines], "--ordinary"),
          encode_all(tok, texts))
    tok.encode_special_tokens = False
    write_lines(lines, short)
    theirs = encode_all(tok, short)
    check(f"{name} strings", short, tokenise(folder, path, [lines]), theirs)

    # Whole files, which are cut for the threads; one is broken UTF-8.
    whole = "".join(texts)[:3_000_000].encode()
    broken = bytearray(whole)
    for _ in range(3000):
        broken[draw.randrange(len(broken))] = draw.randrange(256)
    for data in (whole, bytes(broken)):
        plain = os.path.join(folder, "text.txt")
        with open(plain, "wb") as f:
            f.write(data)
        text = data.decode("utf-8", "replace")
        check(f"{name} file", [text], tokenise(folder, path, [plain], "--threads", "3"),
              [tok.encode(text).ids])
    print(f"{name:10} {len(file['model']['vocab'])} tokens: equal on {len(texts)} texts, "
          f"{len(short)} strings, 2 files", flush=True)


def one_tiktoken(name, pattern, args, folder, big, short):
    file = families.make("gpt2", families.mixed(1, int(args.train * 1e6)), args.vocab)
    rank = families.ranks("gpt2", file)
    path = os.path.join(folder, "ranks.tiktoken")
    import base64
    with open(path, "w", encoding="ascii") as f:
        for token, i in rank.items():
            f.write(f"{base64.b64encode(token).decode()} {i}\n")
    tok = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=rank, special_tokens={})
    lines = os.path.join(folder, "text.jsonl")
    for what, texts in (("text", big), ("strings", short)):
        write_lines(lines, texts)
        theirs = tok.encode_ordinary_batch(texts, num_threads=2)
        check(f"tiktoken {name} {what}", texts,
              tokenise(folder, path, [lines], "--pattern", name), theirs)
    print(f"tiktoken {name:6} {len(rank)} tokens: equal on {len(big)} texts, {len(short)} strings",
          flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", type=int, default=1000)
    p.add_argument("--train", type=float, default=0.5, help="millions of characters to train on")
    p.add_argument("--mb", type=float, default=2)
    p.add_argument("--strings", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--family", action="append")
    args = p.parse_args()
    begin = time.time()
    print(f"tokenizers {version('tokenizers')}, tiktoken {version('tiktoken')}")
    big = families.mixed(args.seed + 100, int(args.mb * 500_000))
    draw = random.Random(args.seed)
    short = [families.string(draw) for _ in range(args.strings)]
    with tempfile.TemporaryDirectory() as folder:
        print(f"{sum(len(t.encode()) for t in big) / 1e6:.1f} MB of text, "
              f"{sum(len(t.encode()) for t in short) / 1e6:.1f} MB of strings", flush=True)
        for name in args.family or families.FAMILIES:
            if name in families.FAMILIES:
                one_family(name, args, folder, big, short)
        for name, pattern in TIKTOKEN.items():
            if not args.family or f"tiktoken-{name}" in args.family:
                one_tiktoken(name, pattern, args, folder, big, short)
    print(f"no difference; {time.time() - begin:.0f} s")


main()
