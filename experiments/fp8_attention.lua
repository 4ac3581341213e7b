-- What does FP8 attention cost in loss, and what does it save in time? Each FP8 recipe that defines
-- it runs with attention in BF16 and in FP8, beside BF16 throughout, four seeds each. The
-- comparison at its end judges FP8 attention against the same recipe without it (`factor` below),
-- and recipes with attention in BF16 against BF16. It also has the time of a step.
-- Published figures of an H200 say that it does not pay there: cuDNN's FP8 backward is as fast as
-- BF16's at 4k tokens, and slower from 8k on. `fp8lab show` of a run names the kernel that served
-- ("emulated": slower than BF16; such a step time says nothing about FP8 hardware). It is
-- emulated on sm_90, where cuDNN 9.19 lists no FP8 attention with outputs in BF16.
-- `containers/export_corpus.sh data/corpus.txt` writes the text.
local llama3 = require "models.llama3"

local LENGTH <const> = 1024

local function row(label, recipe, precision, seed)
  return experiment {
    name      = "fp8-attention-" .. label .. "-seed" .. seed,
    about     = "What does FP8 attention cost in loss and save in time?",
    hardware  = { query = "gpu.cc >= 8.9", gpus = 1 },
    model     = llama3.small { vocab = 256, layers = 8, width = 1024, heads = 8, kv_heads = 4,
                               ffn = 2816, seq_len = LENGTH }, -- heads of 128
    recipe    = recipe,
    attention = { precision = precision },
    data      = text { paths = { "data/corpus.txt" }, holdout = 0.036 },
    train     = {
      steps = 600, global_batch = 16, micro_batch = 16, seed = seed,
      optimizer = adamw { lr = 6e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
      schedule  = wsd { warmup = 60, decay = 120, final = 0 },
    },
    eval      = { every = 300, batches = 32 },
  }
end

local rows = {
  name  = "fp8-attention",
  about = "What does FP8 attention cost in loss and save in time, beside the same recipe without?",
  factor = "attention.precision=bf16", -- FP8 attention is judged against the same recipe without it
}
for seed = 1, 4 do
  rows[#rows + 1] = row("bf16", bf16, "bf16", seed)
  for label, recipe in pairs { delayed = fp8.delayed, tensorwise = fp8.tensorwise } do
    for _, precision in ipairs { "bf16", "fp8" } do
      rows[#rows + 1] = row(label .. "-" .. precision, recipe, precision, seed)
    end
  end
end
return suite(rows)
