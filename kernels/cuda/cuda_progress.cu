/* A mark is one byte of mapped host memory. A separate stream sets the byte: it waits for the
 * operator, and no operator waits for it. On a side branch of a graph a mark costs 0.25 us, on the
 * compute lane 1.8 us (H200, 500 small kernels). One operator in GROUP has a mark, so a step of 700
 * operators costs 0.04 ms. An error names the operators of the first group that did not end. */
#include "kernels/cuda/cuda_progress.cuh"

#include "kernels/cuda/cuda_backend.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUP = 4,
    MARKS_MAX = 2048,   /* marks of a section; later operators have none */
    NAME_BYTES = 80,
    DIRECT = GRAPH_COUNT, /* the section of operators outside graphs: a ring */
    SECTIONS = GRAPH_COUNT + 1
};

/* The operators of one graph, or the latest outside graphs, in queueing order. The queueing thread
 * writes; another thread may read (cuda_in_progress). A name is written before it is counted, and
 * stays for MARKS_MAX * GROUP more operators. */
struct section {
    char (*name)[NAME_BYTES]; /* [MARKS_MAX * GROUP] */
    int64_t operators, marks;
};

static int64_t seen(const int64_t *count) { return __atomic_load_n(count, __ATOMIC_ACQUIRE); }
static void show(int64_t *count, int64_t now) { __atomic_store_n(count, now, __ATOMIC_RELEASE); }

struct cuda_progress {
    cudaStream_t side;
    cudaEvent_t done;
    unsigned char *board; /* [SECTIONS][MARKS_MAX], mapped */
    struct section section[SECTIONS];
    int current;
};

enum status cuda_progress_open(struct cuda_backend *b, struct err *e) {
    struct cuda_progress *p = (struct cuda_progress *)calloc(1, sizeof *p);
    if (!p) return FAIL(e, ERR_MEMORY, "no memory for the record of operators");
    b->progress = p;
    p->current = DIRECT;
    for (int i = 0; i < SECTIONS; i++) {
        p->section[i].name = (char (*)[NAME_BYTES])malloc((size_t)MARKS_MAX * GROUP * NAME_BYTES);
        if (!p->section[i].name)
            return FAIL(e, ERR_MEMORY, "no memory for the record of operators");
    }
    CUDA_TRY(e, cudaHostAlloc((void **)&p->board, SECTIONS * MARKS_MAX, cudaHostAllocMapped));
    memset(p->board, 0, SECTIONS * MARKS_MAX);
    CUDA_TRY(e, cudaStreamCreateWithFlags(&p->side, cudaStreamNonBlocking));
    CUDA_TRY(e, cudaEventCreateWithFlags(&p->done, cudaEventDisableTiming));
    return OK;
}

void cuda_progress_close(struct cuda_backend *b) {
    struct cuda_progress *p = b->progress;
    if (!p) return;
    if (p->done) cudaEventDestroy(p->done);
    if (p->side) cudaStreamDestroy(p->side);
    if (p->board) cudaFreeHost(p->board);
    for (int i = 0; i < SECTIONS; i++) free(p->section[i].name);
    free(p);
    b->progress = NULL;
}

/* ---- marks ---- */

static unsigned char *byte_of(const struct cuda_progress *p, int section, int64_t mark) {
    return p->board + (int64_t)section * MARKS_MAX + mark % MARKS_MAX;
}

/* The value that a set mark's byte has. Outside graphs bytes are reused, so the value counts
 * rounds. */
static unsigned char value_of(int section, int64_t mark) {
    return section == DIRECT ? (unsigned char)(mark / MARKS_MAX % 255 + 1) : 1;
}

/* The mark of everything queued on `lane` so far. */
static enum status set_mark(struct cuda_backend *b, cudaStream_t lane, struct err *e) {
    struct cuda_progress *p = b->progress;
    struct section *s = &p->section[p->current];
    CUDA_TRY(e, cudaEventRecord(p->done, lane));
    CUDA_TRY(e, cudaStreamWaitEvent(p->side, p->done, 0));
    CUDA_TRY(e, cudaMemsetAsync(byte_of(p, p->current, s->marks), value_of(p->current, s->marks), 1,
                                p->side));
    show(&s->marks, s->marks + 1);
    return OK;
}

