-- Has one step of GPT-2 124M, of 4,096 tokens, the bits on a GPU that a CPU computes? On an H200:
-- fp8lab run experiments/exact_gpt2.lua. Then, anywhere, in some minutes a recipe:
-- fp8lab repro BUNDLE --backend cpu --exact. reference/exact-gpt2/ has an H200's bundles.
local gpt2 = require "models.gpt2"

return suite {
  name  = "gpt2-one",
  about = "Has a step of GPT-2 124M the bits on a GPU that a CPU computes?",

  matrix = { recipe = { bf16, fp8.tensorwise, fp8.delayed, fp8.blockwise } },

  model = gpt2["124m"] { seq_len = 1024 },
  data  = synthetic {},
  train = { steps = 1, global_batch = 4, micro_batch = 4, exact = true },
}
