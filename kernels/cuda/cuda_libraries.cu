/* Versions and files of NVIDIA's libraries. cuDNN and NCCL are opened here by the names under which
 * they are used. A library that other code has opened stays open. */
#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda_backend.cuh"

/* 130100 -> "13.1.0": the libraries encode major * 10000 + minor * 100 + patch. */
static void version_text(struct library *out, long long v) {
    snprintf(out->version, sizeof out->version, "%lld.%lld.%lld", v / 10000, v / 100 % 100,
             v % 100);
}

/* The file that holds `address`. */
static void path_of(struct library *out, const void *address) {
    Dl_info info;
    if (dladdr(address, &info) && info.dli_fname)
        snprintf(out->path, sizeof out->path, "%s", info.dli_fname);
}

static void runtime_library(struct library *out) {
    int v = 0; /* major * 1000 + minor * 10: 13000 */
    if (cudaRuntimeGetVersion(&v) == cudaSuccess)
        snprintf(out->version, sizeof out->version, "%d.%d", v / 1000, v % 1000 / 10);
}

static void cublaslt_library(struct library *out) {
    version_text(out, (long long)cublasLtGetVersion());
    path_of(out, (const void *)cublasLtGetVersion);
}

/* Opens `file`, to be closed after the query; NULL with the reason if it cannot be opened. */
static void *open_library(struct library *out, const char *file, const char *symbol, void **found) {
    void *so = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    *found = so ? dlsym(so, symbol) : NULL;
    if (*found) {
        path_of(out, *found);
        return so;
    }
    const char *why = dlerror();
    snprintf(out->problem, sizeof out->problem, "%s", why ? why : "it has no version");
    if (so) dlclose(so);
    return NULL;
}

static void cudnn_library_of(struct library *out) {
    void *found = NULL, *so = open_library(out, "libcudnn.so.9", "cudnnGetVersion", &found);
    if (!so) return;
    size_t (*version)(void);
    memcpy(&version, &found, sizeof version);
    version_text(out, (long long)version());
    dlclose(so);
}

static void nccl_library(struct library *out) {
    void *found = NULL, *so = open_library(out, "libnccl.so.2", "ncclGetVersion", &found);
    if (!so) return;
    int (*version)(int *), v = 0;
    memcpy(&version, &found, sizeof version);
    if (version(&v) == 0) version_text(out, v);
    dlclose(so);
}

bool cuda_library(struct backend *b, int64_t i, struct library *out) {
    static const struct { const char *name; void (*fill)(struct library *out); } LIBRARIES[] = {
        { "cuda.runtime", runtime_library }, { "cublaslt", cublaslt_library },
        { "cudnn", cudnn_library_of }, { "nccl", nccl_library },
    };
    if (i < 0 || i >= (int64_t)(sizeof LIBRARIES / sizeof *LIBRARIES)) return false;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", LIBRARIES[i].name);
    LIBRARIES[i].fill(out);
    return true;
}
