-- Losses on real text: every recipe against three seeds of BF16, 20.5 million bytes each, evaluated
-- on the last 1.1 million, which no run trains on. Small batches, so that the losses come to rest: with
-- 28 sequences a step they still fell by 5 % in 100 steps at the end, and a run's place on that slope
-- said more than its recipe.
-- `containers/export_corpus.sh data/corpus.txt` writes the text.
local gpt2 = require "models.gpt2"

local function row(label, recipe, seed)
  return experiment {
    name     = "gpt2-loss-" .. label,
    about    = "Does FP8 hold the loss of GPT-2 124M on source code and documentation?",
    hardware = { query = "gpu.cc >= 8.9", gpus = 1 },
    model    = gpt2["124m"],
    recipe   = recipe,
    data     = text { paths = { "data/corpus.txt" }, holdout = 0.036 },
    train    = {
      steps = 2500, global_batch = 8, micro_batch = 8, seed = seed,
      optimizer = adamw { lr = 6e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
      schedule  = cosine { warmup = 100, final = 0.1 },
    },
    eval = { every = 1250, batches = 133 }, -- 133 x 8 x 1024 bytes
  }
end

return suite {
  name  = "gpt2-loss",
  about = "Does FP8 hold the loss of GPT-2 124M on source code and documentation?",
  row("bf16-seed1", bf16, 1),
  row("bf16-seed2", bf16, 2),
  row("bf16-seed3", bf16, 3),
  row("blockwise", fp8.blockwise, 1),
  row("tensorwise", fp8.tensorwise, 1),
  row("delayed", fp8.delayed, 1),
  row("tensorwise-1f1l", fp8.tensorwise { first_bf16 = 1, last_bf16 = 1 }, 1),
  row("delayed-1f1l", fp8.delayed { first_bf16 = 1, last_bf16 = 1 }, 1),
}
