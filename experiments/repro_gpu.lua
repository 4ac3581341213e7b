-- The suite that `make repro` repeats on a GPU. Its model has four layers of Llama's shape at width
-- 2048; its data are generated. reference/h200 holds its bundles from an H200.
local llama3 = require "models.llama3"

return suite {
  name  = "repro-gpu",
  about = "Does this GPU give the same bits again, in every recipe?",

  hardware = { query = "gpu.cc >= 8.0", gpus = 1 },
  matrix = { recipe = { bf16, fp8.delayed, fp8.tensorwise, fp8.rowwise, fp8.blockwise } },

  model = llama3.small { layers = 4, vocab = 1024, seq_len = 1024 },
  data  = synthetic { seed = 1234 },
  train = {
    steps = 60, global_batch = 16, micro_batch = 8, seed = 1,
    optimizer = adamw { lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 10, final = 0.1 },
  },
  eval = { every = 30, batches = 4 },
}
