#include "runner/script/resolve_script.h"

#include <assert.h>
#include <inttypes.h>
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "model/recipe.h"
#include "runner/plan/factor.h"
#include "runner/script/function_name.h"
#include "runner/script/hf_model.h"
#include "runner/script/schema_apply.h"
#include "runner/script/schema_rules.h"
#include "runner/script/schema_tables.h"
#include "runner/script/script_api.h"
#include "runner/script/smoke.h"
#include "runner/script/suite.h"

/* ---- layers = function(index, gemm, count) --------------------------------------------------- */
/* The recipe that the function returns for one GEMM, or NULL for the run's recipe. */
static struct value *call_layers(struct script *s, const struct value *experiment, int64_t index,
                                 const char *gemm, bool smoke) {
    lua_State *L = s->L;
    const struct value *function = value_get(value_get(experiment, "recipe"), "layers");
    int64_t count = value_int_at(value_get(experiment, "model"), "layers");
    lua_rawgeti(L, LUA_REGISTRYINDEX, function->function);
    lua_pushinteger(L, index);
    lua_pushstring(L, gemm);
    lua_pushinteger(L, count);
    lua_call(L, 3, 1);
    struct value *returned = script_tree(s, -1, function->place);
    lua_pop(L, 1);
    if (returned->type == VALUE_NULL) return NULL;
    const char *path = pool_format(&s->pool, "recipe.layers(%d, \"%s\")", (int)index, gemm);
    struct value *recipe =
        schema_apply_variant(&s->diagnostics, SCHEMA_LAYER_RECIPES, returned, path);
    if (!recipe) return NULL;
    schema_recipe_rules(&s->diagnostics, recipe, path);
    if (smoke) smoke_shrink_recipe(&s->pool, recipe);
    schema_recipe_steps(&s->diagnostics, recipe, path, value_get(experiment, "train"));
    return recipe;
}

static bool is_fp8(const struct value *recipe) {
    const struct recipe_info *info = recipe_info_named(value_get(recipe, "kind")->string);
    return info && info->scale_x != SCALE_NONE;
}

/* Whether the run's recipe, without its exceptions, is FP8 in a layer. */
static bool is_fp8_layer(const struct value *recipe, int64_t layer, int64_t count) {
    int64_t first = value_int_at(recipe, "first_bf16"), last = value_int_at(recipe, "last_bf16");
    return is_fp8(recipe) && layer >= first && layer < count - last;
}

/* Such a recipe is BF16 under another name, and every loss of it would hold. */
static void refuse_no_fp8(struct script *s, const struct value *recipe, int64_t count) {
    if (value_is(value_get(recipe, "lm_head"), "fp8")) return;
    diagnostics_add(&s->diagnostics, value_get(recipe, "layers")->place, "recipe.layers",
                    "the function leaves none of %" PRId64 " layers in FP8; use bf16 {} for that",
                    count);
}

/* Replaces the function by a table of its results for every layer and GEMM. --smoke has fewer
 * layers, which the function may all leave in BF16. */
static void resolve_layers(struct script *s, struct value *experiment, bool smoke) {
    struct pool *p = &s->pool;
    struct value *recipe = value_get(experiment, "recipe");
    const struct value *layers = value_get(recipe, "layers");
    if (!layers) return; /* f32 has none */
    int64_t count = value_int_at(value_get(experiment, "model"), "layers");
    struct value *list = value_new(p, VALUE_TABLE, layers->place);
    list->list = true;
    bool any = smoke || layers->type != VALUE_FUNCTION || !is_fp8(recipe);
    for (int64_t i = 0; layers->type == VALUE_FUNCTION && i < count; i++)
        for (size_t g = 0; g < GEMM_SITE_COUNT; g++) {
            struct value *own = call_layers(s, experiment, i, GEMM_SITE_NAMES[g], smoke);
            any = any || (own ? is_fp8(own) : is_fp8_layer(recipe, i, count));
            if (!own) continue;
            struct value *entry = value_new(p, VALUE_TABLE, layers->place);
            value_set(p, entry, "layer", value_int(p, i, layers->place), layers->place);
            value_set(p, entry, "gemm", value_string(p, GEMM_SITE_NAMES[g], layers->place),
                      layers->place);
            value_set(p, entry, "recipe", own, layers->place);
            value_append(p, list, entry);
        }
    if (!any) refuse_no_fp8(s, recipe, count);
    value_set(p, recipe, "layers", list, layers->place);
}

/* ---- render = function(conversation) --------------------------------------------------------- */
/* Replaces the function by its name in the script's result. */
static void name_render(struct script *s, struct value *experiment) {
    struct value *data = value_get(experiment, "data");
    const struct value *render = value_get(data, "render");
    if (!render || render->type != VALUE_FUNCTION) return;
    const char *name = function_name(s, render->function);
    assert(name); /* overrides make no function */
    value_set(&s->pool, data, "render", value_string(&s->pool, name, render->place),
              render->place);
}

/* ---- one run --------------------------------------------------------------------------------- */
/* time_limit = "1h56m" in a script is time_limit_s = 6960 in the configuration. */
static void name_time_limit(struct pool *p, struct value *train) {
    struct value_member *m = value_member(train, "time_limit");
    m->key = pool_copy(p, "time_limit_s");
}

/* NULL if the run has an error. Errors of other runs do not count here, so that the `layers`
 * function of a valid run is still called and checked. */
static struct value *check_run(struct script *s, const struct suite_run *run) {
    struct diagnostics *d = &s->diagnostics;
    int64_t before = d->reported;
    struct value *config = schema_apply(d, &SCHEMA_EXPERIMENT, run->tree, "");
    schema_rules(d, config);
    return d->reported > before ? NULL : config;
}

