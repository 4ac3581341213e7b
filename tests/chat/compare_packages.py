#!/usr/bin/env python3
"""Compares `fp8lab data sample` with the package transformers, on generated conversations.

    compare_packages.py FP8LAB TEMPLATES [NAME...] [--count N] [--seed S] [--verbose] [--loss]

TEMPLATES is a folder of *.jinja files, for example trl/chat_templates of the package trl
(`pip download --no-deps trl==1.16.0` and unzip). Both programs render the same conversations, with
and without a generation prompt. The texts must be equal, and both must reject the same
conversations. What fp8lab alone rejects as "not supported" is counted by itself. One line a
template; the exit code is 1 if anything differs. `make test-venv` installs the packages in
build/venv.

--loss compares the loss of NAME.jinja with the {% generation %} spans of NAME_training.jinja, where
both render the same text. White space at the end of a span is not counted. Some of trl's templates
mark a turn's header or the newline behind it, so differences are conventions until looked at.
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


def sample(fp8lab, template, config, rows, prompt):
    """What `fp8lab data sample --json` prints for the rows."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        file.flush()
        command = [fp8lab, "data", "sample", "--json", "--show", "0", "--date", DATE,
                   "--skip-bad", str(len(rows)), "--template", str(template),
                   "--tokenizer-config", config, file.name]
        if prompt:
            command.append("--generation-prompt")
        done = subprocess.run(command, capture_output=True, timeout=600, check=True)
        return json.loads(done.stdout)


def ours(fp8lab, template, config, rows, prompt):
    """The text or the error of each row."""
    texts, failed = [None] * len(rows), [True] * len(rows)
    result = sample(fp8lab, template, config, rows, prompt)
    for shown in result["conversations"]:
        texts[shown["line"] - 1] = shown["text"]
        failed[shown["line"] - 1] = False
    for error in result["skipped"]:
        line = int(error.split(".jsonl:")[1].split(":")[0])
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


def joined(ranges):
    """Ranges without those that are empty, and with neighbours as one."""
    out = []
    for begin, end in ranges:
        if out and out[-1][1] >= begin:
            out[-1][1] = max(out[-1][1], end)
        elif begin < end:
            out.append([begin, end])
    return out


def compare_loss(fp8lab, path, config, rows):
    """The numbers of conversations with equal loss, with different loss, and of those different."""
    training = path.with_name(path.stem + "_training.jinja").read_text(encoding="utf-8")
    same, differences = 0, []
    for shown in sample(fp8lab, path, config, rows, False)["conversations"]:
        row = rows[shown["line"] - 1]
        messages = [{k: v for k, v in m.items() if v is not None} for m in row["messages"]]
        try:
            text, spans = chat_template_utils.render_jinja_template(
                [messages], tools=row.get("tools"), chat_template=training,
                return_assistant_tokens_mask=True, **TOKENS)
        except Exception:  # whatever the template raises
            continue
        text, spans = text[0], spans[0]
        if text != shown["text"]:
            continue
        data = text.encode()
        mine = joined([len(data[:at].decode()) for at in pair] for pair in shown["loss"])
        wanted = joined((begin, begin + len(text[begin:end].rstrip("\n"))) for begin, end in spans)
        if mine == wanted:
            same += 1
        else:
            differences.append((text, [text[a:b] for a, b in mine], [text[a:b] for a, b in wanted]))
    return same, differences


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp8lab")
    parser.add_argument("templates", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print the first difference")
    parser.add_argument("--loss", action="store_true", help="compare the loss instead of the text")
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
            if given.loss:
                if path.with_name(path.stem + "_training.jinja").exists():
                    same, found = compare_loss(given.fp8lab, path, config.name, rows)
                    print(f"{path.stem:32} {same:5} same loss {len(found):5} different", flush=True)
                    if found and given.verbose:
                        print(*map(repr, found[0]), sep="\n")
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
