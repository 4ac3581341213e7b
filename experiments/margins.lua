-- The guide saw NaN with margin = 1 and none with 0 and 2, and did not say why.
local tiny = require "models.tiny"

return suite {
  name  = "margins",
  about = "Does delayed scaling fail with margin 1 while margins 0 and 2 work?",

  matrix = { ["recipe.margin"] = { 0, 1, 2 }, seed = { 1, 2 } },

  recipe = fp8.delayed { format = "hybrid" },
  model  = tiny.gpt2,
  data   = text { paths = { "data/quickstart.txt" }, holdout = 0.05 },
  train  = {
    steps = 100, global_batch = 8, micro_batch = 8,
    optimizer = adamw { lr = 3e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 10, final = 0.1 },
  },
  eval = { every = 50, batches = 8 },
}
