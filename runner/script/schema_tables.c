/* The rows of everything but the recipes. A default in `initial` is fixed; one that depends on
 * other keys (kv_heads, head_dim, schedule.decay, ...) is derived in schema_rules.c. A range
 * without another reason only keeps the sizes computed from it far inside int64_t. */

#include "runner/script/schema_tables.h"

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define INT(key_, min_, max_, ...) \
    { .key = (key_), .type = FIELD_INT, .min = (min_), .max = (max_), __VA_ARGS__ }
#define FLOAT(key_, min_, max_, ...) \
    { .key = (key_), .type = FIELD_FLOAT, .min = (min_), .max = (max_), __VA_ARGS__ }
#define WORD(key_, words_, ...) \
    { .key = (key_), .type = FIELD_WORD, .words = (words_), __VA_ARGS__ }
#define BOOL(key_, initial_) { .key = (key_), .type = FIELD_BOOL, .initial = (initial_) }
#define STRING(key_, max_, ...) \
    { .key = (key_), .type = FIELD_STRING, .min = 1, .max = (max_), __VA_ARGS__ }
#define TABLE(key_, schema_, ...) \
    { .key = (key_), .type = FIELD_TABLE, .schema = (schema_), __VA_ARGS__ }
#define VARIANT(key_, variants_, ...) \
    { .key = (key_), .type = FIELD_VARIANT, .variants = (variants_), __VA_ARGS__ }
#define REQUIRED .flags = FIELD_REQUIRED
#define NULLABLE .flags = FIELD_NULLABLE
#define INITIAL(text_) .initial = (text_)

static const double STEPS_MAX = 1e9, ROWS_MAX = 1 << 20;

/* ---- hardware -------------------------------------------------------------------------------- */
static const struct field HARDWARE[] = {
    STRING("query", 4096, NULLABLE),
    INT("gpus", 1, 1024, INITIAL("1")),
    { .key = NULL },
};
static const struct schema SCHEMA_HARDWARE = { "hardware", HARDWARE, NULL };

/* ---- model ----------------------------------------------------------------------------------- */
/* Llama 3.1's constants; original_seq_len is what the model was first trained with. */
static const struct field ROPE_SCALING[] = {
    FLOAT("factor", 1, 1024, REQUIRED),
    FLOAT("low_freq_factor", 0, 1024, INITIAL("1"), .flags = FIELD_ABOVE_MIN),
    FLOAT("high_freq_factor", 0, 1024, INITIAL("4"), .flags = FIELD_ABOVE_MIN),
    INT("original_seq_len", 1, 1 << 24, INITIAL("8192")),
    { .key = NULL },
};
static const struct schema SCHEMA_ROPE_SCALING = { "rope.scaling", ROPE_SCALING, NULL };
static const struct field ROPE[] = {
    FLOAT("theta", 1, 1e9, INITIAL("10000")),
    TABLE("scaling", &SCHEMA_ROPE_SCALING, NULLABLE),
    { .key = NULL },
};
static const struct schema SCHEMA_ROPE = { "rope", ROPE, NULL };

static const struct field MODEL[] = {
    INT("vocab", 2, 1 << 24, REQUIRED),
    INT("seq_len", 1, 1 << 24, REQUIRED),
    INT("layers", 1, 4096, REQUIRED),
    INT("width", 8, 1 << 20, REQUIRED),
    INT("heads", 1, 4096, REQUIRED),
    INT("kv_heads", 1, 4096), /* heads */
    INT("head_dim", 2, 4096), /* width / heads */
    INT("ffn", 8, 1 << 22, REQUIRED),
    WORD("norm", WORDS("rmsnorm", "layernorm"), INITIAL("rmsnorm")),
    FLOAT("norm_eps", 0, 1, INITIAL("1e-05"), .flags = FIELD_ABOVE_MIN),
    WORD("activation", WORDS("swiglu", "gelu"), INITIAL("swiglu")),
    WORD("positions", WORDS("rope", "learned"), INITIAL("rope")),
    TABLE("rope", &SCHEMA_ROPE, NULLABLE), /* null with learned positions */
    BOOL("qk_norm", "false"),
    BOOL("bias", "false"),
    BOOL("tied", "false"),
    /* Absent unless set: configurations from before there were these keys keep their hash. */
    { .key = "qkv_bias", .type = FIELD_BOOL }, /* Qwen2's: of q, k and v alone */
    INT("window", 1, 1 << 24),
    FLOAT("init_std", 0, 10, INITIAL("0.02"), .flags = FIELD_ABOVE_MIN),
    { .key = NULL },
};
static const struct schema SCHEMA_MODEL = { "model", MODEL, NULL };

