local tiny = require "models.tiny"
return suite {
  name = "factor", model = tiny.llama, recipe = bf16, data = synthetic,
  factor = "grad_dtype=f32", -- the key has a section: train.grad_dtype
  train = { steps = 10, global_batch = 8 },
}
