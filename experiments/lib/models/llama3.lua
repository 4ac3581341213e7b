-- Llama 3, 3.1 and 3.2, by size: llama3["8b"] { seq_len = 2048 } is the 8B model with that one
-- change. 1b and 3b are Llama 3.2's, 8b is Llama 3's, 3.1-8b Llama 3.1's. "small" is the 12-layer
-- model for one GPU.
local base = preset {
  vocab = 128256, seq_len = 8192,
  norm = "rmsnorm", norm_eps = 1e-5, activation = "swiglu",
  positions = "rope", rope = { theta = 500000 },
}

-- From 3.1 on the low RoPE frequencies are stretched, so that contexts may grow to 131072 tokens.
local function stretched(factor)
  return { scaling = { factor = factor, low_freq_factor = 1, high_freq_factor = 4,
                       original_seq_len = 8192 } }
end

local llama3 = {
  small = base { layers = 12, width = 2048, heads = 16, kv_heads = 4, ffn = 5504, seq_len = 2048 },
  ["1b"] = base { layers = 16, width = 2048, heads = 32, kv_heads = 8, ffn = 8192, tied = true,
                  rope = stretched(32) },
  ["3b"] = base { layers = 28, width = 3072, heads = 24, kv_heads = 8, ffn = 8192, tied = true,
                  rope = stretched(32) },
  ["8b"] = base { layers = 32, width = 4096, heads = 32, kv_heads = 8, ffn = 14336 },
}

llama3["3.1-8b"] = llama3["8b"] { rope = stretched(8) }

return setmetatable(llama3, {
  __index = function(_, size)
    error("models.llama3 has no '" .. tostring(size) .. "'; it has small, 1b, 3b, 8b, 3.1-8b", 2)
  end,
})
