-- overrides: train.warmup_steps=5 quantize=fp8 resume=true batch_size=8
return experiment {
  name = "others", data = synthetic,
  model = { vocab_size = 256, max_seq_len = 64, n_layers = 2, d_model = 64, num_heads = 4,
            intermediate_size = 96 },
  recipe = fp8.delayed { amax_history_len = 16, amax_compute_algo = "max" },
  train = { num_epochs = 3, batch_size = 8, learning_rate = 1e-3, time_limit = "1:56",
            resume = true, quantize = "fp8" },
}
