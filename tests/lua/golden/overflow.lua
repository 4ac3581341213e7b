local tiny = require "models.tiny"
local many = {}
for i = 1, 256 do many[i] = i end
return suite {
  name = "overflow", model = tiny.llama, recipe = bf16, data = synthetic,
  train = { steps = 10, global_batch = 8 }, -- 256^8 runs are 2^64, which no 64-bit count holds
  matrix = { seed = many, steps = many, warmup = many, final = many, decay = many, lr = many,
             eps = many, clip = many },
}
