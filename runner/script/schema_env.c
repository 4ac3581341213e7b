#include "runner/script/schema_env.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "runner/base/nearest.h"
#include "runner/script/schema.h"

const char *const ENV_ALLOWED[] = {
    "CUBLASLT_WORKSPACE_SIZE", "CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES",
    "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT", "MALLOC_ARENA_MAX", "NCCL_ALGO", "NCCL_BUFFSIZE",
    "NCCL_CROSS_NIC", "NCCL_CUMEM_ENABLE", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_IB_ADDR_FAMILY",
    "NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_RETRY_CNT", "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_SL", "NCCL_IB_TC", "NCCL_IB_TIMEOUT",
    "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS",
    "NCCL_NET_GDR_LEVEL", "NCCL_NSOCKS_PERTHREAD", "NCCL_NTHREADS", "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SHM_DISABLE", "NCCL_SOCKET_FAMILY",
    "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS", "NVIDIA_TF32_OVERRIDE", "OMP_DYNAMIC",
    "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OMP_WAIT_POLICY", NULL
};

bool env_is_allowed(const char *name) {
    for (int i = 0; ENV_ALLOWED[i]; i++)
        if (strcmp(name, ENV_ALLOWED[i]) == 0) return true;
    return false;
}

/* Patterns with a reason for the message. Any other name is just not on the list. */
static const struct { const char *pattern, *why; } REFUSED[] = {
    { "LD_*", "it makes the loader run other code" },
    { "PATH", "it decides which programs are run" },
    { "*_INJECTION*", "it loads code" },
    { "*_PATH", "it names folders to load from" },
    { "*_PRELOAD", "it loads code" },
    { "*_PLUGIN", "it loads code" },
    { "*_CONF_FILE", "it names a file" },
    { "*_FILE", "it names a file" },
    { "*_LIBRARIES", "it loads code" },
    { "NVTE_*", "it configures TransformerEngine, which fp8lab does not use" },
};

const char *env_refusal(const char *name) {
    if (env_is_allowed(name)) return NULL;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++)
        if (fnmatch(REFUSED[i].pattern, name, 0) == 0) return REFUSED[i].why;
    return "it is not on the list of variables that a run may set";
}

/* The variable's text: a string without control characters, or an integer. NULL otherwise. */
static struct value *env_value(struct pool *p, const struct value *v) {
    if (v->type == VALUE_INT)
        return value_string(p, pool_format(p, "%" PRId64, v->i), v->place);
    if ((v->type != VALUE_STRING && v->type != VALUE_TEXT) || v->string_bytes > 1000) return NULL;
    if (utf8_valid_prefix(v->string, v->string_bytes) != v->string_bytes) return NULL;
    for (size_t i = 0; i < v->string_bytes; i++)
        if ((unsigned char)v->string[i] < 0x20) return NULL;
    return value_string(p, v->string, v->place);
}

struct value *schema_env(struct diagnostics *d, const struct value *v, const char *path) {
    struct value *out = value_new(d->pool, VALUE_TABLE, v->place);
    if (v->type != VALUE_TABLE || v->item_count || v->kind) {
        diagnostics_add(d, v->place, path, "expected a table of environment variables, found %s",
                        value_describe(d->pool, v));
        return out;
    }
    int64_t allowed = 0;
    while (ENV_ALLOWED[allowed]) allowed++;
    for (int64_t i = 0; i < v->member_count; i++) {
        const struct value_member *m = &v->members[i];
        const char *below = schema_path(d->pool, path, m->key);
        const char *why = env_refusal(m->key);
        struct value *text = env_value(d->pool, m->value);
        if (why) {
            const char *near = nearest_name(m->key, ENV_ALLOWED, allowed);
            diagnostics_add(d, m->place, below, "the variable %s may not be set: %s%s%s%s", m->key,
                            why, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
        } else if (!text) {
            diagnostics_add(d, m->place, below, "expected a string or an integer, found %s",
                            value_describe(d->pool, m->value));
        } else {
            value_set(d->pool, out, m->key, text, m->place);
        }
    }
    return out;
}
