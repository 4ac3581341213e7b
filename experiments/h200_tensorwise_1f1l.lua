local llama3_8b, recipes = require "h200_llama3_8b", require "h200_rows"

return experiment(llama3_8b {
  name   = "llama3-8b-h200-tensorwise-1f1l",
  about  = "What do BF16 first and last layers cost?",
  recipe = recipes.tensorwise_1f1l,
})
