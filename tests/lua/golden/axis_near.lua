-- overrides: matrix.stepz=4 matrix.sede=5
local tiny = require "models.tiny"
return suite {
  name = "axis_near", model = tiny.llama, data = synthetic, seed = 1,
  train = { steps = 10, global_batch = 8 },
  matrix = { recipe = { bf16 }, seeds = { 1, 2 }, sede = { 3 } },
}