/* ---- attention: absent unless set ------------------------------------------------------------ */
static const struct field ATTENTION[] = {
    WORD("precision", WORDS("bf16", "fp8")),
    WORD("backend", WORDS("auto", "own", "cudnn")), /* enum attention_backend */
    { .key = NULL },
};
static const struct schema SCHEMA_ATTENTION = { "attention", ATTENTION, NULL };

/* ---- initial weights ------------------------------------------------------------------------- */
static const struct field INIT[] = {
    STRING("from", 4096, REQUIRED), /* a Hugging Face folder, a run, a checkpoint */
    /* Absent unless set. */
    { .key = "optimizer", .type = FIELD_BOOL }, /* moments and step of a run's checkpoint too */
    { .key = "restart", .type = FIELD_BOOL },   /* but steps, schedule and data begin anew */
    { .key = NULL },
};
static const struct schema SCHEMA_INIT = { "init", INIT, NULL };

/* ---- data ------------------------------------------------------------------------------------ */
/* How sequences are made of documents, and what a token sees of the others. Absent unless set. */
#define DOCUMENTS \
    WORD("layout", WORDS("windows", "packed", "padded")), \
    WORD("mask", WORDS("none", "document")), WORD("positions", WORDS("sequence", "document"))
static const struct field TEXT_DATA[] = {
    { .key = "paths", .type = FIELD_STRINGS, .min = 1, .max = 4096, .flags = FIELD_REQUIRED },
    FLOAT("holdout", 0, 1, INITIAL("0.05"), .flags = FIELD_BELOW_MAX),
    /* Absent unless set: text of bytes keeps its hash. The others need a tokenizer. */
    STRING("tokenizer", 4096),
    STRING("pattern", 80),
    STRING("field", 256),
    STRING("eod", 256),
    { .key = "ordinary", .type = FIELD_BOOL },
    INT("skip_bad", 0, 1e12),
    { .key = "unique", .type = FIELD_BOOL },
    WORD("order", WORDS("windows", "documents")),
    DOCUMENTS,
    { .key = NULL },
};
static const struct field CHAT_DATA[] = {
    { .key = "paths", .type = FIELD_STRINGS, .min = 1, .max = 4096, .flags = FIELD_REQUIRED },
    STRING("tokenizer", 4096, REQUIRED),
    STRING("pattern", 80, NULLABLE),
    STRING("template", 4096, NULLABLE), /* what lies beside the tokenizer */
    STRING("date", 10, NULLABLE),       /* of strftime_now */
    { .key = "variables", .type = FIELD_STRINGS, .min = 1, .max = 4096, /* NAME=JSON */
      .flags = FIELD_NULLABLE },
    WORD("loss", WORDS("all", "last"), INITIAL("all")),
    INT("max_tokens", 2, INT32_MAX), /* model.seq_len */
    BOOL("pack", "true"),
    INT("skip_bad", 0, 1e12, INITIAL("0")),
    BOOL("unique", "false"),
    FLOAT("holdout", 0, 1, INITIAL("0.05"), .flags = FIELD_BELOW_MAX),
    { .key = "render", .type = FIELD_FUNCTION }, /* in place of a template; absent unless set */
    { .key = NULL },
};
/* A part of a blend: a file, or shards that are read one after another. */
#define TOKEN_FILES \
    STRING("path", 4096, NULLABLE), \
    { .key = "paths", .type = FIELD_STRINGS, .min = 1, .max = 4096, .flags = FIELD_NULLABLE }
