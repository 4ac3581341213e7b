#include "runner/bench/step_rows.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/cli.h"

enum { NAME_WIDTH = 42, COLUMN_WIDTH = 15, LABEL_CAP = 128 };
static const char BETWEEN[] = "step less all parts";

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/* ---- rows -------------------------------------------------------------------------------------*/

static bool is_same_gemm(const struct step_gemm *a, const struct step_gemm *b) {
    return a->direction == b->direction && a->head == b->head && a->m == b->m && a->n == b->n &&
           a->k == b->k;
}

static const struct step_gemm *find_gemm(const struct step_row *row, const struct step_gemm *g) {
    for (int i = 0; i < row->gemm_count; i++)
        if (is_same_gemm(&row->gemm[i], g)) return &row->gemm[i];
    return NULL;
}

/* The shapes of a record differ also by epilogue and number format: here these are together. */
static void add_gemm(struct step_row *row, const struct gemm_shape *shape,
                     const struct timed_call *c) {
    const struct step_gemm one = { .direction = shape->direction, .head = c->part == PART_HEAD,
                                   .m = shape->m, .n = shape->n, .k = shape->k };
    struct step_gemm *g = (struct step_gemm *)find_gemm(row, &one);
    if (!g) {
        g = &row->gemm[row->gemm_count++]; /* at most as many as shapes in the record */
        *g = one;
    }
    bool low = dtype_is_fp8(shape->a);
    g->calls++;
    g->low_calls += low;
    if (low) g->low = shape->a;
    g->us += c->time_us;
}

void step_row_of(const struct step_bench *s, const struct model_config *model,
                 struct step_row *out) {
    *out = (struct step_row){ .model = *model, .cpu = strcmp(s->backend, "cpu") == 0,
                              .tokens = s->whole.tokens, .micro_batch = s->micro_batch,
                              .step_us = s->whole.time.median_us, .joules = s->energy.joules };
    snprintf(out->name, sizeof out->name, "%s", s->name);
    snprintf(out->recipe, sizeof out->recipe, "%s", s->recipe);
    for (int64_t i = 0; i < s->record.call_count; i++) {
        const struct timed_call *c = &s->record.call[i];
        out->part_us[c->part] += c->time_us;
        out->parts_us += c->time_us;
        out->floor_us += step_call_floor_us(s, c);
        if (c->gemm >= 0) add_gemm(out, &s->record.gemm[c->gemm], c);
    }
}

static bool is_bf16(const struct step_row *row) { return strcmp(row->recipe, "bf16") == 0; }

const struct step_row *step_row_beside(const struct step_row *row, int64_t count, int64_t at) {
    const struct step_row *r = &row[at];
    for (int64_t i = 0; i < count && !is_bf16(r); i++)
        if (is_bf16(&row[i]) && row[i].tokens == r->tokens &&
            row[i].micro_batch == r->micro_batch && row[i].model.seq_len == r->model.seq_len &&
            row[i].model.layers == r->model.layers &&
            model_parameter_count(&row[i].model) == model_parameter_count(&r->model))
            return &row[i];
    return NULL;
}

/* ---- what a recipe can gain -------------------------------------------------------------------*/

/* The share of a GEMM's calls that have low operands. */
static double low_share(const struct step_gemm *g) {
    return ratio((double)g->low_calls, (double)g->calls);
}

/* The time in `base` of the GEMMs that have low operands in `row`, and the part of it that a GPU
 * whose rate doubles with each halving of the operands would save. */
static double low_us(const struct step_row *base, const struct step_row *row, double *saved_us) {
    double us = 0;
    *saved_us = 0;
    for (int i = 0; i < row->gemm_count; i++) {
        const struct step_gemm *g = &row->gemm[i], *there = find_gemm(base, g);
        if (!there) continue;
        double low = there->us * low_share(g);
        us += low;
        *saved_us += low * (g->low == DTYPE_E2M1 ? 0.75 : 0.5);
    }
    return us;
}

