/* A plugin that stands in for the CUDA backend's and makes the device fail in the middle of a run:
 * it opens the real one, named libfp8lab_cuda_real.so beside it, and takes the activations' memory
 * away after some steps, while graphs still hold its address. For fault.sh; nothing of this is in
 * the product. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"

enum { LAST_REPLAY = 5 };
static const int64_t ROOM = 64 << 20; /* so much is given back to the device when it is freed */

/* The table that is seen; the rest lies behind it. */
struct fault {
    struct backend_ops ops;
    const struct backend_ops *real;
    void *activations;
    int replays;
};

static struct fault *fault_of(struct backend *b) { return (struct fault *)(uintptr_t)b->ops; }

static enum status fault_memory_create(struct backend *b, const char *what, int64_t bytes,
                                       void **out, struct err *e) {
    struct fault *f = fault_of(b);
    bool ours = !strcmp(what, "activations");
    TRY(f->real->memory_create(b, what, bytes + (ours ? ROOM : 0), out, e));
    if (ours) f->activations = *out;
    return OK;
}

static enum status fault_graph_replay(struct backend *b, enum graph_key key, bool *replayed,
                                      struct err *e) {
    struct fault *f = fault_of(b);
    if (key == GRAPH_FIRST_MICRO && f->replays++ == LAST_REPLAY)
        f->real->memory_destroy(b, f->activations);
    return f->real->graph_replay(b, key, replayed, e);
}

static void fault_close(struct backend *b) {
    struct fault *f = fault_of(b);
    b->ops = f->real;
    b->ops->close(b);
    free(f);
}

/* Beside this file. */
static void *open_real(void) {
    Dl_info here;
    char path[4096];
    if (!dladdr((void *)(uintptr_t)open_real, &here)) return NULL;
    const char *slash = strrchr(here.dli_fname, '/');
    int folder = slash ? (int)(slash - here.dli_fname) : 1;
    snprintf(path, sizeof path, "%.*s/libfp8lab_cuda_real.so", folder,
             slash ? here.dli_fname : ".");
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

enum status cuda_backend_open(struct backend **out, int device, struct err *e);
enum status cuda_backend_open(struct backend **out, int device, struct err *e) {
    void *real = open_real(), *symbol = real ? dlsym(real, "cuda_backend_open") : NULL;
    enum status (*open_backend)(struct backend **, int, struct err *);
    if (!symbol) return FAIL(e, ERR_UNSUPPORTED, "the fault plugin: %s", dlerror());
    memcpy(&open_backend, &symbol, sizeof symbol);
    TRY(open_backend(out, device, e));
    if ((*out)->ops->size != (int64_t)sizeof(struct backend_ops)) {
        (*out)->ops->close(*out);
        return FAIL(e, ERR_UNSUPPORTED, "the fault plugin is older than the interface: build it");
    }
    struct fault *f = calloc(1, sizeof *f);
    if (!f) return FAIL(e, ERR_MEMORY, "the fault plugin");
    f->real = (*out)->ops;
    f->ops = *f->real;
    f->ops.close = fault_close;
    f->ops.memory_create = fault_memory_create;
    f->ops.graph_replay = fault_graph_replay;
    (*out)->ops = &f->ops;
    return OK;
}
