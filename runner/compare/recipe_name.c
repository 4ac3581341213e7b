#include "runner/compare/recipe_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/script/schema_tables.h"

enum { VALUE_WIDTH = 48 };

/* ---- values -------------------------------------------------------------------------------- */

static char *value_whole(const json_t *value) {
    if (!value || json_is_null(value)) return strdup("none");
    if (json_is_string(value)) return strdup(json_string_value(value));
    return json_dump_text(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10));
}

char *value_words(const json_t *value, size_t width) {
    static const char CUT[] = "…";
    char *text = value_whole(value);
    if (!text || strlen(text) <= width) return text;
    size_t kept = utf8_valid_prefix(text, width);
    char *out = malloc(kept + sizeof CUT);
    if (out) {
        memcpy(out, text, kept);
        memcpy(out + kept, CUT, sizeof CUT);
    }
    free(text);
    return out;
}

/* ---- options ------------------------------------------------------------------------------- */

/* The keys of the kind with this name; NULL: there is none. */
static const struct schema *kind_schema(const char *name) {
    for (size_t i = 0; SCHEMA_RECIPES[i]; i++)
        if (!strcmp(SCHEMA_RECIPES[i]->name, name)) return SCHEMA_RECIPES[i];
    return NULL;
}

/* The default of a key as the schema writes it. A GEMM's key that is absent has its first word.
 * "pow2" of blockwise is the only default that depends on another key; schema_rules.c derives it by
 * the same rule. */
static const char *key_default(const struct field *field, const char *constants) {
    if (field->initial) return field->initial;
    if (field->flags & FIELD_ABSENT && field->type == FIELD_WORD) return field->words[0];
    if (strcmp(field->key, "pow2") != 0) return "none";
    return strcmp(constants, "deepseek") ? "true" : "false";
}

json_t *recipe_default(const json_t *flat, const char *key) {
    const struct schema *schema = kind_schema(json_text(flat, "recipe.kind", ""));
    const struct field *field = NULL;
    char word[64];
    if (strncmp(key, "recipe.", 7) != 0) return NULL;
    for (const char *at = key + 7; schema; at += strlen(word) + 1) {
        size_t n = strcspn(at, ".");
        if (n >= sizeof word) return NULL;
        snprintf(word, n + 1, "%s", at);
        field = schema_field(schema, word);
        if (!field || !at[n]) break;
        schema = field->type == FIELD_TABLE ? field->schema : NULL;
        field = NULL;
    }
    if (!field) return NULL;
    const char *text = key_default(field, json_text(flat, "recipe.constants", ""));
    if (!strcmp(text, "none")) return NULL;
    if (field->type == FIELD_WORD) return json_string(text);
    if (field->type == FIELD_BOOL) return json_boolean(!strcmp(text, "true"));
    return field->type == FIELD_INT ? json_integer(strtoll(text, NULL, 10)) : NULL;
}

static void add_option(json_t *options, const char *key, const char *value, bool *failed) {
    json_append(options, value ? json_pack("{s:s, s:s}", "key", key, "value", value) : NULL,
                failed);
}

static void add_scalar(json_t *options, const char *key, const struct field *field,
                       const json_t *value, const json_t *recipe, bool *failed) {
    if (!value) return; /* a bundle of a version without the key */
    char *text = value_words(value, VALUE_WIDTH);
    if (!text || strcmp(text, key_default(field, json_text(recipe, "constants", ""))) != 0)
        add_option(options, key, text, failed);
    free(text);
}

static void add_table(json_t *options, const struct field *field, const json_t *table,
                      const json_t *recipe, bool *failed) {
    for (const struct field *row = field->schema->fields; row->key; row++) {
        char key[128];
        snprintf(key, sizeof key, "%s.%s", field->key, row->key);
        add_scalar(options, key, row, json_object_get(table, row->key), recipe, failed);
    }
}

static void add_layers(json_t *options, const char *key, const json_t *list, bool *failed) {
    if (!json_array_size(list)) return;
    char *text = recipe_layers(list);
    add_option(options, key, text, failed);
    free(text);
}

json_t *recipe_options(const json_t *recipe) {
    json_t *options = json_array();
    bool failed = !options;
    const struct schema *schema = kind_schema(json_text(recipe, "kind", ""));
    const char *key;
    json_t *value;
    if (!schema) return options;
    for (const struct field *field = schema->fields; field->key; field++) {
        value = json_object_get(recipe, field->key);
        if (field->type == FIELD_TABLE) add_table(options, field, value, recipe, &failed);
        else if (field->type == FIELD_FUNCTION) add_layers(options, field->key, value, &failed);
        else add_scalar(options, field->key, field, value, recipe, &failed);
    }
    json_object_foreach((json_t *)recipe, key, value) {
        if (!strcmp(key, "kind") || schema_field(schema, key) || json_is_null(value)) continue;
        char *text = value_words(value, VALUE_WIDTH);
        add_option(options, key, text, &failed);
        free(text);
    }
    return json_whole(options, failed);
}

static void put_recipe(struct text *text, const json_t *recipe) {
    json_t *options = recipe_options(recipe);
    size_t i;
    const json_t *option;
    if (!options) text->failed = true;
    text_puts(text, json_text(recipe, "kind", "?"));
    json_array_foreach(options, i, option) {
        text_puts(text, " ");
        text_puts(text, json_text(option, "key", "?"));
        text_puts(text, "=");
        text_puts(text, json_text(option, "value", "?"));
    }
    json_decref(options);
}

static char *whole(struct text *text) {
    if (text->failed) text_free(text);
    return text->bytes;
}

char *recipe_text(const json_t *recipe) {
    struct text text = { 0 };
    put_recipe(&text, recipe);
    return whole(&text);
}

char *recipe_text_of_run(const json_t *resolved) {
    static const struct { const char *table, *key, *words; } ALSO[] = {
        { "attention", "precision", " attention.precision=fp8" },
        { "train", "grad_dtype", " train.grad_dtype=fp8" },
    };
    struct text text = { 0 };
    put_recipe(&text, json_object_get(resolved, "recipe"));
    for (size_t i = 0; i < sizeof ALSO / sizeof *ALSO; i++)
        if (!strcmp(json_text(json_object_get(resolved, ALSO[i].table), ALSO[i].key, ""), "fp8"))
            text_puts(&text, ALSO[i].words);
    return whole(&text);
}
