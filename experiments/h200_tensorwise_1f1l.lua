local llama3_8b = require "h200_llama3_8b"

return experiment(llama3_8b {
  name   = "llama3-8b-h200-tensorwise-1f1l",
  about  = "What do BF16 first and last layers cost, and does the loss gain from them?",
  recipe = fp8.tensorwise { format = "hybrid", param_gather = true, first_bf16 = 1, last_bf16 = 1 },
})