static const struct field TOKEN_PART[] = {
    TOKEN_FILES,
    FLOAT("weight", 0, 1e9, INITIAL("1"), .flags = FIELD_ABOVE_MIN), /* share of the sequences */
    { .key = NULL },
};
static const struct schema SCHEMA_TOKEN_PART = { "a part of tokens", TOKEN_PART, NULL };
static const struct field TOKEN_DATA[] = {
    TOKEN_FILES,
    { .key = "parts", .type = FIELD_TABLES, .schema = &SCHEMA_TOKEN_PART,
      .flags = FIELD_NULLABLE },
    WORD("format", WORDS("megatron", "llmc"), INITIAL("megatron")),
    WORD("order", WORDS("windows", "documents"), INITIAL("windows")),
    DOCUMENTS,
    { .key = "loss", .type = FIELD_BOOL }, /* PATH.loss; absent unless set */
    STRING("eval_path", 4096, NULLABLE),
    FLOAT("holdout", 0, 1, .flags = FIELD_BELOW_MAX), /* 0.01, or 0 with an eval_path */
    { .key = NULL },
};
static const struct field SYNTHETIC_DATA[] = {
    INT("seed", 0, 0x1p53, INITIAL("1234")),
    { .key = NULL },
};
static const struct schema SCHEMA_TEXT = { "text", TEXT_DATA, "paths" };
static const struct schema SCHEMA_CHATS = { "chats", CHAT_DATA, "paths" };
static const struct schema SCHEMA_TOKENS = { "tokens", TOKEN_DATA, "parts" };
static const struct schema SCHEMA_SYNTHETIC = { "synthetic", SYNTHETIC_DATA, NULL };
static const struct schema *const DATA_KINDS[] = { &SCHEMA_TEXT, &SCHEMA_TOKENS, &SCHEMA_CHATS,
                                                   &SCHEMA_SYNTHETIC, NULL };

/* ---- training -------------------------------------------------------------------------------- */
static const struct field ADAMW[] = {
    FLOAT("lr", 0, 100, INITIAL("3e-4")), /* 0: weights stay as they are */
    { .key = "betas", .type = FIELD_FLOATS, .min = 0, .max = 1, .length = 2,
      .flags = FIELD_BELOW_MAX, .initial = "0.9,0.95" },
    FLOAT("eps", 0, 1, INITIAL("1e-8"), .flags = FIELD_ABOVE_MIN),
    FLOAT("weight_decay", 0, 10, INITIAL("0.1")),
    FLOAT("clip", 0, 1e6, INITIAL("1")), /* of the global gradient norm; 0: none */
    WORD("state", WORDS("f32", "bf16", "8bit"), INITIAL("f32")),
    WORD("master", WORDS("f32", "none"), INITIAL("f32")), /* none: stochastic rounding to BF16 */
    BOOL("offload", "false"), /* state and masters in locked memory of the host */
    { .key = NULL },
};
static const struct schema SCHEMA_ADAMW = { "adamw", ADAMW, NULL };
static const struct schema *const OPTIMIZERS[] = { &SCHEMA_ADAMW, NULL };

/* decay: steps over which the rate falls. final: the last rate as a share of the highest. */
/* warmup_ratio: the warmup as a share of all steps. */
#define WARMUP INT("warmup", 0, STEPS_MAX, INITIAL("0")), FLOAT("warmup_ratio", 0, 1)
static const struct field COSINE[] = {
    WARMUP, FLOAT("final", 0, 1, INITIAL("0.1")), INT("decay", 1, STEPS_MAX), { .key = NULL } };
static const struct field LINEAR[] = {
    WARMUP, FLOAT("final", 0, 1, INITIAL("0")), INT("decay", 1, STEPS_MAX), { .key = NULL } };
static const struct field WSD[] = {
    WARMUP, FLOAT("final", 0, 1, INITIAL("0")), INT("decay", 1, STEPS_MAX), { .key = NULL } };
static const struct field CONSTANT[] = { WARMUP, { .key = NULL } };
static const struct schema SCHEMA_COSINE = { "cosine", COSINE, NULL };
static const struct schema SCHEMA_LINEAR = { "linear", LINEAR, NULL };
static const struct schema SCHEMA_WSD = { "wsd", WSD, NULL };
static const struct schema SCHEMA_CONSTANT = { "constant", CONSTANT, NULL };
static const struct schema *const SCHEDULES[] = { &SCHEMA_COSINE, &SCHEMA_LINEAR, &SCHEMA_WSD,
                                                  &SCHEMA_CONSTANT, NULL };

