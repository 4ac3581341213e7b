-- A recipe of FP8 without an FP8 GEMM is BF16 under another name.
local tiny = require "models.tiny"
local function all() return bf16 end
local function but_last(index, gemm, n) if index < n - 1 then return bf16 end end
return suite {
  name = "layers-none", model = tiny.llama { layers = 2 }, data = synthetic,
  train = { steps = 10, global_batch = 8 },
  matrix = { recipe = {
    all = fp8.tensorwise { layers = all },
    rest = fp8.tensorwise { last_bf16 = 1, layers = but_last },
    head = fp8.tensorwise { lm_head = "fp8", layers = all },
    one = fp8.tensorwise { layers = but_last },
    plain = bf16 { layers = all },
  } },
}
