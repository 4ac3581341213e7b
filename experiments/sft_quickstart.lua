-- A small transformer learns to answer in one format, from generated conversations: "Answer: 12."
-- Only the answers carry loss. Two cores need about a minute a recipe.
-- `containers/export_chats.sh data/chats.jsonl` writes the conversations. The tokens are bytes; a
-- larger model would name its tokenizer's folder, which also has the template.
local tiny = require "models.tiny"

return suite {
  name  = "sft-quickstart",
  about = "Does FP8 hold the loss of BF16 in fine-tuning on chats?",

  matrix = { recipe = { bf16, fp8.delayed } },

  model = tiny.llama { seq_len = 256 },
  data  = chats { "data/chats.jsonl", tokenizer = "bytes",
                  template = "experiments/lib/chatml.jinja", holdout = 0.05 },
  train = {
    steps = 300, global_batch = 8, micro_batch = 8, seed = 1234,
    optimizer = adamw { lr = 3e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
    schedule  = cosine { warmup = 20, final = 0.1 },
  },
  eval       = { every = 100, batches = 8 },
  checkpoint = { every = 300, keep = 1, init = true },
  archive    = "weights",
}