static const struct field AUDIT[] = {
    INT("every", 0, STEPS_MAX, INITIAL("100")), /* steps; 0: never */
    INT("outputs", 1, 1024, INITIAL("64")), /* of GEMMs, in such a step */
    { .key = NULL },
};
static const struct schema SCHEMA_AUDIT = { "train.audit", AUDIT, NULL };
static const struct field TRAIN[] = {
    INT("steps", 1, STEPS_MAX, NULLABLE), /* or epochs: plan/run_length.c counts their steps */
    FLOAT("epochs", 0, 1e6, .flags = FIELD_ABOVE_MIN | FIELD_NULLABLE),
    INT("global_batch", 1, ROWS_MAX, REQUIRED), /* sequences an update */
    INT("micro_batch", 1, ROWS_MAX, INITIAL("1")), /* sequences a pass and GPU */
    INT("seed", 0, 0x1p53, INITIAL("1234")),
    { .key = "time_limit", .type = FIELD_DURATION, .max = 366 * 86400.0, .flags = FIELD_NULLABLE },
    WORD("grad_dtype", WORDS("f32", "bf16", "fp8"), INITIAL("f32")),
    WORD("recompute", WORDS("none", "ffn", "block"), INITIAL("none")),
    INT("head_chunk", 1, ROWS_MAX), /* token rows of head and loss at a time: model_head_chunk */
    /* What is divided among several GPUs. Each word includes the ones before it. */
    WORD("shard", WORDS("none", "optimizer", "gradients", "parameters"), INITIAL("optimizer")),
    VARIANT("optimizer", OPTIMIZERS, INITIAL("adamw")),
    VARIANT("schedule", SCHEDULES, INITIAL("constant")),
    /* Absent unless set: configurations from before there were these keys keep their hash. */
    { .key = "freeze", .type = FIELD_NAMES, .min = 1, .max = 80 },
    { .key = "lr_scale", .type = FIELD_FACTORS, .max = 1000 },
    INT("recompute_layers", 1, 4096), /* the first that recompute; absent: all */
    WORD("weight_codes", WORDS("kept", "made")), /* made: before each use; absent: kept */
    { .key = "exact", .type = FIELD_BOOL }, /* operators whose bits the CPU has */
    /* Absent: on a GPU with its defaults. */
    TABLE("audit", &SCHEMA_AUDIT, .flags = FIELD_NULLABLE | FIELD_ABSENT | FIELD_SWITCH),
    { .key = NULL },
};
static const struct schema SCHEMA_TRAIN = { "train", TRAIN, NULL };

/* ---- watching -------------------------------------------------------------------------------- */
static const struct field EVAL[] = {
    INT("every", 1, STEPS_MAX, REQUIRED), /* steps */
    INT("batches", 1, 1e6, INITIAL("8")), /* micro-batches */
    /* Absent unless set. */
    { .key = "accuracy", .type = FIELD_BOOL },
    { .key = "also", .type = FIELD_SETS }, /* further sets of held-out data */
    { .key = NULL },
};
static const struct field SAMPLE[] = {
    INT("every", 1, STEPS_MAX, REQUIRED), /* steps */
    { .key = "prompts", .type = FIELD_PROMPTS, .min = 1, .max = 65536, .flags = FIELD_REQUIRED },
    STRING("tokenizer", 4096), /* absent unless set */
    INT("tokens", 1, 1 << 20, INITIAL("64")), /* new ones a prompt, at most */
    FLOAT("temperature", 0, 100, INITIAL("0")), /* 0: the most likely token */
    INT("top_k", 0, 1 << 24, INITIAL("0")),     /* 0: all */
    FLOAT("top_p", 0, 1, INITIAL("1")),
    INT("seed", 0, 0x1p53, INITIAL("1234")),
    { .key = NULL },
};
#define METRIC(key_, ...) \
    WORD(key_, WORDS("eval.loss", "eval.accuracy"), .refused = NO_METRICS, __VA_ARGS__)
