/* A multiprocessor for kernels/cuda/gemm_sync_body.h on the host: one block of threads as
 * coroutines, its shared memory, its copies, and an emulator of ldmatrix and mma.sync.
 *
 * The layouts of the fragments are written here from the PTX ISA (sections on mma.m16n8k16,
 * mma.m16n8k32 and ldmatrix), not from the kernel. The products are added by mma_add. Copies are
 * made when they are requested, or as late as the kernel's waits allow: both must give the same. */
#ifndef FP8LAB_TESTS_OPS_SYNC_MACHINE_H
#define FP8LAB_TESTS_OPS_SYNC_MACHINE_H

#include <stdlib.h>
#include <ucontext.h>

#include "kernels/arithmetic.h"
#include "kernels/cuda/gemm_sync_body.h"

enum { LANES = 32, STACK_BYTES = 64 << 10, COPIES_MAX = 64, BANKS_BYTES = 128 };

/* What a coroutine waits for. */
enum wait_for { NOTHING, BARRIER, MATRICES, MULTIPLY, THE_END };

struct copy { uint32_t to; const void *from; int size, bytes, group; };

struct coroutine {
    ucontext_t context;
    char *stack;
    enum wait_for wait;
    uint32_t *r, from; /* MATRICES */
    float *c;          /* MULTIPLY */
    const uint32_t *a, *b;
    struct copy copy[COPIES_MAX]; /* not yet made */
    int copies, group;            /* group: of the next copy */
};

struct machine {
    uint8_t shared[SYNC_SHARED];
    struct coroutine thread[SYNC_THREADS];
    ucontext_t scheduler;
    const struct sync_product *product;
    int64_t tile;
    int kind, scales, running;
    bool late, backwards; /* copies as late as possible; the last warp first */
    struct mma mma;
    int least_a, least_b;
    int64_t instructions;
};

static struct machine *machine_of(struct sync_place at) { return at.machine; }

/* ---- what a thread calls ---- */

static void pause_for(struct sync_place at, enum wait_for what) {
    struct machine *m = machine_of(at);
    m->thread[at.thread].wait = what;
    swapcontext(&m->thread[at.thread].context, &m->scheduler);
}

static void make_copy(struct machine *m, const struct copy *c) {
    memset(m->shared + c->to, 0, (size_t)c->size);
    if (c->bytes) memcpy(m->shared + c->to, c->from, (size_t)c->bytes);
}

static void port_copy(struct sync_place at, uint32_t to, int size, const void *from, int bytes) {
    struct machine *m = machine_of(at);
    struct coroutine *t = &m->thread[at.thread];
    struct copy c = { to, from, size, bytes, t->group };
    if ((int64_t)to + size > SYNC_SHARED || to % (uint32_t)size || bytes < 0 || bytes > size)
        fail_msg("a copy of %d of %d bytes to %u", bytes, size, to);
    if (bytes && (uintptr_t)from % (uintptr_t)size) fail_msg("a copy from an unaligned address");
    if (!m->late) {
        make_copy(m, &c);
        return;
    }
    assert_true(t->copies < COPIES_MAX);
    t->copy[t->copies++] = c;
}

static void port_commit(struct sync_place at) { machine_of(at)->thread[at.thread].group++; }

static void port_wait(struct sync_place at) {
    struct machine *m = machine_of(at);
    struct coroutine *t = &m->thread[at.thread];
    int kept = 0;
    for (int i = 0; i < t->copies; i++)
        if (t->copy[i].group < t->group - (SYNC_STAGES - 2)) make_copy(m, &t->copy[i]);
        else t->copy[kept++] = t->copy[i];
    t->copies = kept;
}

static void port_barrier(struct sync_place at) { pause_for(at, BARRIER); }

static void port_matrices(struct sync_place at, uint32_t r[4], uint32_t from) {
    struct coroutine *t = &machine_of(at)->thread[at.thread];
    t->r = r;
    t->from = from;
    pause_for(at, MATRICES);
}

static void port_multiply(struct sync_place at, int kind, float c[4], const uint32_t a[4],
                          const uint32_t b[2]) {
    struct coroutine *t = &machine_of(at)->thread[at.thread];
    assert_int_equal(kind, machine_of(at)->kind);
    t->c = c;
    t->a = a;
    t->b = b;
    pause_for(at, MULTIPLY);
}

static float port_load(struct sync_place at, uint32_t from) {
    float x;
    assert_true(from % 4 == 0 && from + 4 <= SYNC_SHARED);
    memcpy(&x, machine_of(at)->shared + from, 4);
    return x;
}

static const struct sync_port PORT = { port_copy, port_commit, port_wait, port_barrier,
                                       port_matrices, port_multiply, port_load };

/* ---- what a warp does together ---- */

/* ldmatrix.x4: lanes 8i to 8i+7 name the rows of matrix i; lane l gets the four bytes l%4 of row
 * l/4 of each matrix. The eight rows of a matrix must be in different banks. */
static void do_matrices(struct machine *m, struct coroutine *warp) {
    for (int i = 0; i < 4; i++) {
        unsigned banks = 0;
        for (int row = 0; row < 8; row++) {
            uint32_t from = warp[8 * i + row].from;
            if (from % 16 || from + 16 > SYNC_SHARED) fail_msg("ldmatrix from %u", from);
            banks |= 1u << from % BANKS_BYTES / 16;
        }
        assert_int_equal(banks, 0xFF);
        for (int lane = 0; lane < LANES; lane++)
            memcpy(&warp[lane].r[i], m->shared + warp[8 * i + lane / 4].from + lane % 4 * 4, 4);
    }
}

enum { M_OF = 16, N_OF = 8, K_MAX = 32 };

