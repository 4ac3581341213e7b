-- The 12-layer model of width 2048 on one GPU, 8 sequences of 2048 tokens a step.
local llama3, bench = require "models.llama3", require "bench_train"

return suite(bench {
  name  = "bench-llama3-small",
  about = "How fast does the 12-layer model of width 2048 train in each recipe?",

  matrix = {
    recipe = { bf16, fp8.tensorwise, ["fp8.tensorwise-head"] = fp8.tensorwise { lm_head = "fp8" },
               fp8.delayed, fp8.blockwise },
  },
  model = llama3.small,
  train = { global_batch = 8, micro_batch = 8 },
})
