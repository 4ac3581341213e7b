# What the tests of weights share: sourced, from the repository root, after tests/cli/lib.sh.
names=$(cut -d' ' -f1 "$root/tests/weights/losses.txt")
python3 "$root/tests/weights/make_models.py" models || fail "make_models.py"

# Writes x.lua: one step on models/text.txt, whose loss is that of the initial weights.
script() { # INIT [MODEL [KEYS]]
    cat >x.lua <<END
return experiment { name = "x", model = hf { "${2:-$1}", seq_len = 32 }, init = "$1", recipe = f32,
  data = text { "models/text.txt", holdout = 0 }, train = { steps = 1, global_batch = 1 }, ${3:-} }
END
}

run_x() { # ARGS...: runs x.lua; exit code in $code
    "$FP8LAB" run x.lua --backend cpu --threads 1 --again "$@" >out 2>log
    code=$?
}

# A run whose learning rate is 0 keeps the weights of models/NAME. Its bundle: $bundle.
untrained() { # NAME RECIPE
    cat >x.lua <<END
return experiment { name = "u", model = hf { "models/$1", seq_len = 32 }, init = "models/$1",
  recipe = $2, data = text { "models/text.txt", holdout = 0 }, checkpoint = { every = 1, keep = 1 },
  train = { steps = 1, global_batch = 1, optimizer = adamw { lr = 0 } } }
END
    run_x
    expect "$1: exit code" 0 $code
    bundle=$(newest runs)
}

# Writes models/NAME/logits.npy: those of the prompt in f32.
prompt="the quick brown fox jumps over a" # as many bytes as a sequence
write_logits() { # NAME
    "$FP8LAB" generate "models/$1" "$prompt" --recipe f32 --tokenizer bytes --tokens 0 \
        --logits "models/$1/logits.npy" --backend cpu --threads 1 >out 2>log || fail "$1: logits"
}

# bf16 for a model in BF16, else f32.
type_of() { case $1 in llama31 | llama32 | qwen2) echo bf16 ;; *) echo f32 ;; esac; }

loss_of() { # [BUNDLE]: its last loss
    "$FP8LAB" show --json "${1:-$(newest runs)}" | python3 -c 'import json, sys
print(json.load(sys.stdin)["summary"]["loss_final"])'
}

near() { # WHAT WANTED FOUND BOUND
    python3 -c 'import sys; a, b, bound = map(float, sys.argv[1:]); sys.exit(abs(a - b) > bound)' \
        "$2" "$3" "$4" || fail "$1: wanted $2 to $4, found $3"
}
