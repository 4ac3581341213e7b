/* The parameter table: every trained tensor by its canonical name, with its value, master copy,
 * gradient, moments, and, where a GEMM reads it in FP8, its codes.
 *
 * Order and names (N from 0):
 *   embed.weight [V,C]   position.weight [T,C] (learned positions)
 *   layers.N.norm1.weight [C] (.bias)  layers.N.qkv.weight [(H+2G)D, C] (.bias)
 *   layers.N.q_norm.weight [D]  layers.N.k_norm.weight [D]   (QK-norm)
 *   layers.N.attn_out.weight [C, HD] (.bias)   layers.N.norm2.weight [C] (.bias)
 *   layers.N.ffn_in.weight [2F or F, C] (.bias)   layers.N.ffn_out.weight [C, F] (.bias)
 *   final_norm.weight [C] (.bias)   head.weight [V,C] (untied)
 * Rows are q heads, then k, then v in qkv; gate, then up in ffn_in. The vocabulary is padded to
 * model_vocab_padded rows in memory: the rest of the rows are 0 and stay 0. */
#ifndef FP8LAB_MODEL_PARAMS_H
#define FP8LAB_MODEL_PARAMS_H

#include "model/bucket.h"
#include "model/config.h"
#include "model/operand.h"
#include "model/optim.h"

enum param_init { INIT_NORMAL, INIT_RESIDUAL /* std / sqrt(2L), GPT-2 */, INIT_ONE, INIT_ZERO };

struct param {
    char name[64];
    int64_t rows, cols;   /* canonical shape; cols 0 for a vector of `rows` */
    int64_t rows_padded;  /* as allocated */
    enum param_init init;
    bool gemm;            /* its gradient is a wgrad's output; else operators add to it */
    const struct gemm_spec *spec; /* where a GEMM reads it, else NULL; owned by the transformer */
    int bucket;                   /* where it lies; see model/bucket.h */
    int64_t offset;               /* in the bucket, elements */
    struct span part, own;        /* its elements in this rank's shard; those that it updates */
    struct operand weight;        /* value and codes: what AdamW's sink writes */
    struct operand dgrad;         /* the twin of split weights only */
    struct tensor master, m, v;   /* of `own`, flat; data NULL where absent */
    struct tensor grad;           /* [rows_padded, cols] or [rows]: what backward writes */
    /* Of `own`, as a matrix of n elements: what a rank that holds a shard updates, and its codes if
     * those are gathered. */
    struct tensor own_value, own_codes;
};

struct param_options {
    enum dtype act, grad;
    enum state_kind state;
    bool master;
    struct shard_place shard;
    bool accumulates; /* a step has several micro-batches on a rank */
};

struct params {
    struct param *param; /* owned */
    struct bucket *bucket; /* owned */
    struct tensor *grads;  /* [count] the `part` of every parameter's reduced gradient, owned */
    int count, bucket_count;
    struct param_options options;
    void *spare; /* device: SPARE_BYTES of codes made only for their scale (params_layout.c) */
};

/* Makes the table: names, shapes, initialisation. Specs are set by the transformer before
 * layout. */
NODISCARD enum status params_init(struct params *p, const struct model_config *c,
                                  const struct param_options *o, struct err *e);
/* The parameter of that name, or NULL. */
struct param *params_find(const struct params *p, const char *format, ...) PRINTF_LIKE(2, 3);

/* Cuts the buckets, adds one amax slot for each parameter (those that a GEMM reads first) and plans
 * all memory. */
void params_layout(struct params *p, struct memory *m, struct slots *slots);
/* After allocation. */
void params_bind(struct params *p, const struct slots *slots);
/* The sink of what this rank updates: all of a weight, with its codes, or the shard's part. */
struct sink param_own_sink(struct params *p, struct param *x, const struct slots *slots);
/* Elements of a view of a shard, from the first of `span` on; `span` is x->own or x->part. */
struct tensor param_span(const struct params *p, const struct param *x, const struct tensor *shard,
                         struct span span);
/* Seeded initial values of what this rank updates, of the masters too. Codes are made by
 * params_quantise. */
NODISCARD enum status params_fill(struct params *p, struct backend *b, const struct model_config *c,
                                  uint64_t seed, struct err *e);
/* Before weights are quantised: clears their amax, and the counts of codes made with it. */
NODISCARD enum status params_begin(struct params *p, struct backend *b, struct slots *slots,
                                   struct err *e);
/* Amax, and codes where this rank makes them, from the values as they are. */
NODISCARD enum status params_quantise(struct params *p, struct backend *b, struct slots *slots,
                                      struct err *e);
/* After their producers: the amax of weights over all ranks, then the codes that rest on it. */
NODISCARD enum status params_finish(struct params *p, struct backend *b, struct slots *slots,
                                    struct err *e);
void params_destroy(struct params *p);

static inline int64_t param_cols(const struct param *p) { return p->cols ? p->cols : 1; }
/* Elements as allocated, and of the canonical tensor; the latter come first. */
static inline int64_t param_count_padded(const struct param *p) {
    return p->rows_padded * param_cols(p);
}
static inline int64_t param_count(const struct param *p) { return p->rows * param_cols(p); }
/* The canonical part of its value or gradient. */
struct tensor param_canonical(const struct param *p, const struct tensor *x);

#endif