double step_row_limit(const struct step_row *base, const struct step_row *row) {
    double saved_us;
    (void)low_us(base, row, &saved_us);
    return ratio(base->step_us, base->step_us - saved_us);
}

/* ---- names ------------------------------------------------------------------------------------*/

/* Whether a GEMM of this direction and shape is one of the site. */
static bool is_at(const struct step_gemm *g, const struct gemm_size *size, int64_t tokens) {
    if (g->direction == GEMM_FPROP)
        return g->m == tokens && g->n == size->outputs && g->k == size->inputs;
    if (g->direction == GEMM_DGRAD)
        return g->m == tokens && g->n == size->inputs && g->k == size->outputs;
    return g->m == size->outputs && g->n == size->inputs && g->k == tokens;
}

/* "ffn_in fprop 16384x11008x2048". Sites of one size are named together: "qkv/attn_out". */
static void gemm_label(const struct step_row *row, const struct step_gemm *g,
                       char out[LABEL_CAP]) {
    static const char *const DIRECTIONS[] = { "fprop", "dgrad", "wgrad" };
    int64_t tokens = row->micro_batch * row->model.seq_len;
    int at = g->head ? snprintf(out, LABEL_CAP, "lm_head") : 0;
    for (int s = 0; s < GEMM_SITE_COUNT && !g->head; s++) {
        struct gemm_size size = gemm_site_size(&row->model, (enum gemm_site)s);
        if (is_at(g, &size, tokens))
            at += snprintf(out + at, (size_t)(LABEL_CAP - at), "%s%s", at ? "/" : "",
                           GEMM_SITE_NAMES[s]);
    }
    snprintf(out + at, (size_t)(LABEL_CAP - at), "%s%s %" PRId64 "x%" PRId64 "x%" PRId64,
             at ? " " : "", DIRECTIONS[g->direction], g->m, g->n, g->k);
}

/* ---- text -------------------------------------------------------------------------------------*/

static void print_lines(const struct cli *cli, const struct step_row *row, int64_t count,
                        bool energy) {
    int width = NAME_WIDTH;
    for (int64_t i = 0; i < count; i++)
        if ((int)strlen(row[i].name) > width) width = (int)strlen(row[i].name);
    cli_out(cli, "%-*s %10s %12s %9s %9s%s\n", width, "run", "step ms", "tokens/s", "to first",
            "of floor", energy ? "     J per step" : "");
    for (int64_t i = 0; i < count; i++) {
        double rate = (double)row[i].tokens / row[i].step_us * 1e6;
        double first = (double)row[0].tokens / row[0].step_us * 1e6;
        char joules[ENERGY_TEXT_CAP];
        energy_text(row[i].joules, joules);
        cli_out(cli, "%-*s %10.3f %12.0f %8.3fx %8.1f%%", width, row[i].name,
                row[i].step_us / 1e3, rate, rate / first,
                100 * row[i].floor_us / row[i].step_us);
        if (energy) cli_out(cli, " %14s", joules);
        cli_out(cli, "\n");
    }
}

static void print_pair(const struct cli *cli, const char *name, double base_us, double us) {
    cli_out(cli, "  %-*s %*.3f %*.3f %+*.3f", NAME_WIDTH, name, COLUMN_WIDTH, base_us / 1e3,
            COLUMN_WIDTH, us / 1e3, COLUMN_WIDTH, (us - base_us) / 1e3);
}

