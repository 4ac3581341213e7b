local tiny = require "models.tiny"
return experiment {
  name = "combinations", recipe = bf16 {},
  hardware = { gpus = 3, query = 'gpu.product_nam = "NVIDIA H200"' },
  model = tiny.gpt2 { vocab = 100, heads = 6, kv_heads = 4, rope = {} },
  data = text "a.txt",
  train = { steps = 10, global_batch = 8, micro_batch = 4, head_chunk = 100,
            recompute_layers = 13, schedule = wsd { warmup = 6, decay = 6 } },
  checkpoint = { every = 5, best = "eval.loss" },
  env = {
    LD_PRELOAD = "evil.so", PATH = "/tmp", LIBRARY_PRELOAD = "x", NCCL_NET_PLUGIN = "x",
    CUDA_INJECTION64_PATH = "x", NCCL_CONF_FILE = "x", NCCL_DEBUG_FILE = "x", HOME = "/",
    NVTE_FLASH_ATTN = 1, OMP_NUM_THREAD = 2, OMP_PLACES = {}, NCCL_ALGO = "a\nb",
    OMP_TOOL_LIBRARIES = "x", NCCL_DEBUG = "INFO",
  },
}
