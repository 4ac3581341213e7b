#!/usr/bin/env python3
"""What lm-evaluation-harness answers to the questions of tests/infer/harness.py.

    lm_eval_answers.py FOLDER    of that script; prints JSON lines: of each model and kind the
                                 accuracies and the losses in nats, and of GPT-2 the loss of
                                 rolling.txt

Needs lm_eval with torch (tests/support/requirements-torch.txt).
"""
import json
import os
import sys

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                  TQDM_DISABLE="1", HF_HOME=os.path.abspath("hf_home"))
from lm_eval.api.task import ConfigurableTask  # noqa: E402
from lm_eval.evaluator import evaluate  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../infer"))
from harness import KINDS, MODELS  # noqa: E402


def task(name, path, output_type, metrics, **more):
    return ConfigurableTask(config={
        "task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": path}},
        "test_split": "test", "output_type": output_type,
        "metric_list": [{"metric": metric} for metric in metrics], **more})


def run(lm, tasks):
    """{task: its results}, {task: of each question or text the answers}"""
    # The standard error of a mean has a formula, but is left out without samples.
    found = evaluate(lm=lm, task_dict=tasks, log_samples=True, bootstrap_iters=2)
    answers = {name: [sample["resps"] for sample in sorted(rows, key=lambda row: row["doc_id"])]
               for name, rows in found["samples"].items()}
    return found["results"], answers


def choices(lm, folder, model):
    tasks = {kind: task(kind, f"{folder}/{kind}.jsonl", "multiple_choice",
                        ("acc", "acc_norm", "acc_bytes"), doc_to_text="context",
                        doc_to_choice="choices", doc_to_target="answer",
                        target_delimiter=delimiter) for kind, delimiter in KINDS.items()}
    results, answers = run(lm, tasks)
    for kind in KINDS:
        row = {"model": model, "kind": kind}
        row |= {key.split(",")[0]: round(value, 9) for key, value in results[kind].items()
                if key.startswith("acc")}
        row["nats"] = [[round(-float(answer[0][0]), 5) for answer in question]
                       for question in answers[kind]]
        print(json.dumps(row))


def rolling(lm, folder, model):
    with open(f"{folder}/rolling.txt") as f, open(f"{folder}/rolling.jsonl", "w") as out:
        out.write(json.dumps({"text": f.read()}) + "\n")
    _, answers = run(lm, {"rolling": task("rolling", f"{folder}/rolling.jsonl",
                                          "loglikelihood_rolling", ("byte_perplexity",),
                                          doc_to_text="", doc_to_target="text")})
    print(json.dumps({"model": model, "kind": "rolling",
                      "nats": round(-float(answers["rolling"][0][0][0]), 5)}))


def main(folder):
    for model in MODELS:
        lm = HFLM(pretrained=f"{folder}/{model}", dtype="float32", device="cpu", batch_size=8)
        choices(lm, folder, model)
        if model == "gpt2":
            rolling(lm, folder, model)


if __name__ == "__main__":
    main(sys.argv[1])
