-- Every way of sharding in four recipes. One micro-batch a step: all have the same order of sums.
local tiny = require "models.tiny"
return suite {
  name = "sharding",
  model = tiny.llama { layers = 2, seq_len = 32 },
  data = synthetic { seed = 7 },
  train = { steps = 6, global_batch = 4, seed = 1, optimizer = adamw { lr = 1e-3 } },
  eval = { every = 3, batches = 1 },
  checkpoint = { every = 4 },
  matrix = {
    recipe = { bf16, fp8.delayed { param_gather = true }, fp8.tensorwise {}, fp8.blockwise {} },
    ["train.shard"] = { "none", "optimizer", "gradients", "parameters" },
  },
}
