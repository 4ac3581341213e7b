-- Llama-3-8B's widths with 8 of its 32 layers, which fit one GPU without recomputation. 8192 tokens
-- a step.
local llama3, bench = require "models.llama3", require "bench_train"

return suite(bench {
  name  = "bench-llama3-8b-8layers",
  about = "How fast do 8 layers of Llama-3-8B train in each recipe?",

  matrix = { recipe = { bf16, fp8.tensorwise, fp8.delayed, fp8.blockwise } },
  model = llama3["8b"] { layers = 8 },
})
