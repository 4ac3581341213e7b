-- The loss curves of the Megatron-LM report: 500 iterations of its text (SlimPajama, tokenised for
-- Llama 3) in each of its five recipes. A row takes more than an hour on eight H200.
local llama3_8b, recipes = require "h200_llama3_8b", require "h200_rows"

return suite(llama3_8b {
  name   = "llama3-8b-h200-loss",
  about  = "Does FP8 hold the loss of BF16 over 500 iterations of Llama-3-8B?",
  matrix = { recipe = recipes },

  data   = tokens { path = "data/slimpajama_text_document", format = "megatron" },
  train  = { steps = 500, time_limit = "1h56m", schedule = cosine { warmup = 100, final = 0.1 } },
  eval   = { every = 100, batches = 32 },
  checkpoint = { every = 250, keep = 2, best = "eval.loss" },
})
