-- Llama-3-8B's widths with 4 of its 32 layers, one sequence of 32,768 tokens a step. Attention then
-- takes a third of a step. With 4 layers PyTorch's step fits into one GPU, too.
local llama3, bench = require "models.llama3", require "bench_train"

return suite(bench {
  name  = "bench-llama3-8b-32k",
  about = "How fast do 4 layers of Llama-3-8B train on sequences of 32,768 tokens?",

  matrix = {
    recipe = { bf16, fp8.tensorwise, ["fp8.tensorwise-head"] = fp8.tensorwise { lm_head = "fp8" },
               fp8.delayed, fp8.blockwise },
  },
  model = llama3["8b"] { layers = 4, seq_len = 32768 },
})
