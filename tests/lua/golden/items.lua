local tiny = require "models.tiny"
local one = experiment {
  name = "one", model = tiny.llama, recipe = bf16, data = synthetic,
  train = { steps = 10, global_batch = 8 },
}
return suite {
  about = "a suite without a name",
  train = { steps = 5 },
  one,
  one,
  { name = "plain" },
}
