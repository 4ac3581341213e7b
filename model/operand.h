/* GEMM operands: how a recipe stores each, where the bytes lie, and the three GEMMs of a linear
 * layer.
 *
 *   fprop  y  [R,N] = x [R,K] . W [N,K]^T          reads x rows, W rows
 *   dgrad  dx [R,K] = dy [R,N] . (W^T [K,N])^T     reads dy rows, W's twin
 *   wgrad  dW [N,K] = dy^T [N,R] . (x^T [K,R])^T   reads dy's and x's twins
 *
 * Most FP8 GEMMs read operands that are K-contiguous, so some operands have a second, transposed
 * copy of their codes: the twin. Where the device reads MXFP8 operands along either axis, the twin
 * is not transposed (tensor.h). It still is a copy, since its scales lie along the other axis.
 * Square blocks have the same codes along both: their untransposed twin has the codes' memory, and
 * scales of its own. A BF16 or f32 operand needs no copy: a GEMM reads it through a transposed
 * view. */
#ifndef FP8LAB_MODEL_OPERAND_H
#define FP8LAB_MODEL_OPERAND_H

#include "kernels/transposed.h"
#include "model/memory.h"
#include "model/recipe.h"
#include "model/slots.h"

/* One operand in memory. Sinks and GEMMs point to its views, so it must not move. */
struct operand {
    struct operand_spec spec;
    struct tensor value;      /* [rows, K] act; scratch if keep_value is false and codes are made */
    struct tensor codes;      /* [rows, K] FP8; codes.transposed: &twin or NULL. data may be NULL */
    struct tensor codes_only; /* codes without the twin, for evaluation */
    struct tensor twin;       /* [K, rows] FP8 */
    const struct tensor *lender; /* the value uses this tensor's memory; or NULL */
    int slot;                    /* amax slot, or -1: not recorded */
    bool fp8, keep_value, has_codes, has_twin;
    bool shares;              /* the twin's codes are the codes */
    struct round_draws draws; /* of a spec that rounds stochastically; the caller sets them */
};

/* The place of an operand's bytes: the index of a shared region, or PLACE_OWN for bytes of its own
 * in the arena. PLACE_NONE: the value never exists whole (ranks gather its codes instead). */
enum { PLACE_OWN = -1, PLACE_NONE = -2 };
struct operand_place {
    enum memory_arena value_arena, code_arena; /* for PLACE_OWN */
    const char *item;                          /* its name in the plan */
    int value, codes, twin;                    /* shared regions or PLACE_OWN */
    int64_t value_at, codes_at, twin_at;       /* bytes into those regions */
};

/* Which forms of an operand are read. */
struct operand_use { bool value, codes, twin; };

/* Lays the operand out: [rows, K] in `act`, with the codes and scales that `spec` and `use` ask for
 * (spec NULL or not FP8: no codes). Every sink writes a value, so a value always has memory. With
 * `lender`, the value uses that tensor's memory; the lender must not move. slot -1: amax is not
 * recorded. */
void operand_layout(struct operand *o, struct memory *m, const struct operand_spec *spec,
                    struct operand_use use, struct operand_place place, enum dtype act,
                    int64_t rows, int64_t k, const struct tensor *lender, int slot);

/* Bytes of the codes, and of the twin: codes of their own and the scales that follow them. */
int64_t operand_code_bytes(const struct operand *o);
int64_t operand_twin_bytes(const struct operand *o);

/* After memory_allocate and slots_start: sets the addresses shared with slots and lenders. */
void operand_bind(struct operand *o, const struct slots *slots);

/* The purpose of a sink. Training counts saturation. Recomputation does not count again. Evaluation
 * must not change FP8 state and needs no twin. */
enum pass { PASS_TRAIN, PASS_RECOMPUTE, PASS_EVAL };

struct sink operand_sink(struct operand *o, const struct slots *slots, enum pass pass);
/* The same for an activation or its gradient, which no rank shares. */
struct sink activation_sink(struct operand *o, const struct slots *slots, enum pass pass);

/* Ends the making of an operand: its codes (quantise_finish), and their error if the sink asks for
 * it. Call it after the producer and before the codes are read. */
NODISCARD enum status operand_finish(struct backend *b, const struct sink *s, struct err *e);
/* Adds the error of codes that are made, if the sink asks for it. */
NODISCARD enum status operand_error(struct backend *b, const struct sink *s, struct err *e);

/* The GEMMs of a linear layer. The spec decides whether they read codes, twins or views. */
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
