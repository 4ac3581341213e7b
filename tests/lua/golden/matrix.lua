-- overrides: recipe.layers=1 =5 train.steps model..width=1
local tiny = require "models.tiny"
return suite {
  name = "matrix", model = tiny.llama, data = synthetic,
  train = { steps = 10, global_batch = 8 },
  matrix = { recipe = { bf16, bf16 }, seed = 3, ["train.lr"] = { 1 },
             ["model.widht"] = { 64, 128 }, eval = {} },
}
