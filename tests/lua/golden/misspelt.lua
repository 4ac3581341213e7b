-- overrides: train.step=9 recipe.marginn=1
local tiny = require "models.tiny"
return experiment {
  name = "misspelt!",
  model = tiny.llama { widht = 64, heads = 3,
    rope = { teta = 5 } },
  recipe = fp8.delayed { margin = -1,
    pow2 = true, format = "hybird" },
  train = { step = 500, global_batch = 7, micro_batch = 2, lr = 1e-3,
    optimizer = adamw { lr = "fast", betas = { 0.9, 1.5 } },
    schedule = cosine { warmup = 1/0 } },
  matrix = { seed = { 1, 2 } },
}
