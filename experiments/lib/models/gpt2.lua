-- GPT-2 as it was published: LayerNorm, GELU, learned positions, biases, a tied head. The
-- vocabulary stays 50257; FP8 GEMMs pad and mask it.
local base = preset {
  vocab = 50257, seq_len = 1024,
  norm = "layernorm", norm_eps = 1e-5, activation = "gelu", positions = "learned",
  bias = true, tied = true, init_std = 0.02,
}

local gpt2 = {
  ["124m"] = base { layers = 12, width = 768, heads = 12, ffn = 3072 },
  ["355m"] = base { layers = 24, width = 1024, heads = 16, ffn = 4096 },
  ["774m"] = base { layers = 36, width = 1280, heads = 20, ffn = 5120 },
  ["1558m"] = base { layers = 48, width = 1600, heads = 25, ffn = 6400 },
}
gpt2["350m"] = gpt2["355m"] -- the name the guide uses

return setmetatable(gpt2, {
  __index = function(_, size)
    error("models.gpt2 has no '" .. tostring(size) .. "'; it has 124m, 355m, 774m, 1558m", 2)
  end,
})
