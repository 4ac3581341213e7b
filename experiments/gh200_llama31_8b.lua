-- One GH200: 96 GB of HBM hold the 8B model only with a lean optimizer. So weights keep no f32 copy
-- (stochastic rounding instead), both moments are 8-bit, and gradients accumulate in BF16.
local llama3 = require "models.llama3"

return suite {
  name  = "llama31-8b-gh200",
  about = "Does FP8 reach the 1.49x over BF16 that the guide expects of one GH200?",

  matrix = { recipe = { bf16, fp8.delayed, fp8.tensorwise } },

  hardware = { query = 'gpu.product_name~"NVIDIA GH200*"', gpus = 1 },
  model = llama3["3.1-8b"] { seq_len = 4096 },
  data  = tokens { path = "data/slimpajama_text_document", format = "megatron" },
  train = {
    steps = 200, global_batch = 24, micro_batch = 6, seed = 1234, recompute = "block",
    grad_dtype = "bf16",
    optimizer = adamw { lr = 2e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
                        state = "8bit", master = "none" },
    schedule  = cosine { warmup = 100, final = 0.1 },
  },
  eval       = { every = 100, batches = 16 },
  checkpoint = { every = 200, keep = 1 },
}