static void finish_run(struct script *s, struct value *config, bool smoke) {
    resolve_layers(s, config, smoke);
    name_render(s, config);
    name_time_limit(&s->pool, value_get(config, "train"));
    struct place none = { 0 };
    struct value *schema = value_string(&s->pool, "fp8lab.experiment/1", none);
    value_set(&s->pool, config, "schema", schema, none);
}

/* The configuration of every run of the suite; NULL for a run with an error. */
static struct value **resolve_runs(struct script *s, const struct suite *suite, bool smoke) {
    struct value **configs = pool_alloc(&s->pool, ((size_t)suite->count + 1) * sizeof *configs);
    int64_t ends = 0;
    for (int64_t i = 0; i < suite->count; i++) {
        configs[i] = check_run(s, &suite->runs[i]);
        if (configs[i] && smoke_ends(configs[i]) > ends) ends = smoke_ends(configs[i]);
    }
    for (int64_t i = 0; i < suite->count; i++) {
        if (!configs[i]) continue;
        if (smoke) smoke_shrink(&s->pool, configs[i], ends);
        finish_run(s, configs[i], smoke);
    }
    return configs;
}

/* Hours of runs must not end without the verdict that the suite asks for. --smoke changes values,
 * and gives no verdict. */
static void check_factor(struct script *s, struct suite *suite, struct value *const *configs,
                         bool smoke) {
    struct factor factor;
    struct err e;
    char why[FACTOR_WHY_CAP] = "";
    bool any = smoke;
    if (!factor_read(suite->factor, &factor)) return;
    json_t **all = pool_alloc(&s->pool, ((size_t)suite->count + 1) * sizeof *all);
    for (int64_t i = 0; i < suite->count; i++) {
        struct text text = { 0 };
        value_write(&text, &s->pool, configs[i]);
        all[i] = text.bytes ? json_loads(text.bytes, 0, NULL) : NULL;
        text_free(&text);
        any = any || factor_find(&factor, all[i]) == FACTOR_SAME;
    }
    if (factor_check(&factor, all, suite->count, why, &e) != OK)
        snprintf(why, sizeof why, "%.300s", e.text);
    for (int64_t i = 0; i < suite->count; i++) json_decref(all[i]);
    if (!*why && !any)
        snprintf(why, sizeof why, "no row has %s = %.100s", factor.key, factor.value);
    if (!*why) return;
    if (suite->factor_set) suite->factor = ""; /* then there is nothing to ask */
    else diagnostics_add(&s->diagnostics, suite->factor_place, "factor", "%s", why);
}

static void write_run(struct text *out, struct script *s, const struct suite_run *run,
                      const struct value *config) {
    text_puts(out, "{\"cell\":");
    value_write(out, &s->pool, run->cell);
    text_puts(out, ",\"config\":");
    value_write(out, &s->pool, config);
    text_puts(out, ",\"name\":");
    value_write(out, &s->pool, value_get(config, "name"));
    text_puts(out, "}");
}

/* ---- the script ------------------------------------------------------------------------------ */
static bool made_by_api(struct script *s) {
    bool ours = false;
    if (!lua_istable(s->L, 1) || !script_push_origin(s->L, 1)) return false;
    lua_getfield(s->L, -1, "kind");
    const char *kind = lua_tostring(s->L, -1);
    ours = kind && (strcmp(kind, "experiment") == 0 || strcmp(kind, "suite") == 0);
    lua_pop(s->L, 2);
    return ours;
}

void resolve_script(struct script *s, void *argument, struct text *out) {
    const struct script_changes *changes = argument;
    struct suite suite;
    struct value *wanted;
    if (!made_by_api(s)) {
        struct place place = { .file = s->files[0].path };
        diagnostics_add(&s->diagnostics, place, "",
                        "the script returned %s; it must end with return experiment { ... } or "
                        "return suite { ... }",
                        value_describe(&s->pool, script_tree(s, 1, place)));
        return;
    }
    struct place place = { .file = s->files[0].path };
    if (lua_gettop(s->L) > 1)
        diagnostics_add(&s->diagnostics, place, "", "the script returned %d values, and only one "
                        "counts; several experiments are one suite { experiment { ... }, ... }",
                        lua_gettop(s->L));
    suite_expand(&s->diagnostics, script_tree(s, 1, place), changes->overrides,
                 changes->override_count, &suite);
    if (!hf_models_apply(&s->diagnostics, &suite, changes->models, &wanted)) return;
    if (wanted->item_count) {
        text_puts(out, "{\"models\":");
        value_write(out, &s->pool, wanted);
        text_puts(out, "}");
        return;
    }
    text_puts(out, suite.is_suite ? "{\"suite\":true,\"runs\":[" : "{\"suite\":false,\"runs\":[");
    struct value **configs = resolve_runs(s, &suite, changes->smoke);
    if (s->diagnostics.count == 0) check_factor(s, &suite, configs, changes->smoke);
    for (int64_t i = 0; i < suite.count && s->diagnostics.count == 0; i++) {
        if (i) text_puts(out, ",");
        write_run(out, s, &suite.runs[i], configs[i]);
    }
    text_puts(out, "],\"name\":");
    canonical_add_string(out, suite.name ? suite.name : "", strlen(suite.name ? suite.name : ""));
    text_puts(out, ",\"replaced\":");
    canonical_add_string(out, suite.replaced, strlen(suite.replaced));
    text_puts(out, ",\"factor\":");
    canonical_add_string(out, suite.factor, strlen(suite.factor));
    text_puts(out, ",\"about\":");
    canonical_add_string(out, suite.about, strlen(suite.about));
    text_puts(out, "}");
}
