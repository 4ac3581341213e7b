local llama3_8b = require "h200_llama3_8b"

return experiment(llama3_8b {
  name   = "llama3-8b-h200-tensorwise",
  about  = "Does current scaling cost speed against delayed scaling on H200?",
  recipe = fp8.tensorwise { format = "hybrid", param_gather = true },
})
