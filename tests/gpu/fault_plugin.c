/* A plugin that replaces the CUDA backend's and makes the device fail in the middle of a run. It
 * opens the real plugin, libfp8lab_cuda_real.so, in its own folder. After some steps it frees the
 * activations' memory while graphs still hold its address. If a file "hang" in the folder names
 * this rank, it starts a kernel that never ends and occupies the whole device, without an error.
 * Used by fault.sh and hang.sh only. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"

enum { LAST_REPLAY = 5, NOT_ASKED = -2 };
static const int64_t ROOM = 64 << 20; /* memory of this size returns to the device when freed */

/* Begins with the table that callers see; the real table is behind it. */
struct fault {
    struct backend_ops ops;
    const struct backend_ops *real;
    void *activations;
    int replays;
    int rank, hangs; /* this rank; the rank that hangs (-1: none), or NOT_ASKED */
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

static enum status fault_init(struct backend *b, const struct comm_group *group, struct err *e) {
    struct fault *f = fault_of(b);
    f->rank = group ? group->rank : 0;
    return f->real->comm.init(b, group, e);
}

/* ---- a device that hangs ---- */

/* The kernel ends after a minute, in case the process survives SIGKILL. */
static const char HANG_PTX[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry hang() {\n"
    "  .reg .u64 %begin, %now; .reg .pred %more;\n"
    "  mov.u64 %begin, %globaltimer;\n"
    "again:\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  sub.u64 %now, %now, %begin;\n"
    "  setp.lt.u64 %more, %now, 60000000000;\n"
    "  @%more bra again;\n"
    "  ret;\n}\n";

/* Functions of the driver, declared here since a machine with only a compiler has no cuda.h.
 * Handles are pointers; success is 0. */
struct driver {
    int (*load)(void **module, const void *image);
    int (*find)(void **function, void *module, const char *name);
    int (*attribute)(int *value, int attribute, int device);
    int (*device)(int *device);
    int (*stream)(void **stream, unsigned flags);
    int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                  void *stream, void **arguments, void **extra);
};

static bool find_driver(struct driver *d) {
    static const char *const NAME[] = { "cuModuleLoadData", "cuModuleGetFunction",
                                        "cuDeviceGetAttribute", "cuCtxGetDevice",
                                        "cuStreamCreate", "cuLaunchKernel" };
    void *so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found[6];
    for (int i = 0; i < 6; i++)
        if (!so || !(found[i] = dlsym(so, NAME[i]))) return false;
    _Static_assert(sizeof found == sizeof *d, "one address for each function");
    memcpy(d, found, sizeof found);
    return true;
}

/* Occupies every thread of every multiprocessor: nothing else can start. */
static enum status hang(struct backend *b, struct err *e) {
    enum { MULTIPROCESSORS = 16, NON_BLOCKING = 1, BLOCK = 1024, BLOCKS = 2 };
    struct driver d;
    void *module, *function, *stream;
    int device, count;
    TRY(fault_of(b)->real->sync(b, e));
    if (!find_driver(&d) || d.load(&module, HANG_PTX) || d.find(&function, module, "hang") ||
        d.device(&device) || d.attribute(&count, MULTIPROCESSORS, device) ||
        d.stream(&stream, NON_BLOCKING) ||
        d.launch(function, (unsigned)(BLOCKS * count), 1, 1, BLOCK, 1, 1, 0, stream, NULL, NULL))
        return FAIL(e, ERR_STATE, "the fault plugin: the device does not hang");
    return OK;
}

static enum status fault_graph_replay(struct backend *b, enum graph_key key, bool *replayed,
                                      struct err *e) {
    struct fault *f = fault_of(b);
    if (key == GRAPH_FIRST_MICRO && f->replays++ == LAST_REPLAY) {
        if (f->hangs == NOT_ASKED) f->real->memory_destroy(b, f->activations);
        else if (f->hangs == f->rank) TRY(hang(b, e));
    }
    return f->real->graph_replay(b, key, replayed, e);
}

static void fault_close(struct backend *b) {
    struct fault *f = fault_of(b);
    b->ops = f->real;
    b->ops->close(b);
    free(f);
}

/* The path of a file in this plugin's folder. */
static void path_beside(char *path, size_t size, const char *name) {
    Dl_info here;
    *path = '\0';
    if (!dladdr((void *)(uintptr_t)path_beside, &here)) return;
    const char *slash = strrchr(here.dli_fname, '/');
    int folder = slash ? (int)(slash - here.dli_fname) : 1;
    snprintf(path, size, "%.*s/%s", folder, slash ? here.dli_fname : ".", name);
}

static void *open_real(void) {
    char path[4096];
    path_beside(path, sizeof path, "libfp8lab_cuda_real.so");
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static int who_hangs(void) {
    char path[4096];
    int rank = NOT_ASKED;
    path_beside(path, sizeof path, "hang");
    FILE *file = fopen(path, "re");
    if (!file) return rank;
    if (fscanf(file, "%d", &rank) != 1) rank = NOT_ASKED;
    fclose(file);
    return rank;
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
    f->hangs = who_hangs();
    f->ops = *f->real;
    f->ops.close = fault_close;
    f->ops.memory_create = fault_memory_create;
    f->ops.graph_replay = fault_graph_replay;
    f->ops.comm.init = fault_init;
    (*out)->ops = &f->ops;
    return OK;
}
