#!/usr/bin/env python3
"""Writes recorded.jsonl: what the package transformers renders. Run by hand with its environment.

    record.py >recorded.jsonl

Each line has `template` (a file in templates/) or `source` (a template), `row` (a conversation),
`prompt`, and `text`: the result, or null if the template raises. The first line names the releases.
"""

import json
import pathlib
import sys

import jinja2
import transformers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import compare_packages  # noqa: E402
from conversations import generate  # noqa: E402

ROW = {"messages": [{"role": "user", "content": "Hé said \"it's\" 1\n"},
                    {"role": "assistant", "content": None, "thinking": "t", "tool_calls": [
                        {"function": {"name": "f", "arguments": {"x": 0.1, "y": None}}}]},
                    {"role": "assistant", "content": " fine "}]}


def snippets():
    """The lines of snippets.txt; a line that begins with text goes on in the next one."""
    lines = (HERE / "snippets.txt").read_text(encoding="utf-8").strip("\n").split("\n")
    while lines:
        line = lines.pop(0)
        while lines and line.count("{%") + line.count("{{") == 0 or \
                (lines and not lines[0].startswith(("{{", "{%", "{#", "a"))):
            line += "\n" + lines.pop(0)
        yield line


def record(case, source, prompt):
    try:
        text = compare_packages.theirs(source, case["row"], prompt)
    except Exception:  # whatever the template raises
        text = None
    print(json.dumps({**case, "prompt": prompt, "text": text}, ensure_ascii=False))


def main():
    print(json.dumps({"transformers": transformers.__version__, "jinja2": jinja2.__version__,
                      "date": compare_packages.DATE, "tokens": compare_packages.TOKENS}))
    for source in snippets():
        record({"source": source, "row": ROW}, source, False)
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for number, row in enumerate(generate(7, 12)):
            record({"template": path.name, "row": row}, source, number % 2 == 0)


if __name__ == "__main__":
    main()
