/* Names of our keys in PyTorch, Hugging Face, Megatron-LM, TransformerEngine and torchao. For a
 * name without an equal key, the text says what to use instead. */
#include "runner/script/schema_tables.h"

#define BATCH "train.global_batch (sequences per update) and train.micro_batch (per pass and GPU)"
#define WARMUP "warmup, in a schedule: schedule = cosine { warmup = 20 }"
#define QUANTIZE "recipe, such as recipe = fp8.delayed"
#define RESUME "a flag of run: fp8lab run --resume RUN"
#define GATHERING "train.global_batch: an update is global_batch / (micro_batch x GPUs) passes"

const struct other_name SCHEMA_OTHERS[] = {
    /* recipes */
    { "amax_history_len", "history" },
    { "amax_compute_algo", "algo" },
    { "fp8_format", "format" },
    { "fp8", "recipe" },
    { "precision", "recipe" },
    { "dtype", "recipe" },
    { "quantize", QUANTIZE },
    { "quantization", QUANTIZE },
    /* batches and steps */
    { "batch_size", BATCH },
    { "global_batch_size", "train.global_batch" },
    { "micro_batch_size", "train.micro_batch" },
    { "per_device_train_batch_size", "train.micro_batch" },
    { "gradient_accumulation_steps", GATHERING },
    { "grad_accum", GATHERING },
    { "num_epochs", "train.epochs" },
    { "num_train_epochs", "train.epochs" },
    { "max_steps", "train.steps" },
    { "train_iters", "train.steps" },
    { "iterations", "train.steps" },
    /* optimizer and schedule */
    { "learning_rate", "lr, in the optimizer: optimizer = adamw { lr = 3e-4 }" },
    { "beta1", "betas, in the optimizer: betas = { 0.9, 0.95 }" },
    { "beta2", "betas, in the optimizer: betas = { 0.9, 0.95 }" },
    { "lr_mult", "train.lr_scale" },
    { "frozen", "train.freeze" },
    { "freeze_layers", "train.freeze: freeze = { \"embed\", \"layers.0-3\" }" },
    { "requires_grad", "train.freeze: freeze = { \"embed\", \"layers.0-3\" }" },
    { "max_grad_norm", "clip, in the optimizer" },
    { "grad_clip", "clip, in the optimizer" },
    { "clip_grad", "clip, in the optimizer" },
    { "lr_scheduler", "train.schedule" },
    { "warmup_steps", WARMUP },
    { "warmup_fraction", "warmup_ratio, in a schedule: schedule = cosine { warmup_ratio = 0.03 }" },
    { "warmup_iters", WARMUP },
    { "min_lr", "final, in a schedule: the last rate as a fraction of lr" },
    /* model */
    { "hidden_size", "model.width" },
    { "d_model", "model.width" },
    { "dim", "model.width" },
    { "n_embd", "model.width" },
    { "num_layers", "model.layers" },
    { "n_layers", "model.layers" },
    { "n_layer", "model.layers" },
    { "num_hidden_layers", "model.layers" },
    { "num_heads", "model.heads" },
    { "n_heads", "model.heads" },
    { "n_head", "model.heads" },
    { "num_attention_heads", "model.heads" },
    { "num_key_value_heads", "model.kv_heads" },
    { "n_kv_heads", "model.kv_heads" },
    { "intermediate_size", "model.ffn" },
    { "ffn_hidden_size", "model.ffn" },
    { "vocab_size", "model.vocab" },
    { "seq_length", "model.seq_len" },
    { "sequence_length", "model.seq_len" },
    { "context_length", "model.seq_len" },
    { "max_seq_len", "model.seq_len" },
    { "block_size", "model.seq_len" },
    { "rope_theta", "model.rope.theta" },
    { "rope_scaling", "model.rope.scaling" },
    { "rms_norm_eps", "model.norm_eps" },
    { "tie_word_embeddings", "model.tied" },
    { "sliding_window", "model.window" },
    /* the rest */
    { "dataset", "data" },
    { "resume", RESUME },
    { "resume_from_checkpoint", RESUME },
    { "save_every", "checkpoint.every" },
    { "save_steps", "checkpoint.every" },
    { "eval_steps", "eval.every" },
    { "eval_interval", "eval.every" },
    { "multiple_validation_sets", "eval.also: also = { code = \"code/*.txt\" }" },
    { "num_gpus", "hardware.gpus" },
    { "nproc", "hardware.gpus" },
    { NULL, NULL },
};
