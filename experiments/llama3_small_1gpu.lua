local llama3 = require "models.llama3"

return suite {
  name  = "llama3-small-1gpu",
  about = "Is a 12-layer model of width 2048 already large enough for FP8 to pay on one GPU?",

  matrix = { recipe = { bf16, fp8.delayed, fp8.tensorwise, fp8.blockwise } },

  hardware = { query = "gpu.cc >= 8.9", gpus = 1 },
  model = llama3.small,
  data  = tokens { path = "data/slimpajama_text_document", format = "megatron" },
  train = {
    steps = 500, global_batch = 64, micro_batch = 4, seed = 1234,
    optimizer = adamw { lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 50, final = 0.1 },
  },
  eval       = { every = 100, batches = 32 },
  checkpoint = { every = 250, keep = 1 },
}
