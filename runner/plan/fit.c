#include "runner/plan/fit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "runner/base/run_files.h"
#include "runner/hardware/facts.h"
#include "runner/plan/keep.h"
#include "runner/plan/options.h"
#include "runner/plan/recipe_table.h"
#include "runner/plan/saving.h"

/* Unused reserve of a memory that CPU and GPU share: using all of it hangs the host. */
static const int64_t UNIFIED_RESERVE = INT64_C(8) << 30;

static int64_t fact_bytes(const json_t *facts, const char *name) {
    return (int64_t)json_number_value(json_object_get(facts, name));
}

/* True if each rank has its own memory. Memory of a host that its GPU shares is never asked of the
 * driver: NVML does not answer there, and CUDA's "free" leaves out what the page cache would give
 * back. MemAvailable counts it. */
static bool find_memory(const json_t *facts, const char *backend, struct fit *out) {
    bool gpu = facts_have_gpu(facts);
    if (strcmp(backend, "auto") != 0) gpu = !strcmp(backend, "cuda");
    out->where = gpu ? "gpu.memory" : "memory.total";
    out->memory = fact_bytes(facts, out->where);
    if (!gpu || !json_is_true(json_object_get(facts, "memory.unified"))) return gpu;
    out->one_memory = true;
    int64_t available = fact_bytes(facts, "memory.available");
    out->where = available ? "memory.available less 8 GiB for the system"
                           : "memory.total less 8 GiB for the system";
    int64_t all = available ? available : fact_bytes(facts, "memory.total");
    out->memory = all > UNIFIED_RESERVE ? all - UNIFIED_RESERVE : all > 0 ? 1 : 0;
    return gpu;
}

void fit_refusal(const char *row, const struct fit *fit, char text[FIT_TEXT_CAP]) {
    char ranks[32] = "";
    if (fit->shared) snprintf(ranks, sizeof ranks, " for %d ranks", fit->ranks);
    snprintf(text, FIT_TEXT_CAP, "%.128s needs %.1f GiB%s, %s is %.1f GiB%s%s", row,
             (double)fit->wanted / 0x1p30, ranks, fit->where, (double)fit->memory / 0x1p30,
             *fit->less_memory ? "; less memory:" : "", fit->less_memory);
}

/* The arenas of a rank and, on a GPU of compute capability `cc` (0: no GPU), the memory beside
 * them. */
static enum status plan_rank(struct plan *out, const struct run_options *run,
                             const struct train_options *train, int ranks, int cc,
                             struct err *e) {
    struct train_options mine = *train;
    mine.untransposed = device_twins_untransposed(cc, SCALE_1X32);
    TRY(trainer_plan(out, &run->model, &run->recipe, &mine, ranks, e));
    return cc ? plan_add_gpu(out, &run->model, &run->recipe, train, ranks, cc, e) : OK;
}

/* An unknown device counts as Hopper, which has the most modes. */
static int capability_of(const json_t *facts) {
    int cc = facts_capability(facts);
    return cc ? cc : 90;
}

/* Layers that fall back on this device run in BF16 (model/fallback.h). A CPU (0) emulates. */
static void fall_back(struct recipe *r, int cc, const json_t *facts) {
    const char *cublaslt = json_text(facts, "cublaslt.version", NULL);
    for (int64_t i = 0; i <= r->layers * GEMM_SITE_COUNT && cc; i++) {
        struct recipe_options *o = i ? &r->site[i - 1] : &r->head;
        if (o->fall_back && recipe_on(o->kind, cc, cublaslt).way == WAY_EMULATED)
            o->kind = RECIPE_BF16;
    }
}

/* The bytes of a rank for each value of train.shard. */
static enum status plan_shards(const struct run_options *run, int cc, struct fit *out,
                               struct err *e) {
    struct train_options train = run->train;
    for (int k = SHARD_NONE; out->ranks > 1 && k <= SHARD_PARAMETERS; k++) {
        struct plan plan;
        train.shard = (enum shard_kind)k;
        enum status st = plan_rank(&plan, run, &train, out->ranks, cc, e);
        out->sharded[k] = plan.bytes + plan.gpu_bytes;
        plan_free(&plan);
        TRY(st);
    }
    return OK;
}

/* The locked host memory of GPU ranks must fit into the host's memory. */
static void check_host(const json_t *facts, struct fit *out) {
    int64_t host = fact_bytes(facts, "memory.total"), all = out->plan.pinned_bytes * out->ranks;
    if (host == 0 || all <= host) return;
    out->fits = false;
    out->where = "memory.total (for offloaded state)";
    out->memory = host;
    out->wanted = all;
    out->shared = out->ranks > 1;
}

