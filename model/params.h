/* The parameter table: every tensor that may be trained, by its canonical name, with value, master
 * copy, gradient, moments, and codes if a GEMM reads it in FP8.
 *
 * Order and names (N from 0):
 *   embed.weight [V,C]   position.weight [T,C] (learned positions)
 *   layers.N.norm1.weight [C] (.bias)  layers.N.qkv.weight [(H+2G)D, C] (.bias)
 *   layers.N.q_norm.weight [D]  layers.N.k_norm.weight [D]   (QK-norm)
 *   layers.N.attn_out.weight [C, HD] (.bias)   layers.N.norm2.weight [C] (.bias)
 *   layers.N.ffn_in.weight [2F or F, C] (.bias)   layers.N.ffn_out.weight [C, F] (.bias)
 *   final_norm.weight [C] (.bias)   head.weight [V,C] (untied)
 * The rows of qkv are q heads, k heads, v heads; the rows of ffn_in are gate, up. In memory the
 * vocabulary is padded to model_vocab_padded rows; padding is 0 and stays 0. */
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
    bool gemm;            /* a wgrad GEMM writes its gradient; else operators add to it */
    const struct gemm_spec *spec; /* NULL if no GEMM reads it; owned by the transformer */
    int bucket;                   /* see model/bucket.h */
    bool frozen;                  /* has no gradient, no update, no master, no moments */
    bool settled;                 /* frozen: its amax and codes are made with its value, and not in
                                     steps, except while a scale `follows` */
    bool follows;                 /* settled, with a scale that follows its history in the first
                                     updates (trainer.remakes) */
    int lr_rule, lr_place;        /* its rule + 1, or 0; the place of its factor in lr_scale */
    struct tensor lr;             /* [1] f32: its learning rate, uploaded before a step */
    int64_t offset;               /* in the bucket, elements */
    struct span part, own;        /* its elements in this rank's shard; elements that it updates */
    struct operand weight;        /* value and codes, written by AdamW's sink */
    struct operand dgrad;         /* transposed codes of a split weight */
    struct tensor master, m, v;   /* of `own`, flat; data NULL where absent */
    struct tensor grad;           /* [rows_padded, cols] or [rows]: what backward writes */
    /* The elements `own` as a matrix: the value that this rank updates, and its codes if codes are
     * gathered. */
    struct tensor own_value, own_codes;
};

struct param_options {
    enum dtype act, grad;
    enum state_kind state;
    bool master;
    struct shard_place shard;
    bool grad_codes; /* gradients are reduced as 8-bit codes */
    bool accumulates; /* a rank has several micro-batches in a step */
    bool forward_only; /* no gradients, no state, no codes that only backward reads */
    bool makes_codes; /* codes of GEMM weights are made before each use, and not kept */
};

enum { LOWEST_EMBEDDING = -1 };

struct params {
    struct param *param; /* owned */
    struct bucket *bucket; /* owned */
    struct tensor *grads;  /* [count] the `part` of every parameter's reduced gradient, owned */
    int count, bucket_count;
    int64_t layers;
    int64_t lowest; /* backward ends with this layer, or with the embedding; `layers`: with none */
    double lr_scale[LR_SCALES_MAX]; /* different factors of the learning rate; the first is 1 */
    int lr_scales;
    struct param_options options;
    void *spare; /* device: SPARE_BYTES of codes made only for their scale (params_layout.c) */
};

/* Makes the table: names, shapes, initialisation; everything is trained (selection_apply). The
 * transformer sets specs before layout. */
NODISCARD enum status params_init(struct params *p, const struct model_config *c,
                                  const struct param_options *o, struct err *e);
/* Elements that are trained, unpadded. */
int64_t params_trained(const struct params *p);
/* The parameter of that name, or NULL. */
struct param *params_find(const struct params *p, const char *format, ...) PRINTF_LIKE(2, 3);

/* Cuts the buckets, adds one amax slot for each parameter (GEMM weights first), plans all
 * memory. */
void params_layout(struct params *p, struct memory *m, struct slots *slots);
/* After allocation. */
void params_bind(struct params *p, const struct slots *slots);
/* The sink of the elements that this rank updates: a whole weight with its codes, or a shard. */
struct sink param_own_sink(struct params *p, struct param *x, const struct slots *slots);
/* The part `span` of x (x->own or x->part) in a view of this rank's shard. */
struct tensor param_span(const struct params *p, const struct param *x, const struct tensor *shard,
                         struct span span);
/* Seeded initial values and masters of the elements that this rank updates. params_quantise makes
 * the codes. */
NODISCARD enum status params_fill(struct params *p, struct backend *b, const struct model_config *c,
                                  uint64_t seed, struct err *e);
/* Call before weights are quantised: clears their amax and counts; all: also of settled ones. */
NODISCARD enum status params_begin(struct params *p, struct backend *b, struct slots *slots,
                                   bool all, struct err *e);
/* The counts of its codes, settled or not. */
NODISCARD enum status params_clear_counts(const struct param *x, struct backend *b,
                                          struct slots *slots, struct err *e);
/* After an update: codes of weights whose scale `follows`, where this rank makes them of its shard.
 * Other ones are made when the record has been read (exchange_remake). */
NODISCARD enum status params_remake(struct params *p, struct backend *b, struct slots *slots,
                                    struct err *e);
/* Amax from the current values of all, and codes if this rank makes them; and params_finish. */
NODISCARD enum status params_quantise(struct params *p, struct backend *b, struct slots *slots,
                                      struct err *e);
/* Call after the producers: reduces the amax of weights over ranks, then makes the codes that need
 * it; `all` as in params_begin. */
NODISCARD enum status params_finish(struct params *p, struct backend *b, struct slots *slots,
                                    bool all, struct err *e);
void params_destroy(struct params *p);

/* Whether codes of a bucket's weights are made from values when they are used (gather.c), and not
 * with their update. */
static inline bool params_made_in_use(const struct params *p, int bucket) {
    const struct bucket *b = &p->bucket[bucket];
    return b->codes_transient || (shard_divides(&p->options.shard) && !b->gathers_codes);
}
static inline int64_t param_cols(const struct param *p) { return p->cols ? p->cols : 1; }
/* Elements as allocated, and of the canonical tensor. Canonical elements come first. */
static inline int64_t param_count_padded(const struct param *p) {
    return p->rows_padded * param_cols(p);
}
static inline int64_t param_count(const struct param *p) { return p->rows * param_cols(p); }
/* The canonical part of its value or gradient. */
struct tensor param_canonical(const struct param *p, const struct tensor *x);

#endif
