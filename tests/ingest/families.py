"""Small tokenizers of each family, and mixed text to train and compare them on.

Needs the packages tokenizers and tiktoken. The JSON around model and vocabulary is that of the
families' own files: what they split by, normalise and add.
"""
import collections
import copy
import glob
import json
import os
import random

from tokenizers import Tokenizer, decoders, models, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
          r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = [r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+",
         r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*"]
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join(c + r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?" for c in CASED) + r"|\p{N}{1,3}" + REST
TEKKEN = "|".join(CASED) + r"|\p{N}" + REST
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
            r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+".replace(r"\"", '"')]


def split(regex, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: regex}, "behavior": behavior, "invert": invert}


# No hand-written splitter has these, so Oniguruma runs: patterns of DeepSeek's first models, and
# each behaviour.
OTHERS = [split("[\r\n]"), split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿ]+", "MergedWithPrevious"),
          split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+", "MergedWithNext"), split(r"\s+$"),
          split("[一-龥ࠀ-一가-퟿]+", invert=True), split("5", "Removed", kind="String"),
          split(" ", "Contiguous", kind="String"), split(r"[A-Z]", "MergedWithNext", invert=True),
          split("[aeiou]", "MergedWithPrevious", invert=True)]


def byte_level(regex=False, space=False):
    return {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True,
            "use_regex": regex}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def template(token):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": None, "tokens": [token]}}}


DIGITS = {"type": "Digits", "individual_digits": True}
MARK = {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
MARK_DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}

# name: pre_tokenizer, normalizer, added tokens, what differs from plain
FAMILIES = {
    "gpt2": (byte_level(True), None, ["<|endoftext|>"], {}),
    "llama3": (sequence(split(LLAMA3), byte_level()), None,
               ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
               {"ignore_merges": True, "template": "<|begin_of_text|>"}),
    "qwen2": (sequence(split(QWEN2), byte_level()), {"type": "NFC"},
              ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>",
               {"content": "o\u0308<", "normalized": True}], {}),
    "smollm2": (sequence(DIGITS, byte_level(True)), None,
                ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {"specials_first": True}),
    "deepseek": (sequence(*map(split, DEEPSEEK), byte_level()),
                 {"type": "Sequence", "normalizers": []},
                 ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
                 {"specials_first": True, "template": "<｜begin▁of▁sentence｜>"}),
    "mistral": (None, MARK, ["<unk>", "<s>", "</s>"], {"bytes": True, "template": "<s>"}),
    "metaspace": (METASPACE, None, ["<unk>", "<s>", "</s>"], {"bytes": True}),
    "tekken": (sequence(split(TEKKEN), byte_level()), None, ["<s>", "</s>"], {"template": "<s>"}),
    "o200k": (sequence(split(O200K), byte_level(space=True)), None, ["<|endoftext|>"], {}),
    "others": (sequence(*OTHERS, {"type": "Digits", "individual_digits": False},
                        byte_level()), None,
               ["<|endoftext|>", {"content": "<mask>", "lstrip": True, "normalized": True},
                {"content": "foo", "normalized": True, "rstrip": True}, "foobar"],
               {"alphabet": 180}),  # the other bytes have no token
}


def alphabet(name, vocab):
    """The number of characters that the trainer begins with."""
    _, _, _, options = FAMILIES[name]
    return options.get("alphabet", min(1000, vocab // 3) if "bytes" in options else 256)


def shared(name):
    """How many tokens are not trained."""
    _, _, added, options = FAMILIES[name]
    return len(added) + (256 if "bytes" in options else 0)


def train(name, texts, vocab):
    """tokenizer.json with the model alone. cut() makes smaller ones of it."""
    pre, normal, _, options = FAMILIES[name]
    in_bytes = "bytes" in options
    shell = Tokenizer(models.BPE())
    if pre or normal:
        parts = json.loads(shell.to_str())
        parts["pre_tokenizer"], parts["normalizer"] = pre, normal
        if in_bytes:  # trained on words, which the family then does not split
            parts["pre_tokenizer"] = dict(METASPACE, split=True)
            parts["normalizer"] = None
        shell = Tokenizer.from_str(json.dumps(parts))
    limit = alphabet(name, vocab)
    shell.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab - shared(name), show_progress=False, limit_alphabet=limit,
        initial_alphabet=most_frequent(texts, limit, in_bytes)))
    return json.loads(shell.to_str())


