/* The keys of the recipes. model/recipe_kinds.h says which options a kind has, and their defaults;
 * this file says what each option accepts. A key that a kind lacks is not in its table; the error
 * text then names the kinds that have it. */
#include "model/recipe.h"
#include "runner/script/schema_tables.h"

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define WORD(key_, initial_, words_) \
    { .key = (key_), .type = FIELD_WORD, .words = (words_), .initial = (initial_) }
#define BOOL(key_, initial_) { .key = (key_), .type = FIELD_BOOL, .initial = (initial_) }
#define INT(key_, min_, max_, initial_) \
    { .key = (key_), .type = FIELD_INT, .min = (min_), .max = (max_), .initial = (initial_) }

/* Source of the refusal: transformer_engine/common/recipe, "Pure E5M2 training is not supported";
 * cuBLASLt's table of FP8 types. */
static const struct other_name NO_FORMATS[] = {
    { "e5m2", "TransformerEngine refuses E5M2 for every operand, and cuBLASLt has no GEMM of two "
              "E5M2 operands; \"hybrid\" is E4M3 with E5M2 for gradients" },
    { NULL, NULL },
};

/* A row for each option, with its default; schema_rules.c refuses the words that a kind lacks. */
#define ROW_format(initial_)                                                                   \
    { .key = "format", .type = FIELD_WORD, .words = RECIPE_FORMAT_NAMES,                       \
      .refused = NO_FORMATS, .initial = (initial_) }
#define ROW_constants(initial_) WORD("constants", initial_, RECIPE_CONSTANTS_NAMES)
#define ROW_margin(initial_) INT("margin", 0, 64, initial_)
#define ROW_history(initial_) INT("history", 1, 65536, initial_)
#define ROW_algo(initial_) WORD("algo", initial_, RECIPE_ALGO_NAMES)
#define ROW_roll(initial_) WORD("roll", initial_, RECIPE_ROLL_NAMES)
#define ROW_pow2(initial_) BOOL("pow2", initial_)
#define ROW_weight_2d(initial_) BOOL("weight_2d", initial_)
#define ROW_hadamard(initial_) BOOL("hadamard", initial_)
#define ROW_stochastic(initial_) BOOL("stochastic", initial_)
#define ROW_forward_bf16_after(initial_) INT("forward_bf16_after", 0, 1000000000, initial_)
#define ROW_PASS(key_, initial_)                                                               \
    { .key = (key_), .type = FIELD_WORD, .words = WORDS("fp8", "bf16"),                        \
      .flags = FIELD_ABSENT, .initial = (initial_) }
#define ROW_fprop_bf16(initial_) ROW_PASS("fprop", initial_)
#define ROW_dgrad_bf16(initial_) ROW_PASS("dgrad", initial_)
#define ROW_wgrad_bf16(initial_) ROW_PASS("wgrad", initial_)
#define ROW_param_gather(initial_) BOOL("param_gather", initial_)
#define ROW_fall_back(initial_)                                                                \
    { .key = "fallback", .type = FIELD_WORD, .words = WORDS("bf16"), .flags = FIELD_NULLABLE,  \
      .initial = (initial_) }
#define ROW_OF_GEMM(gemm_, initial_) WORD(gemm_, initial_, WORDS("fast", "split"))
#define END { .key = NULL }
#define LAYERS_ROW { .key = "layers", .type = FIELD_FUNCTION, .flags = FIELD_NULLABLE }
/* Keys of the whole model; a recipe within `layers` does not have them. */
#define MODEL_ROWS                                                                            \
    INT("first_bf16", 0, 4096, "0"), INT("last_bf16", 0, 4096, "0"),                          \
        WORD("lm_head", "bf16", WORDS("bf16", "fp8")), LAYERS_ROW

#define OPTION(field_, value_, text_) ROW_##field_(text_),
#define ACCUMULATE(fprop_, dgrad_, wgrad_)                                                     \
    { .key = "accumulate", .type = FIELD_TABLE,                                                \
      .schema = &(const struct schema){                                                        \
          "accumulate",                                                                        \
          (const struct field[]){ ROW_OF_GEMM("fprop", #fprop_), ROW_OF_GEMM("dgrad", #dgrad_), \
                                  ROW_OF_GEMM("wgrad", #wgrad_), END }, NULL } },

static const struct field F32[] = { END };
static const struct field BF16[] = { LAYERS_ROW, END };
static const struct field LAYER_BF16[] = { END };
#define FIELDS(kind_, name_)                                                                   \
    static const struct field kind_[] = { RECIPE_OPTIONS_##kind_(OPTION, ACCUMULATE)           \
                                          MODEL_ROWS, END };                                   \
    static const struct field LAYER_##kind_[] = { RECIPE_OPTIONS_##kind_(OPTION, ACCUMULATE)   \
                                                  END };
RECIPE_FP8_KINDS(FIELDS)

#define SCHEMA(kind_, rows_) (&(const struct schema){ (kind_), (rows_), NULL })
#define WHOLE(kind_, name_) SCHEMA(name_, kind_),
#define LAYER(kind_, name_) SCHEMA(name_, LAYER_##kind_),

const struct schema *const SCHEMA_RECIPES[] = {
    SCHEMA("bf16", BF16),
    RECIPE_FP8_KINDS(WHOLE)
    SCHEMA("f32", F32),
    NULL,
};

const struct schema *const SCHEMA_LAYER_RECIPES[] = {
    SCHEMA("bf16", LAYER_BF16),
    RECIPE_FP8_KINDS(LAYER)
    NULL,
};
