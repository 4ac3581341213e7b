#include "runner/advise/advice.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/advise/census.h"
#include "runner/advise/link.h"
#include "runner/base/run_files.h"
#include "runner/hardware/facts.h"
#include "runner/plan/asked_kernel.h"
#include "runner/plan/fit.h"

/* ---- one row ----------------------------------------------------------------------------------*/

static enum status find_memory(const json_t *facts, int cc, struct advice_row *row,
                               struct err *e) {
    struct fit fit = { 0 };
    enum status st = fit_plan(row->config, facts, cc ? "cuda" : "cpu", 0, &fit, e);
    if (st == OK) {
        row->bytes = fit.wanted;
        row->memory = fit.memory;
        row->where = fit.where;
        row->fits = fit.fits;
        row->ranks = fit.ranks;
        snprintf(row->less_memory, sizeof row->less_memory, "%s", fit.less_memory);
    }
    fit_free(&fit);
    return st;
}

/* Whether the recipe's fallback leaves no FP8 GEMM in a step. */
static bool all_fell_back(const json_t *config, const struct step_works *works) {
    if (!json_text(json_object_get(config, "recipe"), "fallback", NULL)) return false;
    for (int64_t i = 0; i < works->count; i++)
        if (works->work[i].kind == WORK_GEMM && dtype_is_fp8(works->work[i].gemm.a)) return false;
    return true;
}

/* Whether the device multiplies some FP8 operands as they are. After a failure it may do so with
 * products of other kinds. */
static bool multiplies_fp8(const struct advice_row *row) {
    const struct certified *c = &row->certified;
    return row->way.way == WAY_NATIVE || (*c->widens && c->widened < c->products);
}

/* Why no file of steps leads to a forecast; "": one may. */
static void find_unmeasurable(struct advice_row *row) {
    struct forecast *f = &row->forecast;
    const json_t *train = json_object_get(row->config, "train");
    bool exact = json_is_true(json_object_get(train, "exact"));
    row->unmeasurable = exact || (*row->certified.widens && !row->fell_back);
    /* A file of steps does not say whether they had the exact kernels, which take up to twice as
     * long (LOG.md). Nor does it say which products were emulated. */
    if (exact)
        snprintf(f->missing, sizeof f->missing,
                 "train.exact takes other kernels than those that were measured");
    else if (row->unmeasurable)
        snprintf(f->missing, sizeof f->missing, "no measured step is known to emulate a product "
                 "that failed its certificate");
}

static enum status find_time(const struct measured *m, const json_t *facts, int cc,
                             struct advice_row *row, struct err *e) {
    struct census census;
    struct step_works works = { 0 };
    bool native = multiplies_fp8(row);
    struct err why;
    bool falls_back = cc && !native; /* on the CPU, the reference, no GEMM does */
    enum status st = census_take(row->config, row->ranks, !falls_back, &census, &why);
    row->tokens = census.tokens;
    row->comm_bytes = census.comm_bytes;
    if (st != OK && st != ERR_MEMORY) { /* such as a step of too many operators: advice goes on */
        snprintf(row->forecast.missing, sizeof row->forecast.missing, "%.150s", why.text);
        row->unmeasurable = true;
        return OK;
    }
    if (st != OK) return FAIL(e, st, "%s", why.text);
    st = census_works(&census, &works, e);
    row->fell_back = st == OK && falls_back && all_fell_back(row->config, &works);
    if (st == OK && row->peak) row->floor_us = floor_step_us(row->peak, &works, native);
    find_unmeasurable(row);
    if (st == OK && m->count > 0 && !row->unmeasurable)
        forecast_step(m, &works, row->fell_back ? RECIPE_BF16 : row->kind, &row->forecast);
    if (row->forecast.known && link_is_nvlink(facts, row->ranks))
        row->link_us = link_us(row->comm_bytes, row->ranks);
    row->forecast.step_us += row->link_us; /* as if none of it were hidden: FORECAST.md */
    step_works_free(&works);
    census_free(&census);
    return st;
}

static void refuse(struct advice_row *row, const char *why) {
    row->way = (struct recipe_row){ WAY_REFUSED, "" };
    row->fits = false;
    snprintf(row->refused, sizeof row->refused, "%.255s", why);
}

/* A run tries its ways before it starts. It emulates a product that fails, and ends where there is
 * no other way. */
static void take_failures(struct advice_row *row) {
    const struct certified *c = &row->certified;
    char why[WAY_TEXT_CAP + 96];
    snprintf(why, sizeof why, "%s failed its certificate, and has no other way: %s", c->way,
             c->fault);
    if (c->ends) refuse(row, why);
    else if (*c->widens && row->way.way == WAY_NATIVE)
        row->way = (struct recipe_row){ WAY_EMULATED, "a product failed its certificate" };
}

