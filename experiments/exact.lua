-- Does a GPU train with the bits that a CPU computes? Four recipes, 20 steps each, with the exact
-- forms of all operators. On an H200: fp8lab run experiments/exact.lua. Then, anywhere:
-- fp8lab repro BUNDLE --backend cpu --exact. reference/exact/ has an H200's bundles.
local tiny = require "models.tiny"

return suite {
  name  = "exact",
  about = "Does a GPU train with the bits that a CPU computes?",

  matrix = { recipe = { bf16, fp8.delayed, fp8.tensorwise, fp8.blockwise } },

  model = tiny.llama,
  data  = synthetic {},
  train = {
    steps = 20, global_batch = 8, micro_batch = 4, exact = true,
    optimizer = adamw { lr = 3e-3 },
    schedule  = cosine { warmup = 4 },
  },
  eval  = { every = 10, batches = 2 },
  trace = { first = 20 },
}
