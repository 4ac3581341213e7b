local tiny = require "models.tiny"
return experiment {
  name = "layers", model = tiny.llama, data = synthetic,
  train = { steps = 10, global_batch = 8 },
  recipe = fp8.tensorwise {
    layers = function(index, gemm)
      if index == 0 then return "bf16" end
      if gemm == "qkv" then
        return fp8.blockwise { constants = "torchao",
                               first_bf16 = 1 }
      end
      if gemm == "ffn_out" and index == 1 then return f32 end
    end,
  },
}
