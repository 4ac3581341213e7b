local tiny = require "models.tiny"
local own = fp4.nvfp4 { forward_bf16_after = 11 }
local function layers(index, gemm) return index == 2 and gemm == "qkv" and own or nil end
return suite {
  name = "forward", model = tiny.llama, data = synthetic, train = { steps = 10, global_batch = 8 },
  matrix = { recipe = {
    fp4.nvfp4 { forward_bf16_after = 0 },
    fp4.nvfp4 { forward_bf16_after = 9 },
    fp4.nvfp4 { forward_bf16_after = 10 },
    fp4.nvfp4 { layers = layers },
  } },
}
