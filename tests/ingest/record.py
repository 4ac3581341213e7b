#!/usr/bin/env python3
"""Makes tests/ingest/recorded/: small tokenizers, texts, and what the packages make of them.

    pip install tokenizers==0.23.3 tiktoken==0.14.0 && python3 tests/ingest/record.py

NAME.json or NAME.tiktoken is a tokenizer. NAME.ids has a line of ids for each line of texts.jsonl,
with the post-processor's ids. Its last line is the SHA-256 of all texts decoded again, each with a
newline.
"""
import base64
import hashlib
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import families  # noqa: E402
import tiktoken  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")
TIKTOKEN = {"gpt2": families.GPT2, "cl100k": families.CL100K, "o200k": families.O200K}
ADDED = ["a<|endoftext|>b", "<|im_start|>user\nhi<|im_end|>\n", "<s>x</s> y", " <unk>",
         "<｜begin▁of▁sentence｜> x", "<|begin_of_text|><|eot_id|>", "<tool_call>{}", "<|im_",
         "▁▁a ▁b", "x \t<mask> y", "foobar foo  \n foob", "ö< o\u0308< \u00f6 <"]


def write(name, text):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        f.write(text)


def write_ids(name, ids, decoded):
    digest = hashlib.sha256("".join(t + "\n" for t in decoded).encode()).hexdigest()
    write(name + ".ids", "".join(" ".join(map(str, i)) + "\n" for i in ids) + digest + "\n")


def main():
    os.makedirs(HERE, exist_ok=True)
    draw = random.Random(5)
    texts = ADDED + ["a" * 300, " " * 90 + "x", "1234567 12345678901", "\n\n  \n x\r\n"]
    texts += [families.string(draw) for _ in range(240)]
    write("texts.jsonl", "".join(json.dumps({"text": t}) + "\n" for t in texts))
    train = families.mixed(1, 400_000)
    for name in families.FAMILIES:
        file = families.make(name, train, 700)
        write(name + ".json", json.dumps(file, ensure_ascii=False, separators=(",", ":")) + "\n")
        tok = Tokenizer.from_str(json.dumps(file))
        ids = [tok.encode(text).ids for text in texts]
        write_ids(name, ids, [tok.decode(i, skip_special_tokens=False) for i in ids])
    rank = families.ranks("gpt2", families.make("gpt2", train, 700))
    write("ranks.tiktoken", "".join(f"{base64.b64encode(t).decode()} {i}\n"
                                    for t, i in rank.items()))
    for name, pattern in TIKTOKEN.items():
        tok = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=rank, special_tokens={})
        ids = [tok.encode_ordinary(text) for text in texts]
        write_ids("tiktoken_" + name, ids, [tok.decode(i) for i in ids])


main()
