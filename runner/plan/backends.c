#include "runner/plan/backends.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels_hash.h"
#include "kernels/arithmetic.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/device.h"
#include "runner/base/run_files.h"

/* The plugin's one symbol, beside cpu_backend_open. */
typedef enum status (*plugin_open)(struct backend **out, int device, struct err *e);

static const char PLUGIN[] = "libfp8lab_cuda.so", PLUGIN_SYMBOL[] = "cuda_backend_open";

/* The executable's directory; false if /proc is not mounted. */
static bool executable_directory(char out[PATH_CAP]) {
    char self[PATH_CAP];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = '\0';
    path_parent(out, self);
    return true;
}

/* out = the plugin's path; false if it is in neither place. */
static bool plugin_path(char out[PATH_CAP]) {
    static const char *const PLACES[] = { "", "../lib/fp8lab/" };
    char directory[PATH_CAP];
    if (!executable_directory(directory)) return false;
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", PLACES[i], PLUGIN);
        if (path_join(out, directory, name, NULL) == OK && access(out, R_OK) == 0) return true;
    }
    return false;
}

/* The backend that "auto" means here; another name is returned unchanged. */
static const char *choose(const char *name) {
    char path[PATH_CAP];
    if (strcmp(name, "auto")) return name;
    return plugin_path(path) && access("/dev/nvidiactl", F_OK) == 0 ? "cuda" : "cpu";
}

const char *backend_without_gpu(const char *name) {
    char path[PATH_CAP];
    if (strcmp(name, "auto") != 0) return NULL;
    if (!plugin_path(path)) return "this program was built without CUDA (no libfp8lab_cuda.so)";
    return access("/dev/nvidiactl", F_OK) == 0 ? NULL : "there is no /dev/nvidiactl";
}

static enum status require_plugin(char path[PATH_CAP], struct err *e) {
    if (plugin_path(path)) return OK;
    return FAIL(e, ERR_UNSUPPORTED, "there is no cuda backend: no %s beside the program nor in "
                "../lib/fp8lab; `make` builds it where nvcc is found; --backend cpu runs without "
                "one", PLUGIN);
}

enum status backend_check_name(const char *name, struct err *e) {
    static const char *const NAMES[] = { "auto", "cpu", "cuda" };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (!strcmp(name, NAMES[i])) return OK;
    return FAIL(e, ERR_ARG, "unknown backend '%s'; use auto, cpu or cuda", name);
}

enum status backend_check(const char *name, struct err *e) {
    char path[PATH_CAP];
    TRY(backend_check_name(name, e));
    return strcmp(choose(name), "cuda") ? OK : require_plugin(path, e);
}

enum status backend_check_caps(const char *name, const char *caps, struct err *e) {
    int cc;
    TRY(device_capability(caps, &cc, e));
    if (!strcmp(choose(name), "cpu"))
        return FAIL(e, ERR_ARG, "caps %s: the cpu backend cannot simulate a GPU; add --backend "
                    "cuda", caps);
    return OK;
}

enum status backend_arithmetic(const char *name, const char *asked, const char **out,
                               struct err *e) {
    const struct arithmetic *found;
    *out = NULL;
    if (!asked) return OK;
    TRY(arithmetic_find(asked, &found, e));
    if (arithmetic_is_reference(found)) return OK;
    *out = found->name;
    if (!strcmp(choose(name), "cpu")) return OK;
    return FAIL(e, ERR_ARG, "arithmetic %s: a GPU multiplies in its own way; --backend cpu "
                "multiplies as another device would", asked);
}

enum status backend_calculate(const struct backend_handle *h, const char *arithmetic,
                              struct err *e) {
    const char *found;
    TRY(backend_arithmetic(h->backend->ops->name, arithmetic, &found, e));
    return found ? cpu_backend_calculate(h->backend, found, e) : OK;
}

const char *backend_kernels_sha256(void) { return FP8LAB_KERNELS_SHA256; }

/* A run records the hash of this program's kernels, so a plugin with other kernels is rejected. */
static enum status check_build(const char *path, const struct backend_ops *ops, struct err *e) {
    bool sized = ops->size == (int64_t)sizeof(struct backend_ops);
    if (sized && !strcmp(ops->kernels_sha256, FP8LAB_KERNELS_SHA256)) return OK;
    return FAIL(e, ERR_UNSUPPORTED,
                "%s is from another build: its kernels are %.16s (a table of %" PRId64 " bytes), "
                "this program's are %.16s (%" PRId64 " bytes); build both from the same sources",
                path, sized ? ops->kernels_sha256 : "unknown", ops->size, FP8LAB_KERNELS_SHA256,
                (int64_t)sizeof(struct backend_ops));
}

static enum status check_complete(const struct backend_ops *ops, struct err *e) {
    const char *slot = backend_missing(ops);
    if (!slot) return OK;
    return FAIL(e, ERR_UNSUPPORTED, "the %s backend has no operator %s, which every backend must "
                "have; rebuild it from the program's sources", ops->name,
                slot);
}

static enum status open_plugin(int64_t device, struct backend_handle *out, struct err *e) {
    char path[PATH_CAP];
    TRY(require_plugin(path, e));
    /* RTLD_NODELETE: the plugin's errors point to its file names and outlive the handle. */
    out->plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!out->plugin)
        return FAIL(e, ERR_DEVICE, "%s cannot be loaded: %s; it needs the libraries of the CUDA "
                    "version it was built with (libcublasLt), beside it or in LD_LIBRARY_PATH",
                    path, dlerror());
    void *symbol = dlsym(out->plugin, PLUGIN_SYMBOL);
    if (!symbol) return FAIL(e, ERR_UNSUPPORTED, "%s has no %s", path, PLUGIN_SYMBOL);
    plugin_open open_backend;
    memcpy(&open_backend, &symbol, sizeof symbol);
    TRY(open_backend(&out->backend, (int)device, e));
    TRY(check_build(path, out->backend->ops, e));
    return check_complete(out->backend->ops, e);
}

enum status backend_open(const char *name, int64_t threads, int64_t device,
                         struct backend_handle *out, struct err *e) {
    *out = (struct backend_handle){ 0 };
    TRY(backend_check(name, e));
    if (!strcmp(choose(name), "cpu")) return cpu_backend_open(&out->backend, (int)threads, e);
    enum status st = open_plugin(device, out, e);
    if (st != OK) backend_close(out);
    return st;
}

void backend_close(struct backend_handle *h) {
    /* If `size` differs, the table is from another build, and close() may be elsewhere in it. */
    bool ours = h->backend && h->backend->ops->size == (int64_t)sizeof(struct backend_ops);
    if (ours && h->backend->ops->close) h->backend->ops->close(h->backend);
    h->backend = NULL;
    if (h->plugin) dlclose(h->plugin);
    h->plugin = NULL;
}
