-- Every combination that no project defines.
local tiny = require "models.tiny"
return suite {
  name = "refused", model = tiny.llama, data = text "a.txt",
  train = { steps = 10, global_batch = 8, micro_batch = 8 },
  matrix = { recipe = {
    a = fp8.delayed { constants = "torchao" },
    b = fp8.tensorwise { constants = "deepseek", history = 16 },
    c = fp8.rowwise { constants = "te", format = "hybrid" },
    d = fp8.rowwise { param_gather = true },
    e = fp8.blockwise { constants = "torchao" },
    f = fp8.blockwise { constants = "deepseek", format = "hybrid" },
    g = fp8.blockwise { accumulate = { fprop = "fast" } },
    h = fp8.mxfp8 { format = "hybrid", constants = "torchao", pow2 = true },
    i = fp8.tensorwise { first_bf16 = 2, last_bf16 = 1 },
    j = bf16 { lm_head = "fp8" },
    k = f32 { layers = function() end },
    l = fp8.delayed { weight_2d = true, algo = "median", roll = "never" },
  } },
}
