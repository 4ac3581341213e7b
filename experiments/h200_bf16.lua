local llama3_8b, recipes = require "h200_llama3_8b", require "h200_rows"

return experiment(llama3_8b {
  name   = "llama3-8b-h200-bf16",
  about  = "How fast does Llama-3-8B train in BF16 on eight H200?",
  recipe = recipes.bf16,
})
