-- GPT-2 124M on tokens of the text that gpt2_loss.lua reads as bytes: as much of the text (a token
-- has 2.14 bytes on average), and the same optimizer. `containers/export_corpus.sh data/corpus.txt`
-- writes the text. The tokenizer is GPT-2's: its tokenizer.json, or its tiktoken file and
-- --set data.tokenizer=data/gpt2.tiktoken --set data.pattern=gpt2.
local gpt2 = require "models.gpt2"

local function row(label, recipe, seed)
  return experiment {
    name     = "gpt2-tokens-" .. label,
    about    = "Does FP8 hold the loss of GPT-2 124M on tokens of source code?",
    hardware = { query = "gpu.cc >= 8.9", gpus = 1 },
    model    = gpt2["124m"] { seq_len = 256 },
    recipe   = recipe,
    data     = text { "data/corpus.txt", tokenizer = "data/gpt2.json", holdout = 0.036 },
    train    = {
      steps = 1170, global_batch = 32, micro_batch = 32, seed = seed,
      optimizer = adamw { lr = 6e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
      schedule  = cosine { warmup = 70, final = 0 },
    },
    eval = { every = 585, batches = 55 }, -- 55 x 32 x 256 tokens
  }
end

local recipes = { bf16 = bf16, blockwise = fp8.blockwise, tensorwise = fp8.tensorwise,
                  delayed = fp8.delayed }
local rows = { name = "gpt2-tokens", about = "Does FP8 hold the loss of GPT-2 124M on tokens?" }
for _, label in ipairs { "bf16", "blockwise", "tensorwise", "delayed" } do
  for seed = 1, 4 do
    rows[#rows + 1] = row(label .. "-seed" .. seed, recipes[label], seed)
  end
end
return suite(rows)
