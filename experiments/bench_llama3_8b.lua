-- Llama-3-8B whole on one GPU of 141 GB, 4 micro-steps of 8192 tokens. Weights, gradients and
-- moments in BF16 leave room for every activation, so nothing is recomputed.
local llama3, bench = require "models.llama3", require "bench_train"

return suite(bench {
  name  = "bench-llama3-8b",
  about = "How fast does Llama-3-8B train on one GPU in each recipe?",

  matrix = { recipe = { bf16, fp8.tensorwise, fp8.delayed, fp8.blockwise } },
  hardware = { query = "gpu.cc >= 8.9 and gpu.memory > 130GiB" },
  model = llama3["8b"],
  train = { global_batch = 4, steps = 12 },
})
