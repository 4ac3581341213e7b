/* Lanes, events, read-back and graphs.
 *
 * The first run of a graph key is a warm-up: GEMM algorithms are chosen, scratch memory grows. The
 * second run is captured, later ones are replayed. A capture starts on the compute lane; the other
 * lanes join it through events. All lanes join before and after a graph. So an event recorded
 * outside a graph is complete inside it, and the reverse: such waits do nothing. */
#include <string.h>

#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/cuda_progress.cuh"

enum status cuda_order_open(struct cuda_backend *b, struct err *e) {
    /* Communication has priority: every rank waits for a collective that starts late. */
    int low = 0, high = 0;
    CUDA_TRY(e, cudaDeviceGetStreamPriorityRange(&low, &high));
    for (int i = 0; i < LANE_COUNT; i++) {
        CUDA_TRY(e, cudaStreamCreateWithPriority(&b->lane[i], cudaStreamNonBlocking,
                                                 i == LANE_COMM ? high : low));
        CUDA_TRY(e, cudaEventCreateWithFlags(&b->join[i], cudaEventDisableTiming));
    }
    for (int i = 0; i < EVENT_COUNT; i++)
        CUDA_TRY(e, cudaEventCreateWithFlags(&b->event[i].event, cudaEventDisableTiming));
    for (int i = 0; i < READBACK_SLOTS; i++) {
        struct readback_slot *r = &b->readback[i];
        CUDA_TRY(e, cudaMallocHost(&r->host, READBACK_BYTES));
        CUDA_TRY(e, cudaEventCreateWithFlags(&r->done.event, cudaEventDisableTiming));
    }
    CUDA_TRY(e, cudaMallocHost((void **)&b->staging.host, STAGING_CHUNKS * STAGING_BYTES));
    for (int i = 0; i < STAGING_CHUNKS; i++)
        CUDA_TRY(e, cudaEventCreateWithFlags(&b->staging.copied[i], cudaEventDisableTiming));
    CUDA_TRY(e, cudaEventCreateWithFlags(&b->graph_done, cudaEventDisableTiming));
    return OK;
}

static void destroy_event(cudaEvent_t event) {
    if (event) cudaEventDestroy(event);
}

void cuda_order_close(struct cuda_backend *b) {
    cuda_graph_drop(&b->base);
    destroy_event(b->graph_done);
    for (int i = 0; i < READBACK_SLOTS; i++) {
        destroy_event(b->readback[i].done.event);
        if (b->readback[i].host) cudaFreeHost(b->readback[i].host);
    }
    for (int i = 0; i < STAGING_CHUNKS; i++) destroy_event(b->staging.copied[i]);
    if (b->staging.host) cudaFreeHost(b->staging.host);
    for (int i = 0; i < EVENT_COUNT; i++) destroy_event(b->event[i].event);
    for (int i = 0; i < LANE_COUNT; i++) {
        destroy_event(b->join[i]);
        if (b->lane[i]) cudaStreamDestroy(b->lane[i]);
    }
}

/* ---- events ---- */

static enum status record(struct cuda_backend *b, struct event_slot *s, int lane, struct err *e) {
    CUDA_TRY(e, cudaEventRecord(s->event, b->lane[lane]));
    s->capture = b->capture;
    s->lane = lane;
    return OK;
}

static enum status event_check(const char *what, int event, struct err *e) {
    if (event >= 0 && event < EVENT_COUNT) return OK;
    return FAIL(e, ERR_ARG, "%s: event %d is not in 0..%d", what, event, EVENT_COUNT - 1);
}

enum status cuda_signal(struct backend *b, int lane, int event, struct err *e) {
    TRY(event_check("signal", event, e));
    return record(cuda_of(b), &cuda_of(b)->event[event], lane, e);
}

enum status cuda_wait(struct backend *b, int lane, int event, struct err *e) {
    TRY(event_check("wait", event, e));
    const struct event_slot *s = &cuda_of(b)->event[event];
    if (s->capture != cuda_of(b)->capture) return OK; /* the lanes have joined since then */
    if (lane == LANE_COMPUTE && s->lane == LANE_COMM && cuda_of(b)->group)
        return cuda_await_collective(cuda_of(b), s->event, e);
    CUDA_TRY(e, cudaStreamWaitEvent(cuda_lane(b, lane), s->event, 0));
    return OK;
}

enum status cuda_sync(struct backend *b, struct err *e) {
    for (int i = 0; i < LANE_COUNT; i++) CUDA_TRY(e, cudaStreamSynchronize(cuda_lane(b, i)));
    return OK;
}

/* ---- read-back ---- */

static enum status slot_check(const char *what, int slot, struct err *e) {
    if (slot >= 0 && slot < READBACK_SLOTS) return OK;
    return FAIL(e, ERR_ARG, "%s: slot %d is not in 0..%d", what, slot, READBACK_SLOTS - 1);
}

static enum status slot_filled(struct backend *b, const char *what, int slot, struct err *e) {
    TRY(slot_check(what, slot, e));
    if (cuda_of(b)->readback[slot].bytes) return OK;
    return FAIL(e, ERR_STATE, "%s: nothing was read back into slot %d", what, slot);
}

enum status cuda_readback(struct backend *b, int lane, int slot, const void *data, int64_t bytes,
                          struct err *e) {
    TRY(slot_check("readback", slot, e));
    if (bytes < 0 || bytes > READBACK_BYTES)
        return FAIL(e, ERR_ARG, "readback: %lld bytes, at most %d", (long long)bytes,
                    READBACK_BYTES);
    struct readback_slot *r = &cuda_of(b)->readback[slot];
    CUDA_TRY(e, cudaMemcpyAsync(r->host, data, (size_t)bytes, cudaMemcpyDeviceToHost,
                                cuda_lane(b, lane)));
    r->bytes = bytes;
    return record(cuda_of(b), &r->done, lane, e);
}

