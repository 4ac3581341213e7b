-- GPT-2 124M as it was published, 32 sequences of 1024 tokens a step, as llm.c is measured.
local gpt2, bench = require "models.gpt2", require "bench_train"

return suite(bench {
  name  = "bench-gpt2-124m",
  about = "How fast does GPT-2 124M train in each recipe?",

  matrix = { recipe = { bf16, fp8.tensorwise, fp8.delayed, fp8.blockwise } },
  model = gpt2["124m"],
  train = { global_batch = 32, micro_batch = 32 },
})
