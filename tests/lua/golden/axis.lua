-- overrides: matrix.data.paths=[ab]*.txt,c.txt matrix=1 matrix.seed=1,,2 matrix.recipe=bf17
local tiny = require "models.tiny"
return suite {
  name = "axis", model = tiny.llama, data = synthetic,
  train = { steps = 10, global_batch = 8 },
  matrix = { recipe = { bf16 } },
}
