"""Models and questions that fp8lab and lm-evaluation-harness both read. Needs no package.

    harness.py FOLDER    writes FOLDER/MODEL for each of MODELS, FOLDER/KIND.jsonl for each of
                         KINDS, and FOLDER/rolling.txt

The models are small and random; a tokenizer is one of tests/ingest/recorded/. All are the same on
every machine. A kind has the delimiter that the harness sets between context and choice where
fp8lab sets the same: one space, or nothing where a question has white space there, or no context.
"""
import json
import os
import random
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/weights"))
import make_models  # noqa: E402

POSITIONS, VOCABULARY = 128, 700
# name, also of the tokenizer: the model in make_models.py, and the special tokens
MODELS = {
    "gpt2": ("gpt2", "<|endoftext|>", "<|endoftext|>"),
    "llama3": ("llama32", "<|begin_of_text|>", "<|end_of_text|>"),
    "mistral": ("llama2", "<s>", "</s>"),
    "qwen2": ("qwen2", None, "<|endoftext|>"),
}
# name: the delimiter
KINDS = {"words": " ", "spaces": "", "unicode": " ", "unicode_spaces": "", "torn": ""}
COUNT = 8
WORDS = ("the cat sat on a mat old river runs slowly toward sea while people watch from green "
         "hills and children play with stones near water").split()
OTHERS = ["naïve café", "北京是首都", "Привет мир", "🎉🎉 party", "ﬁ ligature", "e\u0301a\u0308",
          "日本語のテキスト", "x²+y²"]
WIDE = ["\u3000", "\u00a0", "\u2009", "\x1f", "\x85 "]


def questions(kind, draw):
    """[(context, choices)]"""
    words = lambda low, high: " ".join(draw.choice(WORDS) for _ in range(draw.randint(low, high)))
    choices = lambda high: [words(1, high) for _ in range(4)]
    other = lambda: draw.choice(OTHERS)
    for i in range(COUNT):
        if kind == "words":
            yield words(6, 20), choices(8)  # as HellaSwag
            lines = "".join(f"{letter}. {words(1, 3)}\n" for letter in "ABCD")
            yield f"{words(4, 9)}?\n{lines}Answer:", list("ABCD")  # as MMLU
            yield list(MODELS.values())[i % 3][1] + words(2, 4), choices(3)
        elif kind == "spaces":
            yield words(6, 20), [" " + text for text in choices(8)]
            yield words(4, 9) + (" ", "\n", "  ", " \t")[i % 4], choices(5)
            yield "", choices(6)
        elif kind == "unicode":
            yield f"{other()} {words(2, 4)} {other()}", [f"{other()} {w}" for w in choices(2)]
        elif kind == "unicode_spaces":
            yield other() + WIDE[i % 5], [other() for _ in range(3)]
            yield other(), [space + other() for space in WIDE[:3]]
        else:  # the context's ":" or ")" and the line break are one token of some tokenizers
            yield words(4, 9) + ":)"[i % 2] + "\n", choices(3)


def write_questions(folder):
    for kind in KINDS:
        draw = random.Random(kind)
        with open(f"{folder}/{kind}.jsonl", "w") as f:
            for context, choices in questions(kind, draw):
                f.write(json.dumps({"context": context, "choices": choices,
                                    "answer": draw.randrange(len(choices))}) + "\n")


def write_model(folder, name):
    base, begins, ends = MODELS[name]
    tokenizer = f"{ROOT}/tests/ingest/recorded/{name}.json"
    config = dict(make_models.MODELS[base][0], vocab_size=VOCABULARY)
    config["n_positions" if base == "gpt2" else "max_position_embeddings"] = POSITIONS
    make_models.write_model(f"{folder}/{name}", config, "F32", 1)
    shutil.copy(tokenizer, f"{folder}/{name}/tokenizer.json")
    with open(f"{folder}/{name}/tokenizer_config.json", "w") as f:
        # This class takes all of tokenizer.json; LlamaTokenizer of transformers 5 does not.
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": begins,
                   "eos_token": ends, "model_max_length": POSITIONS}, f)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    for name in MODELS:
        write_model(folder, name)
    write_questions(folder)
    # A letter and a line break are one token each: two whole sequences.
    draw = random.Random("rolling")
    with open(f"{folder}/rolling.txt", "w") as f:
        f.write("".join(chr(97 + draw.randrange(26)) + "\n" for _ in range(POSITIONS)))


if __name__ == "__main__":
    main(sys.argv[1])
