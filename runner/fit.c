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

/* True where each rank has a memory of its own. */
static bool find_memory(const json_t *facts, const char *backend, struct fit *out) {
    bool gpu = json_integer_value(json_object_get(facts, "gpu.count")) > 0;
    if (strcmp(backend, "auto") != 0) gpu = !strcmp(backend, "cuda");
    out->where = gpu ? "gpu.memory" : "memory.total";
    out->memory = fact_bytes(facts, out->where);
    if (!gpu || !json_is_true(json_object_get(facts, "memory.unified"))) return gpu;
    int64_t available = fact_bytes(facts, "memory.available");
    out->where = available ? "memory.available less 8 GiB for the system"
                           : "memory.total less 8 GiB for the system";
    int64_t all = available ? available : fact_bytes(facts, "memory.total");
    out->memory = all > UNIFIED_RESERVE ? all - UNIFIED_RESERVE : all > 0 ? 1 : 0;
    return gpu;
}

/* Only what is not chosen already. */
static void find_way_out(const struct train_options *t, struct fit *out) {
    size_t size = sizeof out->way_out;
    char *text = out->way_out;
    bool shards = out->ranks > 1 && t->shard != SHARD_PARAMETERS;
    snprintf(text, size, "%s%s%s%s%s", shards ? " --set train.shard=parameters" : "",
             t->micro_batch > 1 ? " --set train.micro_batch=1" : "",
             t->recompute != RECOMPUTE_BLOCK ? " --set train.recompute=block" : "",
             t->optimizer.state != STATE_8BIT ? " --set train.optimizer.state=8bit" : "",
             t->optimizer.master ? " --set train.optimizer.master=none" : "");
}

/* What a rank would hold with each way of sharding. */
static enum status plan_shards(const struct run_options *run, struct fit *out, struct err *e) {
    struct train_options train = run->train;
    for (int k = SHARD_NONE; out->ranks > 1 && k <= SHARD_PARAMETERS; k++) {
        struct plan plan;
        train.shard = (enum shard_kind)k;
        TRY(trainer_plan(&plan, &run->model, &run->recipe, &train, out->ranks, e));
        out->sharded[k] = plan.bytes;
        plan_free(&plan);
    }
    return OK;
}

enum status fit_plan(const json_t *config, const json_t *facts, const char *backend, int ranks,
                     struct fit *out, struct err *e) {
    struct run_options run;
    *out = (struct fit){ 0 };
    TRY(options_read(config, &run, e));
    out->ranks = ranks ? ranks : (int)run.gpus;
    enum status st = trainer_plan(&out->plan, &run.model, &run.recipe, &run.train, out->ranks, e);
    if (st == OK) st = plan_shards(&run, out, e);
    if (st == OK) {
        int64_t each = find_memory(facts, backend, out) ? 1 : out->ranks;
        out->fits = out->memory == 0 || out->plan.bytes * each <= out->memory;
        if (!out->fits) find_way_out(&run.train, out);
    }
    options_free(&run);
    return st;
}

void fit_free(struct fit *fit) { plan_free(&fit->plan); }
