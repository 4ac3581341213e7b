-- What does NVFP4 cost in loss, beside blockwise FP8, MXFP8 and BF16? 50 million bytes a run, four
-- seeds a recipe, a model with 113 million parameters in its layers. FP4 is emulated: its codes and
-- scales are those of a chip that has them, its products are BF16's.
-- The first four recipes answer the question. The others say what the published policies give back:
-- --only "fp4-loss-nvfp4-*" beside --only "fp4-loss-bf16-*".
-- `containers/export_corpus.sh data/corpus.txt` writes the text. gpt2_loss.lua says why windows are
-- short and the learning rate ends at 0.
local gpt2, policy = require "models.gpt2", require "nvfp4"

local LAYERS, STEPS = 16, 3052 -- of 64 x 256 bytes: 50.0 million
local DECAY = STEPS * 8 // 10  -- the last fifth of the steps, with a falling rate

local function row(label, recipe, seed)
  return experiment {
    name     = "fp4-loss-" .. label .. "-seed" .. seed,
    about    = "What does NVFP4 cost in loss on source code and documentation?",
    hardware = { query = "gpu.cc >= 8.9", gpus = 1 },
    model    = gpt2["124m"] { layers = LAYERS, seq_len = 256 },
    recipe   = recipe,
    data     = text { paths = { "data/corpus.txt" }, holdout = 0.036 },
    train    = {
      steps = STEPS, global_batch = 64, micro_batch = 64, seed = seed,
      optimizer = adamw { lr = 6e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
      schedule  = wsd { warmup = 150, decay = STEPS - DECAY, final = 0 },
    },
    eval = { every = STEPS // 2, batches = 63 }, -- 63 x 64 x 256 bytes
  }
end

local recipes = {
  { "bf16", bf16 },
  { "blockwise", fp8.blockwise },
  { "mxfp8", fp8.mxfp8 },
  { "nvfp4", fp4.nvfp4 },
  { "nvfp4-last", policy.last(LAYERS) },
  { "nvfp4-forward", policy.forward(LAYERS, DECAY) },
  { "nvfp4-nearest", fp4.nvfp4 { hadamard = false, stochastic = false } },
}
local rows = {
  name  = "fp4-loss",
  about = "What does NVFP4 cost in loss beside blockwise FP8, MXFP8 and BF16?",
}
for _, it in ipairs(recipes) do
  for seed = 1, 4 do rows[#rows + 1] = row(it[1], it[2], seed) end
end
return suite(rows)