def cut(name, trained, vocab):
    """What train() gives for a smaller vocabulary with the same alphabet: its first merges."""
    model = trained["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)[:vocab - shared(name)]
    kept, merges = set(tokens), []
    for merge in model["merges"]:
        if "".join(merge) not in kept:
            break
        merges.append(merge)
    return trained | {"model": model | {"vocab": {token: i for i, token in enumerate(tokens)},
                                        "merges": merges}}


def make(name, texts, vocab):
    """tokenizer.json of a family with about `vocab` tokens, as a Python object."""
    return complete(name, train(name, texts, vocab))


def complete(name, trained):
    """tokenizer.json of a family with the tokens and merges of a trained one."""
    pre, normal, added, options = FAMILIES[name]
    in_bytes = "bytes" in options
    file = copy.deepcopy(trained)
    file["pre_tokenizer"], file["normalizer"] = pre, normal
    model = file["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    if in_bytes:
        tokens = added + [f"<0x{b:02X}>" for b in range(256)] + tokens
        model.update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
        file["decoder"] = MARK_DECODER
    else:
        if "specials_first" in options:
            tokens = added + tokens
        file["decoder"] = json.loads(Tokenizer(models.BPE()).to_str())["decoder"]
        file["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                           "use_regex": True}
    model["vocab"] = {token: i for i, token in enumerate(tokens)}
    model["ignore_merges"] = options.get("ignore_merges", False)
    ids = dict(model["vocab"])
    file["added_tokens"] = []
    for token in added:
        more = token if isinstance(token, dict) else {"content": token}
        ids.setdefault(more["content"], len(ids))
        file["added_tokens"].append({
            "id": ids[more["content"]], "content": more["content"], "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False,
            "special": more["content"] != "<tool_call>"} | more)
    if "template" in options:
        file["post_processor"] = template(options["template"])
        special = file["post_processor"]["special_tokens"][options["template"]]
        special["ids"] = [ids[options["template"]]]
    return file


def most_frequent(texts, count, in_bytes):
    """The alphabet to train on. Given a larger one, the trainer would break ties at random."""
    text, name = "".join(texts), byte_characters()
    seen = collections.Counter(text.replace(" ", "▁") if in_bytes else
                               name + [name[byte] for byte in text.encode()])
    return sorted(seen, key=lambda c: (-seen[c], c))[:count]


def ranks(name, file):
    """The same vocabulary for tiktoken: {bytes: rank}, by the order of the ids."""
    back = {character: byte for byte, character in enumerate(byte_characters())}
    out = {}
    for token in sorted(file["model"]["vocab"], key=file["model"]["vocab"].get):
        if all(c in back for c in token):
            out[bytes(back[c] for c in token)] = len(out)
    return out


def byte_characters():
    """ByteLevel's character of each byte."""
    same = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = iter(range(256, 512))
    return [chr(b) if b in same else chr(next(other)) for b in range(256)]


# ---- text ---------------------------------------------------------------------------------------
SPACES = [" ", "  ", "   ", " " * 17, "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u2003",
          "\u3000", "\u0085", "\u2028", "\u180e", "\u200b", "\x0b", "\x1c", "\ufeff"]
APOSTROPHES = ["'s", "'S", "'t", "'RE", "'ve", "'Ll", "'d", "'M", "'ſ", "'", "''", "’s", "'K", "'x"]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧", "🇩🇪", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "✅", "🤖🤖"]
RANGES = {"cjk": (0x4E00, 0x9FA5), "kana": (0x3040, 0x30FF), "hangul": (0xAC00, 0xD7A3),
          "jamo": (0x1100, 0x11FF), "arabic": (0x621, 0x64A), "marks": (0x300, 0x36F),
          "cyrillic": (0x410, 0x44F), "greek": (0x386, 0x3CE), "hindi": (0x900, 0x963),
          "thai": (0xE01, 0xE4D), "hebrew": (0x5B0, 0x5EA), "titles": (0x1C4, 0x1CC),
          "latin": (0xC0, 0x24F), "numbers": (0x2150, 0x2188), "compat": (0xF900, 0xFAFF),
          "new": (0x31350, 0x323AF), "tamil digits": (0xBE6, 0xBFA), "maths": (0x1D400, 0x1D7FF)}
SYLLABLES = [a + b for a in "b c d f g h l m n p r s t v w st th ch".split()
             for b in "a e i o u ea er in on".split()]


def piece(draw):
    """A few characters of one kind."""
    kind = draw.random()
    if kind < 0.35:
        word = "".join(draw.choice(SYLLABLES) for _ in range(draw.choice([1, 1, 2, 2, 3])))
        return " " + draw.choice([word, word, word, word.capitalize(), word.upper()])
    if kind < 0.42:
        return draw.choice(SPACES)
    if kind < 0.47:
        return draw.choice(APOSTROPHES)
    if kind < 0.54:
        return "".join(draw.choice("0123456789") for _ in range(draw.choice([1, 2, 3, 4, 7, 30])))
    if kind < 0.60:
        return draw.choice(EMOJI)
    if kind < 0.70:
        return "".join(draw.choice("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~")
                       for _ in range(draw.choice([1, 1, 2, 5])))
    if kind < 0.98:
        low, high = RANGES[draw.choice(list(RANGES))]
        base = draw.randint(low, high)
        return "".join(chr(min(high, base + int(draw.expovariate(0.3))))
                       for _ in range(draw.choice([1, 1, 2, 3, 8])))
    code = draw.randint(0, 0x10FFFF)
    return chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd"


def string(draw, pieces=None):
    return "".join(piece(draw) for _ in range(pieces or draw.choice([1, 2, 3, 3, 4, 5, 6, 9])))


def mixed(seed, size):
    """About `size` characters: this Python's own sources, and strings in many scripts."""
    draw = random.Random(seed)
    files = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))
    out, count = [], 0
    while count < size:
        if files and draw.random() < 0.02:
            with open(draw.choice(files), encoding="utf-8", errors="replace") as f:
                source = f.read()
            at = draw.randrange(max(1, len(source) - 4000))
            out.append(source[at:at + 4000])
        else:
            out.append(string(draw, draw.choice([4, 12, 40])))
        count += len(out[-1])
    return out
