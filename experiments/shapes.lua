-- The guide's shape study: its FP8 GEMMs failed with a vocabulary of 50264 and worked with 50304.
-- Here odd sizes are padded and masked: each shape must train.
local tiny = require "models.tiny"

local shape = tiny.llama { seq_len = 64, layers = 2 }

return suite {
  name  = "shapes",
  about = "Do sizes that are no multiple of 16, 32 or 128 train in every FP8 recipe?",

  matrix = {
    recipe = { fp8.delayed, fp8.tensorwise, fp8.rowwise, fp8.blockwise, fp8.mxfp8 },
    model  = {
      aligned = shape,
      vocab   = shape { vocab = 50264 },              -- 50264 = 8 x 6283
      width   = shape { width = 100, head_dim = 24 }, -- as GPT-2 1558M's 1600 is no multiple of 128
      ffn     = shape { ffn = 300 },
      tokens  = shape { seq_len = 50 },
    },
  },

  data  = synthetic { seed = 1 },
  train = {
    steps = 5, global_batch = 2, micro_batch = 2, seed = 1,
    optimizer = adamw { lr = 1e-3 },
  },
}
