-- The five-row table of the Megatron-LM report, on one machine and with evaluation on. Rows that
-- are done are skipped, so the same command may be typed again to complete the table.
return suite {
  name  = "llama3-8b-h200-recipes",
  about = "Which FP8 recipe trains Llama-3-8B fastest on eight H200?",

  require "h200_bf16",
  require "h200_delayed",
  require "h200_tensorwise",
  require "h200_tensorwise_1f1l",
  require "h200_blockwise",
}
