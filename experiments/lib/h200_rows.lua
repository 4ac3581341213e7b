-- The five recipes of the Megatron-LM report's table, with its flags. experiments/RESULTS.md
-- ("The five rows and the report") lists the differences.
return {
  bf16            = bf16,
  delayed         = fp8.delayed { format = "hybrid", history = 1024, algo = "max",
                                  param_gather = true },
  tensorwise      = fp8.tensorwise { format = "hybrid", param_gather = true },
  tensorwise_1f1l = fp8.tensorwise { format = "hybrid", param_gather = true,
                                     first_bf16 = 1, last_bf16 = 1 },
  blockwise       = fp8.blockwise { format = "hybrid", param_gather = true },
}
