local gpt2 = require "models.gpt2"

return suite {
  name  = "gpt2-gb10",
  about = "Does FP8 shorten GPT-2 training on a GB10, where TransformerEngine would not build?",

  matrix = { recipe = { bf16, fp8.tensorwise, fp8.mxfp8 } },

  hardware = { query = 'gpu.product_name="NVIDIA GB10"', gpus = 1 },
  model = gpt2["124m"],
  data  = tokens { path = "data/fineweb_train_000001.bin", format = "llmc",
                   eval_path = "data/fineweb_val_000000.bin" },
  train = {
    steps = 1000, global_batch = 512, micro_batch = 16, seed = 1234,
    optimizer = adamw { lr = 6e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 100, final = 0.1 },
  },
  eval       = { every = 250, batches = 20 },
  checkpoint = { every = 250, keep = 2, best = "eval.loss" },
}
