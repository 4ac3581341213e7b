local llama3_8b, recipes = require "h200_llama3_8b", require "h200_rows"

return experiment(llama3_8b {
  name   = "llama3-8b-h200-blockwise",
  about  = "Does blockwise FP8 keep up with tensorwise on H200?",
  recipe = recipes.blockwise,
})
