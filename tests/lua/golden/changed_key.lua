-- overrides: model.width=127 train.global_batch=9 train.steps=10 model.layers=2
local tiny = require "models.tiny"
return experiment {
  name = "changed-key", model = tiny.llama, data = synthetic,
  recipe = fp8.tensorwise { first_bf16 = 1, last_bf16 = 1 },
  train = { steps = 100, global_batch = 8, micro_batch = 2, schedule = cosine { warmup = 20 } },
}
