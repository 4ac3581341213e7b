local tiny = require "models.tiny"
return experiment {
  name = "control", about = "a\n  fake", model = tiny.llama, recipe = bf16,
  data = text { "data/\27[2J.txt" },
  hardware = { query = "gpu.count\1> 1" },
  train = { steps = 10, global_batch = 8 },
}
