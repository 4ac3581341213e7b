-- Values of an axis that are no number, where the name of a run is made of them.
local tiny = require "models.tiny"
return suite {
  name = "x",
  model = tiny.llama,
  data = synthetic,
  train = { steps = 1, global_batch = 1, optimizer = adamw },
  matrix = {
    recipe = { fp8.delayed { margin = 1 / 0 }, fp8.delayed },
    ["train.optimizer.lr"] = { 1e-3, 0 / 0 },
  },
}
