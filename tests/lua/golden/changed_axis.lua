-- overrides: train.micro_batch=4
local tiny = require "models.tiny"
return suite {
  name = "changed-axis", model = tiny.llama, data = synthetic, recipe = bf16,
  train = { steps = 10, global_batch = 8, micro_batch = 2, schedule = cosine { warmup = 10 } },
  matrix = { ["model.width"] = { 128, 126 }, steps = { 20, 5 },
             ["train.global_batch"] = { 8, 10 } },
}