/* The rank's copy of a checkpoint while it is written. It is in pinned memory of a GPU's host; a
 * host that cannot pin as much writes without a copy, so it decides nothing there. */
static enum status plan_copy(const json_t *config, const struct run_options *run, bool on_gpu,
                             struct fit *out, struct err *e) {
    struct plan *p = &out->plan;
    struct keep keep;
    if (!run->checkpoint.given || !run->checkpoint.background) return OK;
    TRY(keep_plan(config, false, &keep, e));
    struct plan_row *rows = realloc(p->row, (size_t)(p->row_count + 1) * sizeof *rows);
    if (!rows) return FAIL(e, ERR_MEMORY, "no host memory for the plan");
    p->row = rows;
    int64_t bytes = ceil_div(keep.bytes, out->ranks);
    p->row[p->row_count++] = (struct plan_row){ "checkpoint, on the host",
                                                "copy while it is written", bytes, 1 };
    if (!on_gpu) p->pinned_bytes += bytes;
    if (!on_gpu) out->copy = bytes;
    return OK;
}

static const char NO_COPY[] = " --set checkpoint.background=false";

/* Whether it fits if steps wait for checkpoints to be written, without a copy. */
static bool fits_without_copy(const struct fit *fit) {
    return fit->copy > 0 && fit->wanted - fit->copy * (fit->shared ? fit->ranks : 1) <= fit->memory;
}

/* Whether a rank's options fit: the plan, the bytes and the verdict in `out`, whose memory is
 * known. */
static enum status judge(const json_t *config, const json_t *facts, const struct run_options *run,
                         const struct train_options *train, bool on_gpu, struct fit *out,
                         struct err *e) {
    int cc = on_gpu ? capability_of(facts) : 0;
    TRY(plan_rank(&out->plan, run, train, out->ranks, cc, e));
    TRY(plan_copy(config, run, on_gpu, out, e));
    out->bytes = out->plan.bytes + out->plan.gpu_bytes;
    if (!on_gpu || out->one_memory) out->bytes += out->plan.pinned_bytes;
    out->shared = !on_gpu && out->ranks > 1;
    out->wanted = out->bytes * (out->shared ? out->ranks : 1);
    out->fits = out->memory == 0 || out->wanted <= out->memory;
    if (on_gpu && out->fits && !out->one_memory) check_host(facts, out);
    return OK;
}

static struct saving_run saving_run_of(const struct run_options *run, const struct fit *fit) {
    return (struct saving_run){ .layers = run->model.layers, .ranks = fit->ranks,
                                .codes = saving_has_codes(&run->recipe, run->model.tied),
                                .one_memory = fit->one_memory };
}

enum status fit_plan(const json_t *config, const json_t *facts, const char *backend, int ranks,
                     struct fit *out, struct err *e) {
    struct run_options run;
    *out = (struct fit){ .note = "" };
    TRY(options_read(config, &run, e));
    out->ranks = ranks ? ranks : (int)run.gpus;
    bool on_gpu = find_memory(facts, backend, out);
    fall_back(&run.recipe, on_gpu ? capability_of(facts) : 0, facts);
    enum status st = judge(config, facts, &run, &run.train, on_gpu, out, e);
    if (st == OK) st = plan_shards(&run, on_gpu ? capability_of(facts) : 0, out, e);
    if (st == OK) {
        out->parameters = model_parameter_count(&run.model); /* of sizes that plan_rank checked */
        const struct saving_run saving = saving_run_of(&run, out);
        if (!out->fits)
            fit_less_memory(&run.train, &saving, out->less_memory, sizeof out->less_memory);
        if (!out->fits && out->copy > 0)
            snprintf(out->less_memory + strlen(out->less_memory),
                     sizeof out->less_memory - strlen(out->less_memory), "%s", NO_COPY);
        if (out->one_memory && out->plan.pinned_bytes > 0)
            out->note = "train.optimizer.offload frees nothing here: CPU and GPU share one memory";
    }
    options_free(&run);
    return st;
}

/* Plans with the settings of `chosen`, those with layers in `layers` of them (0: in all). A setting
 * that changes nothing, or that these options do not allow, is no way to fit. */
static enum status try_savings(const json_t *config, const json_t *facts,
                               const struct run_options *run, unsigned chosen, int64_t layers,
                               bool on_gpu, const struct fit *whole, bool *fits, struct err *e) {
    struct train_options train = run->train;
    struct fit one = { .note = "", .where = whole->where, .memory = whole->memory,
                       .ranks = whole->ranks, .one_memory = whole->one_memory };
    const struct saving_run saving = saving_run_of(run, whole);
    struct err why;
    *fits = false;
    for (int i = 0; i < SAVINGS; i++)
        if (chosen >> i & 1 && !saving_apply(i, &train, &saving)) return OK;
    if (layers) train.recompute_layers = layers;
    enum status st = judge(config, facts, run, &train, on_gpu, &one, &why);
    *fits = st == OK && one.fits;
    fit_free(&one);
    return st == ERR_MEMORY ? FAIL(e, ERR_MEMORY, "%s", why.text) : OK;
}