static void print_parts(const struct cli *cli, const struct step_row *base,
                        const struct step_row *row) {
    cli_out(cli, "%s%s%s beside %s, ms of a step\n", cli_style(cli, "bold"), row->name,
            cli_style(cli, NULL), base->name);
    cli_out(cli, "  %-*s %*s %*s %*s\n", NAME_WIDTH, "part", COLUMN_WIDTH, base->recipe,
            COLUMN_WIDTH, row->recipe, COLUMN_WIDTH, "difference");
    for (enum timed_part p = 0; p < PART_COUNT; p++) {
        if (base->part_us[p] <= 0 && row->part_us[p] <= 0) continue;
        print_pair(cli, timed_part_name(p), base->part_us[p], row->part_us[p]);
        cli_out(cli, "\n");
    }
    print_pair(cli, BETWEEN, base->step_us - base->parts_us, row->step_us - row->parts_us);
    cli_out(cli, "\n");
    print_pair(cli, "step", base->step_us, row->step_us);
    cli_out(cli, "   %.3fx as fast\n", ratio(base->step_us, row->step_us));
}

/* The GEMMs that are not in BF16 in `row`. */
static void print_gemms(const struct cli *cli, const struct step_row *base,
                        const struct step_row *row) {
    for (int i = 0; i < row->gemm_count; i++) {
        const struct step_gemm *g = &row->gemm[i], *there = find_gemm(base, g);
        char label[LABEL_CAP];
        if (!there || !g->low_calls) continue;
        gemm_label(row, g, label);
        print_pair(cli, label, there->us, g->us);
        cli_out(cli, "   %.2fx as fast\n", ratio(there->us, g->us));
    }
}

static void print_beside(const struct cli *cli, const struct step_row *base,
                         const struct step_row *row) {
    double saved_us, low = low_us(base, row, &saved_us);
    print_parts(cli, base, row);
    if (low <= 0) {
        cli_out(cli, "  no GEMM of this row has operands of 8 or 4 bits\n");
        return;
    }
    print_gemms(cli, base, row);
    cli_out(cli, "  GEMMs with operands of 8 or 4 bits: %.1f%% of the step of %s. If each took %s "
            "of its time there, and all\n  else as long as there, a step would be %.3fx as fast\n",
            100 * low / base->step_us, base->recipe,
            strcmp(row->recipe, "fp4.nvfp4") == 0 ? "a quarter" : "half",
            step_row_limit(base, row));
    if (row->cpu)
        cli_out(cli, "  a CPU emulates FP8: these times say nothing about FP8's on a GPU\n");
}

void step_rows_print(const struct cli *cli, const struct step_row *row, int64_t count,
                     bool energy) {
    for (int64_t i = 0; i < count; i++) {
        const struct step_row *base = step_row_beside(row, count, i);
        if (base) print_beside(cli, base, &row[i]);
    }
    print_lines(cli, row, count, energy);
}

/* ---- JSON -------------------------------------------------------------------------------------*/

static json_t *gemms_json(const struct step_row *base, const struct step_row *row) {
    json_t *list = json_array();
    bool failed = false;
    for (int i = 0; i < row->gemm_count; i++) {
        const struct step_gemm *g = &row->gemm[i], *there = find_gemm(base, g);
        char label[LABEL_CAP];
        if (!there || !g->low_calls) continue;
        gemm_label(row, g, label);
        json_append(list, json_pack("{s:s,s:f,s:f}", "gemm", label, "time_us", g->us,
                                    "beside_us", there->us), &failed);
    }
    return json_whole(list, failed);
}

static json_t *beside_json(const struct step_row *base, const struct step_row *row) {
    double saved_us, low = low_us(base, row, &saved_us);
    return json_pack("{s:s,s:f,s:f,s:f,s:o}", "row", base->name, "speed",
                     ratio(base->step_us, row->step_us), "low_share", low / base->step_us,
                     "limit", step_row_limit(base, row), "gemms", gemms_json(base, row));
}

enum status step_rows_json(const struct step_row *row, int64_t count, struct json_t *list,
                           struct err *e) {
    for (int64_t i = 0; i < count; i++) {
        const struct step_row *base = step_row_beside(row, count, i);
        json_t *object = base ? beside_json(base, &row[i]) : json_null();
        if (!object || json_object_set_new(json_array_get(list, (size_t)i), "beside", object))
            return FAIL(e, ERR_MEMORY, "a comparison of rows as JSON");
    }
    return OK;
}
