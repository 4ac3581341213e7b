-- What the bench_* suites share: a step as a user of one GPU would take it to be fast (BF16
-- gradients and optimizer state, no f32 masters, as the peers have them), generated tokens, thirty
-- steps. Fingerprints, which a run takes for its first steps, are off: they cost more than a step
-- of a small model, and the steady window would hold them. Everything else is as in any run.
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
