-- Delayed scaling beside current scaling and BF16 over many seeds: two seeds of a small model can
-- differ by a percent. A run takes a few seconds of one core. `--only "*-seed-7"` runs one seed.
local tiny = require "models.tiny"

local seeds = {}
for seed = 1, 40 do seeds[seed] = seed end

return suite {
  name  = "delayed-history",
  about = "Does delayed scaling cost loss, and does a shorter history help?",

  matrix = {
    recipe = {
      bf16 = bf16, tensorwise = fp8.tensorwise,
      ["delayed-1024"] = fp8.delayed, ["delayed-16"] = fp8.delayed { history = 16 },
    },
    seed = seeds,
  },

  model = tiny.llama,
  data  = text { paths = { "data/quickstart.txt" }, holdout = 0.05 },
  train = {
    steps = 100, global_batch = 8, micro_batch = 8,
    optimizer = adamw { lr = 3e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 10, final = 0.1 },
  },
  eval = { every = 100, batches = 16 },
}
