#!/usr/bin/env python3
"""Writes recorded_tokens.jsonl: what transformers and tokenizers make of whole conversations.

    record_tokens.py >recorded_tokens.jsonl

Run it by hand with the packages of tests/support/requirements.txt. Each line has `template` (a file
in templates/), `tokenizer` (one in ../ingest/recorded/), `row`, `ids` of the rendered text without
the post-processor's, and `loss`: a digit for each id. The text with loss is found here by a regular
expression, and a token has loss if its last character is in it. The first line names the releases.
"""

import json
import pathlib
import re
import sys

import tokenizers
import transformers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import compare_packages  # noqa: E402
from conversations import generate  # noqa: E402

CHATML = re.compile(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", re.DOTALL)
MISTRAL = re.compile(r"\[/(?:INST|TOOL_RESULTS)\](?!\[TOOL_RESULTS\])(.*?</s>)", re.DOTALL)
PAIRS = [("chatml", "qwen2", CHATML), ("smollm2", "smollm2", CHATML), ("thinking", "qwen2", CHATML),
         ("thinking", "llama3", CHATML), ("mistral", "mistral", MISTRAL),
         ("mistral", "metaspace", MISTRAL), ("chatml", "others", CHATML)]


def main():
    print(json.dumps({"transformers": transformers.__version__,
                      "tokenizers": tokenizers.__version__, "date": compare_packages.DATE,
                      "tokens": compare_packages.TOKENS}))
    for template, name, pattern in PAIRS:
        source = (HERE / "templates" / f"{template}.jinja").read_text(encoding="utf-8")
        encoder = tokenizers.Tokenizer.from_file(str(HERE / f"../ingest/recorded/{name}.json"))
        kept = 0
        for row in generate(11, 200):
            try:
                text = compare_packages.theirs(source, row, False)
            except Exception:  # the template rejects it
                continue
            whole = encoder.encode(text, add_special_tokens=False)
            has = [False] * len(text)
            for match in pattern.finditer(text):
                has[match.start(1):match.end(1)] = [True] * (match.end(1) - match.start(1))
            loss = "".join("01"[end > 0 and has[end - 1]] for _, end in whole.offsets)
            if "1" not in loss:
                continue
            print(json.dumps({"template": f"{template}.jinja", "tokenizer": f"{name}.json",
                              "row": row, "ids": whole.ids, "loss": loss}, ensure_ascii=False,
                             separators=(",", ":")))
            kept += 1
            if kept == 6:
                break


if __name__ == "__main__":
    main()
