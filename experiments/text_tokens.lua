-- Text with a tokenizer: `run` makes tokens of it once, keeps them in runs/cache, and trains on
-- them. `containers/export_text.sh data/quickstart.txt` writes the text; with
-- `containers/export_corpus.sh data/corpus.txt` and --set data.paths=data/corpus.txt it is a larger
-- one. Two cores need about a minute.
--
-- The tokenizer is the small one of the tests, with 700 tokens. Name your own: a tokenizer.json,
-- the folder that has it, or a tiktoken file; and write its number of tokens as vocab. A pattern
-- names many files: text { "corpus/*.jsonl.zst", ... }.
local tiny = require "models.tiny"

return suite {
  name  = "text-tokens",
  about = "Does FP8 hold the loss of BF16 on tokens of real text?",

  matrix = { recipe = { bf16, fp8.delayed } },

  model = tiny.llama { vocab = 700 },
  data  = text { "data/quickstart.txt", tokenizer = "tests/ingest/recorded/gpt2.json",
                 holdout = 0.05 },
  train = {
    steps = 200, global_batch = 16, micro_batch = 8, seed = 1234,
    optimizer = adamw { lr = 3e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 20, final = 0.1 },
  },
  eval = { every = 50, batches = 8 },
}
