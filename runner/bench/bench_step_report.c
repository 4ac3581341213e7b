/* The output of `bench step`: the whole step, its parts with their floors, and on request every
 * operator and every shape of GEMM. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/cli.h"
#include "runner/bench/step_bench.h"
#include "runner/bench/step_work.h"
#include "runner/hardware/telemetry.h"

enum { NAME_WIDTH = 40, NAME_CAP = 256 };

/* joules: of the calls whose energy was measured, which take joules_us of `us`. */
struct sums { double us, floor_us, bytes, flop, joules, joules_us; int64_t calls; };

static double call_flop(const struct step_bench *s, const struct timed_call *c) {
    if (c->gemm >= 0) return gemm_flop(&s->record.gemm[c->gemm]);
    if (c->attention >= 0) return attention_flop(&s->record.attention[c->attention]);
    return 0;
}

static void add(struct sums *to, const struct step_bench *s, const struct timed_call *c) {
    to->us += c->time_us;
    to->floor_us += step_call_floor_us(s, c);
    to->bytes += c->bytes;
    to->flop += call_flop(s, c);
    to->joules += c->joules;
    if (c->joules > 0) to->joules_us += c->time_us;
    to->calls++;
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/* The calls three times: by part, by phase, all. */
struct totals { struct sums part[PART_COUNT], phase[PHASE_COUNT], all; };

static void total(const struct step_bench *s, struct totals *t) {
    *t = (struct totals){ .all = { 0 } };
    for (int64_t i = 0; i < s->record.call_count; i++) {
        const struct timed_call *c = &s->record.call[i];
        add(&t->part[c->part], s, c);
        add(&t->phase[c->phase], s, c);
        add(&t->all, s, c);
    }
}

/* ---- text -------------------------------------------------------------------------------------*/

static void print_sums(const struct cli *cli, const char *name, int width, const struct sums *p,
                       const struct step_bench *s) {
    double step_us = s->whole.time.median_us;
    cli_out(cli, "  %-*s %6" PRId64 " %10.3f %6.1f%% %10.3f %6.1f%%", width, name, p->calls,
            p->us / 1e3, 100 * ratio(p->us, step_us), p->floor_us / 1e3,
            100 * ratio(p->floor_us, p->us));
    if (s->energy_asked) {
        char joules[ENERGY_TEXT_CAP];
        energy_text(p->joules, joules);
        cli_out(cli, " %13s", joules);
    }
    struct flop_rate rate = flop_rate_of(ratio(p->flop, p->us) * 1e-6);
    if (p->flop > 0) cli_out(cli, " %8.1f %s", rate.value, rate.unit);
    else if (p->us > 0) cli_out(cli, " %8.1f GB/s", p->bytes / p->us * 1e-3);
    cli_out(cli, "\n");
}

static const char *direction_name(enum gemm_direction d) {
    static const char *const NAMES[] = { "fprop", "dgrad", "wgrad" };
    return NAMES[d];
}

static void gemm_name(char *out, size_t size, const struct gemm_shape *s) {
    snprintf(out, size, "%s %" PRId64 "x%" PRId64 "x%" PRId64 " %s%s%s%s",
             direction_name(s->direction), s->m, s->n, s->k, dtype_name(s->a),
             s->a == s->b ? "" : "*",
             dtype_is_fp8(s->a) && s->fast_accumulate ? " fast" : "",
             s->beta ? " beta" : s->residual ? " residual" : s->bias ? " bias" : "");
}

/* "quantise, transpose: quantise_row", or the shape of a GEMM and its part. */
static void detail_name(const struct step_bench *s, const struct timed_call *c,
                        char out[NAME_CAP]) {
    char shape[NAME_CAP / 2];
    if (c->gemm >= 0) gemm_name(shape, sizeof shape, &s->record.gemm[c->gemm]);
    snprintf(out, NAME_CAP, "%s: %s", timed_part_name(c->part), c->gemm >= 0 ? shape : c->op);
}

/* The width of the longest name. */
static int name_width(const struct step_bench *s, bool detail) {
    int width = NAME_WIDTH;
    for (int64_t i = 0; detail && i < s->record.call_count; i++) {
        char name[NAME_CAP];
        detail_name(s, &s->record.call[i], name);
        if ((int)strlen(name) > width) width = (int)strlen(name);
    }
    return width;
}

/* One line for each kind of operator, or each shape of GEMM and attention. */
static void print_detail(const struct cli *cli, const struct step_bench *s, int width) {
    const struct timed_record *r = &s->record;
    for (int64_t i = 0; i < r->call_count; i++) {
        const struct timed_call *first = &r->call[i];
        struct sums sums = { 0 };
        bool seen = false;
        for (int64_t j = 0; j < r->call_count; j++) {
            const struct timed_call *c = &r->call[j];
            bool same = c->op == first->op && c->part == first->part && c->gemm == first->gemm &&
                        c->attention == first->attention;
            if (same && j < i) seen = true;
            if (same) add(&sums, s, c);
        }
        char name[NAME_CAP];
        if (seen) continue;
        detail_name(s, first, name);
        print_sums(cli, name, width, &sums, s);
    }
}

static void print_mfu(const struct cli *cli, const struct step_bench *s) {
    double tflops = s->model_flop / s->whole.time.median_us * 1e-6;
    char basis[512];
    mfu_text(&s->mfu, basis, sizeof basis);
    struct flop_rate rate = flop_rate_of(tflops);
    cli_out(cli, "  %.1f %s of the model's arithmetic", rate.value, rate.unit);
    if (s->mfu.peak_tflops > 0)
        cli_out(cli, ", MFU %.1f%% of the peak", 100 * tflops / s->mfu.peak_tflops);
    if (s->mfu.ceiling_tflops > 0)
        cli_out(cli, ", %.1f%% of a large GEMM%s", 100 * tflops / s->mfu.ceiling_tflops,
                tflops > s->mfu.ceiling_tflops
                    ? ", during which another program was running: measure again"
                    : "");
    cli_out(cli, "\n  (%s); a copy moves %.0f GB/s\n", basis, s->copy_bytes_per_s * 1e-9);
}

static void print_energy(const struct cli *cli, const struct step_bench *s,
                         const struct sums *all) {
    if (s->energy.joules > 0)
        cli_out(cli, "  energy %.3f J per step, %.0f W on average, %.3f mJ per token; operators "
                "repeated alone: %.3f J for %.1f%% of their time\n", s->energy.joules,
                s->energy.joules / s->energy.time_us * 1e6,
                s->energy.joules / (double)s->whole.tokens * 1e3, all->joules,
                100 * ratio(all->joules_us, all->us));
    else cli_out(cli, "  energy not measured: there is no energy counter of this device\n");
}

static void print_head(const struct cli *cli, const struct step_bench *s) {
    const struct whole_steps *w = &s->whole;
    double step = w->time.median_us;
    cli_out(cli, "%s%s%s on %s (%s)\n", cli_style(cli, "bold"), s->name, cli_style(cli, NULL),
            s->device.name, s->device.architecture);
    cli_out(cli, "  step %.3f ms (best of %" PRId64 ": %.3f), %.0f tokens/s, loss %.4f\n",
            step / 1e3, w->steps, w->time.best_us / 1e3, (double)w->tokens / step * 1e6,
            (double)w->loss);
    cli_out(cli, "  %" PRId64 " tokens: %" PRId64 " micro-step%s of %" PRId64 " x %" PRId64,
            w->tokens, s->micro_steps, s->micro_steps == 1 ? "" : "s", s->micro_batch, s->seq_len);
    if (s->micro_steps < s->micro_steps_asked)
        cli_out(cli, " (the experiment has %" PRId64 " of them)", s->micro_steps_asked);
    cli_out(cli, "\n");
    print_mfu(cli, s);
    if (w->clock_mhz > 0) {
        char reasons[192];
        throttle_text(w->throttle, reasons, sizeof reasons);
        cli_out(cli, "  meanwhile SM at %.0f MHz, up to %.0f W%s%s\n", w->clock_mhz, w->power_w,
                *reasons ? ", clocks limited by: " : "", reasons);
    }
}

/* The parts, their sum, and the same sum by phase. */
static void print_totals(const struct cli *cli, const struct step_bench *s, const struct totals *t,
                         int width) {
    double step = s->whole.time.median_us;
    cli_out(cli, "  %-*s %6s %10s %7s %10s %7s%s\n", width, "part", "calls", "ms", "of step",
            "floor ms", "reached", s->energy_asked ? "             J" : "");
    for (enum timed_part i = 0; i < PART_COUNT; i++)
        if (t->part[i].calls) print_sums(cli, timed_part_name(i), width, &t->part[i], s);
    print_sums(cli, "all parts, one operator at a time", width, &t->all, s);
    for (enum timed_phase i = 0; i < PHASE_COUNT; i++) {
        char name[64];
        snprintf(name, sizeof name, "  %s", timed_phase_name(i));
        print_sums(cli, name, width, &t->phase[i], s);
    }
    cli_out(cli, "  %-*s %6s %10.3f %6.1f%%\n", width, "step less all parts", "",
            (step - t->all.us) / 1e3, 100 * ratio(step - t->all.us, step));
    cli_out(cli, "  floor %.3f ms: the step reaches %.1f%% of it\n", t->all.floor_us / 1e3,
            100 * ratio(t->all.floor_us, step));
}

void step_bench_print(const struct cli *cli, const struct step_bench *s, bool detail) {
    struct totals t;
    total(s, &t);
    int width = name_width(s, detail);
    print_head(cli, s);
    if (s->energy_asked) print_energy(cli, s, &t.all);
    print_totals(cli, s, &t, width);
    if (detail) print_detail(cli, s, width);
    if (s->changes_asked) gemm_changes_print(cli, &s->changes);
}

/* ---- JSON -------------------------------------------------------------------------------------*/

static json_t *sums_json(const char *kind, const char *name, const struct sums *p) {
    return json_pack("{s:s,s:I,s:f,s:f,s:f,s:f,s:o}", kind, name, "calls", (json_int_t)p->calls,
                     "time_us", p->us, "floor_us", p->floor_us, "bytes", p->bytes, "flop", p->flop,
                     "energy_j", energy_json(p->joules));
}

static json_t *gemm_json(const struct step_bench *s, int index) {
    const struct gemm_shape *g = &s->record.gemm[index];
    struct sums sums = { 0 };
    for (int64_t i = 0; i < s->record.call_count; i++)
        if (s->record.call[i].gemm == index) add(&sums, s, &s->record.call[i]);
    return json_pack("{s:s,s:I,s:I,s:I,s:s,s:s,s:s,s:b,s:b,s:b,s:b,s:I,s:f,s:f,s:o}", "direction",
                     direction_name(g->direction), "m", (json_int_t)g->m, "n", (json_int_t)g->n,
                     "k", (json_int_t)g->k, "a", dtype_name(g->a), "b", dtype_name(g->b), "out",
                     dtype_name(g->out), "fast", g->fast_accumulate, "beta", g->beta, "bias",
                     g->bias, "residual", g->residual, "calls", (json_int_t)sums.calls, "time_us",
                     sums.us, "ceiling_us", s->gemm[index].best_us, "energy_j",
                     energy_json(sums.joules));
}

/* Every operator with its shape; NULL: no memory. */
static json_t *operators_json(const struct step_bench *s) {
    struct step_works works = { 0 };
    struct err e;
    json_t *list = step_works_add(&works, &s->record, 1, &e) == OK ? step_works_json(&works) : NULL;
    step_works_free(&works);
    return list;
}

json_t *step_bench_json(const struct step_bench *s) {
    struct totals t;
    total(s, &t);
    json_t *parts = json_array(), *phases = json_array(), *gemms = json_array();
    bool failed = false;
    for (enum timed_part i = 0; i < PART_COUNT; i++)
        if (t.part[i].calls)
            json_append(parts, sums_json("part", timed_part_name(i), &t.part[i]), &failed);
    for (enum timed_phase i = 0; i < PHASE_COUNT; i++)
        json_append(phases, sums_json("phase", timed_phase_name(i), &t.phase[i]), &failed);
    for (int i = 0; i < s->record.gemm_count; i++) json_append(gemms, gemm_json(s, i), &failed);
    const struct whole_steps *w = &s->whole;
    json_t *object = json_pack(
        "{s:s,s:s,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:I,s:f,s:f,s:I,s:o,s:o,s:o,s:o,"
        "s:o,s:o}",
        "name", s->name, "recipe", s->recipe, "tokens", (json_int_t)w->tokens, "steps",
        (json_int_t)w->steps, "loss", (double)w->loss,
        "step_us_median", w->time.median_us, "step_us_best", w->time.best_us, "tokens_per_s",
        (double)w->tokens / w->time.median_us * 1e6, "model_flop", s->model_flop, "parts_us",
        t.all.us, "floor_us", t.all.floor_us, "copy_bytes_per_s", s->copy_bytes_per_s,
        "peak_tflops", s->mfu.peak_tflops, "gemm_tflops", s->mfu.ceiling_tflops, "memory_bytes",
        (json_int_t)s->memory_bytes, "clock_sm_mhz", w->clock_mhz, "power_w", w->power_w,
        "throttle", (json_int_t)w->throttle, "energy_j", energy_json(s->energy.joules),
        "parts", parts, "phases", phases, "gemms", gemms, "operators", operators_json(s), "changes",
        s->changes_asked ? gemm_changes_json(&s->changes) : json_null());
    return json_whole(object, failed);
}