static int count_bits(unsigned set) {
    int n = 0;
    for (; set; set &= set - 1) n++;
    return n;
}

/* Settings that change no computed number come first, then the fewest settings. */
static enum status find_savings(const json_t *config, const json_t *facts,
                                const struct run_options *run, bool on_gpu,
                                const struct fit *whole, unsigned *found, struct err *e) {
    unsigned exact = 0;
    for (int i = 0; i < SAVINGS; i++) exact |= (unsigned)saving_is_exact(i) << i;
    for (int pass = 0; pass < 2; pass++)
        for (int size = 1; size <= SAVINGS; size++)
            for (unsigned set = 1; set < 1u << SAVINGS; set++) {
                bool only_exact = !(set & ~exact), fits;
                if (count_bits(set) != size || only_exact != (pass == 0)) continue;
                TRY(try_savings(config, facts, run, set, 0, on_gpu, whole, &fits, e));
                if (!fits) continue;
                *found = set;
                return OK;
            }
    return OK;
}

static bool has_layers(unsigned set) {
    for (int i = 0; i < SAVINGS; i++)
        if (set >> i & 1 && saving_has_layers(i)) return true;
    return false;
}

/* In how many layers the settings of `set`, which fit in all of them, are needed: fewer compute
 * less twice. More layers never take more memory. A fiftieth of it stays free: a plan that fits to
 * the brim fails if anything else uses the memory. 0: in all, or in over seven eighths of them,
 * where a limit is not worth its line. */
static enum status fewest_layers(const json_t *config, const json_t *facts,
                                 const struct run_options *run, unsigned set, bool on_gpu,
                                 const struct fit *whole, int64_t *layers, struct err *e) {
    int64_t low = 1, high = run->model.layers;
    struct fit roomy = *whole;
    roomy.memory -= roomy.memory / 50;
    *layers = 0;
    if (!has_layers(set)) return OK;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        bool fits;
        TRY(try_savings(config, facts, run, set, middle, on_gpu, &roomy, &fits, e));
        if (fits) high = middle;
        else low = middle + 1;
    }
    bool spares = high <= run->model.layers - ceil_div(run->model.layers, 8);
    if (spares) *layers = high;
    else if (run->train.recompute_layers) *layers = run->model.layers;
    return OK;
}

/* Adds a cheap setting to `found` if it spares an eighth of the layers. */
static enum status spare_layers(const json_t *config, const json_t *facts,
                                const struct run_options *run, bool on_gpu,
                                const struct fit *whole, unsigned *found, int64_t *layers,
                                struct err *e) {
    int64_t all = run->model.layers, now = *layers ? *layers : all;
    for (int i = 0; i < SAVINGS && has_layers(*found); i++) {
        unsigned more = *found | 1u << i;
        int64_t fewer;
        if (!saving_is_cheap(i) || more == *found) continue;
        TRY(fewest_layers(config, facts, run, more, on_gpu, whole, &fewer, e));
        if (fewer == 0 || fewer > now - ceil_div(all, 8)) continue;
        *found = more;
        *layers = now = fewer;
    }
    return OK;
}

enum status fit_find(const json_t *config, const json_t *facts, const char *backend,
                     struct fit *fit, struct err *e) {
    struct run_options run;
    struct fit memory = *fit;
    unsigned found = 0;
    int64_t layers = 0;
    *fit->fits_with = '\0';
    if (fit->fits) return OK;
    if (fits_without_copy(fit)) {
        snprintf(fit->fits_with, sizeof fit->fits_with, "%s", NO_COPY);
        return OK;
    }
    TRY(options_read(config, &run, e));
    bool on_gpu = find_memory(facts, backend, &memory); /* `fit` may name the host's instead */
    fall_back(&run.recipe, on_gpu ? capability_of(facts) : 0, facts);
    enum status st = find_savings(config, facts, &run, on_gpu, &memory, &found, e);
    if (st == OK) st = fewest_layers(config, facts, &run, found, on_gpu, &memory, &layers, e);
    if (st == OK) st = spare_layers(config, facts, &run, on_gpu, &memory, &found, &layers, e);
    for (int i = 0; i < SAVINGS; i++)
        if (found >> i & 1) saving_add(i, layers, fit->fits_with, sizeof fit->fits_with);
    options_free(&run);
    return st;
}

void fit_free(struct fit *fit) { plan_free(&fit->plan); }
