#!/usr/bin/env python3
"""Compares `fp8lab data tokenise --chat` with the packages transformers and tokenizers.

    compare_tokens.py FP8LAB TEMPLATES [NAME...] [--tokenizer NAME]... [--count N] [--seed S]

TEMPLATES is a folder of *.jinja files, as for compare_packages.py. Each renders the same generated
conversations; each tokenizer of ../ingest/recorded encodes them. The ids must be those of
`tokenizers` for the text of `transformers`. The loss must be what the ranges of `data sample` give
with the offsets of `tokenizers`: a token has loss if its last character has. One line a template
and tokenizer; the exit code is 1 if anything differs.
"""

import argparse
import array
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import tokenizers
import transformers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import compare_packages  # noqa: E402
from conversations import generate  # noqa: E402

RECORDED = HERE / "../ingest/recorded"


def theirs(template, encoder, rows, ranges):
    """The ids and loss of each conversation that has loss."""
    out = []
    for line, row in enumerate(rows, 1):
        try:
            text = compare_packages.theirs(template, row, False)
        except Exception:  # the template rejects it
            continue
        if line not in ranges:
            continue
        has = bytearray(len(text.encode()))
        for begin, end in ranges[line]:
            has[begin:end] = b"\1" * (end - begin)
        ends, at = [0], 0
        for character in text:
            at += len(character.encode())
            ends.append(at)
        whole = encoder.encode(text, add_special_tokens=False)
        loss = bytes(has[ends[end] - 1] if end else 0 for _, end in whole.offsets)
        if any(loss):
            out.append((whole.ids, loss))
    return out


def ours(fp8lab, template, config, tokenizer, rows, folder):
    path, prefix = f"{folder}/in.jsonl", f"{folder}/out"
    for old in pathlib.Path(folder).glob("*"):
        old.unlink()
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    subprocess.run([fp8lab, "data", "tokenise", "--chat", "-q", "--to", prefix, "--date",
                    compare_packages.DATE, "--template", template, "--tokenizer-config", config,
                    "--tokenizer", tokenizer, "--skip-bad", str(len(rows)), path],
                   check=True, capture_output=True)
    size = json.load(open(prefix + ".json"))["shards"]["token_bytes"]
    ids = array.array("HI"[size == 4], open(prefix + ".bin", "rb").read())
    loss, idx = open(prefix + ".loss", "rb").read(), open(prefix + ".idx", "rb").read()
    count, = struct.unpack_from("<Q", idx, 18)
    out, at = [], 0
    for n in struct.unpack_from(f"<{count}i", idx, 34):
        out.append((list(ids[at:at + n]), loss[at:at + n]))
        at += n
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp8lab")
    parser.add_argument("templates", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tokenizer", action="append")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_intermixed_args()
    rows = list(generate(given.seed, given.count))
    different = 0
    print(f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}; "
          f"{given.count} conversations")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config, \
            tempfile.TemporaryDirectory() as folder:
        json.dump(compare_packages.TOKENS, config)
        config.flush()
        for path in sorted(given.templates.glob("*.jinja")):
            if given.names and path.stem not in given.names:
                continue
            shown = compare_packages.sample(given.fp8lab, path, config.name, rows, False)
            ranges = {one["line"]: one["loss"] for one in shown["conversations"]}
            for name in given.tokenizer or ["qwen2", "llama3", "mistral"]:
                file = str(RECORDED / f"{name}.json")
                encoder = tokenizers.Tokenizer.from_file(file)
                wanted = theirs(path.read_text(encoding="utf-8"), encoder, rows, ranges)
                if not wanted:
                    print(f"{path.stem:32} {name:10} no conversation has loss")
                    continue
                found = ours(given.fp8lab, str(path), config.name, file, rows, folder)
                equal = sum(a == b for a, b in zip(found, wanted))
                failed = max(len(found), len(wanted)) - equal
                different += failed
                print(f"{path.stem:32} {name:10} {equal:5} equal, {sum(len(i) for i, _ in wanted)} "
                      f"tokens {failed:5} different", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
