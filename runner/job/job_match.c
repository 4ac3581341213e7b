#include "runner/job/job_match.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/hardware/hardware.h"
#include "runner/job/job_members.h"

/* The amount of the whole job, where `tasks` of its tasks share `amount`. */
static int64_t of_job(int64_t amount, int64_t tasks, const struct task *t) {
    return tasks > 1 ? amount * t->count / tasks : amount * t->count;
}

/* How many tasks share the GPUs that task `i` sees: only itself, or all tasks of its host. */
static int64_t sharing(const struct job_members *members, int64_t i, int64_t gpus) {
    const struct task *t = &members->task;
    if (task_sees_its_own(getenv("CUDA_VISIBLE_DEVICES"), gpus / t->count)) return 1;
    int64_t local_count = i ? members->peer[i - 1].local_count : 0;
    return local_count ? local_count : t->local_count;
}

/* A copy of a host's facts in which gpu.count is that of the job. `tasks` share the GPUs. */
static json_t *scaled(const json_t *facts, int64_t tasks, const struct task *t) {
    json_t *copy = json_copy((json_t *)facts);
    bool failed = false;
    int64_t count = json_int(facts, "gpu.count");
    json_put(copy, "gpu.count", json_integer(of_job(count, tasks, t)), &failed);
    return json_whole(copy, failed);
}

static const char *host_of(const struct job_members *members, int64_t task) {
    return json_text(json_array_get(members->hosts, (size_t)task), "host", "");
}

enum status job_places(const json_t *facts, const struct job_members *members, struct err *e) {
    bool gpu = json_int(facts, "gpu.count") > 0;
    const struct task *own = members ? &members->task : NULL;
    if (!own || !own->unset_local_index || !gpu || getenv("CUDA_VISIBLE_DEVICES")) return OK;
    for (int64_t a = 0; a < own->count; a++)
        for (int64_t b = a + 1; b < own->count; b++)
            if (!strcmp(host_of(members, a), host_of(members, b)))
                return FAIL(e, ERR_CONFIG, "tasks %" PRId64 " and %" PRId64 " are both on %s, and "
                            "would use the same GPU: %s does not set %s, the index of a task on "
                            "its host (nor CUDA_VISIBLE_DEVICES)", a, b,
                            host_of(members, a), own->launcher, own->unset_local_index);
    return OK;
}

enum status job_memory(const json_t *facts, const struct job_members *members, json_t **out,
                       struct err *e) {
    const struct task *t = members ? &members->task : NULL;
    const json_t *total = json_object_get(facts, "memory.total");
    bool failed = false, unified = json_is_true(json_object_get(facts, "memory.unified"));
    *out = json_incref((json_t *)facts);
    if (!t || t->local_count < 1 || unified || !json_is_number(total)) return OK;
    json_decref(*out);
    *out = json_copy((json_t *)facts);
    json_put(*out, "memory.total",
             json_integer(of_job(json_integer_value(total), t->local_count, t)), &failed);
    *out = json_whole(*out, failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "the memory of a job");
}

/* Adds the terms of `more` to *mismatch, with "HOST: " before each. Releases `more`. */
static enum status add_terms(json_t **mismatch, json_t *more, const char *host, struct err *e) {
    size_t i;
    json_t *term;
    bool failed = false;
    if (!*mismatch) *mismatch = json_array();
    json_array_foreach(more, i, term) {
        json_t *named = json_copy(term);
        json_put(named, "fact", json_sprintf("%s: %s", host, json_text(term, "fact", "?")),
                 &failed);
        json_append(*mismatch, json_whole(named, failed), &failed);
    }
    json_decref(more);
    return failed || !*mismatch ? FAIL(e, ERR_MEMORY, "explaining a hardware query") : OK;
}

enum status job_match(const json_t *config, const json_t *facts, const struct job_members *members,
                      json_t **mismatch, struct err *e) {
    if (!members) return hardware_match(config, facts, mismatch, e);
    int64_t gpus = json_int(json_object_get(config, "hardware"), "gpus");
    *mismatch = NULL;
    for (int64_t t = 0; t < members->task.count; t++) {
        json_t *more = NULL, *whole = scaled(t ? members->peer[t - 1].facts : facts,
                                             sharing(members, t, gpus), &members->task);
        if (!whole) return FAIL(e, ERR_MEMORY, "matching hardware");
        enum status st = hardware_match(config, whole, &more, e);
        json_decref(whole);
        TRY(st);
        if (t == 0) *mismatch = more;
        else if (more) TRY(add_terms(mismatch, more, members->peer[t - 1].host, e));
    }
    return OK;
}
