-- Which kernel of attention's forward is faster, ours or cuDNN's, and does the loss notice? Without
-- `attention.backend` the backend chooses one of them for a shape; here each length has either. The
-- two add in other orders, so their losses differ as those of two seeds do, or less. The comparison
-- at its end judges cuDNN's rows against ours of the same length (`factor` below), in bounds.
-- cuDNN serves no sequence below 256 tokens, no window, and no GPU but sm_90 and sm_100: a run that
-- asks for it elsewhere is refused. On a CPU: --only "*-own-*".
-- `containers/export_corpus.sh data/corpus.txt` writes the text.
local llama3 = require "models.llama3"

local TOKENS <const> = 32768 -- a step

local function row(backend, length, seed)
  return experiment {
    name      = ("attention-backend-%s-%d-seed%d"):format(backend, length, seed),
    about     = "Which kernel serves attention's forward faster, and does the loss notice?",
    hardware  = { query = "gpu.cc >= 9.0", gpus = 1 },
    model     = llama3.small { vocab = 256, layers = 4, seq_len = length }, -- heads of 128
    recipe    = bf16,
    attention = { backend = backend },
    data      = text { paths = { "data/corpus.txt" }, holdout = 0.036 },
    train     = {
      steps = 100, global_batch = TOKENS // length, micro_batch = TOKENS // length, seed = seed,
      optimizer = adamw { lr = 3e-4, betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0 },
      schedule  = cosine { warmup = 10, final = 0.1 },
    },
    eval      = { every = 100, batches = 8 },
  }
end

local rows = {
  name  = "attention-backend",
  about = "Which kernel serves attention's forward faster, ours or cuDNN's?",
  factor = "attention.backend=own", -- cuDNN's rows are judged against ours of the same length
}
for _, length in ipairs { 1024, 4096, 16384 } do
  for _, backend in ipairs { "own", "cudnn" } do
    for seed = 1, 3 do rows[#rows + 1] = row(backend, length, seed) end
  end
end
return suite(rows)
