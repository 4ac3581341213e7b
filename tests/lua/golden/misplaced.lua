-- A key of the experiment in one of its tables, and a table in place of its one number.
local tiny = require "models.tiny"
return experiment {
  name = "misplaced", data = synthetic,
  model = tiny.llama { fp8_error = 2 },
  recipe = fp8.delayed { fp8_error = { every = 2 } },
  train = { steps = 10, global_batch = { 8, 16 }, fp8_error = 2 },
  eval = { batches = { "many" }, every = { 5, every = 2 } },
  fp8_error = { every = 2 },
}
