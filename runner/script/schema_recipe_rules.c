/* Rules over several keys of one recipe (schema_rules.h). */
#include "runner/script/schema_rules.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/arguments.h"
#include "model/recipe.h"
#include "runner/script/rule_places.h"
#include "runner/script/schema_apply.h"

/* The three GEMMs of a linear layer, as keys. */
enum { GEMM_COUNT = GEMM_WGRAD + 1 };
static const char *const GEMMS[GEMM_COUNT] = { "fprop", "dgrad", "wgrad" };

/* The index of a word; the schema has checked that it is one. */
static unsigned index_of(const char *const *words, const char *word) {
    unsigned i = 0;
    while (words[i] && strcmp(words[i], word) != 0) i++;
    return i;
}

static void check_defined(struct diagnostics *d, const struct value *recipe, const char *kind,
                          const struct recipe_info *info, const char *path) {
    const struct value *constants = value_get(recipe, "constants");
    const struct value *format = value_get(recipe, "format");
    if (constants && !(info->constants >> index_of(RECIPE_CONSTANTS_NAMES, constants->string) & 1))
        diagnostics_add(d, place_of(recipe, "constants"), schema_path(d->pool, path, "constants"),
                        "%s has no constants \"%s\": %s", kind, constants->string,
                        info->why_constants);
    if (format && !(info->formats >> index_of(RECIPE_FORMAT_NAMES, format->string) & 1))
        diagnostics_add(d, place_of(recipe, "format"), schema_path(d->pool, path, "format"),
                        "%s has no format \"%s\": %s; leave format out", kind, format->string,
                        info->why_formats);
    bool deepseek = info->constants >> QUANT_DEEPSEEK & 1 && value_is(constants, "deepseek");
    if (deepseek && value_is(format, "hybrid"))
        diagnostics_add(d, place_of(recipe, "format"), schema_path(d->pool, path, "format"),
                        "DeepSeek's blockwise recipe is E4M3 for every operand; use format = "
                        "\"e4m3\", or constants = \"te\" for hybrid");
}

static void check_accumulate(struct diagnostics *d, const struct value *recipe,
                             const struct recipe_info *info, const char *path) {
    const struct value *accumulate = value_get(recipe, "accumulate");
    const char *below = schema_path(d->pool, path, "accumulate");
    for (int i = 0; info->why_no_fast && i < GEMM_COUNT; i++)
        if (value_is(value_get(accumulate, GEMMS[i]), "fast"))
            diagnostics_add(d, place_of(accumulate, GEMMS[i]),
                            schema_path(d->pool, below, GEMMS[i]), "%s", info->why_no_fast);
}

static void derive_pow2(struct diagnostics *d, struct value *recipe) {
    if (value_get(recipe, "pow2")) return;
    struct value *pow2 = value_new(d->pool, VALUE_BOOL, recipe->place);
    pow2->b = !value_is(value_get(recipe, "constants"), "deepseek");
    value_set(d->pool, recipe, "pow2", pow2, recipe->place);
}

/* How a GEMM in BF16 accumulates is no option: a word other than the default would be another run
 * with the same bits. */
static void check_idle(struct diagnostics *d, const struct value *recipe,
                       const struct recipe_info *info, const char *path) {
    const struct recipe_options *o = &info->defaults;
    const bool fast[GEMM_COUNT] = { o->fprop_fast, o->dgrad_fast, o->wgrad_fast };
    const struct value *accumulate = value_get(recipe, "accumulate");
    const char *below = schema_path(d->pool, path, "accumulate");
    for (int i = 0; !info->why_no_fast && i < GEMM_COUNT; i++)
        if (value_is(value_get(recipe, GEMMS[i]), "bf16") &&
            value_is(value_get(accumulate, GEMMS[i]), fast[i] ? "split" : "fast"))
            diagnostics_add(d, changed(place_of(accumulate, GEMMS[i]), place_of(recipe, GEMMS[i])),
                            schema_path(d->pool, below, GEMMS[i]), "%s is in BF16, so this has no "
                            "effect; leave one of the two out", GEMMS[i]);
}

/* Options of codes that only some GEMMs read: where these are in BF16, a value other than the
 * default would be another run with the same bits. */
