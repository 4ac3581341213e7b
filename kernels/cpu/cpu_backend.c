/* Fills the table, and implements memory, order, and copies between dtypes. The CPU runs every
 * operator in its call, so lanes, events and graphs do nothing. */
#include "kernels/cpu/cpu_backend.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels_hash.h"
#include "kernels/cpu/cpu.h"

enum { THREADS_MAX = 1024 };

static int64_t memory_pages(int name) {
    long pages = sysconf(name), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (int64_t)pages * size : 0;
}

static enum status cpu_info(struct backend *b, struct device_info *info, struct err *e) {
    const struct cpu_backend *cpu = cpu_of(b);
    const struct arithmetic *m = cpu->arithmetic;
    bool named = !arithmetic_is_reference(m);
    snprintf(info->name, sizeof info->name, "cpu: %s, %d thread%s%s%s%s", cpu->isa->title,
             cpu->threads, cpu->threads == 1 ? "" : "s", named ? ", arithmetic " : "",
             named ? m->name : "", m->verified ? "" : " (unverified)");
    snprintf(info->architecture, sizeof info->architecture, "%s", cpu->isa->architecture);
    info->memory_bytes = memory_pages(_SC_PHYS_PAGES);
    info->memory_free = memory_pages(_SC_AVPHYS_PAGES);
    return OK;
}

/* ---- memory ---- */

static enum status cpu_memory_create(struct backend *b, const char *what, int64_t bytes, void **out,
                                     struct err *e) {
    *out = NULL;
    if (bytes < 0) return FAIL(e, ERR_ARG, "memory for %s: %lld bytes", what, (long long)bytes);
    int64_t rounded = bytes ? round_up(bytes, ARENA_ALIGN) : ARENA_ALIGN;
    void *memory = aligned_alloc(ARENA_ALIGN, (size_t)rounded);
    if (!memory)
        return FAIL(e, ERR_MEMORY, "memory for %s: %lld bytes wanted, about %lld free", what,
                    (long long)bytes, (long long)memory_pages(_SC_AVPHYS_PAGES));
    memset(memory, 0, (size_t)rounded);
    *out = memory;
    return OK;
}

static void cpu_memory_destroy(struct backend *b, void *memory) { free(memory); }

static enum status cpu_upload(struct backend *b, int lane, void *data, const void *host,
                              int64_t bytes, struct err *e) {
    if (bytes < 0) return FAIL(e, ERR_ARG, "upload: %lld bytes", (long long)bytes);
    if (bytes) memcpy(data, host, (size_t)bytes);
    return OK;
}

static enum status cpu_download(struct backend *b, int lane, void *host, const void *data,
                                int64_t bytes, struct err *e) {
    if (bytes < 0) return FAIL(e, ERR_ARG, "download: %lld bytes", (long long)bytes);
    if (bytes) memcpy(host, data, (size_t)bytes);
    return OK;
}

/* ---- read-back ---- */

static enum status slot_check(const char *what, int slot, struct err *e) {
    if (slot >= 0 && slot < READBACK_SLOTS) return OK;
    return FAIL(e, ERR_ARG, "%s: slot %d is not in 0..%d", what, slot, READBACK_SLOTS - 1);
}

static enum status slot_filled(struct backend *b, const char *what, int slot, struct err *e) {
    TRY(slot_check(what, slot, e));
    if (cpu_of(b)->readback_bytes[slot]) return OK;
    return FAIL(e, ERR_STATE, "%s: nothing was read back into slot %d", what, slot);
}

static enum status cpu_readback(struct backend *b, int lane, int slot, const void *data,
                                int64_t bytes, struct err *e) {
    TRY(slot_check("readback", slot, e));
    if (bytes < 0 || bytes > READBACK_BYTES)
        return FAIL(e, ERR_ARG, "readback: %lld bytes, at most %d", (long long)bytes,
                    READBACK_BYTES);
    struct cpu_backend *cpu = cpu_of(b);
    memcpy(cpu->readback[slot], data, (size_t)bytes);
    cpu->readback_bytes[slot] = bytes;
    return OK;
}

static enum status cpu_readback_ready(struct backend *b, int slot, bool *ready, struct err *e) {
    *ready = true;
    return slot_filled(b, "readback_ready", slot, e);
}

static enum status cpu_readback_fetch(struct backend *b, int slot, void *host, struct err *e) {
    TRY(slot_filled(b, "readback_fetch", slot, e));
    struct cpu_backend *cpu = cpu_of(b);
    memcpy(host, cpu->readback[slot], (size_t)cpu->readback_bytes[slot]);
    return OK;
}

/* ---- zero, copy: any strides ---- */