/* An operand of one instruction, [row][k], as values with their exponents. */
struct fragment { float value[M_OF][K_MAX]; int32_t exponent[M_OF][K_MAX]; };

static void set_element(struct fragment *f, int row, int k, enum dtype t, uint32_t code,
                        int least) {
    float x = t == DTYPE_BF16 ? bf16_decode((uint16_t)code) : fp8_decode(t, (uint8_t)code);
    f->value[row][k] = x;
    f->exponent[row][k] = mma_exponent(x, least);
}

/* Elements i of a lane: 16 of a and 8 of b in 8 bits, 8 and 4 in 16 bits. */
static void gather(const struct coroutine *warp, const struct machine *m, struct fragment *a,
                   struct fragment *b) {
    bool wide = m->kind == SYNC_BF16;
    enum dtype ta = wide ? DTYPE_BF16 : m->kind == SYNC_E5M2_E4M3 ? DTYPE_E5M2 : DTYPE_E4M3;
    enum dtype tb = wide ? DTYPE_BF16 : m->kind == SYNC_E4M3_E5M2 ? DTYPE_E5M2 : DTYPE_E4M3;
    int each = wide ? 2 : 4, bits = 32 / each;
    uint32_t mask = wide ? 0xFFFFu : 0xFFu;
    for (int lane = 0; lane < LANES; lane++) {
        int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < 4 * each; i++) {
            bool upper = wide ? (i >= 2 && i < 4) || i >= 6 : (i >= 4 && i < 8) || i >= 12;
            int k = in_group * each + i % each + (i >= 2 * each ? 4 * each : 0);
            set_element(a, group + (upper ? 8 : 0), k, ta,
                        warp[lane].a[i / each] >> i % each * bits & mask, m->least_a);
        }
        for (int i = 0; i < 2 * each; i++) {
            int k = in_group * each + i % each + (i >= each ? 4 * each : 0);
            set_element(b, group, k, tb, warp[lane].b[i / each] >> i % each * bits & mask,
                        m->least_b);
        }
    }
}

/* mma.sync: c0 and c1 of a lane are row l/4, columns 2 (l%4) and the next; c2 and c3 of row
 * l/4 + 8. */
static void do_multiply(struct machine *m, struct coroutine *warp) {
    static struct fragment a, b;
    int k = m->kind == SYNC_BF16 ? 16 : 32, group = m->mma.group < k ? m->mma.group : k;
    gather(warp, m, &a, &b);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++) {
            int row = lane / 4 + (i >= 2 ? 8 : 0), col = lane % 4 * 2 + (i & 1);
            for (int first = 0; first < k; first += group)
                warp[lane].c[i] = mma_add(
                    &m->mma, group,
                    (struct mma_terms){ a.value[row] + first, a.exponent[row] + first, 1 },
                    (struct mma_terms){ b.value[col] + first, b.exponent[col] + first, 1 },
                    warp[lane].c[i]);
        }
    m->instructions++;
}

/* ---- the scheduler ---- */

/* Coroutines get a pointer as two ints. */
static void start_thread(unsigned high, unsigned low) {
    struct machine *m = (struct machine *)(uintptr_t)((uint64_t)high << 32 | low);
    struct sync_place at = { m->running, &PORT, m };
    sync_body(m->product, at, m->tile, m->kind, m->scales);
    m->thread[at.thread].wait = THE_END;
    swapcontext(&m->thread[at.thread].context, &m->scheduler);
}

static void resume_thread(struct machine *m, int thread) {
    m->running = thread;
    m->thread[thread].wait = NOTHING;
    swapcontext(&m->scheduler, &m->thread[thread].context);
}

/* Runs a warp to its next barrier, or to its end. Lanes that wait for different things are an
 * error: the real instructions would hang. */
static enum wait_for run_warp(struct machine *m, int warp) {
    struct coroutine *lane = &m->thread[warp * LANES];
    for (;;) {
        for (int i = 0; i < LANES; i++) resume_thread(m, warp * LANES + i);
        for (int i = 1; i < LANES; i++)
            if (lane[i].wait != lane[0].wait) fail_msg("lanes 0 and %d of a warp part", i);
        if (lane[0].wait == MATRICES) do_matrices(m, lane);
        else if (lane[0].wait == MULTIPLY) do_multiply(m, lane);
        else return lane[0].wait;
    }
}

/* Prepares a thread that starts when it is resumed. The loop over threads is not here: getcontext
 * may return twice, and a caller's counter might be lost. */
static void set_thread(struct machine *m, struct coroutine *t) {
    uint64_t p = (uint64_t)(uintptr_t)m;
    char *stack = t->stack ? t->stack : malloc(STACK_BYTES);
    *t = (struct coroutine){ .stack = stack };
    assert_int_equal(getcontext(&t->context), 0);
    t->context.uc_stack.ss_sp = stack;
    t->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&t->context, (void (*)(void))start_thread, 2, (unsigned)(p >> 32), (unsigned)p);
}

/* Computes one tile of m->product. */
static void run_block(struct machine *m) {
    enum { WARPS = SYNC_THREADS / LANES };
    memset(m->shared, 0x7F, sizeof m->shared); /* NaN in every format */
    for (int i = 0; i < SYNC_THREADS; i++) set_thread(m, &m->thread[i]);
    enum wait_for all = BARRIER;
    while (all == BARRIER)
        for (int i = 0; i < WARPS; i++) {
            enum wait_for one = run_warp(m, m->backwards ? WARPS - 1 - i : i);
            if (i && one != all) fail_msg("a warp waits at a barrier for one that has ended");
            all = one;
        }
}

static void machine_free(struct machine *m) {
    for (int i = 0; i < SYNC_THREADS; i++) free(m->thread[i].stack);
    free(m);
}

#endif
