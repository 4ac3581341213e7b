#include "model/selection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/params.h"

/* ---- names ---- */

/* Bytes of the first component. */
static size_t component(const char *name) { return strcspn(name, "."); }

/* Reads the digits at `*at`, before `end`. -1: there are none, or more than any layer has. */
static int64_t read_number(const char **at, const char *end) {
    const char *begin = *at;
    int64_t n = 0;
    for (; *at < end && **at >= '0' && **at <= '9' && *at - begin < 9; ++*at)
        n = 10 * n + (**at - '0');
    return *at > begin ? n : -1;
}

/* Whether `want` of n bytes, such as "0-3", is a range with the number `name` of m bytes. */
static bool in_range(const char *want, size_t n, const char *name, size_t m) {
    const char *end = want + n, *name_end = name + m;
    int64_t first = read_number(&want, end), at = read_number(&name, name_end);
    if (first < 0 || at < 0 || name != name_end || want == end || *want++ != '-') return false;
    int64_t last = read_number(&want, end);
    return want == end && first <= at && at <= last;
}

static bool component_matches(const char *want, size_t n, const char *name, size_t m) {
    if (n == 1 && *want == '*') return true;
    if (n == m && memcmp(want, name, n) == 0) return true;
    return in_range(want, n, name, m);
}

static bool selects(const char *names, const char *name) {
    for (;;) {
        size_t n = component(names), m = component(name);
        if (!component_matches(names, n, name, m)) return false;
        names += n;
        name += m;
        if (!*names) return true;
        if (!*name) return false;
        names++;
        name++;
    }
}

/* ---- what there is, for an error ---- */

struct list { char text[600]; size_t used; };

static void list_add(struct list *l, const char *before, const char *name, size_t n) {
    int added = snprintf(l->text + l->used, sizeof l->text - l->used, "%s%.*s", before, (int)n,
                         name);
    if (added > 0) l->used += (size_t)added;
    if (l->used >= sizeof l->text) l->used = sizeof l->text - 1;
}

static bool same_component(const char *a, const char *b) {
    size_t n = component(a);
    return n == component(b) && memcmp(a, b, n) == 0;
}

/* "norm1, qkv, ...": the parts of layer 0, beginning with its first parameter. */
static void list_layer(struct list *l, const struct params *p, int first) {
    const char *before = NULL;
    for (int i = first; i < p->count && !strncmp(p->param[i].name, "layers.0.", 9); i++) {
        const char *part = p->param[i].name + 9;
        if (!before || !same_component(before, part))
            list_add(l, before ? ", " : "", part, component(part));
        before = part;
    }
}

/* "embed, layers.0-1 (norm1, qkv, ...), final_norm, head" */
static void list_names(struct list *l, const struct params *p) {
    const char *before = NULL;
    *l = (struct list){ .used = 0 };
    for (int i = 0; i < p->count; i++) {
        const char *name = p->param[i].name;
        if (before && same_component(before, name)) continue;
        list_add(l, before ? ", " : "", name, component(name));
        before = name;
        if (strncmp(name, "layers.", 7) != 0) continue;
        char range[64];
        snprintf(range, sizeof range, ".0-%lld (each ", (long long)p->layers - 1);
        list_add(l, range, "", 0);
        list_layer(l, p, i);
        list_add(l, ")", "", 0);
    }
    if (p->param[0].gemm) list_add(l, "; the head is embed, by model.tied", "", 0);
}

static const char *key_of(const struct selection_rule *r) {
    return r->frozen ? "train.freeze" : "train.lr_scale";
}

/* ---- applying ---- */

static enum status apply_rule(struct params *p, const struct selection *s, int64_t r,
                              struct err *e) {
    const struct selection_rule *rule = &s->rule[r];
    int64_t selected = 0;
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        if (!selects(rule->names, x->name)) continue;
        selected++;
        if (rule->frozen) x->frozen = true;
        if (rule->frozen) continue;
        if (x->lr_rule)
            return FAIL(e, ERR_CONFIG, "train.lr_scale: \"%s\" and \"%s\" both name %s; a "
                        "parameter has one factor", s->rule[x->lr_rule - 1].names, rule->names,
                        x->name);
        x->lr_rule = (int)r + 1;
    }
    if (selected) return OK;
    struct list l;
    list_names(&l, p);
    return FAIL(e, ERR_CONFIG, "%s: \"%.80s\" names no parameter of this model; it has %s",
                key_of(rule), rule->names, l.text);
}