/* The event to wait for. A captured copy is done when its graph is done. */
static cudaEvent_t readback_event(struct cuda_backend *b, int slot) {
    const struct readback_slot *r = &b->readback[slot];
    return r->done.capture ? b->graph_done : r->done.event;
}

enum status cuda_readback_ready(struct backend *b, int slot, bool *ready, struct err *e) {
    TRY(slot_filled(b, "readback_ready", slot, e));
    cudaError_t status = cudaEventQuery(readback_event(cuda_of(b), slot));
    *ready = status == cudaSuccess;
    if (status == cudaErrorNotReady) (void)cudaGetLastError(); /* the next launch must not see it */
    else CUDA_TRY(e, status);
    return OK;
}

enum status cuda_readback_fetch(struct backend *b, int slot, void *host, struct err *e) {
    TRY(slot_filled(b, "readback_fetch", slot, e));
    const struct readback_slot *r = &cuda_of(b)->readback[slot];
    CUDA_TRY(e, cudaEventSynchronize(readback_event(cuda_of(b), slot)));
    memcpy(host, r->host, (size_t)r->bytes);
    return OK;
}

/* ---- graphs ---- */

/* The compute lane waits for every other lane. */
static enum status join_lanes(struct cuda_backend *b, struct err *e) {
    for (int i = 0; i < LANE_COUNT; i++) {
        if (i == LANE_COMPUTE) continue;
        CUDA_TRY(e, cudaEventRecord(b->join[i], b->lane[i]));
        CUDA_TRY(e, cudaStreamWaitEvent(b->lane[LANE_COMPUTE], b->join[i], 0));
    }
    return OK;
}

static enum status launch(struct cuda_backend *b, struct graph_slot *g, struct err *e) {
    TRY(join_lanes(b, e));
    CUDA_TRY(e, cudaGraphLaunch(g->exec, b->lane[LANE_COMPUTE]));
    CUDA_TRY(e, cudaEventRecord(b->graph_done, b->lane[LANE_COMPUTE]));
    for (int i = 0; i < LANE_COUNT; i++)
        if (i != LANE_COMPUTE) CUDA_TRY(e, cudaStreamWaitEvent(b->lane[i], b->graph_done, 0));
    return OK;
}

static enum status key_check(enum graph_key key, struct err *e) {
    if ((unsigned)key < GRAPH_COUNT) return OK;
    return FAIL(e, ERR_ARG, "graph key %d is not in 0..%d", (int)key, GRAPH_COUNT - 1);
}

enum status cuda_graph_replay(struct backend *b, enum graph_key key, bool *replayed,
                              struct err *e) {
    *replayed = false;
    TRY(key_check(key, e));
    struct graph_slot *g = &cuda_of(b)->graph[key];
    if (!g->exec) return OK;
    TRY(launch(cuda_of(b), g, e));
    *replayed = true;
    return OK;
}

enum status cuda_graph_begin(struct backend *b, enum graph_key key, struct err *e) {
    TRY(key_check(key, e));
    struct cuda_backend *cb = cuda_of(b);
    if (cb->capture) return FAIL(e, ERR_STATE, "graph_begin: a capture is under way");
    if (!cb->graph[key].warm) return OK;
    TRY(join_lanes(cb, e));
    CUDA_TRY(e, cudaStreamBeginCapture(cb->lane[LANE_COMPUTE], cudaStreamCaptureModeThreadLocal));
    cb->capture = ++cb->captures;
    /* The other lanes start after what the compute lane has queued. */
    CUDA_TRY(e, cudaEventRecord(cb->join[LANE_COMPUTE], cb->lane[LANE_COMPUTE]));
    for (int i = 0; i < LANE_COUNT; i++)
        if (i != LANE_COMPUTE)
            CUDA_TRY(e, cudaStreamWaitEvent(cb->lane[i], cb->join[LANE_COMPUTE], 0));
    return cuda_progress_begin(cb, key, e);
}

enum status cuda_graph_end(struct backend *b, enum graph_key key, struct err *e) {
    TRY(key_check(key, e));
    struct cuda_backend *cb = cuda_of(b);
    struct graph_slot *slot = &cb->graph[key];
    if (!cb->capture) {
        slot->warm = !SYNC_EACH_LAUNCH; /* a debug build never captures */
        return OK;
    }
    enum status st = cuda_progress_end(cb, e);
    if (st == OK) st = join_lanes(cb, e);
    cudaGraph_t graph = NULL;
    cudaError_t status = cudaStreamEndCapture(cb->lane[LANE_COMPUTE], &graph);
    cb->capture = 0;
    if (st == OK && status == cudaSuccess) status = cudaGraphInstantiate(&slot->exec, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    TRY(st);
    CUDA_TRY(e, status);
    return launch(cb, slot, e);
}

/* Ends a capture in which an operator failed. While a capture is open, waiting and freeing fail. */
static void capture_abandon(struct cuda_backend *b) {
    cudaGraph_t graph = NULL;
    if (!b->capture) return;
    (void)cudaStreamEndCapture(b->lane[LANE_COMPUTE], &graph);
    if (graph) cudaGraphDestroy(graph);
    (void)cudaGetLastError(); /* the other lanes had not joined: the next launch must not see it */
    b->capture = 0;
    cuda_progress_abandon(b);
}

void cuda_graph_drop(struct backend *b) {
    capture_abandon(cuda_of(b));
    for (int i = 0; i < GRAPH_COUNT; i++) {
        struct graph_slot *g = &cuda_of(b)->graph[i];
        if (g->exec) cudaGraphExecDestroy(g->exec);
        memset(g, 0, sizeof *g);
    }
}
