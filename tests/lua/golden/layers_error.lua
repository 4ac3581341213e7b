local tiny = require "models.tiny"
return experiment {
  name = "layers", model = tiny.llama, data = synthetic,
  train = { steps = 10, global_batch = 8 },
  recipe = fp8.tensorwise {
    layers = function(index)
      return index.first and bf16
    end,
  },
}
