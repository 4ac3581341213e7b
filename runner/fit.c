#include "runner/fit.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "runner/options.h"

static void find_memory(const json_t *facts, const char *backend, struct fit *out) {
    bool gpu = json_integer_value(json_object_get(facts, "gpu.count")) > 0;
    if (strcmp(backend, "auto") != 0) gpu = !strcmp(backend, "cuda");
    out->where = gpu ? "gpu.memory" : "memory.total";
    out->memory = (int64_t)json_number_value(json_object_get(facts, out->where));
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