static enum status note(struct backend *b, int lane, const char *name, const char *detail,
                        struct err *e) {
    struct cuda_progress *p = cuda_of(b)->progress;
    struct section *s = &p->section[p->current];
    if (p->current != DIRECT && s->operators == (int64_t)MARKS_MAX * GROUP) return OK;
    snprintf(s->name[s->operators % (MARKS_MAX * GROUP)], NAME_BYTES, "%s%s%s", name,
             *detail ? " " : "", detail);
    show(&s->operators, s->operators + 1);
    return s->operators % GROUP ? OK : set_mark(cuda_of(b), cuda_lane(b, lane), e);
}

static void forget(struct section *s) {
    show(&s->marks, 0);
    show(&s->operators, 0);
}

enum status cuda_progress_begin(struct cuda_backend *b, enum graph_key key, struct err *e) {
    struct cuda_progress *p = b->progress;
    struct section *s = &p->section[key];
    forget(s);
    p->current = key;
    memset(byte_of(p, key, 0), 1, MARKS_MAX); /* none of its operators is running */
    CUDA_TRY(e, cudaEventRecord(p->done, b->lane[LANE_COMPUTE]));
    CUDA_TRY(e, cudaStreamWaitEvent(p->side, p->done, 0));
    CUDA_TRY(e, cudaMemsetAsync(byte_of(p, key, 0), 0, MARKS_MAX, p->side));
    return OK;
}

enum status cuda_progress_end(struct cuda_backend *b, struct err *e) {
    struct cuda_progress *p = b->progress;
    struct section *s = &p->section[p->current];
    enum status st = s->operators % GROUP ? set_mark(b, b->lane[LANE_COMPUTE], e) : OK;
    p->current = DIRECT;
    TRY(st);
    CUDA_TRY(e, cudaEventRecord(p->done, p->side));
    CUDA_TRY(e, cudaStreamWaitEvent(b->lane[LANE_COMPUTE], p->done, 0));
    return OK;
}

void cuda_progress_abandon(struct cuda_backend *b) {
    struct cuda_progress *p = b->progress;
    if (p->current != DIRECT) forget(&p->section[p->current]);
    p->current = DIRECT;
}

/* ---- naming the running operators ---- */

/* The first readable mark that is not set; -1: all are set. */
static int64_t first_unset(const struct cuda_progress *p, int section) {
    int64_t marks = seen(&p->section[section].marks);
    int64_t from = section == DIRECT ? max_i64(marks - MARKS_MAX, 0) : 0;
    for (int64_t i = from; i < marks; i++)
        if (__atomic_load_n(byte_of(p, section, i), __ATOMIC_ACQUIRE) != value_of(section, i))
            return i;
    return -1;
}

/* "qk_fwd, attention_fwd or matmul ...": the operators of one group. */
static void list_group(const struct section *s, int64_t mark, char *out, size_t size) {
    int64_t first = mark * GROUP, end = min_i64(first + GROUP, seen(&s->operators));
    size_t at = 0;
    out[0] = 0;
    for (int64_t i = first; i < end && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s",
                               i == first ? "" : i + 1 == end ? " or " : ", ",
                               s->name[i % (MARKS_MAX * GROUP)]);
}

/* Names the first group that has not ended. Graphs come first, since operators queued after a graph
 * have not ended either. `rest`: if all marks are set, name the operators without a mark. */
static bool name_running(const struct cuda_progress *p, bool rest, char *out, size_t size) {
    for (int i = 0; i < SECTIONS; i++) {
        const struct section *s = &p->section[i];
        int64_t mark = first_unset(p, i);
        if (rest && i == DIRECT && mark < 0 && s->operators % GROUP) mark = s->marks;
        if (mark < 0) continue;
        list_group(s, mark, out, size);
        return true;
    }
    return false;
}

