/* The audit: after some steps, single outputs of GEMMs and parts of casts are computed again on the
 * host, from the very operands, and compared to the bit (kernels/recompute.h).
 *
 * One micro-batch of an audited step runs beside the graphs, through a table of operators that
 * copies the operands of chosen outputs into pinned host memory, and then the outputs. When the
 * step is collected, a thread compares them while later steps run. No result depends on it.
 *
 *   audit_open -> { audit_begin, operators, audit_end; audit_compare [audit_poll] }* audit_settle
 *
 * The choice depends on the seed, the step and the rank. Each GEMM of a micro-batch comes round. */
#ifndef FP8LAB_MODEL_AUDIT_H
#define FP8LAB_MODEL_AUDIT_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/recompute.h"
#include "model/transformer.h"

enum {
    AUDIT_SITES = 16,   /* GEMMs of an audited micro-batch, at most */
    AUDIT_CASTS = 24,   /* casts of it, at most: of activations, gradients, and weights in use */
    AUDIT_BATCHES = 2,  /* audited steps in flight */
    AUDIT_RECORDS = 4   /* finished and not yet read */
};

/* One output of a GEMM, or one part of a cast: views of the batch's buffer. */
struct audit_entry {
    char name[96]; /* "layers.3.qkv wgrad", "layers.3.qkv.x codes" */
    bool cast;
    int64_t row, col; /* in the tensor, of the output or of the part's first element */
    struct matmul_args args;
    struct tensor out, a, b, bias, residual; /* one row each; out: as before the product */
    struct mma_way way;
    const void *found; /* the output */
    struct cast_part part;
    bool transposed; /* the part is of the transposed codes: row and col are theirs */
};

/* What an audited step left to compare. */
struct audit_batch {
    char *buffer; /* pinned */
    int64_t used; /* bytes */
    struct audit_entry *entry; /* owned */
    int count, casts;
    struct audit_record record;
};

struct audit {
    struct backend backend;   /* first: what the transformer calls in an audited micro-batch */
    struct backend_ops ops;   /* its operators; nothing else of the table is set */
    struct backend *inner;    /* borrowed */
    struct transformer *transformer;    /* borrowed, as the next */
    const struct params *params;
    struct audit_options options;
    uint64_t seed;
    int rank;
    int64_t calls;            /* GEMMs of a micro-batch */
    int sites;                /* GEMMs of it that are audited */
    int64_t bytes;            /* of a buffer */
    struct audit_batch batch[AUDIT_BATCHES]; /* of audit n at n % AUDIT_BATCHES */
    /* The micro-batch that runs. */
    struct audit_batch *now;
    int64_t call, finish;     /* GEMMs and casts so far */
    int64_t start, every_cast;
    uint64_t key, drawn;      /* draws */
    /* The comparison that runs. */
    pthread_t thread;
    bool running;
    atomic_bool done;
    struct audit_batch *compared;
    struct audit_record record[AUDIT_RECORDS]; /* a ring: read .. read + unread - 1 */
    int read, unread;
    bool failed;
    struct audit_fault fault; /* operands: borrowed from a buffer */
    char text[512];           /* of the fault */
};

/* `audit`: every > 0. Allocates all memory. */
NODISCARD enum status audit_open(struct audit **out, struct backend *b, struct transformer *t,
                                 const struct params *params, const struct audit_options *options,
                                 uint64_t seed, struct err *e);
void audit_close(struct audit *a); /* NULL is fine */

/* Whether a step is audited, and in which micro-batch. a NULL: no. The same on all ranks. */
bool audit_due(const struct audit *a, int64_t step, int64_t accumulation, int64_t micro);
/* Puts the transformer on the audit's operators, and back. begin waits for a comparison that still
 * reads the buffer. */
NODISCARD enum status audit_begin(struct audit *a, int64_t step, struct err *e);
void audit_end(struct audit *a);
/* The audited step is collected: compares on a thread. */
NODISCARD enum status audit_compare(struct audit *a, int64_t step, struct err *e);
/* ERR_VERIFY if a comparison that has ended found a difference. */
NODISCARD enum status audit_poll(struct audit *a, struct err *e);
/* The same; waits for the one that runs. */
NODISCARD enum status audit_settle(struct audit *a, struct err *e);

/* The oldest record not yet read; false: none. */
bool audit_next(struct audit *a, struct audit_record *out);

/* ---- audit_take.c ---- */
void audit_take_operators(struct audit *a);

#endif
