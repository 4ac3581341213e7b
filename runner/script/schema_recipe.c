/* The rows of the recipes. Defaults are TransformerEngine's (transformer_engine/common/recipe and
 * pytorch/module/base.py for the accumulators); torchao's (torchao/float8/config.py) for rowwise,
 * which TransformerEngine lacks. Operands are rounded to BF16 before FP8, where TransformerEngine's
 * fused norms quantise f32 (kernels/README.md, "Recipes"). A key that a kind does not have is not
 * in its row, and is refused with the name of a kind that has it. */
#include "runner/script/schema.h"

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define WORD(key_, initial_, ...) \
    { .key = (key_), .type = FIELD_WORD, .words = WORDS(__VA_ARGS__), .initial = (initial_) }
#define BOOL(key_, initial_) { .key = (key_), .type = FIELD_BOOL, .initial = (initial_) }
#define INT(key_, min_, max_, initial_) \
    { .key = (key_), .type = FIELD_INT, .min = (min_), .max = (max_), .initial = (initial_) }

/* fast: the tensor core's own accumulator; split: partial sums promoted to f32 as they go. */
#define ACCUMULATE(name_, fprop_, dgrad_, wgrad_)                                     \
    static const struct field name_##_ROWS[] = { WORD("fprop", fprop_, "fast", "split"), \
                                                 WORD("dgrad", dgrad_, "fast", "split"), \
                                                 WORD("wgrad", wgrad_, "fast", "split"), \
                                                 { .key = NULL } };                      \
    static const struct schema name_ = { "accumulate", name_##_ROWS, NULL }

ACCUMULATE(PER_TENSOR, "fast", "split", "split");
ACCUMULATE(ALL_FAST, "fast", "fast", "fast");
ACCUMULATE(ALL_SPLIT, "split", "split", "split");

#define ACCUMULATE_ROW(schema_) \
    { .key = "accumulate", .type = FIELD_TABLE, .schema = &(schema_) }
/* Source of the refusal: transformer_engine/common/recipe, "Pure E5M2 training is not supported";
 * cuBLASLt's table of FP8 types. */
static const struct other_name NO_FORMATS[] = {
    { "e5m2", "TransformerEngine refuses E5M2 for every operand, and cuBLASLt has no GEMM of two "
              "E5M2 operands; \"hybrid\" is E4M3 with E5M2 for gradients" },
    { NULL, NULL },
};
#define FORMAT_ROW(initial_)                                                                   \
    { .key = "format", .type = FIELD_WORD, .words = WORDS("hybrid", "e4m3"),                   \
      .refused = NO_FORMATS, .initial = (initial_) }
/* Every name of a set; schema_rules.c says which of them a kind has. */
#define CONSTANTS_ROW(initial_) WORD("constants", initial_, "te", "torchao", "deepseek")
#define WGRAD_ROW WORD("wgrad", "fp8", "fp8", "bf16")
#define GATHER_ROW BOOL("param_gather", "false")
#define FALLBACK_ROW \
    { .key = "fallback", .type = FIELD_WORD, .words = WORDS("bf16"), .flags = FIELD_NULLABLE }
#define LAYERS_ROW { .key = "layers", .type = FIELD_FUNCTION, .flags = FIELD_NULLABLE }
/* What concerns the whole model, and so does not stand within `layers`. */
#define MODEL_ROWS                                                                            \
    INT("first_bf16", 0, 4096, "0"), INT("last_bf16", 0, 4096, "0"),                          \
        WORD("lm_head", "bf16", "bf16", "fp8"), LAYERS_ROW

#define DELAYED_ROWS                                                                          \
    FORMAT_ROW("hybrid"), CONSTANTS_ROW("te"),                          \
        INT("margin", 0, 64, "0"), INT("history", 1, 65536, "1024"),                          \
        WORD("algo", "max", "max", "most_recent"),                                            \
        WORD("roll", "microbatch", "microbatch", "step"), ACCUMULATE_ROW(PER_TENSOR),         \
        GATHER_ROW, FALLBACK_ROW
#define TENSORWISE_ROWS                                                                       \
    FORMAT_ROW("hybrid"), CONSTANTS_ROW("te"),                          \
        BOOL("pow2", "false"), ACCUMULATE_ROW(PER_TENSOR), GATHER_ROW, FALLBACK_ROW
#define ROWWISE_ROWS                                                                          \
    FORMAT_ROW("e4m3"), CONSTANTS_ROW("torchao"),                       \
        BOOL("pow2", "true"),                                                                 \
        ACCUMULATE_ROW(ALL_FAST), WGRAD_ROW, GATHER_ROW, FALLBACK_ROW
#define BLOCKWISE_ROWS                                                                        \
    FORMAT_ROW("e4m3"), CONSTANTS_ROW("te"),                            \
        { .key = "pow2", .type = FIELD_BOOL }, /* true for te, false for deepseek */          \
        ACCUMULATE_ROW(ALL_SPLIT), GATHER_ROW, FALLBACK_ROW
#define MXFP8_ROWS                                                                            \
    FORMAT_ROW("e4m3"), CONSTANTS_ROW("te"),                            \
        BOOL("weight_2d", "false"),                                                           \
        ACCUMULATE_ROW(PER_TENSOR), GATHER_ROW, FALLBACK_ROW
#define END { .key = NULL }

static const struct field F32[] = { END };
static const struct field BF16[] = { LAYERS_ROW, END };
static const struct field DELAYED[] = { DELAYED_ROWS, MODEL_ROWS, END };
static const struct field TENSORWISE[] = { TENSORWISE_ROWS, MODEL_ROWS, END };
static const struct field ROWWISE[] = { ROWWISE_ROWS, MODEL_ROWS, END };
static const struct field BLOCKWISE[] = { BLOCKWISE_ROWS, MODEL_ROWS, END };
static const struct field MXFP8[] = { MXFP8_ROWS, MODEL_ROWS, END };

static const struct field LAYER_BF16[] = { END };
static const struct field LAYER_DELAYED[] = { DELAYED_ROWS, END };
static const struct field LAYER_TENSORWISE[] = { TENSORWISE_ROWS, END };
static const struct field LAYER_ROWWISE[] = { ROWWISE_ROWS, END };
static const struct field LAYER_BLOCKWISE[] = { BLOCKWISE_ROWS, END };
static const struct field LAYER_MXFP8[] = { MXFP8_ROWS, END };

#define SCHEMA(kind_, rows_) (&(const struct schema){ (kind_), (rows_), NULL })

const struct schema *const SCHEMA_RECIPES[] = {
    SCHEMA("bf16", BF16),
    SCHEMA("fp8.delayed", DELAYED),
    SCHEMA("fp8.tensorwise", TENSORWISE),
    SCHEMA("fp8.rowwise", ROWWISE),
    SCHEMA("fp8.blockwise", BLOCKWISE),
    SCHEMA("fp8.mxfp8", MXFP8),
    SCHEMA("f32", F32),
    NULL,
};

const struct schema *const SCHEMA_LAYER_RECIPES[] = {
    SCHEMA("bf16", LAYER_BF16),
    SCHEMA("fp8.delayed", LAYER_DELAYED),
    SCHEMA("fp8.tensorwise", LAYER_TENSORWISE),
    SCHEMA("fp8.rowwise", LAYER_ROWWISE),
    SCHEMA("fp8.blockwise", LAYER_BLOCKWISE),
    SCHEMA("fp8.mxfp8", LAYER_MXFP8),
    NULL,
};