/* Runs over the innermost dimension for every index of the outer three. */
#define FOR_ROWS(x, i, j, k)                             \
    for (int64_t i = 0; i < (x)->dim[0]; i++)            \
        for (int64_t j = 0; j < (x)->dim[1]; j++)        \
            for (int64_t k = 0; k < (x)->dim[2]; k++)

static int64_t row_offset(const struct tensor *x, int64_t i, int64_t j, int64_t k) {
    return i * x->stride[0] + j * x->stride[1] + k * x->stride[2];
}

static void zero_row(const struct tensor *x, int64_t at, int64_t bytes) {
    char *p = (char *)x->data + at * bytes;
    if (x->stride[3] == 1) {
        memset(p, 0, (size_t)(x->dim[3] * bytes));
        return;
    }
    for (int64_t l = 0; l < x->dim[3]; l++) memset(p + l * x->stride[3] * bytes, 0, (size_t)bytes);
}

enum status cpu_zero(struct backend *b, int lane, const struct tensor *x, struct err *e) {
    int64_t bytes = dtype_bytes(x->dtype);
    if (cpu_is_packed(x)) memset(x->data, 0, (size_t)(tensor_count(x) * bytes));
    else FOR_ROWS(x, i, j, k) zero_row(x, row_offset(x, i, j, k), bytes);
    return OK;
}

/* One row of a copy; F32 and BF16 in any combination, one rounding where it narrows. */
static void copy_row(const struct tensor *out, int64_t o, const struct tensor *x, int64_t at) {
    int64_t n = x->dim[3];
    if (out->dtype == x->dtype) {
        int64_t bytes = dtype_bytes(x->dtype);
        const char *from = (const char *)x->data + at * bytes;
        char *to = (char *)out->data + o * bytes;
        if (x->stride[3] == 1 && out->stride[3] == 1) {
            memcpy(to, from, (size_t)(n * bytes));
            return;
        }
        for (int64_t l = 0; l < n; l++)
            memcpy(to + l * out->stride[3] * bytes, from + l * x->stride[3] * bytes, (size_t)bytes);
        return;
    }
    for (int64_t l = 0; l < n; l++) {
        float value;
        load_span(&value, x, at + l * x->stride[3], 1);
        store_span(out, o + l * out->stride[3], &value, 1);
    }
}

enum status cpu_copy(struct backend *b, int lane, const struct tensor *out,
                     const struct tensor *x, struct err *e) {
    if (memcmp(out->dim, x->dim, sizeof x->dim) != 0)
        return FAIL(e, ERR_ARG, "copy: the shapes differ");
    if ((!out->data || !x->data) && tensor_count(x))
        return FAIL(e, ERR_ARG, "copy: %s is missing", out->data ? "x" : "out");
    bool act = (IS_ACT & 1 << out->dtype) && (IS_ACT & 1 << x->dtype);
    if (out->dtype != x->dtype && !act)
        return FAIL(e, ERR_ARG, "copy: from %s to %s", dtype_name(x->dtype),
                    dtype_name(out->dtype));
    if (cpu_is_packed(out) && cpu_is_packed(x) && act) {
        int64_t n = tensor_count(x);
        if (out->dtype == x->dtype) memcpy(out->data, x->data, (size_t)(n * dtype_bytes(x->dtype)));
        else if (x->dtype == DTYPE_BF16) cpu_of(b)->isa->bf16_decode(out->data, x->data, n);
        else cpu_of(b)->isa->bf16_encode(out->data, x->data, n);
        return OK;
    }
    FOR_ROWS(x, i, j, k) copy_row(out, row_offset(out, i, j, k), x, row_offset(x, i, j, k));
    return OK;
}

static enum status cpu_matmul_native(struct backend *b, const struct matmul_args *args,
                                     bool *native, struct err *e) {
    *native = true;
    return OK;
}

static enum status cpu_product_way(struct backend *b, const struct matmul_args *args,
                                   struct mma_way *way, bool *known, struct err *e) {
    const struct arithmetic *m = cpu_of(b)->arithmetic;
    *known = arithmetic_describes(m, args);
    return *known ? arithmetic_way(m, args, way, e) : OK;
}

/* ---- order and graphs: every operator has finished when it returns ---- */

static enum status cpu_event(struct backend *b, int lane, int event, struct err *e) {
    if (event < 0 || event >= EVENT_COUNT)
        return FAIL(e, ERR_ARG, "event %d is not in 0..%d", event, EVENT_COUNT - 1);
    return OK;
}
static enum status cpu_sync(struct backend *b, struct err *e) { return OK; }

static enum status cpu_graph_replay(struct backend *b, enum graph_key key, bool *replayed,
                                    struct err *e) {
    *replayed = false;
    return OK;
}
static enum status cpu_graph_mark(struct backend *b, enum graph_key key, struct err *e) {
    return OK;
}
static void cpu_graph_drop(struct backend *b) {}

