-- The suite that `make repro` repeats on a CPU, in half a minute on two cores. The data are
-- generated, so nothing is fetched. reference/cpu holds its bundles.
local tiny = require "models.tiny"

return suite {
  name  = "repro-cpu",
  about = "Does this program give the reference's bits on this CPU, in every recipe?",

  matrix = { recipe = {
    bf16, fp8.delayed, fp8.tensorwise, fp8.rowwise, fp8.blockwise, fp8.mxfp8,
  } },

  model = tiny.llama,
  data  = synthetic { seed = 1234 },
  train = {
    steps = 60, global_batch = 16, micro_batch = 8, seed = 1,
    optimizer = adamw { lr = 3e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 10, final = 0.1 },
  },
  eval = { every = 30, batches = 4 },
}
