-- The smallest model, on generated data, for the tests of run control.
local tiny = require "models.tiny"
return experiment {
  name = "tiny",
  model = tiny.llama { layers = 1, seq_len = 32 },
  recipe = fp8.delayed {},
  data = synthetic { seed = 7 },
  train = { steps = 12, global_batch = 4, micro_batch = 2, seed = 1,
            optimizer = adamw { lr = 1e-3 } },
  eval = { every = 6, batches = 1 },
  checkpoint = { every = 5, keep = 2 },
}
