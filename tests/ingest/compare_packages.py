#!/usr/bin/env python3
"""Compares `fp8lab data tokenise` with the packages tokenizers and tiktoken, token by token.

    compare_packages.py [--vocab 1000,32000] [--mb 2] [--strings 20000] [--family NAME]...

`make test-venv` installs the packages in build/venv.

For each family it trains a tokenizer, makes text in many scripts, encodes it with both, and
compares all ids. Then it does the same with short random strings, each a document of its own, and
with texts that are no UTF-8, as whole files. Several vocabularies are cut from one training. Exit
code 1, with the first difference, if there is one. FP8LAB names the program; default
build/release/fp8lab.
"""
import argparse
import base64
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


class Flat:
    """The ids of many documents, one behind the other, and where each ends."""

    def __init__(self):
        self.parts, self.ends = [], [0]

    def add(self, lists):
        flat = []
        for ids in lists:
            flat += ids
            self.ends.append(self.ends[-1] + len(ids))
        self.parts.append(np.array(flat, np.int64))

    def all(self):
        self.parts = [np.concatenate(self.parts)] if self.parts else [np.zeros(0, np.int64)]
        return self.parts[0], np.array(self.ends)


def check(what, texts, ours, theirs):
    """All ids, and the number of each document's."""
    ids, ends = ours
    want, want_ends = theirs
    assert len(ends) - 1 == len(texts), (what, len(ends) - 1, len(texts))
    if np.array_equal(ids, want) and np.array_equal(ends, want_ends):
        return
    for i, text in enumerate(texts):
        got = ids[ends[i]:ends[i + 1]].tolist()
        one = want[want_ends[i]:want_ends[i + 1]].tolist()
        if got == one:
            continue
        at = next((k for k in range(min(len(got), len(one))) if got[k] != one[k]),
                  min(len(got), len(one)))
        sys.exit(f"DIFFERENT: {what}, document {i}, token {at} of {len(one)}\n"
                 f"  text   {text[:300]!r}\n  fp8lab {got[max(0, at - 5):at + 8]}\n"
                 f"  theirs {one[max(0, at - 5):at + 8]}")


def encode_all(tok, texts):
    out = Flat()
    for at in range(0, len(texts), 5000):
        out.add(e.ids for e in tok.encode_batch_fast(texts[at:at + 5000]))
    return out.all()


def encode_ordinary(tok, texts, found, added, begin):
    """encode_all() with special tokens as text. `found` is that without: a document has other ids
    only if it has one of the added tokens' there, behind the `begin` that a template sets."""
    ids, ends = found
    near = np.concatenate([[0], np.cumsum(np.isin(ids, added))])
    has = near[ends[1:]] > near[np.minimum(ends[:-1] + begin, ends[1:])]
    tok.encode_special_tokens = True
    again, again_ends = encode_all(tok, [texts[i] for i in np.flatnonzero(has)])
    tok.encode_special_tokens = False
    out, k = Flat(), 0
    for i, other in enumerate(has):
        out.parts.append(again[again_ends[k]:again_ends[k + 1]] if other
                         else ids[ends[i]:ends[i + 1]])
        out.ends.append(out.ends[-1] + len(out.parts[-1]))
        k += int(other)
    return out.all()


def trained(name, args):
    """A tokenizer for each size of --vocab, the largest first."""
    last = None
    for vocab in sorted(args.vocab, reverse=True):
        if not last or families.alphabet(name, vocab) != last[0]:
            last = families.alphabet(name, vocab), families.train(name, args.training, vocab)
        yield families.complete(name, families.cut(name, last[1], vocab))


