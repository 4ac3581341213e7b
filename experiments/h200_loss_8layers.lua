-- The five recipes of the Megatron-LM report's table on text, and a second seed of BF16. The model
-- has Llama-3-8B's widths and 8 of its 32 layers; one GPU, 160 steps of 8192 bytes.
-- `containers/export_corpus.sh data/corpus.txt` writes the text.
local llama3, recipes = require "models.llama3", require "h200_rows"

local function row(label, recipe, seed)
  return experiment {
    name     = "llama3-8b-8layers-loss-" .. label,
    about    = "Does FP8 hold the loss of BF16 on eight layers of Llama-3-8B?",
    hardware = { query = "gpu.cc >= 8.9 and gpu.memory > 70GiB", gpus = 1 },
    model    = llama3["8b"] { layers = 8 },
    recipe   = recipe,
    data     = text { paths = { "data/corpus.txt" }, holdout = 0.036 },
    train    = {
      steps = 160, global_batch = 1, seed = seed,
      optimizer = adamw { lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
      schedule  = cosine { warmup = 20, final = 0.1 },
    },
    eval  = { every = 40, batches = 16 },
    trace = { first = 0 },
  }
end

return suite {
  name  = "llama3-8b-8layers-loss",
  about = "Does FP8 hold the loss of BF16 on eight layers of Llama-3-8B?",
  row("bf16", recipes.bf16, 1),
  row("bf16-seed2", recipes.bf16, 2),
  row("delayed", recipes.delayed, 1),
  row("tensorwise", recipes.tensorwise, 1),
  row("tensorwise-1f1l", recipes.tensorwise_1f1l, 1),
  row("blockwise", recipes.blockwise, 1),
}
