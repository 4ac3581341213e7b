#include "kernels/cuda/nccl.cuh"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <new>

#if __has_include(<nccl.h>)
#include <nccl.h>

enum {
    VERSION_MIN = 21800,  /* has asynchronous errors, abort and configurations as used here */
    ABORT_WAIT_MS = 200   /* how long to wait for another thread's running call */
};

struct nccl_functions {
    decltype(&ncclGetVersion) version;
    decltype(&ncclGetUniqueId) unique_id;
    decltype(&ncclCommInitRankConfig) init;
    decltype(&ncclCommDestroy) destroy;
    decltype(&ncclCommAbort) abort;
    decltype(&ncclCommGetAsyncError) async_error;
    decltype(&ncclGetErrorString) error_string;
    decltype(&ncclGetLastError) last_error;
    decltype(&ncclGroupStart) group_start;
    decltype(&ncclGroupEnd) group_end;
    decltype(&ncclSend) send;
    decltype(&ncclRecv) recv;
    decltype(&ncclAllGather) all_gather;
    decltype(&ncclBroadcast) broadcast;
    decltype(&ncclAllReduce) all_reduce;
};

struct nccl {
    void *so;
    struct nccl_functions f;
    ncclComm_t comm;
    pthread_mutex_t lock; /* held while something is queued */
    std::atomic<bool> aborted; /* comm is being freed or has been freed */
    int rank, world, version;
};

/* ---- the library ---- */

static bool find_functions(struct nccl *n) {
    static const char *const NAME[] = {
        "ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommDestroy",
        "ncclCommAbort", "ncclCommGetAsyncError", "ncclGetErrorString", "ncclGetLastError",
        "ncclGroupStart", "ncclGroupEnd", "ncclSend", "ncclRecv", "ncclAllGather",
        "ncclBroadcast", "ncclAllReduce",
    };
    void *found[sizeof NAME / sizeof *NAME];
    static_assert(sizeof found == sizeof n->f, "one address for each function");
    for (size_t i = 0; i < sizeof NAME / sizeof *NAME; i++)
        if (!(found[i] = dlsym(n->so, NAME[i]))) return false;
    memcpy(&n->f, found, sizeof found);
    return true;
}

/* NVLink multicast is off unless the user asks for it: on shared hosts its fabric may be broken.
 * NCCL reads NCCL_NVLS_ENABLE from the environment. The process that starts this one sets it: here
 * other threads already run, and may read the environment. */
static enum status load(struct nccl *n, struct err *e) {
    n->so = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!n->so) return FAIL(e, ERR_DEVICE, "several GPUs need NCCL: %s", dlerror());
    if (!find_functions(n) || n->f.version(&n->version) != ncclSuccess)
        return FAIL(e, ERR_DEVICE, "several GPUs need NCCL: libnccl.so.2 lacks a function");
    if (n->version >= VERSION_MIN) return OK;
    return FAIL(e, ERR_DEVICE, "several GPUs need NCCL 2.18 or later; libnccl.so.2 is %d.%d",
                n->version / 10000, n->version / 100 % 100);
}

static enum status failed(const struct nccl *n, const char *what, ncclResult_t result,
                          struct err *e) {
    bool aborted = n->aborted;
    enum status code = result == ncclRemoteError || aborted ? ERR_PEER : ERR_DEVICE;
    const char *detail = aborted ? NULL : n->f.last_error(NULL); /* of any communicator */
    bool said = detail && *detail;
    return FAIL(e, code, "%s: NCCL: %s%s%.300s", what, n->f.error_string(result), said ? ": " : "",
                said ? detail : "");
}

/* ---- life ---- */

/* Rank 0's identity of the communicator, to every rank. */
static enum status share_id(struct nccl *n, struct links *links, ncclUniqueId *id, struct err *e) {
    struct link_transfer *t = (struct link_transfer *)calloc((size_t)n->world, sizeof *t);
    if (!t) return FAIL(e, ERR_MEMORY, "no memory to join NCCL");
    int count = 0;
    for (int r = n->rank ? 0 : 1; r < (n->rank ? 1 : n->world); r++) {
        t[count].peer = r;
        if (n->rank) t[count].in = id, t[count].in_bytes = sizeof *id;
        else t[count].out = id, t[count].out_bytes = sizeof *id;
        count++;
    }
    enum status st = links_exchange(links, t, count, "joining NCCL", e);
    free(t);
    return st;
}

static enum status join(struct nccl *n, struct links *links, struct err *e) {
    ncclUniqueId id;
    ncclResult_t result = n->rank == 0 ? n->f.unique_id(&id) : ncclSuccess;
    if (result != ncclSuccess) return failed(n, "joining NCCL", result, e);
    TRY(share_id(n, links, &id, e));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    result = n->f.init(&n->comm, n->world, id, n->rank, &config);
    return result == ncclSuccess ? OK : failed(n, "joining NCCL", result, e);
}

enum status nccl_open(struct nccl **out, struct links *links, int rank, int world,
                      struct err *e) {
    *out = NULL;
    struct nccl *n = new (std::nothrow) struct nccl();
    if (!n) return FAIL(e, ERR_MEMORY, "no memory to join NCCL");
    n->rank = rank;
    n->world = world;
    (void)pthread_mutex_init(&n->lock, NULL);
    enum status st = load(n, e);
    if (st == OK) st = join(n, links, e);
    if (st != OK) nccl_close(n);
    else *out = n;
    return st;
}

