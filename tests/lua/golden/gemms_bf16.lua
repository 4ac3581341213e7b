-- GEMMs of an FP8 recipe in BF16. "fp8" is as if the key were absent.
local tiny = require "models.tiny"
local own = fp8.blockwise { fprop = "bf16", dgrad = "bf16", wgrad = "bf16" }
local function layers(index, gemm) return index == 1 and gemm == "qkv" and own or nil end
return suite {
  name = "gemms", model = tiny.llama, data = synthetic, train = { steps = 10, global_batch = 8 },
  matrix = { recipe = {
    a = fp8.tensorwise { dgrad = "bf16", wgrad = "fp8" },
    b = fp8.rowwise { fprop = "bf16", dgrad = "bf16", wgrad = "bf16" },
    c = fp8.delayed { param_gather = true, dgrad = "bf16" },
    d = fp8.delayed { param_gather = true, wgrad = "bf16" },
    e = fp4.nvfp4 { forward_bf16_after = 5, fprop = "bf16" },
    f = fp8.mxfp8 { fprop = "f32" },
    g = fp8.tensorwise { layers = layers },
    h = fp8.rowwise { wgrad = "bf16", accumulate = { wgrad = "split" } },
    i = fp8.tensorwise { fprop = "bf16", accumulate = { fprop = "fast", dgrad = "fast" } },
    j = fp8.blockwise { dgrad = "bf16", accumulate = { dgrad = "fast" } },
    k = fp4.nvfp4 { wgrad = "bf16", hadamard = false },
    l = fp4.nvfp4 { dgrad = "bf16", wgrad = "bf16", hadamard = true, stochastic = false },
    m = fp4.nvfp4 { fprop = "bf16", dgrad = "bf16", weight_2d = false, hadamard = false },
    n = fp8.mxfp8 { fprop = "bf16", dgrad = "bf16", weight_2d = true },
    o = fp8.delayed { dgrad = "bf16", wgrad = "bf16", format = "e4m3" },
    p = fp8.delayed { dgrad = "bf16", format = "e4m3" },
    q = fp8.blockwise { dgrad = "bf16", wgrad = "bf16", format = "e4m3" },
    r = fp8.mxfp8 { dgrad = "bf16", wgrad = "bf16", weight_2d = true },
  } },
}
