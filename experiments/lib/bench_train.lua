-- Common settings of the bench_* suites: generated tokens, thirty steps, and the fast settings for
-- one GPU. These are the peers' settings: BF16 gradients and optimizer state, no f32 masters.
-- Fingerprints are off. A run takes them in its first steps, and there they cost more than a step
-- of a small model. Those steps would be in the steady window. Everything else is as in any run.
return preset {
  hardware = { query = "gpu.cc >= 8.9", gpus = 1 },
  data     = synthetic { seed = 1 },
  train    = {
    steps = 30, global_batch = 1, micro_batch = 1, seed = 1234, grad_dtype = "bf16",
    optimizer = adamw { lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
                        state = "bf16", master = "none" },
    schedule  = cosine { warmup = 5, final = 0.1 },
  },
  trace    = { first = 0 },
}
