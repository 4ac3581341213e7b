#!/usr/bin/env python3
"""Writes unicode_tables.c, the Unicode data of the tokenizers.

    pip install unicodedata2==16.0.0 && python3 unicode_tables.py > unicode_tables.c

The data are those of `tokenizers` 0.23.3, as measured over all code points:
- general categories: Unicode 16.0 (its regex library, and tiktoken 0.14);
- char::is_numeric of its Digits: also the numbers of Unicode 17.0 in NUMBERS_17;
- NFC: Unicode 9.0. Its crate unicode-normalization-alignments knows no newer data, so the code
  points in AFTER_9, which got a decomposition or a combining class later, have none.
"""
import hashlib
import sys

import unicodedata2 as unicode

assert unicode.unidata_version == "16.0.0", unicode.unidata_version

AFTER_9 = """7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ACE 1DF6-1DFA A82C 105C9 105E4
10D24-10D27 10D69-10D6D 10EAB-10EAC 10EFD-10EFF 10F46-10F50 10F82-10F85 11070 1133B 11383 11385
1138E 11391 113C5 113C7-113C8 113CE-113D0 1145E 11839-1183A 11938 1193D-1193E 11943 119E0 11A34
11A47 11A99 11D42 11D44-11D45 11D97 11F41-11F42 16121-16128 1612F 16D68-16D6A 16FF0-16FF1 1E08F
1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF"""
NUMBERS_17 = "11DE0-11DE9 16FF4-16FF6"
SPACES = "9-D 20 85 A0 1680 2000-200A 2028-2029 202F 205F 3000"  # White_Space, PropList.txt
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def code_points(text):
    for word in text.split():
        first, _, last = word.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


def letter(c):
    """One letter for the class of a code point; unicode.c has the list."""
    category = unicode.category(chr(c))
    if c in SPACE:
        return "s"
    if category[0] == "L":
        return {"Lu": "U", "Lt": "U", "Ll": "l"}.get(category, "o")
    if category[0] in "NMPS":
        return category[0]
    return "d" if c in NUMBER_17 else "x"


def runs(values):
    """Equal neighbours as one letter and, unless it is 1, their number."""
    out, last, count = [], None, 0
    for value in [*values, None]:
        if value == last:
            count += 1
            continue
        if last is not None:
            out.append(last + (str(count) if count > 1 else ""))
        last, count = value, 1
    return out


def wrapped(words, before="", after="", width=100):
    line = ""
    for word in words:
        if len(before + line + word + after) > width:
            print(before + line.rstrip() + after)
            line = ""
        line += word
    print(before + line.rstrip() + after)


SPACE, NUMBER_17 = set(code_points(SPACES)), set(code_points(NUMBERS_17))
NEW = set(code_points(AFTER_9))
pairs, classes = [], []
for c in ALL:
    if c in NEW or 0xAC00 <= c <= 0xD7A3:  # Hangul syllables are arithmetic
        continue
    if unicode.combining(chr(c)):
        classes.append((c, unicode.combining(chr(c))))
    mapping = unicode.decomposition(chr(c))
    if mapping and not mapping.startswith("<"):
        parts = [int(part, 16) for part in mapping.split()] + [0]
        composes = unicode.normalize("NFC", chr(c)) == chr(c)
        pairs.append((c, parts[0], parts[1], int(composes)))
seen = "".join(letter(c) for c in ALL) + repr(pairs) + repr(classes)
print("/* Unicode 16.0.0, written by unicode_tables.py from unicodedata2 16.0.0; do not edit.\n"
      f" * SHA-256 of the data: {hashlib.sha256(seen.encode()).hexdigest()} */\n"
      '#include "runner/ingest/unicode_tables.h"\n')
print("const char UNICODE_CLASSES[] =")
wrapped(runs(letter(c) if not 0xD800 <= c < 0xE000 else "x" for c in range(0x110000)),
        '    "', '"')
print("    ;\n\nconst struct unicode_pair UNICODE_PAIRS[] = {")
wrapped((f"{{0x{c:x},0x{a:x},0x{b:x},{k}}}, " for c, a, b, k in pairs), "    ")
print(f"}};\nconst int UNICODE_PAIR_COUNT = {len(pairs)};\n")
print("const struct unicode_marks UNICODE_MARKS[] = {")
marks = []
for c, ccc in classes:
    if marks and marks[-1][1] == c - 1 and marks[-1][2] == ccc:
        marks[-1][1] = c
    else:
        marks.append([c, c, ccc])
wrapped((f"{{0x{a:x},0x{b:x},{k}}}, " for a, b, k in marks), "    ")
print(f"}};\nconst int UNICODE_MARKS_COUNT = {len(marks)};")
sys.stdout.flush()
