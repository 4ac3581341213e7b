#include "runner/record/environment.h"

#include <fnmatch.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/script/schema_env.h"

/* What a worker may need from the user's environment, beside the site's NCCL settings. No name that
 * may hold a secret matches. CUDA images find their libraries by LD_LIBRARY_PATH. */
static const char *const ALLOWED[] = {
    "PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
    "SLURM_JOB_ID", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID",
    "ASAN_OPTIONS", "UBSAN_OPTIONS",
};

/* By these nsys and ncu load themselves into a program and the processes that it starts. */
static const char *const OF_PROFILERS[] = {
    "LD_PRELOAD", "*_INJECTION64_PATH", "QUADD_*", "NSYS_*", "NV_NSIGHT_*", "NV_COMPUTE_*",
    "NV_TPS_*",
};

static bool is_listed(const char *name, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (fnmatch(list[i], name, 0) == 0) return true;
    return false;
}

/* NCCL variables are allowed if an experiment may set them. Other variables of that list
 * (NVIDIA_TF32_OVERRIDE, CUBLAS_WORKSPACE_CONFIG) may change bits, so only an experiment sets them,
 * and its hash covers them. */
static bool is_allowed(const char *name, bool profile) {
    if (!strncmp(name, "NCCL_", 5)) return env_is_allowed(name);
    if (is_listed(name, ALLOWED, sizeof ALLOWED / sizeof *ALLOWED)) return true;
    return profile && is_listed(name, OF_PROFILERS, sizeof OF_PROFILERS / sizeof *OF_PROFILERS);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_utf8(const char *text) {
    return utf8_valid_prefix(text, strlen(text)) == strlen(text);
}

/* Sorts this process's variables into kept and withheld. */
static bool sort_own(bool profile, json_t *kept, json_t *withheld) {
    char **names = NULL;
    size_t count = 0, withheld_count = 0;
    while (environ[count]) count++;
    names = calloc(count + 1, sizeof *names);
    bool good = names != NULL;
    for (size_t i = 0; i < count && good; i++) {
        char *name = strndup(environ[i], strcspn(environ[i], "="));
        const char *value = strchr(environ[i], '=');
        good = name != NULL;
        /* A value that is not UTF-8 cannot be recorded, so it is withheld. */
        if (good && is_allowed(name, profile) && value && is_utf8(value + 1)) {
            good = json_object_set_new(kept, name, json_string(value + 1)) == 0;
            free(name);
        } else if (good) {
            names[withheld_count++] = name;
        }
    }
    if (names) qsort(names, withheld_count, sizeof *names, by_name);
    bool failed = false;
    for (size_t i = 0; i < withheld_count; i++) {
        json_append(withheld, json_from_text(names[i]), &failed);
        free(names[i]);
    }
    free(names);
    return good && !failed;
}

/* The experiment's variables; numbers as the script wrote them. */
static bool add_experiment(json_t *kept, const json_t *env) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)env, name, value) {
        char *text = json_is_string(value) ? strdup(json_string_value(value))
                                           : json_dump_text(value, JSON_ENCODE_ANY);
        bool good = text && json_object_set_new(kept, name, json_string(text)) == 0;
        free(text);
        if (!good) return false;
    }
    return true;
}

/* The price of both extremes: kernels/cpu/LOG.md, "Waiting threads". */
const char *const *environment_waiting(void) {
    static const char *const WAITING[] = {
        "GOMP_SPINCOUNT", "1000", "OMP_WAIT_POLICY", "passive", NULL
    };
    return WAITING;
}

static bool add_default(json_t *kept, json_t *defaults, const char *name, const char *value) {
    if (json_object_get(kept, name)) return true;
    return json_object_set_new(kept, name, json_string(value)) == 0 &&
           json_array_append_new(defaults, json_string(name)) == 0;
}

/* Defaults of variables that nobody has set. NCCL does not use NVLink multicast, whose fabric is
 * not always in order on shared hosts. It must be set here: a worker has several threads when NCCL
 * reads it. */
