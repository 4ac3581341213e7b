-- Which of the three GEMMs of a layer costs a recipe its loss: fprop (the output), dgrad (the
-- gradient of the input), or wgrad (the gradient of the weights)? Each alone is in the recipe, the
-- other two are in BF16. Change `low`, the model and the data to yours. `compare` says for each row
-- whether its loss holds.
local tiny = require "models.tiny"
local low = fp4.nvfp4 -- fp8.delayed, fp8.tensorwise, fp8.rowwise, fp8.blockwise, fp8.mxfp8

return suite {
  name  = "which-gemm",
  about = "Which of fprop, dgrad and wgrad costs NVFP4 its loss?",

  matrix = {
    recipe = {
      bf16,
      all   = low,
      fprop = low { dgrad = "bf16", wgrad = "bf16" },
      dgrad = low { fprop = "bf16", wgrad = "bf16" },
      wgrad = low { fprop = "bf16", dgrad = "bf16" },
    },
    seed = { 1, 2, 3, 4, 5, 6, 7, 8 },
  },

  model = tiny.gpt2,
  data  = text { paths = { "data/quickstart.txt" }, holdout = 0.05 },
  train = {
    steps = 300, global_batch = 16, micro_batch = 16,
    optimizer = adamw { lr = 2e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = wsd { warmup = 20, decay = 100, final = 0 },
  },
  eval = { every = 150, batches = 64 },
}