def with_added(file, big, seed):
    """The texts with the added tokens in between."""
    draw = random.Random(seed)
    texts, added = list(big), [t["content"] for t in file["added_tokens"]]
    for _ in range(len(texts) // 20):
        i = draw.randrange(len(texts))
        texts[i] = texts[i][:9] + draw.choice(["", " ", "\n"]) + draw.choice(added) + texts[i][9:]
    return texts


def one_family(name, file, args, folder, big, short):
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(file, f, ensure_ascii=False)
    tok = Tokenizer.from_file(path)
    lines = os.path.join(folder, "text.jsonl")
    texts = with_added(file, big, args.seed + 7)
    write_lines(lines, texts)
    theirs = encode_all(tok, texts)
    check(f"{name} text", texts, tokenise(folder, path, [lines]), theirs)
    ordinary = encode_ordinary(tok, texts, theirs, [t["id"] for t in file["added_tokens"]],
                               int(bool(file["post_processor"])))
    check(f"{name} ordinary", texts, tokenise(folder, path, [lines], "--ordinary"), ordinary)
    write_lines(lines, short)
    check(f"{name} strings", short, tokenise(folder, path, [lines]), encode_all(tok, short))

    # Whole files, which are cut for the threads; one is broken UTF-8.
    draw = random.Random(args.seed + 8)
    whole = "".join(texts)[:3_000_000].encode()
    broken = bytearray(whole)
    for _ in range(3000):
        broken[draw.randrange(len(broken))] = draw.randrange(256)
    files = [data.decode("utf-8", "replace") for data in (whole, bytes(broken))]
    theirs = encode_all(tok, files)
    for i, data in enumerate((whole, bytes(broken))):
        plain = os.path.join(folder, "text.txt")
        with open(plain, "wb") as f:
            f.write(data)
        ids = theirs[0][theirs[1][i]:theirs[1][i + 1]]
        check(f"{name} file", files[i:i + 1], tokenise(folder, path, [plain], "--threads", "3"),
              (ids, np.array([0, len(ids)])))
    print(f"{name:10} {len(file['model']['vocab'])} tokens: equal on {len(texts)} texts, "
          f"{len(short)} strings, 2 files; {time.time() - args.begin:.0f} s", flush=True)


def one_tiktoken(name, pattern, file, args, folder, big, short):
    rank = families.ranks("gpt2", file)
    path = os.path.join(folder, "ranks.tiktoken")
    with open(path, "w", encoding="ascii") as f:
        for token, i in rank.items():
            f.write(f"{base64.b64encode(token).decode()} {i}\n")
    tok = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=rank, special_tokens={})
    lines = os.path.join(folder, "text.jsonl")
    for what, texts in (("text", big), ("strings", short)):
        write_lines(lines, texts)
        theirs = Flat()
        theirs.add(tok.encode_ordinary_batch(texts, num_threads=2))
        check(f"tiktoken {name} {what}", texts,
              tokenise(folder, path, [lines], "--pattern", name), theirs.all())
    print(f"tiktoken {name:6} {len(rank)} tokens: equal on {len(big)} texts, {len(short)} strings; "
          f"{time.time() - args.begin:.0f} s", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", type=lambda s: list(map(int, s.split(","))), default=[1000])
    p.add_argument("--train", type=float, default=0.5, help="millions of characters to train on")
    p.add_argument("--mb", type=float, default=2)
    p.add_argument("--strings", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--family", action="append")
    args = p.parse_args()
    args.begin = time.time()
    args.training = families.mixed(1, int(args.train * 1e6))
    print(f"tokenizers {version('tokenizers')}, tiktoken {version('tiktoken')}")
    big = families.mixed(args.seed + 100, int(args.mb * 500_000))
    draw = random.Random(args.seed)
    short = [families.string(draw) for _ in range(args.strings)]
    with tempfile.TemporaryDirectory() as folder:
        print(f"{sum(len(t.encode()) for t in big) / 1e6:.1f} MB of text, "
              f"{sum(len(t.encode()) for t in short) / 1e6:.1f} MB of strings", flush=True)
        for name in args.family or families.FAMILIES:
            if name in families.FAMILIES:
                for file in trained(name, args):
                    one_family(name, file, args, folder, big, short)
        asked = [t for t in TIKTOKEN if not args.family or f"tiktoken-{t}" in args.family]
        for file in trained("gpt2", args) if asked else []:
            for name in asked:
                one_tiktoken(name, TIKTOKEN[name], file, args, folder, big, short)
    print(f"no difference; {time.time() - args.begin:.0f} s")


if __name__ == "__main__":
    main()