static bool add_defaults(json_t *kept, json_t *defaults) {
    const char *const *waiting = environment_waiting();
    bool asked = json_object_get(kept, "OMP_WAIT_POLICY") != NULL;
    for (int i = 0; !asked && waiting[i]; i += 2)
        if (!add_default(kept, defaults, waiting[i], waiting[i + 1])) return false;
    return add_default(kept, defaults, "NCCL_NVLS_ENABLE", "0");
}

static bool to_vector(const json_t *kept, char ***out) {
    char **vars = calloc(json_object_size(kept) + 1, sizeof *vars);
    *out = vars;
    if (!vars) return false;
    const char *name;
    json_t *value;
    size_t n = 0;
    json_object_foreach((json_t *)kept, name, value) {
        size_t size = strlen(name) + json_string_length(value) + 2;
        vars[n] = malloc(size);
        if (!vars[n]) return false;
        strcpy(vars[n], name);
        strcat(vars[n], "=");
        strcat(vars[n++], json_string_value(value));
    }
    qsort(vars, n, sizeof *vars, by_name);
    return true;
}

/* "GPU-5b3c8f2a-...,1" becomes "GPU-...,1": a UUID is the serial number of a device, and rows side
 * by side (run/side_by_side.h) have one each. New reference. */
static json_t *without_uuids(const char *list) {
    char *out = malloc(2 * strlen(list) + sizeof "GPU-..."), *to = out;
    for (const char *at = list; out; at++) {
        size_t n = strcspn(at, ",");
        bool uuid = !strncmp(at, "GPU-", 4) || !strncmp(at, "MIG-", 4);
        size_t kept = uuid ? 4 : n;
        memcpy(to, at, kept);
        to += kept;
        at += n;
        if (uuid) to = stpcpy(to, "...");
        *to++ = *at;
        if (!*at) break;
    }
    json_t *text = out ? json_string(out) : NULL;
    free(out);
    return text;
}

/* The worker has the UUIDs, the record of what it gets has not. */
static bool mask_uuids(json_t *kept) {
    static const char *const LISTS[] = { "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES" };
    for (size_t i = 0; i < sizeof LISTS / sizeof *LISTS; i++) {
        const json_t *list = json_object_get(kept, LISTS[i]);
        if (list && json_object_set_new(kept, LISTS[i], without_uuids(json_string_value(list))))
            return false;
    }
    return true;
}

/* The configuration may come from an untrusted run directory instead of a checked script. */
static enum status check_experiment(const json_t *env, struct err *e) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)env, name, value) {
        const char *why = env_refusal(name);
        if (why) return FAIL(e, ERR_CONFIG, "the variable %s may not be set: %s", name, why);
    }
    return OK;
}

enum status environment_make(const json_t *env, bool profile, struct environment *out,
                             struct err *e) {
    *out = (struct environment){ 0 };
    TRY(check_experiment(env, e));
    json_t *kept = json_object(), *withheld = json_array(), *defaults = json_array();
    bool good = kept && withheld && sort_own(profile, kept, withheld) &&
                add_experiment(kept, env) && add_defaults(kept, defaults) &&
                to_vector(kept, &out->vars) && mask_uuids(kept);
    out->record = json_pack("{s:o,s:o,s:o}", "kept", kept, "defaults", defaults, "withheld",
                            withheld);
    if (good && out->record) return OK;
    environment_free(out);
    return FAIL(e, ERR_MEMORY, "environment");
}

json_t *environment_of_task(void) {
    struct environment own;
    struct err unmade;
    if (environment_make(NULL, false, &own, &unmade) != OK) return NULL;
    json_t *record = json_incref(own.record);
    environment_free(&own);
    static const char *const CUT[] = { "withheld", "kept" };
    for (size_t i = 0; i < sizeof CUT / sizeof *CUT; i++) {
        if (json_dumpb(record, NULL, 0, JSON_COMPACT) <= ENVIRONMENT_SENT_MAX) break;
        if (json_object_set_new(record, CUT[i], json_string("too long to be sent")) == 0) continue;
        json_decref(record);
        return NULL;
    }
    return record;
}

void environment_free(struct environment *environment) {
    for (char **var = environment->vars; var && *var; var++) free(*var);
    free(environment->vars);
    json_decref(environment->record);
    *environment = (struct environment){ 0 };
}
