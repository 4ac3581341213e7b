#include "runner/fit.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "runner/options.h"

/* Where CPU and GPU share one memory, taking the last of it hangs the host: this much stays. */
static const int64_t UNIFIED_RESERVE = INT64_C(8) << 30;

static int64_t fact_bytes(const json_t *facts, const char *name) {
    return (int64_t)json_number_value(json_object_get(facts, name));
}

static void find_memory(const json_t *facts, const char *backend, struct fit *out) {
    bool gpu = json_integer_value(json_object_get(facts, "gpu.count")) > 0;
    if (strcmp(backend, "auto") != 0) gpu = !strcmp(backend, "cuda");
    out->where = gpu ? "gpu.memory" : "memory.total";
    out->memory = fact_bytes(facts, out->where);
    if (!gpu || !json_is_true(json_object_get(facts, "memory.unified"))) return;
    int64_t available = fact_bytes(facts, "memory.available");
    out->where = available ? "memory.available less 8 GiB for the system"
                           : "memory.total less 8 GiB for the system";
    int64_t all = available ? available : fact_bytes(facts, "memory.total");
    out->memory = all > UNIFIED_RESERVE ? all - UNIFIED_RESERVE : all > 0 ? 1 : 0;
}

/* Only what is not chosen already. */
static void find_way_out(const struct train_options *t, struct fit *out) {
    size_t size = sizeof out->way_out;
    char *text = out->way_out;
    snprintf(text, size, "%s%s%s%s", t->micro_batch > 1 ? " --set train.micro_batch=1" : "",
             t->recompute != RECOMPUTE_BLOCK ? " --set train.recompute=block" : "",
             t->optimizer.state != STATE_8BIT ? " --set train.optimizer.state=8bit" : "",
             t->optimizer.master ? " --set train.optimizer.master=none" : "");
}

enum status fit_plan(const json_t *config, const json_t *facts, const char *backend,
                     struct fit *out, struct err *e) {
    struct run_options run;
    *out = (struct fit){ 0 };
    TRY(options_read(config, &run, e));
    enum status st = trainer_plan(&out->plan, &run.model, &run.recipe, &run.train, 1, e);
    if (st == OK) {
        find_memory(facts, backend, out);
        out->fits = out->memory == 0 || out->plan.bytes <= out->memory;
        if (!out->fits) find_way_out(&run.train, out);
    }
    options_free(&run);
    return st;
}

void fit_free(struct fit *fit) { plan_free(&fit->plan); }
