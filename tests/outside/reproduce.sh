#!/bin/bash
# experiments/peers/reproduce.py repeats batches and initial weights from model/NUMERICS.md. They
# are equal to the bit for each kind of data, shape of model and number of ranks. reproduce.py also
# notices a difference. batches.py, as a program, prints the sequences of a step.
set -u
. tests/outside/lib.sh
reproduce() { python "$lib/../peers/reproduce.py" "$@" >out 2>&1; }

# 7 sequences of 32 bytes and some more: 4 steps of 6 sequences are over three epochs.
head -c 150 "$lib/models/tiny.lua" >a.txt
head -c 100 "$lib/models/gpt2.lua" >b.txt
# Ids of 16 and of 32 bits, a held-out tail, a second file.
python - <<'PY'
import struct
import numpy as np
ids = (np.arange(999) * 7919 % 300).astype("<u2")
head = np.zeros(256, "<i4")
head[:3] = 20240520, 1, len(ids)
open("llmc.bin", "wb").write(head.tobytes() + ids.tobytes())
ids = ids.astype("<i4")
open("megatron.bin", "wb").write(ids.tobytes())
lengths, starts = [400, 599], [0, 1600]
open("megatron.idx", "wb").write(b"MMIDIDX\0\0" + struct.pack("<QBQQ2i2q3q", 1, 4, 2, 3, *lengths,
                                                              *starts, 0, 1, 2))
lengths = [7, 0, 250, 33, 1, 90, 400, 64, 65, 89]
ends = list(range(len(lengths) + 1))
for name in "one", "two":
    open(name + ".bin", "wb").write(ids[:sum(lengths)].astype("<u2").tobytes())
    starts = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    open(name + ".idx", "wb").write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 10, 11) +
                                    struct.pack("<10i10q11q", *lengths, *starts, *ends))
    lengths = lengths[3:] + lengths[:3]
lengths = [7, 0, 25, 31, 1, 9, 32, 14, 5, 29, 3, 3, 3, 3, 20]
for name in "short", "shorter":
    open(name + ".bin", "wb").write(ids[:sum(lengths)].tobytes())
    open(name + ".loss", "wb").write(bytes(i * 7 % 3 > 0 for i in range(sum(lengths))))
    starts = [4 * sum(lengths[:i]) for i in range(len(lengths))]
    open(name + ".idx", "wb").write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 15, 16) +
                                    struct.pack("<15i15q16q", *lengths, *starts, *range(16)))
    lengths = lengths[3:] + lengths[:3]
PY
cat >base.lua <<'LUA'
local tiny = require "models.tiny"
local llama = tiny.llama { seq_len = 32, layers = 2, vocab = 300 }
local function row(name, more)
  local t = {
    name = name, model = llama, recipe = fp8.tensorwise, data = text { "a.txt", "b.txt" },
    train = { steps = 4, global_batch = 6, micro_batch = 2, seed = 77,
              optimizer = adamw { lr = 0 } },
    checkpoint = { every = 4, keep = 1, init = true }, archive = "full",
  }
  for key, value in pairs(more) do t[key] = value end
  return experiment(t)
