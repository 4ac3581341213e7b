/* GEMM operands: how a recipe stores each, where the bytes lie, and the three GEMMs of a linear
 * layer.
 *
 *   fprop  y  [R,N] = x [R,K] . W [N,K]^T          reads x rows, W rows
 *   dgrad  dx [R,K] = dy [R,N] . (W^T [K,N])^T     reads dy rows, W's twin
 *   wgrad  dW [N,K] = dy^T [N,R] . (x^T [K,R])^T   reads dy's and x's twins
 *
 * An FP8 operand is K-contiguous in every GEMM that reads it, hence the transposed twins; high
 * precision operands are read through transposed views of one buffer. */
#ifndef FP8LAB_MODEL_OPERAND_H
#define FP8LAB_MODEL_OPERAND_H

#include "model/memory.h"
#include "model/recipe.h"
#include "model/slots.h"

/* How one operand is stored. kind SCALE_NONE: high precision, in the act dtype. */
struct operand_spec {
    enum dtype code; /* DTYPE_E4M3 or DTYPE_E5M2 */
    enum scale_kind kind;
    enum scale_source source;
    struct quant_rule rule;
};

/* A recipe at one GEMM site. w_dgrad differs from w only where dgrad reads a weight scaled
 * otherwise (rowwise with BF16 wgrad): it is then an operand of its own. */
struct gemm_spec {
    bool fp8, wgrad_fp8, split_weight;
    bool fprop_fast, dgrad_fast, wgrad_fast;
    struct operand_spec x, w, w_dgrad, dy;
    const struct recipe_options *options; /* borrowed from the recipe */
    const char *name;                     /* of the weight, borrowed; NULL: not told */
};

/* Resolves a site's options. Never fails on options that recipe_check passed. */
void gemm_spec_resolve(struct gemm_spec *out, const struct recipe_options *options);

/* One operand in memory. The views are what sinks and GEMMs point to: it must not move. */
struct operand {
    struct operand_spec spec;
    struct tensor value;      /* [rows, K] act; scratch if keep_value is false and codes are made */
    struct tensor codes;      /* [rows, K] FP8; codes.transposed: &twin or NULL. data may be NULL */
    struct tensor codes_only; /* codes without the twin, for evaluation */
    struct tensor twin;       /* [K, rows] FP8 */
    const struct tensor *lender; /* whose memory the value borrows, or NULL */
    int slot;                    /* amax slot, or -1: not recorded */
    bool fp8, keep_value, has_codes, has_twin;
};

/* Where an operand's bytes go: the index of a shared region, or OWN in the arena named. NONE is for
 * a value that nobody reads or writes whole (a weight of which codes are gathered). */
enum { PLACE_OWN = -1, PLACE_NONE = -2 };
struct operand_place {
    enum memory_arena value_arena, code_arena; /* of what is OWN */
    const char *item;                          /* its name in the plan */
    int value, codes, twin;                    /* shared regions or PLACE_OWN */
    int64_t value_at, codes_at, twin_at;       /* bytes into those regions */
};

/* What of an operand somebody reads. */
struct operand_use { bool value, codes, twin; };

/* Lays the operand out: [rows, K] in `act`, with the codes and scales that spec (NULL or not
 * FP8: none) and use ask for. The value always has a place, since every sink writes one; with
 * `lender` it lives in that tensor's memory instead, which must not move. slot -1: amax is not
 * recorded. */
void operand_layout(struct operand *o, struct memory *m, const struct operand_spec *spec,
                    struct operand_use use, struct operand_place place, enum dtype act,
                    int64_t rows, int64_t k, const struct tensor *lender, int slot);

/* Bytes of the codes of one direction and of their scales, which stand behind them. */
int64_t operand_code_bytes(const struct tensor *codes);

/* After memory_allocate and slots_start: the addresses that are shared with slots and lenders. */
void operand_bind(struct operand *o, const struct slots *slots);

/* What a sink is filled for: training counts saturation; recomputation repeats a count already
 * made; evaluation may not touch FP8 state and needs no twin. */
enum pass { PASS_TRAIN, PASS_RECOMPUTE, PASS_EVAL };

struct sink operand_sink(struct operand *o, const struct slots *slots, enum pass pass);
/* The same for an activation or its gradient: no other rank has a part of it. */
struct sink activation_sink(struct operand *o, const struct slots *slots, enum pass pass);

/* A matrix seen with rows and columns exchanged. */
struct tensor tensor_transposed(const struct tensor *x);

/* A linear layer's operands as the GEMMs read them; twins and views are chosen by the spec. */
NODISCARD enum status gemm_fprop(struct backend *b, const struct gemm_spec *spec,
                                 const struct tensor *y, const struct operand *x,
                                 const struct operand *w, const struct tensor *bias,
                                 const struct tensor *residual, struct err *e);
NODISCARD enum status gemm_dgrad(struct backend *b, const struct gemm_spec *spec,
                                 const struct tensor *dx, const struct operand *dy,
                                 const struct operand *w, struct err *e);
/* beta 0 writes dw, 1 adds to it. */
NODISCARD enum status gemm_wgrad(struct backend *b, const struct gemm_spec *spec,
                                 const struct tensor *dw, const struct operand *dy,
                                 const struct operand *x, float beta, struct err *e);

#endif
