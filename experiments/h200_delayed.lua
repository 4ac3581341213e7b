local llama3_8b = require "h200_llama3_8b"

return experiment(llama3_8b {
  name   = "llama3-8b-h200-delayed",
  about  = "How much faster than BF16 is FP8 with delayed scaling on H200, and does the loss hold?",
  recipe = fp8.delayed { format = "hybrid", history = 1024, algo = "max", param_gather = true },
})
