-- A small transformer reads English text, once per recipe. Two cores need about a minute.
local tiny = require "models.tiny"

return suite {
  name  = "quickstart",
  about = "Does training in FP8 hold the loss of BF16 on real text?",

  matrix = { recipe = { bf16, fp8.delayed, fp8.tensorwise, fp8.blockwise } },

  model = tiny.llama,
  data  = text { paths = { "data/quickstart.txt" }, holdout = 0.05 },
  train = {
    steps = 200, global_batch = 16, micro_batch = 8, seed = 1234,
    optimizer = adamw { lr = 3e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 20, final = 0.1 },
  },
  eval       = { every = 50, batches = 8 },
  checkpoint = { every = 100, keep = 1 },
}