/* ---- open and close ---- */

static void cpu_close(struct backend *b) {
    if (!b) return;
    struct cpu_backend *cpu = cpu_of(b);
    cpu_group_close(cpu->group);
    free(cpu->scratch);
    free(cpu->gemm_a);
    free(cpu->gemm_b);
    free(cpu->gemm_c);
    free(cpu);
}

static const struct backend_ops CPU_OPS = {
    .size = sizeof(struct backend_ops),
    .kernels_sha256 = FP8LAB_KERNELS_SHA256,
    .name = "cpu",
    /* .comm: cpu_backend_open copies CPU_COMM, since C cannot initialise from another file's
     * value */
    .close = cpu_close,
    .info = cpu_info, .memory_create = cpu_memory_create,
    .memory_create_pinned = cpu_memory_create, .memory_destroy = cpu_memory_destroy,
    .upload = cpu_upload, .download = cpu_download, .readback = cpu_readback,
    .readback_ready = cpu_readback_ready, .readback_fetch = cpu_readback_fetch,
    .signal = cpu_event, .wait = cpu_event, .sync = cpu_sync,
    .graph_replay = cpu_graph_replay,
    .graph_begin = cpu_graph_mark, .graph_end = cpu_graph_mark, .graph_drop = cpu_graph_drop,
    .timer_mark = cpu_timer_mark, .timer_read = cpu_timer_read,
    .matmul_native = cpu_matmul_native, .product_way = cpu_product_way,
    .twins_untransposed = cpu_twins_untransposed,
#define OPERATOR(name, parameters, arguments, cost) .name = cpu_##name,
#include "kernels/operators.inc"
    .choices_save = cpu_choices_save,
    .choices_load = cpu_choices_load,
    .choices_offer = cpu_choices_load, /* rejects another device's table too */
    .choices_timed = cpu_choices_save, /* nothing */
    .choosing_seconds = cpu_choosing_seconds,
    .library = cpu_library, .decision = cpu_decision,
    .attention_backend = cpu_attention_backend,
    .in_progress = cpu_in_progress, .assume_architecture = cpu_assume_architecture,
    .forbid = cpu_forbid,
    .set_exact = cpu_set_exact,
};

/* Allocates scratch memory at open, so that a step allocates nothing. */
static enum status allocate_floats(float **out, int64_t n, const char *what, struct err *e) {
    *out = aligned_alloc(ARENA_ALIGN, (size_t)n * sizeof(float));
    if (*out) return OK;
    return FAIL(e, ERR_MEMORY, "no memory for %s: %lld bytes", what,
                (long long)(n * (int64_t)sizeof(float)));
}

enum status cpu_backend_open(struct backend **out, int threads, struct err *e) {
    *out = NULL;
    if (threads < 0 || threads > THREADS_MAX)
        return FAIL(e, ERR_ARG, "%d threads: 0 (all) to %d", threads, THREADS_MAX);
    struct cpu_backend *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return FAIL(e, ERR_MEMORY, "no memory for the CPU backend: %zu bytes", sizeof *cpu);
    cpu->ops = CPU_OPS;
    cpu->ops.comm = CPU_COMM;
    cpu->base.ops = &cpu->ops;
    cpu->threads = threads ? threads : omp_get_max_threads();
    cpu->isa = isa_find(NULL);
    cpu->arithmetic = arithmetic_at(0);
    enum status st = allocate_floats(&cpu->scratch, (int64_t)cpu->threads * SCRATCH_FLOATS,
                                     "scratch of the CPU backend", e);
    float **gemm[3] = { &cpu->gemm_a, &cpu->gemm_b, &cpu->gemm_c };
    for (int i = 0; i < 3 && st == OK; i++)
        st = allocate_floats(gemm[i], GEMM_FLOATS, "GEMM buffers of the CPU backend", e);
    if (st != OK) {
        cpu_close(&cpu->base);
        return st;
    }
    *out = &cpu->base;
    return OK;
}

enum status cpu_backend_use(struct backend *b, const char *isa, struct err *e) {
    const struct isa *found = isa_find(isa);
    if (!found)
        return FAIL(e, ERR_UNSUPPORTED, "vector kernels \"%s\": this machine has at best \"%s\"",
                    isa, isa_find(NULL)->name);
    cpu_of(b)->isa = found;
    return OK;
}

enum status cpu_backend_calculate(struct backend *b, const char *arithmetic, struct err *e) {
    const struct arithmetic *found;
    TRY(arithmetic_find(arithmetic, &found, e));
    cpu_of(b)->arithmetic = found;
    return OK;
}