end
local learned = tiny.gpt2 { seq_len = 32, layers = 2, vocab = 300 }
local train = { steps = 3, global_batch = 4, micro_batch = 4, optimizer = adamw { lr = 0 } }
return suite {
  name = "base",
  row("text", {}),
  row("gpt2", { model = tiny.gpt2 { seq_len = 32, layers = 2 }, data = synthetic { seed = 5 },
                recipe = bf16, train = train }),
  row("llmc", { model = llama { qk_norm = true, tied = true },
                data = tokens { path = "llmc.bin", format = "llmc", holdout = 0.3 },
                train = { steps = 3, global_batch = 4, micro_batch = 4,
                          optimizer = adamw { lr = 0, master = "none", state = "8bit" } } }),
  row("megatron", { recipe = f32, train = train,
                    data = tokens { path = "megatron", format = "megatron" } }),
  row("blend", { data = tokens { { path = "megatron", weight = 0.1 },
                                 { paths = { "one", "two" }, weight = 0.7 },
                                 { path = "two.bin", weight = 0.2 }, order = "documents" },
                 train = { epochs = 1.5, global_batch = 6, micro_batch = 3,
                           optimizer = adamw { lr = 0 } } }),
  -- Learned positions are in the embedding's output, so they are compared too.
  row("packed", { model = learned, trace = { every = 1 }, data = tokens {
        { paths = { "short", "shorter" }, weight = 0.5 }, { path = "shorter", weight = 0.5 },
        layout = "packed", mask = "document", positions = "document", loss = true,
        holdout = 0.2 } }),
  row("padded", { model = learned, data = tokens { path = "short", layout = "padded",
                                                   positions = "document", loss = true } }),
  row("restart", { model = learned, data = tokens { paths = { "short", "shorter" },
                                                    positions = "document" } }),
  row("shuffled", { model = learned, data = tokens { paths = { "short", "shorter" },
                                                     order = "documents", mask = "document",
                                                     positions = "document" } }),
  row("plain", { data = tokens { path = "short", holdout = 0 } }),
  row("whole", { data = tokens { path = "short", order = "documents", holdout = 0.1 } }),
  row("ranks", { hardware = { gpus = 3 } }),
  row("frozen", { train = { steps = 3, global_batch = 4, micro_batch = 4,
                            freeze = { "embed", "layers.0" }, optimizer = adamw { lr = 0 } } }),
  row("moving", { checkpoint = false, train = { steps = 4, global_batch = 6, micro_batch = 2,
                                                optimizer = adamw { lr = 1e-3 } } }),
}
LUA
"$FP8LAB" run base.lua --lib "$lib" --backend cpu >out 2>&1 || fail "the runs: exit code $?"
mkdir open
rows="text gpt2 llmc megatron blend packed padded restart shuffled plain whole ranks frozen moving"
for row in $rows; do
    (cd open && "$FP8LAB" extract -q ../runs/*-"$row"-*.tar.zst >/dev/null 2>&1)
    reproduce open/*-"$row"-* || fail "$row: exit code $?"
    grep -q '^initial weights: equal' out || fail "$row: initial weights"
    grep -q '^batches: equal' out || fail "$row: batches"
done
steps() { grep -q "^batches: equal ($1 traced steps" out || fail "$2: not $1 steps"; }
steps "1 of 4" moving
grep -q 'by fingerprint before step 1' out || fail "moving: there is no checkpoint to read"
reproduce open/*-text-*
steps "4 of 4" text
grep -q '(15 weights and their masters, each bit)' out || fail "not every master was compared"

# The last micro-batch that the program prints of each step is what the run embedded. A step has 6
# of 5 sequences of `plain`, and of 5 of `whole`: the order of documents changes with the epoch.
cat >embedded.py <<'PY'
import sys
import numpy as np
import reproduce as r
run, step = sys.argv[1], int(sys.argv[2])
batch = np.array([line.split() for line in sys.stdin], dtype=np.int64)
config = r.read_json(run, "experiment/resolved.json")
assert batch.shape == (6, 32) and config["train"]["micro_batch"] == 2, batch.shape
bits = r.embedding(r.first_weights(config), False, batch[-2:], None)
sys.exit(r.fingerprint(bits) != r.read_trace(run)[step]["out:embed"])
PY
batch() { python "$lib/../peers/batches.py" "$@"; }
embedded() { PYTHONPATH="$lib/../peers" python embedded.py "$@"; }
for step in 1 2 3 4; do
    batch short 0 77 32 6 $step | embedded open/*-plain-* $step || fail "plain, step $step"
    batch short 0.1 77 32 6 $step documents | embedded open/*-whole-* $step ||
        fail "whole, step $step"
done
batch short 0.1 77 32 6 4 | embedded open/*-whole-* 4 && fail "the order of documents is not seen"
batch short 2>out && fail "batches.py without a step"
grep -q 'batches.py PREFIX HOLDOUT' out || fail "batches.py does not say how it is used"

# A learning rate of 0 leaves the weights as they are: the last checkpoint's are the first one's.
cmp open/*-text-*/data/checkpoints/step-00000[04]/model.safetensors || fail "lr = 0 moved weights"

# The initial weights of tests/cli/tiny.lua, recorded for tests/cli/kept.sh.
run_tiny --runs tiny --set checkpoint.init=true --set archive=full
(cd open && "$FP8LAB" extract -q ../tiny/*.tar.zst >/dev/null 2>&1)
reproduce open/*-tiny-* || fail "tiny: exit code $?"
grep -q '^initial weights: equal' out || fail "tiny: initial weights"
(cd open/*-tiny-*/data/checkpoints/step-000000 && sha256sum model.safetensors) >weights
recorded tests/cli/first_weights.txt weights

# One bit of a weight, a text in another order, another seed, no run at all.
python - open/*-text-*/data/checkpoints/step-000000/model.safetensors <<'PY'
import sys
raw = bytearray(open(sys.argv[1], "rb").read())
raw[-1] ^= 1
open(sys.argv[1], "wb").write(raw)
PY
reproduce open/*-text-*
[ $? = 4 ] && grep -q 'initial weights: different' out && grep -q ', element [0-9]*: 0x' out ||
    fail "a flipped bit"
mkdir other && cp b.txt other/a.txt && cp a.txt other/b.txt
reproduce open/*-moving-* --data-root other
[ $? = 4 ] && grep -q 'initial weights: equal' out && grep -q '^  step 1: the embedding' out ||
    fail "a text in another order"
sed -i 's/"seed":1234/"seed":1235/' open/*-moving-*/data/experiment/resolved.json
reproduce open/*-moving-*
[ $? = 4 ] && grep -q 'initial weights: different' out || fail "another seed"
reproduce nowhere
[ $? = 2 ] && grep -q "name a run's folder" out || fail "no run"
exit $failed
