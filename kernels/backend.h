/* The operator interface: one table of functions per backend. kernels/cpu defines what each means;
 * kernels/cuda does the same, faster, and is tested against it.
 *
 * Conventions that hold for every operator unless its comment says otherwise
 *   shapes   legend in tensor.h. "act" is the activation dtype of the recipe: BF16, or F32 in the
 *            f32 recipe; all act operands of one call agree. "grad" is F32 or BF16 (main
 *            gradients).
 *   rounding inputs are widened to f32, arithmetic and sums are f32, one rounding at each output.
 *   layout   packed row-major; matmul operands may be transposed views, qkv slices strided.
 *   aliasing outputs alias no input unless the comment allows it.
 *   queueing an operator is queued on `lane` and may not have run on return; operators of one lane
 *            run in order, lanes are ordered by signal/wait only. sync() waits for all lanes.
 *   values   that change between steps (learning rate, clip factor, step) are tensors, never
 *            arguments, so that a captured graph can be replayed.
 *   errors   ERR_ARG (a shape or dtype that the comment excludes, named in the text), ERR_DEVICE.
 *            ERR_UNSUPPORTED if a backend lacks an operator's mode; the text names one that has
 *            it.
 *   NaN      is kept, never hidden, and canonical in every output (dtype.h). */
#ifndef FP8LAB_KERNELS_BACKEND_H
#define FP8LAB_KERNELS_BACKEND_H

#include <stdio.h>

#include "kernels/arguments.h"
#include "kernels/comm.h"
#include "kernels/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mma_way; /* arithmetic.h */

enum lane { LANE_COMPUTE, LANE_COMM, LANE_COPY, LANE_COUNT };

/* What a captured graph is of. */
enum graph_key {
    GRAPH_FIRST_MICRO, GRAPH_LATER_MICRO,
    GRAPH_LAST_MICRO, /* of several; its end reduces gradients over ranks */
    GRAPH_UPDATE, GRAPH_EVAL, GRAPH_COUNT
};

enum { EVENT_COUNT = 64 }; /* events are small integers, chosen by the model */
enum { TIMER_MARKS = 1 << 15 }; /* so are the marks of timer_mark; the last 4 are the trainer's */
enum { READBACK_SLOTS = 4, READBACK_BYTES = 1 << 20 };

/* Which kernel serves attention: the backend's own rule decides (it measures no time), or always
 * one of the two. */
enum attention_backend { ATTENTION_AUTO, ATTENTION_OWN, ATTENTION_CUDNN, ATTENTION_BACKEND_COUNT };

/* What the operators that the model queues are for. `index` is the number of the step (from 1), of
 * the micro-batch, layer or chunk of the head (from 0), otherwise 0. */
enum scope {
    SCOPE_STEP, SCOPE_MICRO, SCOPE_FORWARD, SCOPE_BACKWARD, SCOPE_UPDATE,
    SCOPE_EVAL, /* a micro-batch of an evaluation */
    SCOPE_EMBEDDING, SCOPE_LAYER, SCOPE_HEAD
};

/* Is told which scopes the model enters; they nest. For measuring only. A call that fails may leave
 * scopes open. */
struct watch {
    void (*enter)(struct watch *w, enum scope scope, int64_t index);
    void (*leave)(struct watch *w);
    struct watch *next; /* owned by its maker, as this one is; NULL: the last */
};

struct backend_ops;
struct backend { /* first member of each concrete backend */
    const struct backend_ops *ops;
    struct watch *watch; /* NULL: nobody watches */
};

static inline void scope_enter(struct backend *b, enum scope scope, int64_t index) {
    for (struct watch *w = b->watch; w; w = w->next) w->enter(w, scope, index);
}
static inline void scope_leave(struct backend *b) {
    for (struct watch *w = b->watch; w; w = w->next) w->leave(w);
}

struct device_info {
    char name[128];         /* "cpu: AVX-512, 2 threads"; the exact product name for a GPU */
    char architecture[32];  /* "x86_64-avx512", "aarch64-neon", "sm_90" */
    int64_t memory_bytes;   /* total */
    int64_t memory_free;    /* at the call */
};

/* A library the backend links, loads at run time, or failed to find: see library(). */
struct library {
    char name[16];     /* "cuda.runtime", "cublaslt", "cudnn", "nccl" */
    char version[32];  /* "13.1.0"; "" if it was not found */
    char path[512];    /* of the file; "" if it is linked in or was not found */
    char problem[256]; /* why it is not used; "" if it is used */
};

/* How a backend executes one call of the model: see decision(). */
struct decision {
    char section[16];   /* "gemm", "attention" */
    char name[96];      /* the weight's; the shape of an attention */
    char direction[16]; /* "fprop", "dgrad", "wgrad"; "forward", "backward" */
    char way[16];       /* "native" (FP8 operands), "emulated", "bf16", "refused"; of attention:
                           "cudnn", "wgmma", "mma", "emulated" (FP8) */
    char detail[64];    /* the operands: "e4m3 1x128 x e4m3 128x128"; or times, which need not
                           have decided: "cudnn 302.1 us, wgmma 310.4 us" */
    int64_t calls;      /* queued or captured; replays are not counted */
};