bool cuda_in_progress(struct backend *b, char *out, size_t size) {
    const struct cuda_progress *p = cuda_of(b)->progress;
    return p && name_running(p, false, out, size);
}

/* Adds the running operators to the error of a device that has failed permanently. A launch failure
 * has a known cause that is not ours: products of the library in clusters, interrupted in favour of
 * another process (LOG.md). */
static void explain(struct backend *b, struct err *e) {
    struct cuda_progress *p = cuda_of(b)->progress;
    if (!p || !e) return;
    cudaError_t state = cudaStreamQuery(cuda_lane(b, LANE_COMPUTE));
    if (state == cudaSuccess || state == cudaErrorNotReady) return;
    /* A captured lane cannot be queried. This does not mean that the device failed. */
    if (state == cudaErrorStreamCaptureUnsupported || state == cudaErrorStreamCaptureInvalidated)
        return;
    char names[GROUP * (NAME_BYTES + 4)];
    bool shared = state == cudaErrorLaunchFailure;
    if (name_running(p, true, names, sizeof names))
        err_prefix(e, "the device failed in %s%s", names,
                   shared ? " (where other processes use the GPU, the library's products can fail "
                            "so: give the run a GPU of its own, and resume it)" : "");
}

/* ---- the wrapped table ---- */

/* The detail of an operator's name: for a matmul the weight and the direction. */
template <typename... A> static void detail_of(char *out, size_t size, A...) { out[0] = 0; }
template <typename... A>
static void detail_of(char *out, size_t size, const struct matmul_args *t, A...) {
    static const char *const DIRECTION[] = { " fprop", " dgrad", " wgrad" };
    snprintf(out, size, "%s%s", t && t->name ? t->name : "",
             t && t->name ? DIRECTION[t->direction] : "");
}

static struct err *last_of(struct err *e) { return e; }
template <typename First, typename... Rest> static struct err *last_of(First, Rest... rest) {
    return last_of(rest...);
}

/* An operator that records itself under the name of its slot. */
template <auto F, class Name> struct recorded;
template <class Name, typename... A, enum status (*F)(struct backend *, int, A...)>
struct recorded<F, Name> {
    static enum status call(struct backend *b, int lane, A... args) {
        struct err *e = last_of(args...);
        enum status st = F(b, lane, args...);
        /* Here too: libraries launch kernels without calling cuda_launched. */
        if (SYNC_EACH_LAUNCH && st == OK) st = cuda_launched(Name::text(), e);
        if (st == OK) {
            char detail[NAME_BYTES];
            detail_of(detail, sizeof detail, args...);
            st = note(b, lane, Name::text(), detail, e);
        }
        if (st == ERR_DEVICE) explain(b, e);
        return st;
    }
};

/* Another slot in which a fault may first be reported. */
template <auto F> struct explained;
template <typename... A, enum status (*F)(struct backend *, A...)> struct explained<F> {
    static enum status call(struct backend *b, A... args) {
        enum status st = F(b, args...);
        if (st == ERR_DEVICE) explain(b, last_of(args...));
        return st;
    }
};

#define RECORD(slot)                                          \
    do {                                                      \
        struct slot_name {                                    \
            static const char *text() { return #slot; }       \
        };                                                    \
        t->slot = recorded<&cuda_##slot, slot_name>::call;     \
    } while (0)
#define EXPLAIN(slot) (t->slot = explained<&cuda_##slot>::call)

void cuda_progress_wrap(struct backend_ops *t) {
#define OPERATOR(name, parameters, arguments, cost) RECORD(name);
#include "kernels/operators.inc"
    EXPLAIN(upload); EXPLAIN(download); EXPLAIN(readback); EXPLAIN(readback_ready);
    EXPLAIN(readback_fetch); EXPLAIN(signal); EXPLAIN(wait); EXPLAIN(sync); EXPLAIN(graph_replay);
    EXPLAIN(graph_begin); EXPLAIN(graph_end);
}
