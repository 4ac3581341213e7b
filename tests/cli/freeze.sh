#!/bin/bash
# train.freeze and train.lr_scale: check, plan and show say what is trained; wrong names are
# refused; a stopped run resumes to the same weights, also with several ranks; export has all
# weights.
set -u
. tests/cli/lib.sh
cat >f.lua <<'END'
return experiment { name = "f", recipe = fp8.tensorwise, data = synthetic {},
  model = { vocab = 256, seq_len = 32, layers = 4, width = 64, heads = 4, ffn = 96 },
  train = { steps = 120, global_batch = 4, optimizer = adamw { lr = 1e-2 },
            freeze = { "embed", "layers.0-1" }, lr_scale = { head = 0.5, ["layers.2"] = 0.1 } },
  checkpoint = { every = 40, keep = 2 }, archive = "full" }
END
trains="86336 of 172608 parameters; frozen: embed, layers.0-1"
trains+="; learning rate: head x 0.5, layers.2 x 0.1"
gives 0 check f.lua -- "f trains $trains"
gives 0 plan f.lua --backend cpu -- "172608 parameters, 86336 of them trained"
gives 0 check f.lua --smoke -- "f [smoke]"
gives 2 run f.lua --backend cpu --set train.freeze=embed,layers.4 -- \
    '"layers.4" names no parameter' \
    "embed, layers.0-3 (each norm1, qkv, attn_out, norm2, ffn_in, ffn_out), final_norm, head"
gives 2 check f.lua --set train.freeze=embed,layers,final_norm,head -- "nothing is left to train"
gives 2 check f.lua --set train.lr_scale.layers.2.qkv=1 -- "both name layers.2.qkv.weight"
gives 2 check f.lua --set train.lr_scale.layers.0-1=1 -- 'all that "layers.0-1" names is frozen'

# A long list is printed whole.
names=$(for l in 0 1 2 3; do printf "layers.$l.%s," norm1 qkv attn_out norm2 ffn_in ffn_out; done)
names+=final_norm
sed 's/, lr_scale = .*/ },/' f.lua >long.lua
gives 0 check long.lua --set train.freeze="$names" -- "; frozen: ${names//,/, }"

train() { # ARGS...
    "$FP8LAB" run f.lua --backend cpu --threads 1 "$@" >out 2>log || fail "run $*"
}
weights() { field "$(newest "$1")" 'run["final_weights_sha256"]'; }
train --runs one
gives 0 show "$(newest one)" -- "trains         $trains"
"$FP8LAB" run f.lua --backend cpu --threads 1 --runs two >out 2>log &
await_step two 2
kill -TERM $! && wait $!
"$FP8LAB" run --resume "$(ls -d two/*/ | head -1)" >out 2>log || fail "the resumed run"
expect "weights of the resumed run" "$(weights one)" "$(weights two)"
gives 0 repro "$(newest one)" --threads 1 -- "bitwise equal"

# Two ranks share what is trained; the frozen weights of both runs are the first ones.
train --runs ranks --set hardware.gpus=2 --set train.shard=parameters
for runs in one ranks; do
    "$FP8LAB" extract "$(newest $runs)" --to "$runs.d" >out 2>&1 || fail "extract"
    python3 - "$runs.d" >$runs.weights <<'END' || fail "the tensors of $runs"
import glob, hashlib, json, struct, sys
folder = glob.glob(sys.argv[1] + "/data/checkpoints/step-000120")[0]
def tensors(name):
    raw = open(folder + "/" + name, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    return {k: raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]
            for k, v in head.items() if k != "__metadata__"}
frozen = lambda name: name.startswith(("embed", "layers.0.", "layers.1."))
state = {k.split(":")[1] for k in tensors("state.safetensors") if ":" in k}
model = tensors("model.safetensors")
assert state == {k for k in model if not frozen(k)}, state
for k in sorted(model):
    if frozen(k): print(k, hashlib.sha256(model[k]).hexdigest())
END
done
cmp -s one.weights ranks.weights || fail "frozen weights differ between one and two ranks"
gives 0 export "$(newest one)" --to exported --dtype f32 -- "exported"
exit $failed
