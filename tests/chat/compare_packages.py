#!/usr/bin/env python3
"""Compares `fp8lab data sample` with the package transformers, on generated conversations.

    compare_packages.py FP8LAB TEMPLATES [NAME...] [--count N] [--seed S] [--verbose]

TEMPLATES is a folder of *.jinja files, for example trl/chat_templates of the package trl. Both
programs render the same conversations, with and without a generation prompt. The texts must be
equal, and both must reject the same conversations. What fp8lab alone rejects as "not supported" is
counted by itself. One line a template; the exit code is 1 if anything differs. Needs transformers
and jinja2; run by hand.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

import jinja2
import transformers
from transformers.utils import chat_template_utils

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from conversations import generate  # noqa: E402

DATE = "2024-07-26"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


chat_template_utils.datetime = FixedClock


def theirs(template, row, prompt):
    """What tokenizer.apply_chat_template(..., tokenize=False) does, without a tokenizer."""
    messages = [{k: v for k, v in m.items() if v is not None} for m in row["messages"]]
    text, _ = chat_template_utils.render_jinja_template(
        [messages], tools=row.get("tools"), chat_template=template,
        add_generation_prompt=prompt, **TOKENS)
    return text[0]


def ours(fp8lab, template, config, rows, prompt):
    """The text or the error of each row."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        file.flush()
        command = [fp8lab, "data", "sample", "--json", "--show", "0", "--date", DATE,
                   "--skip-bad", str(len(rows)), "--template", str(template),
                   "--tokenizer-config", config, file.name]
        if prompt:
            command.append("--generation-prompt")
        done = subprocess.run(command, capture_output=True, timeout=600, check=False)
        if done.returncode:
            return [done.stderr.decode()] * len(rows), [True] * len(rows)
        result = json.loads(done.stdout)
        texts, failed = [None] * len(rows), [True] * len(rows)
        for shown in result["conversations"]:
            texts[shown["line"] - 1] = shown["text"]
            failed[shown["line"] - 1] = False
        for error in result["skipped"]:
            line = int(error.removeprefix(file.name + ":").split(":")[0])
            texts[line - 1] = error
        return texts, failed


def compare(fp8lab, path, config, rows):
    template = path.read_text(encoding="utf-8")
    equal = rejected = unsupported = 0
    differences = []
    for prompt in (False, True):
        texts, failed = ours(fp8lab, path, config, rows, prompt)
        for row, text, bad in zip(rows, texts, failed):
            try:
                wanted, wanted_bad = theirs(template, row, prompt), False
            except Exception as error:  # whatever the template raises
                wanted, wanted_bad = f"{type(error).__name__}: {error}", True
            if bad and wanted_bad:
                rejected += 1
            elif text == wanted and not bad and not wanted_bad:
                equal += 1
            elif bad and "not supported" in text:
                unsupported += 1
            else:
                differences.append((row, text, wanted))
    return equal, rejected, unsupported, differences


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp8lab")
    parser.add_argument("templates", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print the first difference")
    given = parser.parse_intermixed_args()
    print(f"transformers {transformers.__version__}, jinja2 {jinja2.__version__}; "
          f"{given.count} conversations, each with and without a generation prompt")
    rows = list(generate(given.seed, given.count))
    different = 0
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump(TOKENS, config)
        config.flush()
        for path in sorted(given.templates.glob("*.jinja")):
            if given.names and path.stem not in given.names:
                continue
            equal, rejected, unsupported, found = compare(given.fp8lab, path, config.name, rows)
            different += len(found)
            print(f"{path.stem:32} {equal:5} equal {rejected:5} rejected by both "
                  f"{unsupported:5} not supported {len(found):5} different", flush=True)
            if found and given.verbose:
                row, text, wanted = found[0]
                print(json.dumps(row, ensure_ascii=False), repr(text), repr(wanted), sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
