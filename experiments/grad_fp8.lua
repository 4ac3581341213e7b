-- What does it cost in loss if ranks send their gradients as 8-bit codes? GPT-2 124M on two GPUs,
-- 6.5 million bytes a run, four seeds a row: gradients of f32, of BF16, and f32 sent as E4M3 with a
-- power of two for each 128 of them (train.grad_dtype = "fp8", kernels/comm_codes.h).
-- The rows differ in nothing else, so the pairs of a seed see the same batches in the same order.
-- The comparison at its end judges each grad_dtype against f32 of the same recipe (`factor` below).
-- On one GPU nothing is sent: a --smoke run has one, and there "fp8" equals "f32" to the bit.
-- `containers/export_corpus.sh data/corpus.txt` writes the text. The time saved shows between
-- machines with slow links; NVLink hides most of a reduction behind backward.
local gpt2 = require "models.gpt2"

local function row(grad, label, recipe, seed)
  return experiment {
    name     = "grad-fp8-" .. label .. "-" .. grad .. "-seed" .. seed,
    about    = "What do 8-bit gradients between GPUs cost in loss?",
    hardware = { query = "gpu.cc >= 8.9", gpus = 2 },
    model    = gpt2["124m"] { seq_len = 256 },
    recipe   = recipe,
    data     = text { paths = { "data/corpus.txt" }, holdout = 0.036 },
    train    = {
      steps = 400, global_batch = 64, micro_batch = 32, seed = seed, grad_dtype = grad,
      optimizer = adamw { lr = 6e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
      schedule  = wsd { warmup = 40, decay = 80, final = 0 },
    },
    eval = { every = 200, batches = 63 },
  }
end

local rows = {
  name   = "grad-fp8",
  about  = "What do 8-bit gradients between GPUs cost in loss?",
  factor = "train.grad_dtype=f32", -- the others are judged against f32 of the same recipe
}
for _, it in ipairs { { "bf16", bf16 }, { "blockwise", fp8.blockwise } } do
  for _, grad in ipairs { "f32", "bf16", "fp8" } do
    for seed = 1, 4 do rows[#rows + 1] = row(grad, it[1], it[2], seed) end
  end
end
return suite(rows)
