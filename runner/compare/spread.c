#include "runner/compare/spread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/record/bucket_text.h"

/* Cuts the prefix that names the kind off a tensor's name. */
static enum spread_kind kind_of(const char **name) {
    static const struct { const char *prefix; enum spread_kind kind; } KINDS[] = {
        { "grad:", SPREAD_GRADIENTS }, { "out:", SPREAD_ACTIVATIONS },
    };
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        size_t n = strlen(KINDS[i].prefix);
        if (strncmp(*name, KINDS[i].prefix, n) != 0) continue;
        *name += n;
        return KINDS[i].kind;
    }
    return SPREAD_WEIGHTS;
}

/* "layers.3.qkv.weight" is in row "3", "head.weight" in row "head". */
static void row_name(const char *tensor, struct spread_row *out) {
    long long layer = -1;
    int used = 0;
    *out = (struct spread_row){ .layer = -1 };
    if (sscanf(tensor, "layers.%9lld%n", &layer, &used) == 1 && layer >= 0 &&
        (!tensor[used] || tensor[used] == '.')) {
        out->layer = layer;
        snprintf(out->name, sizeof out->name, "%lld", layer);
    } else {
        int n = (int)strcspn(tensor, ".");
        snprintf(out->name, sizeof out->name, "%.*s",
                 n < SPREAD_NAME_CAP ? n : SPREAD_NAME_CAP - 1, tensor);
    }
}

/* The row of a tensor, perhaps a new one; NULL: there are too many. */
static struct spread_row *row_of(struct spread *s, const char *tensor) {
    struct spread_row wanted;
    enum spread_kind kind = kind_of(&tensor);
    int64_t *count = &s->of[kind].count;
    row_name(tensor, &wanted);
    for (int64_t i = 0; i < *count; i++)
        if (!strcmp(s->of[kind].row[i].name, wanted.name)) return &s->of[kind].row[i];
    if (*count == SPREAD_ROWS_MAX) return NULL;
    s->of[kind].row[*count] = wanted;
    return &s->of[kind].row[(*count)++];
}

static void add(struct spread_row *row, const char *text) {
    int bucket = -1;
    int64_t n;
    while (bucket_text_next(&text, &bucket, &n)) {
        row->all += (double)n;
        if (bucket == HISTOGRAM_NAN) row->nans += (double)n;
        else if (bucket == HISTOGRAM_ZERO) row->zeros += (double)n;
        else if (bucket > HISTOGRAM_ZERO) row->count[bucket - HISTOGRAM_ZERO - 1] += (double)n;
        else row->count[HISTOGRAM_ZERO - 1 - bucket] += (double)n;
    }
}

static int place(const struct spread_row *r) {
    return r->layer >= 0 ? 1 : !strcmp(r->name, "embed") || !strcmp(r->name, "position") ? 0 : 2;
}
static int by_place(const void *a, const void *b) {
    const struct spread_row *x = a, *y = b;
    if (place(x) != place(y)) return place(x) - place(y);
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    return strcmp(x->name, y->name);
}

enum status spread_make(const struct run_view *v, struct spread *out, struct err *e) {
    const json_t *record = json_array_get(v->histograms, 0), *text;
    const char *name;
    *out = (struct spread){ 0 };
    if (!record) return OK;
    for (int k = 0; k < SPREAD_KINDS; k++) {
        out->of[k].row = calloc(SPREAD_ROWS_MAX, sizeof *out->of[k].row);
        if (!out->of[k].row) return FAIL(e, ERR_MEMORY, "the histograms of a run");
    }
    out->counted = true;
    out->step = json_int(record, "step");
    json_object_foreach(json_object_get(record, "tensors"), name, text) {
        struct spread_row *row = json_is_string(text) ? row_of(out, name) : NULL;
        if (row) add(row, json_string_value(text));
    }
    for (int k = 0; k < SPREAD_KINDS; k++)
        qsort(out->of[k].row, (size_t)out->of[k].count, sizeof *out->of[k].row, by_place);
    return OK;
}

void spread_free(struct spread *s) {
    for (int k = 0; k < SPREAD_KINDS; k++) free(s->of[k].row);
    *s = (struct spread){ 0 };
}
