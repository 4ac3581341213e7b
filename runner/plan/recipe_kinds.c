#include "runner/plan/recipe_kinds.h"

#include <stdlib.h>
#include <string.h>

#include "model/json_safe.h"
#include "runner/base/run_files.h"

/* loss_tolerance: block scales follow each 128 values, so they must be closer to BF16 than scales
 * of whole tensors, rows or E8M0 blocks (runner/compare/README.md, clause 6). */
static const struct recipe_kind_row ROWS[RECIPE_KIND_COUNT] = {
    [RECIPE_F32] = { "f32", DTYPE_F32, SCALE_NONE, SCALE_NONE, 0.005 },
    [RECIPE_BF16] = { "bf16", DTYPE_BF16, SCALE_NONE, SCALE_NONE, 0.005 },
    [RECIPE_DELAYED] = { "fp8.delayed", DTYPE_E4M3, SCALE_TENSOR, SCALE_TENSOR, 0.005 },
    [RECIPE_TENSORWISE] = { "fp8.tensorwise", DTYPE_E4M3, SCALE_TENSOR, SCALE_TENSOR, 0.005 },
    [RECIPE_ROWWISE] = { "fp8.rowwise", DTYPE_E4M3, SCALE_ROW, SCALE_ROW, 0.005 },
    [RECIPE_BLOCKWISE] = { "fp8.blockwise", DTYPE_E4M3, SCALE_1X128, SCALE_128X128, 0.0025 },
    [RECIPE_MXFP8] = { "fp8.mxfp8", DTYPE_E4M3, SCALE_1X32, SCALE_1X32, 0.005 },
};

const struct recipe_kind_row *recipe_kind_row(enum recipe_kind kind) { return &ROWS[kind]; }

const struct recipe_kind_row *recipe_kind_find(const char *name) {
    for (int i = 0; i < RECIPE_KIND_COUNT; i++)
        if (!strcmp(ROWS[i].name, name)) return &ROWS[i];
    return NULL;
}

void recipe_kind_names(const char *out[RECIPE_KIND_COUNT + 1]) {
    for (int i = 0; i < RECIPE_KIND_COUNT; i++) out[i] = ROWS[i].name;
    out[RECIPE_KIND_COUNT] = NULL;
}

/* ---- defaults -------------------------------------------------------------------------------- */

const struct schema *recipe_kind_schema(const char *name) {
    for (size_t i = 0; SCHEMA_RECIPES[i]; i++)
        if (!strcmp(SCHEMA_RECIPES[i]->name, name)) return SCHEMA_RECIPES[i];
    return NULL;
}

/* "pow2" of blockwise is the only default that depends on another key; schema_rules.c derives it
 * by the same rule. */
const char *recipe_key_default(const struct field *field, const json_t *recipe) {
    if (field->initial) return field->initial;
    if (strcmp(field->key, "pow2") != 0) return "none";
    return strcmp(json_text(recipe, "constants", ""), "deepseek") ? "true" : "false";
}

static void put_defaults(json_t *out, const struct field *fields, bool *failed) {
    for (const struct field *field = fields; field->key; field++) {
        json_t *table = field->type == FIELD_TABLE ? json_object() : NULL;
        const char *text = recipe_key_default(field, out);
        json_t *value = NULL;
        if (table) put_defaults(table, field->schema->fields, failed);
        if (table) value = table;
        else if (field->type == FIELD_FUNCTION || !strcmp(text, "none")) value = json_null();
        else if (field->type == FIELD_BOOL) value = json_boolean(!strcmp(text, "true"));
        else if (field->type == FIELD_INT) value = json_integer(strtoll(text, NULL, 10));
        else value = json_string(text);
        json_put(out, field->key, value, failed);
    }
}

json_t *recipe_kind_defaults(enum recipe_kind kind) {
    json_t *out = json_object();
    bool failed = !out;
    json_put(out, "kind", json_string(ROWS[kind].name), &failed);
    if (out) put_defaults(out, recipe_kind_schema(ROWS[kind].name)->fields, &failed);
    return json_whole(out, failed);
}