void nccl_close(struct nccl *n) {
    if (!n) return;
    if (n->comm && !n->aborted) (void)n->f.destroy(n->comm);
    pthread_mutex_destroy(&n->lock);
    delete n; /* the library stays loaded: errors point into it, and its threads may still run */
}

enum status nccl_poll(struct nccl *n, struct err *e) {
    ncclResult_t state = ncclSuccess;
    if (n->aborted) return FAIL(e, ERR_PEER, "the group was aborted");
    ncclResult_t result = n->f.async_error(n->comm, &state);
    if (result == ncclSuccess) result = state;
    if (result == ncclSuccess || result == ncclInProgress) return OK;
    (void)failed(n, "the group", result, e);
    return e ? e->code = ERR_PEER : ERR_PEER;
}

/* Another thread's call may be what hangs, so this waits only ABORT_WAIT_MS for it; NCCL permits
 * that. NCCL itself waits for graphs that refer to the communicator: the thread that holds them
 * must not wait for this function. */
void nccl_abort(struct nccl *n) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ABORT_WAIT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    bool locked = pthread_mutex_timedlock(&n->lock, &until) == 0;
    bool first = !n->aborted.exchange(true);
    if (locked) pthread_mutex_unlock(&n->lock);
    if (first && n->comm) (void)n->f.abort(n->comm);
}

/* ---- queueing ---- */

/* Runs `call` unless the group was aborted. */
#define QUEUE(n, what, call, e)                                                       \
    do {                                                                              \
        pthread_mutex_lock(&(n)->lock);                                               \
        ncclResult_t queue_ = (n)->aborted ? ncclRemoteError : (call);                \
        pthread_mutex_unlock(&(n)->lock);                                             \
        return queue_ == ncclSuccess ? OK : failed((n), (what), queue_, (e));         \
    } while (0)

enum status nccl_all_gather(struct nccl *n, void *out, const void *x, int64_t bytes,
                            cudaStream_t stream, struct err *e) {
    QUEUE(n, "all_gather",
          n->f.all_gather(x, out, (size_t)bytes, ncclUint8, n->comm, stream), e);
}

enum status nccl_broadcast(struct nccl *n, void *x, int64_t bytes, int root, cudaStream_t stream,
                           struct err *e) {
    QUEUE(n, "broadcast",
          n->f.broadcast(x, x, (size_t)bytes, ncclUint8, root, n->comm, stream), e);
}

enum status nccl_max_u32(struct nccl *n, uint32_t *x, int64_t count, cudaStream_t stream,
                         struct err *e) {
    QUEUE(n, "all_reduce max",
          n->f.all_reduce(x, x, (size_t)count, ncclUint32, ncclMax, n->comm, stream), e);
}

static ncclResult_t swap(struct nccl *n, char *in, int64_t in_stride, const char *out,
                         int64_t out_stride, int64_t bytes, cudaStream_t stream) {
    ncclResult_t result = n->f.group_start();
    for (int i = 1; i < n->world && result == ncclSuccess; i++) {
        int to = (n->rank + i) % n->world, from = (n->rank + n->world - i) % n->world;
        result = n->f.send(out + to * out_stride, (size_t)bytes, ncclUint8, to, n->comm, stream);
        if (result == ncclSuccess)
            result = n->f.recv(in + from * in_stride, (size_t)bytes, ncclUint8, from, n->comm,
                               stream);
    }
    ncclResult_t ended = n->f.group_end();
    return result == ncclSuccess ? ended : result;
}

enum status nccl_swap(struct nccl *n, void *in, int64_t in_stride, const void *out,
                      int64_t out_stride, int64_t bytes, cudaStream_t stream, struct err *e) {
    QUEUE(n, "reduce_scatter",
          swap(n, (char *)in, in_stride, (const char *)out, out_stride, bytes, stream), e);
}

#else /* built without NCCL's header */

enum status nccl_open(struct nccl **out, struct links *links, int rank, int world,
                      struct err *e) {
    *out = NULL;
    return FAIL(e, ERR_UNSUPPORTED, "several GPUs need NCCL: this was built without nccl.h");
}
void nccl_close(struct nccl *n) {}
enum status nccl_poll(struct nccl *n, struct err *e) { return OK; }
void nccl_abort(struct nccl *n) {}
enum status nccl_all_gather(struct nccl *n, void *out, const void *x, int64_t bytes,
                            cudaStream_t stream, struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "all_gather: built without NCCL");
}
enum status nccl_broadcast(struct nccl *n, void *x, int64_t bytes, int root, cudaStream_t stream,
                           struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "broadcast: built without NCCL");
}
enum status nccl_max_u32(struct nccl *n, uint32_t *x, int64_t count, cudaStream_t stream,
                         struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "all_reduce: built without NCCL");
}
enum status nccl_swap(struct nccl *n, void *in, int64_t in_stride, const void *out,
                      int64_t out_stride, int64_t bytes, cudaStream_t stream, struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "reduce_scatter: built without NCCL");
}

#endif
