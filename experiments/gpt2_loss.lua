-- Losses on real text: every recipe against three seeds of BF16, 20.5 million bytes each, evaluated on
-- the last 1.1 million, which no run trains on. What is compared must be at rest, or a run's place on a
-- slope says more than its recipe. GPT-2 reads windows of 256 bytes here, not of 1024: with learned
-- positions a long window is learnt so late (at about 15 million bytes) that two seeds of one recipe are
-- 2 % apart at the end, each falling by 5 % in 100 steps. Short ones see every position four times as
-- often. Small steps, and a learning rate that ends at 0, do the rest.
-- `containers/export_corpus.sh data/corpus.txt` writes the text.
local gpt2 = require "models.gpt2"

local function row(label, recipe, seed)
  return experiment {
    name     = "gpt2-loss-" .. label,
    about    = "Does FP8 hold the loss of GPT-2 124M on source code and documentation?",
    hardware = { query = "gpu.cc >= 8.9", gpus = 1 },
    model    = gpt2["124m"] { seq_len = 256 },
    recipe   = recipe,
    data     = text { paths = { "data/corpus.txt" }, holdout = 0.036 },
    train    = {
      steps = 2500, global_batch = 32, micro_batch = 32, seed = seed,
      optimizer = adamw { lr = 6e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
      schedule  = cosine { warmup = 150, final = 0 },
    },
    eval = { every = 1250, batches = 133 }, -- 133 x 32 x 256 bytes
  }
end

-- One run of a recipe is a draw, as one of BF16 is: blockwise, which is to be nearest, has three seeds.
return suite {
  name  = "gpt2-loss",
  about = "Does FP8 hold the loss of GPT-2 124M on source code and documentation?",
  row("bf16-seed1", bf16, 1),
  row("bf16-seed2", bf16, 2),
  row("bf16-seed3", bf16, 3),
  row("blockwise-seed1", fp8.blockwise, 1),
  row("blockwise-seed2", fp8.blockwise, 2),
  row("blockwise-seed3", fp8.blockwise, 3),
  row("tensorwise-seed1", fp8.tensorwise, 1),
  row("tensorwise-seed2", fp8.tensorwise, 2),
  row("delayed-seed1", fp8.delayed, 1),
  row("delayed-seed2", fp8.delayed, 2),
  row("tensorwise-1f1l", fp8.tensorwise { first_bf16 = 1, last_bf16 = 1 }, 1),
  row("delayed-1f1l", fp8.delayed { first_bf16 = 1, last_bf16 = 1 }, 1),
}
