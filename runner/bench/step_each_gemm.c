#include "runner/bench/step_each_gemm.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/cli.h"
#include "runner/bench/step_whole.h"

enum { NAME_WIDTH = 42 };
static const double LEAST_DIFFERENCE = 0.005; /* of the step */

/* ---- changes of a recipe ----------------------------------------------------------------------*/

/* What may be changed: a site of all layers, one of the three directions, or the head. */
enum { CHANGE_FPROP = GEMM_SITE_COUNT, CHANGE_DGRAD, CHANGE_WGRAD, CHANGE_HEAD };
static const struct recipe_options BF16 = { .kind = RECIPE_BF16 };

static bool is_low(const struct recipe_options *o) { return recipe_is_fp8(o->kind); }

static int64_t site_count(const struct recipe *r) { return r->layers * GEMM_SITE_COUNT; }

/* The first GEMM site that is not in BF16, or NULL. */
static const struct recipe_options *first_low(const struct recipe *r) {
    for (int64_t i = 0; i < site_count(r); i++)
        if (is_low(&r->site[i])) return &r->site[i];
    return NULL;
}

/* Puts a site of all layers into BF16. FP8 attention needs its qkv, and would change too. */
static bool change_site(struct recipe *r, int site) {
    bool changed = false;
    if (site == GEMM_QKV && r->attention_fp8) return false;
    for (int64_t i = site; i < site_count(r); i += GEMM_SITE_COUNT) {
        changed = changed || is_low(&r->site[i]);
        if (is_low(&r->site[i])) r->site[i] = BF16;
    }
    return changed;
}

/* Puts one GEMM of a site into BF16, if others remain. */
static bool change_direction(struct recipe_options *o, int change) {
    bool *bf16 = change == CHANGE_FPROP   ? &o->fprop_bf16
                 : change == CHANGE_DGRAD ? &o->dgrad_bf16
                                          : &o->wgrad_bf16;
    int others = o->fprop_bf16 + o->dgrad_bf16 + o->wgrad_bf16;
    if (!is_low(o) || *bf16 || others == 2) return false;
    *bf16 = true;
    o->param_gather = false; /* one device gathers nothing; it would exclude the change */
    if (change == CHANGE_FPROP) o->forward_bf16_after = 0;
    return true;
}

static bool change_directions(struct recipe *r, int change) {
    bool changed = change_direction(&r->head, change);
    for (int64_t i = 0; i < site_count(r); i++)
        changed = change_direction(&r->site[i], change) || changed;
    return changed;
}

/* Makes the change and its name. False: it would change nothing, or something else too. */
static bool apply(int change, struct recipe *r, char *name, size_t size) {
    static const char *const DIRECTIONS[] = { "fprop", "dgrad", "wgrad" };
    const struct recipe_options *low = first_low(r);
    if (!low) return false;
    if (change < GEMM_SITE_COUNT) {
        snprintf(name, size, "%s in BF16", GEMM_SITE_NAMES[change]);
        return change_site(r, change);
    }
    if (change < CHANGE_HEAD) {
        snprintf(name, size, "%s in BF16", DIRECTIONS[change - CHANGE_FPROP]);
        return change_directions(r, change);
    }
    bool to_bf16 = is_low(&r->head);
    snprintf(name, size, "lm_head in %s", to_bf16 ? "BF16" : RECIPE_KIND_NAMES[low->kind]);
    r->head = to_bf16 ? BF16 : *low;
    return true;
}

/* ---- measurement ------------------------------------------------------------------------------*/

static enum status measure(struct backend *b, const struct trainer_inputs *in,
                           const struct recipe *recipe, int64_t steps,
                           const struct energy_meter *m, struct whole_steps *out,
                           struct err *e) {
    struct trainer *t = NULL;
    TRY(trainer_create(&t, b, in->model, recipe, in->train, in->data, e));
    enum status st = whole_steps_measure(t, steps, m, out, e);
    trainer_destroy(t);
    b->ops->graph_drop(b); /* graphs hold addresses of the trainer's memory */
    return st;
}

static enum status planned_bytes(const struct trainer_inputs *in, const struct recipe *recipe,
                                 int64_t *bytes, struct err *e) {
    struct plan plan;
    TRY(trainer_plan(&plan, in->model, recipe, in->train, 1, e));
    *bytes = plan.bytes;
    plan_free(&plan);
    return OK;
}

/* A change that lacks memory has no further rounds, and the others go on. */
static enum status measure_change(struct backend *b, const struct trainer_inputs *in,
                                  const struct recipe *recipe, int64_t most_bytes, int64_t steps,
                                  const struct energy_meter *m, int64_t round,
                                  struct gemm_change *c, struct err *e) {
    struct whole_steps whole = { .steps = 0 };
    int64_t bytes;
    TRY(planned_bytes(in, recipe, &bytes, e));
    c->no_memory = c->no_memory || bytes > most_bytes;
    if (c->no_memory) return OK;
    enum status st = measure(b, in, recipe, steps, m, &whole, e);
    c->no_memory = st == ERR_MEMORY;
    c->us[round] = whole.time.median_us;
    c->loss = whole.loss;
    return c->no_memory ? OK : st;
}

