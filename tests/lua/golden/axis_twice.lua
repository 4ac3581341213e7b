-- overrides: matrix.seed=7 train.seed=9 matrix.absent=4 matrix.sede=5 matrix.trian.steps=6
local tiny = require "models.tiny"
return suite {
  name = "axis_twice", model = tiny.llama, data = synthetic,
  train = { steps = 10, global_batch = 8 },
  matrix = { recipe = { bf16 }, seed = { 1, 2 } },
}
