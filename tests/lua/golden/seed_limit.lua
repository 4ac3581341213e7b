-- overrides: train.seed=9007199254740993
-- A double cannot hold every integer above 2^53. The limit itself, of sample.seed, is one.
local tiny = require "models.tiny"
return experiment {
  name = "x",
  model = tiny.llama,
  data = synthetic { seed = 9007199254740993 },
  recipe = bf16,
  train = { steps = 1, global_batch = 1 },
  sample = { every = 1, prompts = { { 1 } }, tokens = 1, seed = 9007199254740992 },
}
