-- Common settings of the five rows of the Megatron-LM report's table; name, about, recipe differ.
-- The report does not give batch and optimizer: batch, clipping, betas and weight decay are those
-- of Megatron-LM's example for Llama-3-8B. experiments/RESULTS.md lists the differences. BF16
-- weights; f32 masters, moments and gradients. Twelve iterations of generated tokens, the last ten
-- of them in the steady window. h200_loss.lua measures the effect of the recipes on the loss.
local llama3 = require "models.llama3"

return preset {
  hardware = { query = 'gpu.product_name="NVIDIA H200"', gpus = 8 },
  model    = llama3["8b"] { seq_len = 8192 },
  data     = synthetic { seed = 1 },
  train    = {
    steps = 12, global_batch = 128, micro_batch = 1, seed = 1234,
    optimizer = adamw { lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 4, final = 0.1 },
  },
  eval  = { every = 4, batches = 8 },
  trace = { first = 0, every = 0 },
}
