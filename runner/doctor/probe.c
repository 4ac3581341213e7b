#include "runner/doctor/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/base/self_ask.h"
#include "runner/bench/bench_ceilings.h"
#include "runner/doctor/audit_check.h"
#include "runner/doctor/recipe_check.h"
#include "runner/plan/backends.h"

enum { SECONDS_MAX = 60 };

/* ---- the child --------------------------------------------------------------------------------*/

static json_t *libraries_json(struct backend *b) {
    json_t *list = json_array();
    struct library l;
    bool failed = false;
    for (int64_t i = 0; b->ops->library(b, i, &l); i++)
        json_append(list, json_pack("{s:s,s:s?,s:s?,s:s?}", "name", l.name, "version",
                                    *l.version ? l.version : NULL, "path", *l.path ? l.path : NULL,
                                    "problem", *l.problem ? l.problem : NULL), &failed);
    return json_whole(list, failed);
}

static json_t *rate_json(double tflops) { return tflops > 0 ? json_real(tflops) : json_null(); }

static enum status ceilings_json(struct backend *b, json_t **out, struct err *e) {
    double bf16 = 0, fp8 = 0;
    TRY(ceiling_large_gemm(b, DTYPE_BF16, &bf16, e));
    TRY(ceiling_large_gemm(b, DTYPE_E4M3, &fp8, e));
    *out = json_pack("{s:o,s:o}", "bf16_tflops", rate_json(bf16), "fp8_tflops", rate_json(fp8));
    return *out ? OK : FAIL(e, ERR_MEMORY, "the answer of a probe");
}

/* Each recipe gets its own backend: choices or failures of one do not affect the next. */
static json_t *checks_json(const struct probe_options *o) {
    json_t *list = json_array();
    bool failed = false;
    for (int kind = RECIPE_CHECK_FIRST; kind <= RECIPE_CHECK_LAST; kind++) {
        struct recipe_check check;
        recipe_check_run((enum recipe_kind)kind, o->backend, o->device, o->caps, &check);
        json_append(list, recipe_check_json(&check), &failed);
    }
    return json_whole(list, failed);
}

static enum status answer_of(struct backend *b, const struct probe_options *o, json_t **out,
                             struct err *e) {
    struct device_info info;
    json_t *ceilings = NULL;
    TRY(b->ops->info(b, &info, e));
    if (o->ceilings) TRY(ceilings_json(b, &ceilings, e));
    *out = json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:o,s:o?}", "schema", "fp8lab.probe/1", "backend",
                     b->ops->name, "device", info.name, "architecture", info.architecture,
                     "memory_bytes", (json_int_t)info.memory_bytes, "memory_free",
                     (json_int_t)info.memory_free, "libraries", libraries_json(b), "ceilings",
                     ceilings);
    return *out ? OK : FAIL(e, ERR_MEMORY, "the answer of a probe");
}

enum status probe_answer(const struct probe_options *o, json_t **out, struct err *e) {
    struct backend_handle h = { 0 };
    bool failed = false;
    *out = NULL;
    TRY(backend_open(o->backend, 0, o->device, &h, e));
    enum status st = answer_of(h.backend, o, out, e);
    backend_close(&h);
    TRY(st);
    json_put(*out, "checks", o->checks ? checks_json(o) : json_null(), &failed);
    json_t *audit = NULL;
    if (o->audit_seconds)
        st = audit_check_run(o->backend, o->device, o->audit_seconds, &audit, e);
    json_put(*out, "audit", audit ? audit : json_null(), &failed);
    *out = json_whole(*out, failed);
    if (st != OK) {
        json_decref(*out);
        *out = NULL;
        return st;
    }
    return *out ? OK : FAIL(e, ERR_MEMORY, "the answer of a probe");
}

/* ---- the parent -------------------------------------------------------------------------------*/

enum status probe_ask(const struct probe_options *o, int64_t seconds, json_t **out,
                      struct err *e) {
    char device[24], audit[24];
    const char *args[16] = { "probe", "--json", "--backend", o->backend, "--device", device };
    int n = 6;
    bool crashed;
    snprintf(device, sizeof device, "%" PRId64, o->device);
    snprintf(audit, sizeof audit, "%" PRId64, o->audit_seconds);
    if (o->audit_seconds) args[n++] = "--audit";
    if (o->audit_seconds) args[n++] = audit;
    if (o->ceilings) args[n++] = "--ceilings";
    if (o->checks) args[n++] = "--checks";
    if (o->caps) args[n++] = "--caps";
    if (o->caps) args[n++] = o->caps;
    const struct self_ask ask = { .args = args, .schema = "fp8lab.probe/1", .seconds = seconds };
    return self_ask(&ask, out, &crashed, e);
}

enum status probe_opens(const char *backend, struct err *e) {
    const char *const args[] = { "probe", "--json", "--backend", backend, NULL };
    const struct self_ask ask = { .args = args, .schema = "fp8lab.probe/1",
                                  .seconds = SECONDS_MAX, .tells_hardware = true };
    struct err why;
    json_t *answer = NULL;
    bool crashed;
    enum status st = self_ask(&ask, &answer, &crashed, &why);
    json_decref(answer);
    return st == ERR_HARDWARE ? FAIL(e, st, "%s", why.text) : OK;
}

/* ---- facts ------------------------------------------------------------------------------------*/

static void put_known(json_t *facts, const char *name, json_t *value, bool *failed) {
    if (value && !json_is_null(value)) json_put(facts, name, json_incref(value), failed);
}

enum status probe_put_facts(const json_t *answer, json_t *facts, struct err *e) {
    static const struct { const char *library, *fact; } NAMES[] = {
        { "cuda.runtime", "cuda.runtime" }, { "cublaslt", "cublaslt.version" },
        { "cudnn", "cudnn.version" }, { "nccl", "nccl.version" },
    };
    bool failed = false;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(answer, "libraries"), i, row)
        for (size_t k = 0; k < sizeof NAMES / sizeof *NAMES; k++)
            if (!strcmp(json_text(row, "name", ""), NAMES[k].library))
                put_known(facts, NAMES[k].fact, json_object_get(row, "version"), &failed);
    const json_t *ceilings = json_object_get(answer, "ceilings");
    put_known(facts, "gpu.gemm_bf16_tflops", json_object_get(ceilings, "bf16_tflops"), &failed);
    put_known(facts, "gpu.gemm_fp8_tflops", json_object_get(ceilings, "fp8_tflops"), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "hardware facts") : OK;
}

enum status probe_facts(json_t *facts, bool measure, char *problem, size_t problem_size,
                        struct err *e) {
    struct err why;
    json_t *answer = NULL;
    *problem = '\0';
    bool gpu = json_integer_value(json_object_get(facts, "gpu.count")) > 0;
    if (!gpu || backend_check("cuda", &why) != OK) return OK;
    const struct probe_options o = { .backend = "cuda", .ceilings = measure };
    if (probe_ask(&o, SECONDS_MAX, &answer, &why) != OK) {
        snprintf(problem, problem_size, "%s", why.text);
        return OK;
    }
    enum status st = probe_put_facts(answer, facts, e);
    json_decref(answer);
    return st;
}
