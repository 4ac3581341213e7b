/* Which tensor a label of the FP8 records is, and how the recipe stores it. */
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/health/health.h"

/* Whether the GEMM ran in BF16, since the device had no native FP8 for it. */
static bool fell_back(const json_t *fallback, int64_t layer, enum gemm_site site) {
    char name[64];
    size_t i;
    const json_t *item;
    snprintf(name, sizeof name, "layers.%lld.%s", (long long)layer, GEMM_SITE_NAMES[site]);
    json_array_foreach(fallback, i, item)
        if (json_is_string(item) && !strcmp(json_string_value(item), name)) return true;
    return false;
}

/* "x", "dy", "weight", "weight.dgrad" after the GEMM's name. */
static const struct operand_spec *operand_named(const struct gemm_spec *spec, const char *part) {
    if (!spec->fp8) return NULL;
    if (!strcmp(part, "x")) return &spec->x;
    if (!strcmp(part, "dy")) return &spec->dy;
    if (!strcmp(part, "weight")) return &spec->w;
    if (!strcmp(part, "weight.dgrad") && spec->split_weight) return &spec->w_dgrad;
    return NULL;
}

static void take(struct health_tensor *t, const struct operand_spec *spec) {
    t->known = true;
    t->fp8 = spec && spec->kind != SCALE_NONE;
    if (!t->fp8) return;
    t->code = spec->code;
    t->kind = spec->kind;
    t->delayed = spec->source == SCALE_SOURCE_KNOWN;
}

/* A tied head has the embedding's weight. */
static void identify_head(struct health_tensor *t, const struct recipe *recipe) {
    struct gemm_spec spec;
    const char *part = strrchr(t->name, '.') + 1;
    gemm_spec_resolve(&spec, &recipe->head);
    if (!strcmp(t->name, "head.weight.dgrad") || !strcmp(t->name, "embed.weight.dgrad"))
        part = "weight.dgrad";
    bool gradient = !strcmp(t->name, "embed.dy"); /* of the embedding's output: no GEMM reads it */
    take(t, gradient ? NULL : operand_named(&spec, part));
}

/* "qkv", "p", "do", "ds" of FP8 attention. */
static const struct operand_spec *attention_operand(const struct attention_spec *spec,
                                                    const char *part) {
    if (!strcmp(part, "qkv")) return &spec->qkv;
    if (!strcmp(part, "p")) return &spec->p;
    return !strcmp(part, "do") ? &spec->d_o : &spec->ds;
}

void health_identify(struct health_tensor *t, const struct recipe *recipe, const json_t *fallback) {
    struct gemm_spec spec;
    long long layer = -1;
    int used = 0;
    if (!strncmp(t->name, "head.", 5) || !strncmp(t->name, "embed.", 6)) {
        identify_head(t, recipe);
        return;
    }
    if (sscanf(t->name, "layers.%lld.%n", &layer, &used) != 1 || !used || layer < 0 ||
        layer >= recipe->layers) {
        take(t, NULL); /* position.weight, final_norm.weight */
        return;
    }
    if (!strncmp(t->name + used, "attention.", 10)) {
        struct attention_spec attention;
        attention_spec_resolve(&attention, recipe, layer);
        take(t, attention_operand(&attention, t->name + used + 10));
        return;
    }
    for (int site = 0; site < GEMM_SITE_COUNT; site++) {
        size_t n = strlen(GEMM_SITE_NAMES[site]);
        const char *part = t->name + used;
        if (strncmp(part, GEMM_SITE_NAMES[site], n) != 0 || part[n] != '.') continue;
        gemm_spec_resolve(&spec, recipe_at(recipe, layer, (enum gemm_site)site));
        bool fallen = fell_back(fallback, layer, (enum gemm_site)site);
        take(t, fallen ? NULL : operand_named(&spec, part + n + 1));
        return;
    }
    take(t, NULL); /* norms */
}
