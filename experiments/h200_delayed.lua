local llama3_8b, recipes = require "h200_llama3_8b", require "h200_rows"

return experiment(llama3_8b {
  name   = "llama3-8b-h200-delayed",
  about  = "How much faster than BF16 is FP8 with delayed scaling on H200?",
  recipe = recipes.delayed,
})
