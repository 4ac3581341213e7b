/* GEMMs with a recipe of their own, in words: "0-1:bf16,2-29.ffn_out:fp8.rowwise(pow2=false)". */
#include <string.h>

#include "model/config.h"
#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/compare/recipe_name.h"

/* "fp8.rowwise(pow2=false,format=e4m3)": a recipe as part of a longer name. */
static void put_recipe(struct text *out, const json_t *recipe, bool *failed) {
    json_t *options = recipe_options(recipe);
    const json_t *option;
    size_t i;
    *failed = *failed || !options;
    text_puts(out, json_text(recipe, "kind", "?"));
    json_array_foreach(options, i, option) {
        text_puts(out, i ? "," : "(");
        text_puts(out, json_text(option, "key", "?"));
        text_puts(out, "=");
        text_puts(out, json_text(option, "value", "?"));
    }
    if (json_array_size(options)) text_puts(out, ")");
    json_decref(options);
}

static json_int_t layer_of(const json_t *list, size_t at) {
    return json_integer_value(json_object_get(json_array_get(list, at), "layer"));
}

static const json_t *recipe_of(const json_t *list, size_t at) {
    return json_object_get(json_array_get(list, at), "recipe");
}

/* The rows [from, to) of one layer, one text for each recipe: ".qkv+ffn_in:bf16", or ":bf16" if all
 * GEMMs of the layer have it. */
static json_t *layer_parts(const json_t *list, size_t from, size_t to, bool *failed) {
    json_t *parts = json_array();
    for (size_t i = from; i < to; i++) {
        struct text text = { 0 };
        size_t earlier = from, alike = 0;
        while (!json_equal(recipe_of(list, earlier), recipe_of(list, i))) earlier++;
        if (earlier < i) continue;
        for (size_t k = i; k < to; k++)
            if (json_equal(recipe_of(list, k), recipe_of(list, i))) alike++;
        bool first = true;
        for (size_t k = i; k < to && alike < GEMM_SITE_COUNT; k++) {
            if (!json_equal(recipe_of(list, k), recipe_of(list, i))) continue;
            text_puts(&text, first ? "." : "+");
            text_puts(&text, json_text(json_array_get(list, k), "gemm", "?"));
            first = false;
        }
        text_puts(&text, ":");
        put_recipe(&text, recipe_of(list, i), failed);
        json_append(parts, text.failed ? NULL : json_from_text(text.bytes), failed);
        text_free(&text);
    }
    return json_whole(parts, *failed);
}

static void put_range(struct text *out, json_int_t first, json_int_t last, const json_t *parts) {
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part) {
        if (out->size) text_puts(out, ",");
        canonical_add_int(out, first);
        if (last > first) text_puts(out, "-");
        if (last > first) canonical_add_int(out, last);
        text_puts(out, json_string_value(part));
    }
}

char *recipe_layers(const json_t *list) {
    struct text out = { 0 };
    json_t *held = NULL; /* the parts of the layers [first, last] */
    json_int_t first = 0, last = 0;
    bool failed = false;
    for (size_t from = 0, to; from < json_array_size(list) && !failed; from = to) {
        for (to = from + 1; to < json_array_size(list); to++)
            if (layer_of(list, to) != layer_of(list, from)) break;
        json_t *parts = layer_parts(list, from, to, &failed);
        json_int_t layer = layer_of(list, from);
        if (held && (layer != last + 1 || !json_equal(held, parts))) {
            put_range(&out, first, last, held);
            json_decref(held);
            held = NULL;
        }
        if (!held) first = layer;
        else json_decref(held);
        held = parts;
        last = layer;
    }
    if (held) put_range(&out, first, last, held);
    json_decref(held);
    if (failed || out.failed) text_free(&out);
    return out.bytes;
}