enum { FORBIDDEN_WAY_CAP = 64 };
/* The name of a GEMM's way for forbid(): of the operands of args, "e4m3 tensor x e5m2 tensor",
 * "e4m3 1x32 x e4m3 32x32 untransposed". */
static inline void gemm_way_name(const struct matmul_args *args, char out[FORBIDDEN_WAY_CAP]) {
    const struct tensor *side[2] = { args->a, args->b };
    char name[2][FORBIDDEN_WAY_CAP / 2 - 2];
    for (int i = 0; i < 2; i++) {
        const char *kind = scale_kind_name(side[i]->scale.kind);
        bool twin = dtype_is_fp8(side[i]->dtype) && fp8_is_untransposed(side[i]);
        snprintf(name[i], sizeof name[i], "%s%s%s%s", dtype_name(side[i]->dtype), *kind ? " " : "",
                 kind, twin ? " untransposed" : "");
    }
    snprintf(out, FORBIDDEN_WAY_CAP, "%s x %s", name[0], name[1]);
}

/* What every operator takes beside its own parameters (operators.inc). */
#define OPERATOR_PARAMETERS(...) (struct backend *b, int lane, __VA_ARGS__, struct err *e)
#define OPERATOR_ARGUMENTS(...) (b, lane, __VA_ARGS__, e)

struct backend_ops {
    int64_t size;               /* sizeof(struct backend_ops): checked first */
    const char *kernels_sha256; /* of kernels/'s sources; another plugin is refused */
    const char *name;           /* "cpu", "cuda" */
    bool warms_up; /* first uses choose, compile and allocate: run one before step 0 */
    bool forgets;  /* its memory holds nothing: what would be uploaded need not be computed */
    struct comm_ops comm;

    void (*close)(struct backend *b); /* NULL is fine */
    enum status (*info)(struct backend *b, struct device_info *info, struct err *e);

    /* ---- memory, order ---- */
    /* Zeroed, ARENA_ALIGN-aligned. Done on return. ERR_MEMORY names `what`, the bytes and the free
     * bytes. */
    enum status (*memory_create)(struct backend *b, const char *what, int64_t bytes, void **out,
                                 struct err *e);
    /* The same in pinned host memory: operators access it in place, at the speed of the link
     * between host and device. */
    enum status (*memory_create_pinned)(struct backend *b, const char *what, int64_t bytes,
                                        void **out, struct err *e);
    void (*memory_destroy)(struct backend *b, void *memory); /* of either kind */
    /* Host to device and back, packed bytes.
     * upload: `host` may be reused on return. It does not wait for queued operators. It may not be
     * captured.
     * download: done on return, after all that was queued on `lane` before. */
    enum status (*upload)(struct backend *b, int lane, void *data, const void *host, int64_t bytes,
                          struct err *e);
    enum status (*download)(struct backend *b, int lane, void *host, const void *data,
                            int64_t bytes, struct err *e);
    /* Reads a step's record without a stall.
     * readback queues a copy of at most READBACK_BYTES into one of READBACK_SLOTS slots. A slot
     * holds one copy at a time. readback_ready tells whether the copy is done. readback_fetch waits
     * for it. ERR_STATE for a slot without a copy. */
    enum status (*readback)(struct backend *b, int lane, int slot, const void *data, int64_t bytes,
                            struct err *e);
    enum status (*readback_ready)(struct backend *b, int slot, bool *ready, struct err *e);
    enum status (*readback_fetch)(struct backend *b, int slot, void *host, struct err *e);
    /* wait makes `lane` wait for the operators that were queued before the event's last signal. It
     * does nothing if the event was never signalled. */
    enum status (*signal)(struct backend *b, int lane, int event, struct err *e);
    enum status (*wait)(struct backend *b, int lane, int event, struct err *e);
    enum status (*sync)(struct backend *b, struct err *e);

    /* ---- graphs ---- replay sets *replayed false when nothing is captured under key. The caller
     * then runs the operators itself, between begin and end if they are to be captured.
     * graph_drop drops all keys. Call it when a shape or address changed. The CPU captures
     * nothing. */
    enum status (*graph_replay)(struct backend *b, enum graph_key key, bool *replayed,
                                struct err *e);
    enum status (*graph_begin)(struct backend *b, enum graph_key key, struct err *e);
    enum status (*graph_end)(struct backend *b, enum graph_key key, struct err *e);
    void (*graph_drop)(struct backend *b);

    /* ---- time ---- for measuring only.
     * timer_mark sets mark `mark` after the operators queued on `lane`. A second call moves the
     * mark. timer_read waits for both marks and gives the device's microseconds between them.
     * ERR_STATE in a capture, and for a mark that was never set. */
    enum status (*timer_mark)(struct backend *b, int lane, int mark, struct err *e);
    enum status (*timer_read)(struct backend *b, int from, int to, double *us, struct err *e);

