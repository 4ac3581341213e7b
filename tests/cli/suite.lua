-- Two rows, each long enough to be stopped in the middle.
local tiny = require "models.tiny"
return suite {
  name = "pair",
  matrix = { recipe = { bf16, fp8.tensorwise } },
  model = tiny.llama { layers = 1, seq_len = 32 },
  data = synthetic { seed = 7 },
  train = { steps = 120, global_batch = 4, micro_batch = 2, seed = 1,
            optimizer = adamw { lr = 1e-3 } },
  eval = { every = 120, batches = 1 },
  checkpoint = { every = 25, keep = 1 },
}