static const struct other_name NO_METRICS[] = {
    { "eval.perplexity", "it is smallest where eval.loss is; write eval.loss" },
    { "eval.loss_byte", "it is smallest where eval.loss is; write eval.loss" },
    { NULL, NULL },
};
static const struct field BEST[] = {
    METRIC("metric", REQUIRED),
    WORD("mode", WORDS("min", "max")), /* by the metric: loss min, accuracy max */
    { .key = NULL },
};
static const struct schema SCHEMA_BEST = { "checkpoint.best", BEST, NULL };
static const struct field CHECKPOINT[] = {
    INT("every", 1, STEPS_MAX, NULLABLE), /* steps; or minutes */
    INT("keep", 0, 1e6, INITIAL("2")),
    METRIC("best", .schema = &SCHEMA_BEST, NULLABLE),
    BOOL("init", "false"), /* what the first step begins with, too */
    /* Absent unless set, so that a configuration without them keeps its hash. */
    FLOAT("minutes", 0, 1e6, .flags = FIELD_ABOVE_MIN),
    WORD("best_is", WORDS("min", "max")),
    { .key = "epoch", .type = FIELD_BOOL },
    { .key = "background", .type = FIELD_BOOL }, /* absent: true, if there is room for a copy */
    { .key = "milestones", .type = FIELD_INTS, .min = 1, .max = 1e9 },
    { .key = NULL },
};
static const struct field TRACE[] = {
    INT("first", 0, STEPS_MAX, INITIAL("20")),
    INT("every", 0, STEPS_MAX, INITIAL("0")), /* 0: only at evaluations */
    { .key = NULL },
};
static const struct field TENSORBOARD[] = {
    INT("histograms", 1, STEPS_MAX), /* steps; absent unless set */
    { .key = NULL },
};
static const struct schema SCHEMA_TENSORBOARD = { "tensorboard", TENSORBOARD, NULL };
static const struct schema SCHEMA_EVAL = { "eval", EVAL, NULL };
static const struct schema SCHEMA_SAMPLE = { "sample", SAMPLE, NULL };
static const struct schema SCHEMA_CHECKPOINT = { "checkpoint", CHECKPOINT, NULL };
static const struct schema SCHEMA_TRACE = { "trace", TRACE, NULL };

/* ---- the experiment -------------------------------------------------------------------------- */
static const struct field EXPERIMENT[] = {
    { .key = "name", .type = FIELD_NAME, .min = 1, .max = 80, .flags = FIELD_REQUIRED },
    { .key = "about", .type = FIELD_STRING, .max = 400, .initial = "" },
    TABLE("hardware", &SCHEMA_HARDWARE),
    STRING("image", 512, NULLABLE),
    { .key = "env", .type = FIELD_ENV },
    TABLE("model", &SCHEMA_MODEL, REQUIRED),
    TABLE("init", &SCHEMA_INIT, .flags = FIELD_SHORT), /* random weights if absent */
    VARIANT("recipe", SCHEMA_RECIPES, REQUIRED),
    TABLE("attention", &SCHEMA_ATTENTION, .flags = FIELD_ABSENT),
    VARIANT("data", DATA_KINDS, REQUIRED),
    TABLE("train", &SCHEMA_TRAIN, REQUIRED),
    TABLE("eval", &SCHEMA_EVAL, NULLABLE),
    TABLE("sample", &SCHEMA_SAMPLE, .flags = FIELD_NULLABLE | FIELD_ABSENT),
    TABLE("checkpoint", &SCHEMA_CHECKPOINT, NULLABLE),
    TABLE("trace", &SCHEMA_TRACE),
    /* No input of a run: record/inputs.h. */
    TABLE("tensorboard", &SCHEMA_TENSORBOARD,
          .flags = FIELD_NULLABLE | FIELD_ABSENT | FIELD_SWITCH),
    INT("fp8_error", 0, STEPS_MAX), /* steps; absent: FP8_ERROR_EVERY of plan/options.c */
    WORD("archive", WORDS("none", "weights", "full"), INITIAL("none")),
    { .key = NULL },
};
const struct schema SCHEMA_EXPERIMENT = { "an experiment", EXPERIMENT, NULL };
