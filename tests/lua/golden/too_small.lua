-- overrides: train.optimizer.eps=1e-60
-- A number that single precision takes for 0, where 0 means something else.
local tiny = require "models.tiny"
return experiment {
  name = "x",
  model = tiny.llama,
  data = synthetic,
  recipe = bf16,
  train = { steps = 1, global_batch = 1, optimizer = adamw { clip = 1e-320 } },
}