/* What `check --facts` asks: the trainer, then the kernel that the configuration names. */
static enum status ask_trainer(const json_t *facts, int cc, struct advice_row *row,
                               struct err *e) {
    const struct asked_machine machine = { .facts = facts };
    struct err why;
    enum status st = find_memory(facts, cc, row, &why);
    if (st == OK) st = asked_kernel_check(row->config, &machine, &why);
    if (st == ERR_CONFIG || st == ERR_HARDWARE) refuse(row, why.text);
    else if (st != OK) return FAIL(e, st, "%s", why.text);
    return OK;
}

void advice_add_refused(struct advice *a, enum recipe_kind kind, const char *why) {
    a->row[a->count] = (struct advice_row){ .kind = kind };
    refuse(&a->row[a->count++], why);
}

enum status advice_add(struct advice *a, const json_t *config, const char *run,
                       const json_t *facts, const json_t *certificates,
                       const struct measured *m, struct err *e) {
    const char *kind = json_text(json_object_get(config, "recipe"), "kind", "");
    const struct recipe_info *info = recipe_info_named(kind);
    int cc = facts_have_gpu(facts) ? facts_capability(facts) : 0; /* 0: the CPU backend */
    if (!info || a->count == RECIPE_KIND_COUNT)
        return FAIL(e, ERR_CONFIG, "%s: recipe \"%.32s\"", run, kind);
    struct advice_row *row = &a->row[a->count];
    *row = (struct advice_row){ .kind = info->defaults.kind, .config = config, .run = run,
                                .attention = attention_way(config, cc),
                                .way = recipe_on(info->defaults.kind, cc,
                                                 json_text(facts, "cublaslt.version", NULL)) };
    if (cc) row->peak = peak_find(json_text(facts, "gpu.product_name", ""),
                                  json_text(facts, "gpu.cc", ""));
    a->count++;
    TRY(ask_trainer(facts, cc, row, e));
    if (*row->refused) return OK;
    if (cc)
        TRY(certified_find(config, row->ranks, ways_twins(NULL, facts), certificates,
                           &row->certified, e));
    take_failures(row);
    if (*row->refused) return OK;
    TRY(find_time(m, facts, cc, row, e));
    a->timed = a->timed || row->forecast.known;
    return OK;
}

/* ---- the rule ---------------------------------------------------------------------------------*/

static const struct advice_row *bf16_of(const struct advice *a) {
    for (int64_t i = 0; i < a->count; i++)
        if (a->row[i].kind == RECIPE_BF16) return &a->row[i];
    return NULL;
}

/* An emulated recipe multiplies as BF16 does, and casts besides: it cannot be faster. Forecasts of
 * other shapes may say so. */
static void slow_emulated(struct advice *a) {
    const struct advice_row *bf16 = bf16_of(a);
    for (int64_t i = 0; bf16 && i < a->count; i++) {
        struct forecast *f = &a->row[i].forecast;
        bool emulated = a->row[i].way.way == WAY_EMULATED && f->known;
        if (emulated && f->step_us < bf16->forecast.step_us) f->step_us = bf16->forecast.step_us;
    }
}

static enum advice_group group_of(const struct advice_row *row) {
    if (row->way.way == WAY_REFUSED || !row->fits) return ADVICE_CANNOT;
    if (row->loss.finding == EVIDENCE_FAILS) return ADVICE_LOSS;
    return row->forecast.known ? ADVICE_TIMED : ADVICE_UNTIMED;
}

/* Where no time decides, or times are equal, BF16 is first: it needs no proof of its loss. Then
 * native before emulated. */
static int untimed_order(const struct advice_row *row) {
    return row->kind == RECIPE_BF16 ? 0 : row->way.way == WAY_NATIVE ? 1 : 2;
}

static int by_rule(const void *x, const void *y) {
    const struct advice_row *a = x, *b = y;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    double s = a->forecast.step_us, t = b->forecast.step_us;
    if (a->group == ADVICE_TIMED && (s < t || s > t)) return s < t ? -1 : 1;
    int m = untimed_order(a), n = untimed_order(b);
    if (m != n) return m - n;
    return (int)a->kind - (int)b->kind;
}

bool advice_leaves_out_link(const struct advice_row *row) {
    if (!row->forecast.known || row->link_us > 0) return false;
    return link_us(row->comm_bytes, row->ranks) > ADVICE_LINK_MAX * row->forecast.step_us;
}

