#!/usr/bin/env python3
"""Compares split patterns that fp8lab leaves to Oniguruma with the package tokenizers.

    compare_patterns.py [--strings 400] [--seed 1]

Each pattern with each behaviour, turned round or not, splits random strings. Each piece is then
one token for each pair of its bytes, so pieces that end elsewhere have other ids. The characters
are older than any Oniguruma that is in use, whose Unicode tables differ. Exit code 1, with the
first difference, if there is one.
"""
import argparse
import json
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import families  # noqa: E402
from compare_packages import check, encode_all, tokenise, write_lines  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

PATTERNS = [
    r"\w+", r"[\w']+", r"\W", r"\b", r"\d+", r"\h+", r"\R", r"\X", r"\s+$", r"^\s+", r"$", r"^",
    r"\n?$", r"\G\s", r"(?m).+", r"(?i)ss|st", r"(?i)ﬀ|k", r"(?=[A-Z])", r"(?<=\s)\S", r"\K.",
    r"\p{N}{1,3}+", r"a{,2}b", r"[a-z&&[^aeiou]]+", r"[[:alpha:]]+", r"[^[:space:]]+", r"\p{Han}+",
    r"\p{^L}+", r"\P{L}+", r"[\s\S]{2}", r"(?<n>a|\s)\k<n>", r"(?:ab|a)(?>b|c)?", r"x*", r"|a",
    families.CL100K, families.CL100K.replace("++", "+"),
]
BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
CHARACTERS = ["a", "b", "c", "x", "e", "S", "s", "t", "K", "k", "'", "'s", "'RE", "9", "12", "_",
              "-", ".", " ", "  ", "\t", "\n", "\r\n", "\n\n", "é", "ß", "Ж", "中", "あ", "e\u0301",
              "ǅ", "ª", "\u00a0", "\u3000", "\x85", "\u2028", "\u200b", "\u203f", "€", "٣", "½",
              "😀", "👩\u200d👧", "🇩🇪", "ſ", "ﬀ", "\u212a"]


def make(pattern, behavior, invert, pairs):
    """tokenizer.json whose tokens are the bytes, and pairs of them."""
    byte_level = families.byte_level()
    vocab = {c: i for i, c in enumerate(families.byte_characters())}
    for a, b in pairs:
        vocab.setdefault(a + b, len(vocab))
    split = families.split(pattern, behavior, invert)
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "post_processor": None, "decoder": byte_level,
            "pre_tokenizer": families.sequence(split, byte_level),
            "model": {"type": "BPE", "vocab": vocab, "merges": [" ".join(p) for p in pairs]}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strings", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    texts = ["".join(draw.choice(CHARACTERS) * draw.choice([1, 1, 1, 2, 5])
                     for _ in range(draw.choice([1, 2, 4, 8, 16]))) for _ in range(args.strings)]
    name = families.byte_characters()
    pairs = sorted({(name[x], name[y]) for t in texts for x, y in zip(t.encode(), t.encode()[1:])})
    with tempfile.TemporaryDirectory() as folder:
        path, lines = os.path.join(folder, "t.json"), os.path.join(folder, "t.jsonl")
        write_lines(lines, texts)
        for pattern in PATTERNS:
            for behavior in BEHAVIORS:
                for invert in (False, True):
                    file = make(pattern, behavior, invert, pairs)
                    with open(path, "w", encoding="utf-8") as f:
                        json.dump(file, f)
                    ours = tokenise(folder, path, [lines])
                    check(f"{pattern} {behavior} {invert}", texts, ours,
                          encode_all(Tokenizer.from_file(path), texts))
    print(f"{len(PATTERNS)} patterns, {len(BEHAVIORS)} behaviours, {len(texts)} strings: the same "
          "ids")


if __name__ == "__main__":
    main()
