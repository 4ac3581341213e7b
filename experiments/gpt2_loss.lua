-- Losses on real text: every recipe against seven seeds of BF16. A run trains on 20.5 million bytes
-- and is evaluated on 1.04 million that no run trains on.
-- The losses must have converged when they are compared. With windows of 1024 bytes, 28 a step,
-- every run stayed at 2.5 nats for 10 million bytes and still fell by 5 % and more in the last 100
-- steps. Recipes of one seed were then up to 7 % apart, and FP8 was below BF16 by chance. With
-- learned positions a model learns a short window sooner, since it sees each position more often.
-- Hence 256 bytes, small steps, and a learning rate that ends at 0.
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
    eval = { every = 1250, batches = 127 }, -- 127 x 32 x 256 bytes
  }
end

-- Chance moves each run's loss, so a difference below a percent needs several seeds.
-- `--only "*-seed[123]"` is a first look.
local ends = { first_bf16 = 1, last_bf16 = 1 }
local recipes = {
  { label = "bf16", recipe = bf16, seeds = 7 },
  { label = "blockwise", recipe = fp8.blockwise, seeds = 7 },
  { label = "tensorwise", recipe = fp8.tensorwise, seeds = 7 },
  { label = "delayed", recipe = fp8.delayed, seeds = 7 },
  { label = "tensorwise-1f1l", recipe = fp8.tensorwise(ends), seeds = 4 },
  { label = "delayed-1f1l", recipe = fp8.delayed(ends), seeds = 4 },
}
local rows = {
  name  = "gpt2-loss",
  about = "Does FP8 hold the loss of GPT-2 124M on source code and documentation?",
}
for _, it in ipairs(recipes) do
  for seed = 1, it.seeds do
    rows[#rows + 1] = row(it.label .. "-seed" .. seed, it.recipe, seed)
  end
end
return suite(rows)