bool advice_is_rough(const struct advice_row *row) {
    return row->forecast.outside || row->forecast.assumed > ADVICE_ASSUMED_MAX ||
           advice_leaves_out_link(row);
}

/* Whether a forecast is short enough to prefer the recipe to BF16. Without a BF16 that runs, each
 * is; against a BF16 without a time none is. */
static bool beats(const struct advice_row *row, const struct advice_row *bf16) {
    if (row->group != ADVICE_TIMED || row->kind == RECIPE_BF16) return false;
    if (!bf16 || bf16->group >= ADVICE_LOSS) return true;
    double margin = advice_is_rough(row) ? ADVICE_MARGIN_ROUGH : ADVICE_MARGIN;
    return row->forecast.step_us * (1 + margin) < bf16->forecast.step_us;
}

/* Whether the loss is the reason to take `row`, which is about as fast as the faster `than`. */
static bool is_safer(const struct advice_row *row, const struct advice_row *than) {
    return row->loss.finding == EVIDENCE_HOLDS && than->loss.finding != EVIDENCE_HOLDS &&
           row->forecast.step_us <= than->forecast.step_us * (1 + ADVICE_MARGIN);
}

/* Moves the row to use to the front of rows that are sorted: the fastest that beats BF16, or one
 * about as fast whose loss holds. If none beats it, BF16. */
static void choose(struct advice *a) {
    const struct advice_row *bf16 = bf16_of(a);
    int64_t at = -1;
    for (int64_t i = 0; i < a->count; i++)
        if (beats(&a->row[i], bf16) && (at < 0 || is_safer(&a->row[i], &a->row[at]))) at = i;
    if (at < 0 && (!bf16 || bf16->group >= ADVICE_LOSS)) return;
    if (at < 0) at = bf16 - a->row;
    struct advice_row best = a->row[at];
    memmove(&a->row[1], &a->row[0], (size_t)at * sizeof best);
    a->row[0] = best;
}

const char *advice_because(const struct advice_row *row) {
    bool widened = row->way.way == WAY_EMULATED && *row->certified.widens;
    return *row->refused ? row->refused : widened ? row->certified.widens : row->way.because;
}

static void explain(struct advice_row *row, const struct advice_row *best) {
    size_t size = sizeof row->reason;
    row->reason[0] = '\0';
    if (row == best) return;
    if (row->way.way == WAY_REFUSED) snprintf(row->reason, size, "%s", advice_because(row));
    else if (!row->fits)
        snprintf(row->reason, size, "it needs %.1f GiB of %.1f", (double)row->bytes / 0x1p30,
                 (double)row->memory / 0x1p30);
    else if (row->group == ADVICE_LOSS)
        snprintf(row->reason, size, "runs here show that its loss does not hold");
    else if (row->fell_back)
        snprintf(row->reason, size, "falls back to bf16: %s", advice_because(row));
    else if (row->way.way == WAY_EMULATED && best->way.way != WAY_EMULATED)
        snprintf(row->reason, size, "emulated: %s", advice_because(row));
    else if (row->group == ADVICE_TIMED)
        snprintf(row->reason, size, "%s",
                 !best->forecast.known ? "bf16 has no time to compare with"
                 : row->forecast.step_us > best->forecast.step_us ? "slower"
                 : best->kind != RECIPE_BF16 ? "about as fast, but runs here say less of its loss"
                 : advice_is_rough(row)      ? "its forecast is rough, and not 25 % below bf16's"
                                             : "its forecast is not 10 % below bf16's");
    else if (row->way.way == WAY_EMULATED)
        snprintf(row->reason, size, "emulated: %s", advice_because(row));
    else if (*row->forecast.missing)
        snprintf(row->reason, size, "%s", row->forecast.missing);
    else
        snprintf(row->reason, size, "no time can be forecast%s",
                 row->floor_us > 0 ? ", only a floor is known" : "");
}

void advice_rank(struct advice *a) {
    slow_emulated(a);
    for (int64_t i = 0; i < a->count; i++) a->row[i].group = group_of(&a->row[i]);
    qsort(a->row, (size_t)a->count, sizeof *a->row, by_rule);
    choose(a);
    const struct advice_row *bf16 = bf16_of(a);
    double base = bf16 ? bf16->forecast.step_us : 0;
    for (int64_t i = 0; i < a->count; i++) {
        struct advice_row *row = &a->row[i];
        row->speed = row->forecast.known && base > 0 ? base / row->forecast.step_us : 0;
        explain(row, advice_best(a));
    }
}

const struct advice_row *advice_best(const struct advice *a) {
    return a->count > 0 && a->row[0].group < ADVICE_LOSS ? &a->row[0] : NULL;
}
