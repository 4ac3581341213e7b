-- A Llama of GPT-2's size with an untied head. At this size conversion to FP8 costs most, compared
-- with the GEMMs. 32 sequences of 1024 tokens a step.
local llama3, bench = require "models.llama3", require "bench_train"

return suite(bench {
  name  = "bench-llama-124m",
  about = "Does FP8 pay at 124M parameters?",

  matrix = { recipe = { bf16, fp8.tensorwise, fp8.delayed, fp8.blockwise } },
  model = llama3.small {
    width = 768, heads = 12, kv_heads = 12, ffn = 2048, vocab = 50304, seq_len = 1024,
  },
  train = { global_batch = 32, micro_batch = 32 },
})
