-- What NVFP4 runs that were published keep in higher precision. Each function takes the layers of
-- the model and gives a recipe; further keys go into its last argument.
-- Sources: arXiv 2509.25149; TorchTitan's and Megatron-Bridge's recipes; MLPerf Training 5.1.
local nvfp4 = {}

local function join(keys, more)
  for key, value in pairs(more or {}) do keys[key] = value end
  return keys
end
local function with(keys, more) return fp4.nvfp4(join(keys, more)) end

-- The paper: the last 15 % of the layers are BF16.
function nvfp4.last(layers, more)
  return with({ last_bf16 = math.ceil(0.15 * layers) }, more)
end

-- Its run with 12B parameters: the first two layers also.
function nvfp4.ends(layers, more)
  return nvfp4.last(layers, join({ first_bf16 = 2 }, more))
end

-- Its proposal for the end of a run: before the learning rate decays, forward GEMMs change to BF16.
-- `step`: the last one whose forward is in NVFP4.
function nvfp4.forward(layers, step, more)
  return nvfp4.last(layers, join({ forward_bf16_after = step }, more))
end

-- TorchTitan's Llama-3-8B: 5 of 32 layers. Megatron-Bridge's 4 of 32.
function nvfp4.torchtitan(layers, more)
  return with({ last_bf16 = math.ceil(layers * 5 / 32) }, more)
end
function nvfp4.megatron_bridge(layers, more)
  return with({ last_bf16 = math.ceil(layers / 8) }, more)
end

-- NVIDIA's MLPerf runs of Llama-3.1-8B: every layer, and no rotation.
function nvfp4.mlperf(_, more) return with({ hadamard = false }, more) end

return nvfp4