/* One round: the recipe as it is, then each change. `sites` holds the changed recipe. */
static enum status measure_round(struct backend *b, const struct trainer_inputs *in,
                                 int64_t most_bytes, int64_t steps,
                                 const struct energy_meter *m, int64_t round,
                                 struct recipe_options *sites, struct gemm_changes *out,
                                 struct err *e) {
    const size_t bytes = (size_t)site_count(in->recipe) * sizeof *sites;
    struct whole_steps base;
    TRY(measure(b, in, in->recipe, steps, m, &base, e));
    out->base_us[round] = base.time.median_us;
    out->count = 0;
    for (int change = 0; change < CHANGES_MAX; change++) {
        struct gemm_change *c = &out->change[out->count];
        struct recipe r = *in->recipe;
        r.site = sites;
        memcpy(sites, in->recipe->site, bytes);
        if (!apply(change, &r, c->name, sizeof c->name)) continue;
        out->count++;
        TRY(measure_change(b, in, &r, most_bytes, steps, m, round, c, e));
    }
    return OK;
}

enum status gemm_changes_measure(struct backend *b, const struct trainer_inputs *in,
                                 int64_t room, int64_t steps, const struct energy_meter *m,
                                 struct gemm_changes *out, struct err *e) {
    int64_t bytes;
    *out = (struct gemm_changes){ .count = 0 };
    if (!first_low(in->recipe)) return OK;
    TRY(planned_bytes(in, in->recipe, &bytes, e));
    int64_t most = room < INT64_MAX - bytes ? bytes + room : INT64_MAX;
    struct recipe_options *sites = calloc((size_t)site_count(in->recipe) + 1, sizeof *sites);
    enum status st = sites ? OK : FAIL(e, ERR_MEMORY, "no host memory for a recipe");
    for (int64_t round = 0; round < CHANGE_ROUNDS && st == OK; round++)
        st = measure_round(b, in, most, steps, m, round, sites, out, e);
    free(sites);
    return st;
}

/* ---- the verdict ------------------------------------------------------------------------------*/

static double least(const double us[CHANGE_ROUNDS]) {
    double x = us[0];
    for (int i = 1; i < CHANGE_ROUNDS; i++)
        if (us[i] < x) x = us[i];
    return x;
}

static double most(const double us[CHANGE_ROUNDS]) {
    double x = us[0];
    for (int i = 1; i < CHANGE_ROUNDS; i++)
        if (us[i] > x) x = us[i];
    return x;
}

static double median(const double us[CHANGE_ROUNDS]) {
    return us[0] + us[1] + us[2] - least(us) - most(us);
}
_Static_assert(CHANGE_ROUNDS == 3, "median() is that of three");

enum change_verdict gemm_change_verdict(const struct gemm_changes *c, int at) {
    const struct gemm_change *one = &c->change[at];
    if (one->no_memory) return CHANGE_NO_MEMORY;
    double relative = median(one->us) / median(c->base_us) - 1;
    if (most(one->us) < least(c->base_us) && relative < -LEAST_DIFFERENCE) return CHANGE_FASTER;
    if (least(one->us) > most(c->base_us) && relative > LEAST_DIFFERENCE) return CHANGE_SLOWER;
    return CHANGE_UNCLEAR;
}

static const char *verdict_name(enum change_verdict v) {
    static const char *const NAMES[] = { "no difference shown", "faster", "slower", "no memory" };
    return NAMES[v];
}

/* ---- output -----------------------------------------------------------------------------------*/

void gemm_changes_print(const struct cli *cli, const struct gemm_changes *c) {
    if (c->count == 0) {
        cli_out(cli, "  --each-gemm: no GEMM of this row has operands of 8 or 4 bits\n");
        return;
    }
    cli_out(cli, "  the whole step with one kind of GEMM changed, median of %d rounds by turns\n",
            CHANGE_ROUNDS);
    cli_out(cli, "  %-*s %10.3f ms  (%.3f to %.3f)\n", NAME_WIDTH, "unchanged",
            median(c->base_us) / 1e3, least(c->base_us) / 1e3, most(c->base_us) / 1e3);
    for (int i = 0; i < c->count; i++) {
        const struct gemm_change *one = &c->change[i];
        enum change_verdict v = gemm_change_verdict(c, i);
        if (v == CHANGE_NO_MEMORY) {
            cli_out(cli, "  %-*s %10s\n", NAME_WIDTH, one->name, verdict_name(v));
            continue;
        }
        cli_out(cli, "  %-*s %10.3f ms  (%.3f to %.3f)  %+.1f%%  %s\n", NAME_WIDTH, one->name,
                median(one->us) / 1e3, least(one->us) / 1e3, most(one->us) / 1e3,
                100 * (median(one->us) / median(c->base_us) - 1), verdict_name(v));
    }
}

static json_t *rounds_json(const double us[CHANGE_ROUNDS]) {
    json_t *list = json_array();
    bool failed = false;
    for (int i = 0; i < CHANGE_ROUNDS; i++) json_append(list, json_real(us[i]), &failed);
    return json_whole(list, failed);
}

json_t *gemm_changes_json(const struct gemm_changes *c) {
    json_t *list = json_array();
    bool failed = false;
    for (int i = 0; i < c->count; i++) {
        const struct gemm_change *one = &c->change[i];
        json_append(list, json_pack("{s:s,s:s,s:o,s:o,s:f}", "change", one->name, "verdict",
                                    verdict_name(gemm_change_verdict(c, i)), "step_us",
                                    one->no_memory ? json_null() : rounds_json(one->us),
                                    "unchanged_us", rounds_json(c->base_us), "loss",
                                    (double)one->loss), &failed);
    }
    return json_whole(list, failed);
}
