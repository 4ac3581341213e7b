-- Fine-tuning of Llama-3.1-8B on chats with the settings of a GH200 guide: 6 conversations at a
-- time, 4 times a step, at most 2048 tokens each, one epoch. `--set data.paths=DIR/*.jsonl` names
-- other conversations: `messages`, ShareGPT's `conversations` or Alpaca's columns, packed or not.
-- The model's folder, as Hugging Face has it, gives the initial weights, tokenizer.json, and
-- tokenizer_config.json with the chat template. `fp8lab export RUN --to DIR` writes the result.
local llama3 = require "models.llama3"

return suite {
  name  = "sft-llama31-8b",
  about = "Does FP8 hold the loss of BF16 in tuning Llama-3.1-8B on chats, and how fast is it?",

  matrix = { recipe = { bf16, fp8.tensorwise, fp8.blockwise } },

  hardware = { query = "gpu.cc >= 8.9", gpus = 1 },
  model = llama3["3.1-8b"] { seq_len = 2048 },
  init  = "data/llama-3.1-8b-instruct",
  data  = chats { "data/ultrachat/*.jsonl", tokenizer = "data/llama-3.1-8b-instruct",
                  max_tokens = 2048, pack = true, date = "2024-07-26", holdout = 0.01 },
  train = {
    epochs = 1, global_batch = 24, micro_batch = 6, seed = 1234, recompute = "block",
    grad_dtype = "bf16",
    optimizer = adamw { lr = 2e-4, betas = { 0.9, 0.95 }, weight_decay = 0.01, clip = 1.0,
                        state = "8bit", master = "none" },
    schedule  = cosine { warmup_ratio = 0.03, final = 0 },
  },
  eval       = { every = 100, batches = 8 },
  checkpoint = { every = 500, keep = 1 },
}
