-- The model of tests/infer/choices.txt; CPU and threads do not change its bits.
local tiny = require "models.tiny"
return experiment {
  name = "choices", model = tiny.llama { seq_len = 32, layers = 1, vocab = 256 }, recipe = bf16,
  data = text { "a.txt" },
  train = { steps = 40, global_batch = 8, micro_batch = 4, optimizer = adamw { lr = 3e-3 } },
  checkpoint = { every = 40, keep = 1 },
}