    /* ---- the operators ---- */
#define OPERATOR(name, parameters, arguments, cost) \
    enum status (*name) OPERATOR_PARAMETERS parameters;
#include "kernels/operators.inc"
    /* Whether matmul would multiply these FP8 operands directly; otherwise it widens them first.
     * args are as for matmul; the tensors need no data. The CPU always multiplies them directly. A
     * device may have to measure to answer. */
    enum status (*matmul_native)(struct backend *b, const struct matmul_args *args, bool *native,
                                 struct err *e);

    /* In which way (arithmetic.h) this backend adds matmul's product for these arguments. With
     * `way`, arithmetic_output computes any output again, to the bit. *known false: in none that
     * this project has compared with a device; *way is then undefined. A device makes its choice
     * for the product now if it has none, outside graphs. Tensors need no data; addresses, if set,
     * must be those of the product, since alignment may decide. */
    enum status (*product_way)(struct backend *b, const struct matmul_args *args,
                               struct mma_way *way, bool *known, struct err *e);

    /* Whether matmul reads twins with such scales untransposed (tensor.h) without a cost. Whoever
     * makes twins for this backend then makes them so, which saves their transposition. matmul
     * takes both orders, here and elsewhere. */
    bool (*twins_untransposed)(struct backend *b, enum scale_kind kind);

    /* ---- choices of the backend ---- */
    /* The choice table (kernels/choices.h) so far, "" if nothing was chosen. The caller frees
     * *text. Choices are made on first use, outside graphs, and never change. */
    enum status (*choices_save)(struct backend *b, char **text, struct err *e);
    /* Loads a table; ERR_STATE after a first choice. Every backend accepts "". ERR_CONFIG for a
     * table of another device or library, naming both, and for text that is no table. */
    enum status (*choices_load)(struct backend *b, const char *text, struct err *e);
    /* Offers a table of earlier runs: the first use of a shape that no loaded choice covers takes
     * the offered one, if it still runs, and times nothing. It joins the table only then. Rank 0's
     * offers hold for a group. A second call replaces the first; errors as in choices_load. */
    enum status (*choices_offer)(struct backend *b, const char *text, struct err *e);
    /* The part of the table that this process has timed, as choices_save gives it: nothing that
     * was loaded, offered, or taken untimed because memory was short. */
    enum status (*choices_timed)(struct backend *b, char **text, struct err *e);
    /* Seconds that this process has spent on choosing algorithms and kernels: listing, building and
     * timing candidates. The CPU chooses none: 0. */
    double (*choosing_seconds)(struct backend *b);
    /* From now on this kernel serves attention, instead of the one that the backend's rule gives.
     * Call it before any choice. ERR_UNSUPPORTED if the backend lacks the kernel. A forward that it
     * cannot serve is refused with ERR_UNSUPPORTED on its first use; a backward that cuDNN cannot
     * serve takes the backend's own kernel. */
    enum status (*attention_backend)(struct backend *b, enum attention_backend which,
                                     struct err *e);
    /* The i-th library; false after the last. Searches for libraries that are opened on demand. Not
     * inside a capture. The CPU has none. */
    bool (*library)(struct backend *b, int64_t i, struct library *out);
    /* The i-th decision, in order of first use; false after the last. The CPU has none. */
    bool (*decision)(struct backend *b, int64_t i, struct decision *out);
    /* Writes the operators that the device may be running into out [size]: "qk_fwd,
     * attention_fwd or matmul layers.0.qkv fprop". False if none is running, or if the backend does
     * not know. It reads host memory only, so it returns even while the device hangs. Not queued;
     * from any one thread. The CPU runs operators in the call and always returns false. */
    bool (*in_progress)(struct backend *b, char *out, size_t size);
    /* From now on the backend uses only features of a device of `architecture` ("sm_121") and
     * emulates the others. Call it before any choice. ERR_UNSUPPORTED lists the
     * architectures. */
    enum status (*assume_architecture)(struct backend *b, const char *architecture, struct err *e);
    /* From now on the backend does not compute in this way, which gave wrong results here, but in
     * another one. Call it before any choice, on every rank of a group.
     *   "gemm", "e4m3 1x128 x e4m3 128x128"  these operands are widened (FORBIDDEN_GEMM)
     *   "attention", "cudnn" or "wgmma"      another kernel serves
     * ERR_UNSUPPORTED for a way that has no other, such as all ways of the CPU. */
    enum status (*forbid)(struct backend *b, const char *section, const char *way, struct err *e);
    /* From now on every operator takes the form whose bits the CPU has under the device's
     * arithmetic (EXACT.md lists those that have none); false: the fastest. Call it outside
     * captures; captured graphs are dropped. ERR_UNSUPPORTED for a device whose arithmetic the CPU
     * does not follow. The CPU has one form of each, which its arithmetic chooses. */
    enum status (*set_exact)(struct backend *b, bool exact, struct err *e);
};

/* The name of the first empty slot of a table ("comm.init", "matmul"); NULL: the table is full. */
const char *backend_missing(const struct backend_ops *ops);

#ifdef __cplusplus
}
#endif
#endif
