-- What the five Llama-3-8B runs on eight H200 share: only name, about and recipe differ.
-- Batch, sequence length and optimizer are those of the Megatron-LM script behind the report.
local llama3 = require "models.llama3"

return preset {
  hardware = { query = 'gpu.product_name="NVIDIA H200"', gpus = 8 },
  image    = "nvcr.io/nvidia/cuda:13.0.1-cudnn-devel-ubuntu24.04",
  env      = { CUDA_DEVICE_MAX_CONNECTIONS = 1 },
  model    = llama3["8b"] { seq_len = 8192 },
  data     = tokens { path = "data/slimpajama_text_document", format = "megatron" },
  train    = {
    steps = 500, global_batch = 128, micro_batch = 1, seed = 1234, time_limit = "1h56m",
    optimizer = adamw { lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 100, final = 0.1 },
  },
  eval       = { every = 100, batches = 32 },
  checkpoint = { every = 250, keep = 2, best = "eval.loss" },
}
