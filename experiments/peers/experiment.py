"""What an experiment trains, by `fp8lab check --json`: its Lua file is the source of all sizes."""
import dataclasses
import json
import os
import shutil
import subprocess
import sys

# Exit codes, as fp8lab has them.
FAILED, USAGE, HARDWARE, SYSTEM = 1, 2, 3, 6


class Failure(Exception):
    """What went wrong, what to do, and the exit code of the program that reports it."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Task:
    """A model, its batch and its optimizer. Sizes in elements, batches in sequences."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    seq_len: int
    norm_eps: float
    rope_theta: float  # None: learned positions
    init_std: float
    global_batch: int
    micro_batch: int
    gpus: int
    lr: float
    lr_warmup: int  # steps until it is reached
    betas: tuple
    eps: float
    weight_decay: float
    masters: bool  # f32 masters, moments and gradients; otherwise BF16 weights and moments alone

    @property
    def tokens(self):
        """Tokens of one optimizer step."""
        return self.global_batch * self.seq_len


@dataclasses.dataclass(frozen=True)
class Row:
    """One run of the experiment: its name, without the suite's, its recipe's kind, its task."""

    name: str
    full_name: str
    kind: str
    config: dict


@dataclasses.dataclass(frozen=True)
class Known:
    """What a peer can train: the only value it accepts, by key of the resolved configuration."""

    peer: str
    values: dict


STEP = {"train.recompute": "none", "train.optimizer.kind": "adamw",
        "train.optimizer.offload": False}
PYTORCH = Known("PyTorch's programs", {
    "model.norm": "rmsnorm", "model.activation": "swiglu", "model.positions": "rope",
    "model.rope.scaling": None, "model.bias": False, "model.tied": False, "model.qk_norm": False,
    "model.window": None, **STEP})
ANOTHER = Known("the peer", {})  # a program that itself rejects what it cannot train
PRECISIONS = {  # optimizer.master, optimizer.state, grad_dtype -> f32 masters?
    ("none", "bf16", "bf16"): False,
    ("f32", "f32", "f32"): True,
}


def lookup(config, key):
    for part in key.split("."):
        config = config.get(part) if config else None
    return config


def task_of(config, known):
    """The Task of a resolved configuration; Failure if the peer cannot train it."""
    for key, wanted in known.values.items():
        found = lookup(config, key)
        if found != wanted:
            raise Failure(USAGE, f"{config['name']}: {key} is {found!r}; all that "
                                 f"{known.peer} can train is {wanted!r}")
    model, train, adamw = config["model"], config["train"], config["train"]["optimizer"]
    precision = (adamw["master"], adamw["state"], train["grad_dtype"])
    if precision not in PRECISIONS:
        raise Failure(USAGE, "%s: master weights in %s, moments in %s, gradients in %s; peers are "
                             "measured with none, bf16, bf16 (one GPU) and f32 thrice (torchrun)"
                      % (config["name"], *precision))
    sizes = ("layers", "width", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq_len",
             "norm_eps", "init_std")
    return Task(**{key: model[key] for key in sizes}, rope_theta=lookup(model, "rope.theta"),
                global_batch=train["global_batch"], micro_batch=train["micro_batch"],
                gpus=config["hardware"]["gpus"] if config["hardware"] else 1,
                lr=adamw["lr"], lr_warmup=lookup(train, "schedule.warmup") or 0,
                betas=tuple(adamw["betas"]), eps=adamw["eps"],
                weight_decay=adamw["weight_decay"], masters=PRECISIONS[precision])


# Beside this folder: where `make` builds the program, and where `make dist` puts it.
PROGRAMS = "build/release/fp8lab", "bin/fp8lab"


def program_at(path):
    """The fp8lab program at this path or of this name, or if it is None the one that belongs to
    this folder; Failure if there is none."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    places = [path] if path else [os.path.join(root, place) for place in PROGRAMS]
    for place in places:
        found = shutil.which(place)
        if found:
            return os.path.abspath(found)
    raise Failure(USAGE, f"there is no program {' and no '.join(places)}: `make` builds "
                         "build/release/fp8lab, --program names another")


def rows_of(program, script, flags):
    """The name of an experiment or suite, and its rows. `check` prints the errors itself."""
    command = [program, "check", "--json", *flags, script]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Failure(done.returncode if done.returncode > 0 else SYSTEM,
                      f"{' '.join(command)}: exit code {done.returncode}")
    try:
        checked = json.loads(done.stdout)
        suite = checked["name"]
        rows = [Row(run["name"].removeprefix(suite + "-"), run["name"],
                    run["config"]["recipe"]["kind"], run["config"]) for run in checked["runs"]]
    except (ValueError, KeyError) as error:
        raise Failure(USAGE, f"{program} is no fp8lab, or another version: its check printed no "
                             f"configuration ({error!r})") from error
    return suite, rows


def common_task(rows, known):
    """The one Task that all rows share, whatever their recipes are."""
    tasks = {task_of(row.config, known) for row in rows}
    if len(tasks) != 1:
        raise Failure(USAGE, "the rows differ in more than their recipe; a peer is measured "
                             "with one model and batch only")
    return tasks.pop()


def requests(resident):
    """Yields for each line "measure" on stdin, until "quit" or its end; once if not resident."""
    for line in sys.stdin if resident else ["measure"]:
        if line.strip() == "quit":
            return
        if line.strip() != "measure":
            raise Failure(USAGE, f"measure or quit, not {line.strip()!r}")
        yield


def last_words(text, lines=5):
    """The end of a program's output, indented, for an error message."""
    kept = [line.rstrip() for line in text.split("\n") if line.strip()][-lines:]
    return "".join("\n    " + line for line in kept)


def add_experiment_flags(parser):
    """Flags for the experiment, the program and changes to the experiment, as in `fp8lab run`."""
    parser.add_argument("script", metavar="FILE.lua", help="the experiment or suite")
    parser.add_argument("--program", metavar="FP8LAB",
                        help=f"default: {' or '.join(PROGRAMS)}, beside experiments/")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="override a key, as for fp8lab run (may repeat)")
    parser.add_argument("--smoke", action="store_true",
                        help="shrink sizes and steps, as for fp8lab run: a smoke run")


def experiment_flags(args):
    """The flags of add_experiment_flags that change the experiment, for a command line."""
    return [word for value in args.set for word in ("--set", value)] + ["--smoke"] * args.smoke
