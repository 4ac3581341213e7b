/* The graphs of attention that cuDNN gets, without a GPU: the library reads the description of a
 * device (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), says whether its engines know the graph, and lists
 * their configurations. Nothing is compiled for the device and nothing runs. Needs cuDNN 9.19.
 *
 * Dimensions, types and the number of products must be right for a plan to be listed. A graph that
 * lacks a scale is listed as well: tests/gpu/test_attention_fp8.c compares results. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention_cudnn.cuh"
#include "kernels/cuda/cudnn_graph.cuh"

enum { VERSION_LEAST = 91900, SKIPPED = 77 };

static struct cudnn_functions f;

static bool open_library(void) {
    static const char *const NAME[] = {
        "cudnnCreate", "cudnnDestroy", "cudnnSetStream", "cudnnGetVersion",
        "cudnnGetLastErrorString", "cudnnBackendCreateDescriptor",
        "cudnnBackendDestroyDescriptor", "cudnnBackendFinalize", "cudnnBackendSetAttribute",
        "cudnnBackendGetAttribute", "cudnnBackendExecute",
    };
    void *found[sizeof NAME / sizeof *NAME], *so = dlopen("libcudnn.so.9", RTLD_NOW);
    static_assert(sizeof found == sizeof f, "one address for each function");
    for (size_t i = 0; i < sizeof NAME / sizeof *NAME; i++)
        if (!so || !(found[i] = dlsym(so, NAME[i]))) return false;
    memcpy(&f, found, sizeof found);
    return f.version() >= VERSION_LEAST;
}

/* What cuDNN reads of a device; most numbers are those of an H200. */
static cudnn_node describe(int cc, struct cudnn_nodes *owned, cudnnStatus_t *status) {
    char json[1024];
    int size = snprintf(
        json, sizeof json,
        "{\"cudaDeviceId\":0,\"deviceName\":\"sm_%d\",\"deviceVer\":%d,\"driverVer\":13000,"
        "\"isTccDriver\":0,\"l2CacheSize\":62914560,\"maxCtasPerSM\":32,"
        "\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
        "\"maxSharedMemoryPerBlockOptin\":232448,"
        "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"memClockRateKHz\":3201000,"
        "\"multiProcessorCount\":132,\"pciDeviceId\":0,\"regsPerBlock\":65536,"
        "\"reservedSharedMemoryPerBlock\":1024,\"smClockRateKHz\":1980000,\"supportCoopLaunch\":1,"
        "\"totalGlobalMem\":150000000000,\"warpSize\":32,\"maxGridSize\":[2147483647,65535,65535],"
        "\"maxBlockSize\":[1024,1024,64]}", cc, 10 * cc);
    cudnn_node device = cudnn_make(&f, owned, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, status);
    if (*status == CUDNN_STATUS_SUCCESS)
        *status = f.set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                        size + 1, json);
    if (*status == CUDNN_STATUS_SUCCESS) *status = f.finalize(device);
    return device;
}

struct counts { int listed, deterministic; };

static bool has_no_note(cudnn_node config) {
    cudnn_node engine = NULL;
    int64_t count = 0, notes = 0;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    if (f.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return false;
    bool known = f.get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                       &count, &engine) == CUDNN_STATUS_SUCCESS &&
                 f.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                       CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &notes, note) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; known && i < notes; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) known = false;
    f.drop(engine);
    return known;
}

static cudnnStatus_t list(cudnn_node graph, cudnn_node device, struct cudnn_nodes *owned,
                          struct counts *out) {
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnn_node heuristic = cudnn_make(&f, owned, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &status);
    cudnn_node config[CUDNN_LISTED_MAX];
    int64_t count = 0;
    for (int i = 0; i < CUDNN_LISTED_MAX; i++)
        config[i] = cudnn_make(&f, owned, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &status);
    if (status == CUDNN_STATUS_SUCCESS)
        status = f.set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    if (status == CUDNN_STATUS_SUCCESS)
        status = f.set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (status == CUDNN_STATUS_SUCCESS)
        status = f.set(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                       1, &device);
    if (status == CUDNN_STATUS_SUCCESS) status = f.finalize(heuristic);
    if (status == CUDNN_STATUS_SUCCESS)
        status = f.get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                       CUDNN_LISTED_MAX, &count, config);
    for (int64_t i = 0; status == CUDNN_STATUS_SUCCESS && i < count; i++) {
        out->listed++;
        out->deterministic += has_no_note(config[i]);
    }
    return status;
}