static void check_unread(struct diagnostics *d, const struct value *recipe,
                         const struct recipe_info *info, const char *path) {
    const struct recipe_options *o = &info->defaults;
    const struct { const char *key; int readers[2]; const char *who; bool initial; } UNREAD[] = {
        { "hadamard", { GEMM_WGRAD, GEMM_WGRAD }, "wgrad is", o->hadamard },
        { "stochastic", { GEMM_DGRAD, GEMM_WGRAD }, "dgrad and wgrad are", o->stochastic },
        { "weight_2d", { GEMM_FPROP, GEMM_DGRAD }, "fprop and dgrad are", o->weight_2d },
        { "format", { GEMM_DGRAD, GEMM_WGRAD }, "dgrad and wgrad are", false },
    };
    for (size_t i = 0; i < sizeof UNREAD / sizeof *UNREAD; i++) {
        const struct value *v = value_get(recipe, UNREAD[i].key);
        const char *last = GEMMS[UNREAD[i].readers[1]];
        bool unread = value_is(value_get(recipe, GEMMS[UNREAD[i].readers[0]]), "bf16") &&
                      value_is(value_get(recipe, last), "bf16");
        if (!v || !unread) continue;
        if (v->type == VALUE_BOOL ? v->b == UNREAD[i].initial
                                  : value_is(v, RECIPE_FORMAT_NAMES[o->format]))
            continue;
        diagnostics_add(d, changed_key(recipe, UNREAD[i].key, last),
                        schema_path(d->pool, path, UNREAD[i].key), "%s in BF16, so this has no "
                        "effect; leave it out", UNREAD[i].who);
    }
}

/* A GEMM whose word is "fp8" is as if its key were absent, so that the inputs have the same hash.
 * Rowwise's wgrad has "fp8" as default. */
static void settle_gemms(struct value *recipe, const struct recipe_info *info) {
    for (int i = 0; i < GEMM_COUNT; i++)
        if (value_is(value_get(recipe, GEMMS[i]), "fp8") &&
            (info->scale_w != SCALE_ROW || i != GEMM_WGRAD))
            value_remove(recipe, GEMMS[i]);
}

static void check_gemms(struct diagnostics *d, const struct value *recipe, const char *kind,
                        const char *path) {
    const struct value *gather = value_get(recipe, "param_gather");
    int64_t after = 0;
    bool bf16[GEMM_COUNT];
    for (int i = 0; i < GEMM_COUNT; i++) bf16[i] = value_is(value_get(recipe, GEMMS[i]), "bf16");
    if (bf16[GEMM_FPROP] && bf16[GEMM_DGRAD] && bf16[GEMM_WGRAD])
        diagnostics_add(d, place_of(recipe, "fprop"), schema_path(d->pool, path, "fprop"),
                        "fprop, dgrad and wgrad are all in BF16, so nothing is left of %s; use "
                        "recipe = \"bf16\", or leave one of them out", kind);
    if (gather && gather->b && (bf16[GEMM_FPROP] || bf16[GEMM_DGRAD]))
        diagnostics_add(d, changed_key(recipe, "param_gather",
                                       bf16[GEMM_FPROP] ? "fprop" : "dgrad"),
                        schema_path(d->pool, path, "param_gather"),
                        "ranks would gather only the codes of weights, and %s in BF16 reads their "
                        "values; leave one of the two out", bf16[GEMM_FPROP] ? "fprop" : "dgrad");
    if (get_int(recipe, "forward_bf16_after", &after) && after > 0 && bf16[GEMM_FPROP])
        diagnostics_add(d, changed_key(recipe, "forward_bf16_after", "fprop"),
                        schema_path(d->pool, path, "forward_bf16_after"),
                        "fprop is in BF16 from the first step; leave one of the two out");
}

void schema_recipe_rules(struct diagnostics *d, struct value *recipe, const char *path) {
    const struct value *named = value_get(recipe, "kind");
    const struct value *gather = value_get(recipe, "param_gather");
    const struct recipe_info *info = named ? recipe_info_named(named->string) : NULL;
    if (!info) return;
    if (info->pow2_follows) derive_pow2(d, recipe);
    check_defined(d, recipe, named->string, info, path);
    check_accumulate(d, recipe, info, path);
    check_idle(d, recipe, info, path);
    check_unread(d, recipe, info, path);
    settle_gemms(recipe, info);
    check_gemms(d, recipe, named->string, path);
    if (gather && gather->b && info->why_no_gather)
        diagnostics_add(d, place_of(recipe, "param_gather"),
                        schema_path(d->pool, path, "param_gather"), "%s", info->why_no_gather);
}

void schema_recipe_steps(struct diagnostics *d, const struct value *recipe, const char *path,
                         const struct value *train) {
    int64_t after, steps;
    if (!get_int(recipe, "forward_bf16_after", &after) || after == 0 ||
        !get_int(train, "steps", &steps) || after < steps) /* epochs: see plan/run_length.h */
        return;
    diagnostics_add(d, changed(place_of(recipe, "forward_bf16_after"), place_of(train, "steps")),
                    schema_path(d->pool, path, "forward_bf16_after"),
                    "the run ends with step %" PRId64 ", so no step would multiply forward in "
                    "BF16; write less than %" PRId64 ", or leave it out; found %" PRId64, steps,
                    steps, after);
}
