#!/bin/bash
# model = hf "PATH": sizes of config.json, changes beside it, its text in the bundle, and a repro
# without the folder.
set -u
. tests/cli/lib.sh
mkdir -p m
cat >m/config.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
 "intermediate_size": 96, "vocab_size": 300, "max_position_embeddings": 64, "rope_theta": 500000.0,
 "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                  "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}
END
script() { # MODEL
    cat >x.lua <<END
return experiment { name = "x", model = $1, recipe = bf16, data = synthetic {},
  train = { steps = 2, global_batch = 2, optimizer = adamw { lr = 1e-3 } } }
END
}
sizes() { "$FP8LAB" check x.lua --resolved "$@" | python3 -c 'import json, sys
m = json.load(sys.stdin)["model"]
rope = m["rope"]
print(m["width"], m["kv_heads"], m["seq_len"], rope["theta"], rope["scaling"]["factor"])'; }

script 'hf "m"'
expect "config.json" "64 2 64 500000.0 8.0" "$(sizes)"
expect "--set" "64 2 32 10000.0 8.0" "$(sizes --set seq_len=32 --set model.rope.theta=10000)"
script 'hf { "m", seq_len = 32, rope = { theta = 20000 } }'
expect "a change beside the folder" "64 2 32 20000.0 8.0" "$(sizes)"
mkdir root && mv m root/m
gives 2 check x.lua -- 'x.lua:1: model = hf "m"' "m/config.json"
"$FP8LAB" run x.lua --data-root root --backend cpu --threads 1 >out 2>log || fail "the run"
bundle=$(bundle_in runs)
"$FP8LAB" extract "$bundle" --to out.d >out 2>&1 || fail "extract"
cmp -s root/m/config.json out.d/data/experiment/hf/*.json || fail "the bundle lacks config.json"
rm -r root
gives 0 show "$bundle" -- "x"
gives 0 repro "$bundle" --threads 1 -- "bitwise equal"
gives 0 check out.d/data/experiment/main.lua -- "x"
script 'hf { 3 }'
gives 2 check x.lua -- "hf takes one folder" "found 3" "1 error"
script 'hf "absent"'
gives 2 check x.lua -- "absent/config.json"
mkdir mix && echo '{"model_type": "mixtral"}' >mix/config.json
script 'hf "mix"'
gives 2 check x.lua -- 'mix/config.json: model_type is "mixtral"; expected llama'
exit $failed