/* ---- cases ---- */

enum want { SOME, NONE /* of this cuDNN; a later one may have some */, NAMED /* by us */ };
struct test_case {
    int cc;
    struct cudnn_spec spec;
    int heads, kv_heads, head_dim;
    enum want want;
};

/* False if the library does not do what is wanted. */
static bool try_case(const struct test_case *c) {
    struct cudnn_nodes *owned = (struct cudnn_nodes *)calloc(1, sizeof *owned);
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    struct counts counts = {};
    struct attention a = {};
    cudnn_node graph = NULL;
    bool named = false;
    char text[256] = "";
    a.batch = 2;
    a.length = 512;
    a.heads = c->heads;
    a.kv_heads = c->kv_heads;
    a.head_dim = c->head_dim;
    a.width = (int64_t)(c->heads + 2 * c->kv_heads) * c->head_dim;
    if (!owned) return false;
    cudnn_node device = describe(c->cc, owned, &status);
    if (status == CUDNN_STATUS_SUCCESS)
        graph = cudnn_attention_graph(&f, NULL, &a, &c->spec, owned, &status);
    if (graph) status = list(graph, device, owned, &counts);
    if (status == CUDNN_STATUS_SUCCESS && c->want == NAMED)
        named = cudnn_backward_config(&f, graph, device, owned, &status) != NULL;
    if (status != CUDNN_STATUS_SUCCESS) f.last_error(text, sizeof text);
    for (int i = owned->count - 1; i >= 0; i--) f.drop(owned->node[i]);
    free(owned);
    static const char *const PASS[] = { "forward of BF16", "forward", "backward" };
    printf("sm_%d %s, heads %d/%d of %d, gradients %s, o %s, outputs %s: %d plans, %d without the "
           "note%s\n", c->cc, PASS[c->spec.pass], c->heads, c->kv_heads, c->head_dim,
           c->spec.gradient_e5m2 ? "E5M2" : "E4M3", c->spec.o_codes ? "E4M3" : "BF16",
           c->spec.codes_out ? "codes" : "BF16", counts.listed, counts.deterministic,
           named ? ", and the named one" : "");
    bool newer = f.version() / 100 > VERSION_LEAST / 100;
    bool good = status == CUDNN_STATUS_SUCCESS &&
                (c->want == NONE ? newer || !counts.listed : counts.listed > 0) &&
                (c->want != NAMED || named);
    if (!good) printf("FAILED: status %d %s\n", (int)status, text);
    return good;
}

int main(void) {
    if (!open_library()) {
        printf("skipped: there is no cuDNN of 9.19 or later\n");
        return SKIPPED;
    }
    const enum cudnn_pass BF16 = CUDNN_BF16_FORWARD, FWD = CUDNN_FP8_FORWARD,
                          BWD = CUDNN_FP8_BACKWARD;
    const struct test_case CASE[] = {
        { 90, { BF16, false, false, false, false }, 8, 2, 128, SOME },
        { 100, { BF16, false, false, false, false }, 8, 2, 128, SOME },
        /* Hopper's engines write codes */
        { 90, { FWD, false, false, false, false }, 8, 2, 128, NONE },
        { 90, { FWD, false, false, true, false }, 8, 2, 128, SOME },
        { 90, { BWD, true, true, false, false }, 8, 2, 128, NONE },
        { 90, { BWD, true, true, true, false }, 8, 2, 128, SOME },
        { 90, { BWD, true, false, true, false }, 8, 8, 128, SOME },
        { 90, { BWD, false, true, true, false }, 8, 2, 128, SOME },
        { 90, { BWD, true, true, true, false }, 8, 2, 64, NONE },
        { 100, { FWD, false, false, false, false }, 8, 2, 128, SOME },
        { 100, { FWD, false, false, false, false }, 8, 8, 64, SOME },
        { 100, { BWD, true, true, false, false }, 8, 2, 128, NAMED },
        { 100, { BWD, true, false, false, false }, 8, 8, 128, NAMED },
        { 100, { BWD, false, true, false, false }, 8, 2, 64, NAMED },
        { 100, { BWD, false, false, false, false }, 8, 2, 128, NAMED },
    };
    printf("cuDNN %zu, devices as described\n", f.version());
    bool good = true;
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) good &= try_case(&CASE[i]);
    return good ? 0 : 1;
}
