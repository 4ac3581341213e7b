-- Models a CPU trains in a minute, on bytes.
local tiny = {
  -- Llama's shape: RMSNorm, SwiGLU, RoPE, grouped queries.
  llama = preset {
    vocab = 256, seq_len = 128, layers = 3, width = 128, heads = 4, kv_heads = 2, ffn = 384,
    norm = "rmsnorm", activation = "swiglu", positions = "rope", rope = { theta = 10000 },
  },
  -- GPT-2's: LayerNorm, GELU, learned positions, biases, a tied head.
  gpt2 = preset {
    vocab = 256, seq_len = 128, layers = 3, width = 128, heads = 4, ffn = 512,
    norm = "layernorm", activation = "gelu", positions = "learned", bias = true, tied = true,
  },
}

return setmetatable(tiny, {
  __index = function(_, name)
    error("models.tiny has no '" .. tostring(name) .. "'; it has llama and gpt2", 2)
  end,
})
