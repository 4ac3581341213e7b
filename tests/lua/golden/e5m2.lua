local tiny = require "models.tiny"
return suite {
  name = "e5m2", model = tiny.llama, data = synthetic,
  train = { steps = 10, global_batch = 8 },
  matrix = { recipe = { fp8.delayed { format = "e5m2" }, fp8.mxfp8 { format = "e5m2" },
                        fp8.tensorwise { format = "e5m1" }, fp8.delayed { format = "E5M2" },
                        fp8.delayed { format = "E4M3" } } },
}
