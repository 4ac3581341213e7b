local function one(name)
  return experiment {
    name = name,
    model = { vocab = 256, seq_len = 32, layers = 1, width = 64, heads = 2, ffn = 128 },
    recipe = bf16,
    data = synthetic {},
    train = { steps = 2, global_batch = 4 },
  }
end

return one "a", one "b"
