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
    struct operand weight;        /* value and codes: what AdamW's sink writes */
    struct operand dgrad;         /* the twin of split weights only */
    struct tensor master, m, v;   /* data NULL where absent; m, v and master are flat [n] */
    struct tensor grad;           /* [rows_padded, cols] or [rows] */
};

struct param_options {
    enum dtype act, grad;
    enum state_kind state;
    bool master;
};

struct params {
    struct param *param; /* owned */
    int count;
    int64_t grad_added_bytes;      /* gradients that operators add to: the arena's beginning */
    struct tensor grad_added, grad_all; /* flat views: zeroed before a step, reduced after it */
    struct tensor *grads;          /* [count] every parameter's, owned */
    struct param_options options;
};

/* Makes the table: names, shapes, initialisation. Specs are set by the transformer before
 * layout. */
NODISCARD enum status params_init(struct params *p, const struct model_config *c,
                                  const struct param_options *o, struct err *e);
/* The parameter of that name, or NULL. */
struct param *params_find(const struct params *p, const char *format, ...) PRINTF_LIKE(2, 3);

/* Adds one amax slot for each (those that a GEMM reads first) and plans all memory. */
void params_layout(struct params *p, struct memory *m, struct slots *slots);
/* After allocation. */
void params_bind(struct params *p, struct memory *m, const struct slots *slots);
/* Seeded initial values, of the masters too. Codes are made by params_quantise. */
NODISCARD enum status params_fill(struct params *p, struct backend *b, const struct model_config *c,
                                  uint64_t seed, struct err *e);
/* Codes and amax from the values as they are. */
NODISCARD enum status params_quantise(struct params *p, struct backend *b, struct slots *slots,
                                      struct err *e);
/* The second set of codes of a split weight, from its value; nothing for others. */
NODISCARD enum status param_quantise_dgrad(struct param *p, struct backend *b, struct slots *slots,
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