/* The place of a factor among those of the run. */
static enum status place_scale(struct params *p, double scale, int *place, struct err *e) {
    for (*place = 0; *place < p->lr_scales; ++*place)
        if (p->lr_scale[*place] == scale) return OK;
    if (p->lr_scales == LR_SCALES_MAX)
        return FAIL(e, ERR_CONFIG, "train.lr_scale has more than %d different factors",
                    LR_SCALES_MAX - 1);
    p->lr_scale[p->lr_scales++] = scale;
    return OK;
}

static enum status check_rules(const struct params *p, const struct selection *s, struct err *e) {
    for (int64_t r = 0; r < s->count; r++) {
        bool used = s->rule[r].frozen;
        for (int i = 0; i < p->count; i++)
            used = used || (p->param[i].lr_rule == r + 1 && !p->param[i].frozen);
        if (!used)
            return FAIL(e, ERR_CONFIG, "train.lr_scale: all that \"%s\" names is frozen by "
                        "train.freeze; leave one of the two out", s->rule[r].names);
    }
    return OK;
}

/* The lowest layer whose gradients are wanted. */
static void find_lowest(struct params *p) {
    p->lowest = p->layers;
    for (int i = p->count; i-- > 0;) {
        const struct param *x = &p->param[i];
        if (x->frozen) continue;
        if (!strncmp(x->name, "layers.", 7)) p->lowest = strtoll(x->name + 7, NULL, 10);
        else if (x->bucket == BUCKET_EMBEDDING) p->lowest = LOWEST_EMBEDDING;
    }
}

enum status selection_apply(struct params *p, const struct selection *s, struct err *e) {
    for (int64_t r = 0; r < s->count; r++) TRY(apply_rule(p, s, r, e));
    if (params_trained(p) == 0)
        return FAIL(e, ERR_CONFIG, "train.freeze names every parameter: nothing is left to train");
    TRY(check_rules(p, s, e));
    for (int k = 0; k < p->bucket_count; k++) p->bucket[k].frozen = k != BUCKET_VECTORS;
    for (int i = 0; i < p->count; i++) {
        struct param *x = &p->param[i];
        if (x->frozen) continue;
        p->bucket[x->bucket].frozen = false;
        if (x->lr_rule) TRY(place_scale(p, s->rule[x->lr_rule - 1].lr_scale, &x->lr_place, e));
    }
    find_lowest(p);
    return OK;
}

/* ---- figures ---- */

static enum status select_of(struct params *p, const struct model_config *c,
                             const struct selection *s, struct err *e) {
    const struct param_options o = { .shard = { SHARD_NONE, 0, 1 } };
    TRY(params_init(p, c, &o, e));
    return selection_apply(p, s, e);
}

enum status selection_trained(const struct model_config *c, const struct selection *s,
                              int64_t *elements, struct err *e) {
    struct params p;
    enum status st = select_of(&p, c, s, e);
    *elements = st == OK ? params_trained(&p) : 0;
    params_destroy(&p);
    return st;
}

/* What is left out of backward: 2 FLOP for each weight of a GEMM that has no wgrad, or no dgrad,
 * and two thirds of a layer's attention. */
static double saved_flops(const struct params *p, double attention) {
    double weights = 0;
    for (int i = 0; i < p->count; i++) {
        const struct param *x = &p->param[i];
        if (!x->gemm) continue;
        bool below = x->bucket >= BUCKET_LAYER && x->bucket - BUCKET_LAYER < p->lowest;
        weights += (x->frozen + below) * (double)param_count(x);
    }
    double layers = p->lowest > 0 ? (double)p->lowest : 0;
    return 2 * weights + layers * attention * 2 / 3;
}

enum status selection_flops_per_token(const struct model_config *c, const struct selection *s,
                                      double *flops, struct err *e) {
    struct params p;
    double weights = 0;
    enum status st = select_of(&p, c, s, e);
    for (int i = 0; i < p.count; i++)
        if (p.param[i].gemm) weights += (double)param_count(&p.param[i]);
    *flops = model_flops_per_token(c);
    double attention = (*flops - 6 * weights) / (double)c->layers; /* of a layer */
    if (st == OK) *flops -= saved_flops(&p, attention);
    params_destroy(&p);
    return st;
}
