-- A blend of tokens: its files, its weights, its order; steps and epochs.
local function row(name, data, train)
  return experiment {
    name = name, data = data,
    model = { vocab = 256, seq_len = 64, layers = 2, width = 64, heads = 4, ffn = 96 },
    recipe = bf16, train = train,
  }
end
local steps = { steps = 10, global_batch = 8 }
return suite {
  name = "tokens",
  row("nothing", tokens {}, steps),
  row("both", tokens { path = "a", { path = "b" } }, steps),
  row("part", tokens { { path = "a", weight = 0 }, { weight = 1 }, "c" }, steps),
  row("order", tokens { path = "a", format = "llmc", order = "documents" }, steps),
  row("length", tokens { path = "a" }, { steps = 10, epochs = 2, global_batch = 8 }),
  row("whole", tokens { path = "a", layout = "packed", order = "documents" }, steps),
  row("windows", tokens { path = "a", layout = "windows", order = "documents" }, steps),
  row("neither", tokens { path = "a" }, { global_batch = 8 }),
}
