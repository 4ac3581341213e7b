/* A trial of attention: operands that the host knows, its two directions, what they wrote. Private
 * to kernels/certify. */
#ifndef FP8LAB_KERNELS_CERTIFY_ATTENTION_TRIAL_H
#define FP8LAB_KERNELS_CERTIFY_ATTENTION_TRIAL_H

#include "kernels/certify/attention_mask.h"
#include "kernels/certify/certificate.h"

enum { HEAD_DIM_MAX = 1024 };
enum { ATTENTION_LONG = 1024 /* from so many tokens on the host's threads share a row */ };
enum attention_part {
    PART_QKV, PART_OUT, PART_LSE, PART_D_OUT, PART_D_QKV, PART_DELTA, PART_FIRST_KEY,
    PART_O_CODES, PART_SCALARS, PARTS
};
/* Scales of FP8: factors of operands, what P and dS are multiplied by, and the factors of both. */
enum attention_scale {
    FACTOR_QKV, FACTOR_D_OUT, FACTOR_O, MULTIPLIER_P, FACTOR_P, MULTIPLIER_DS, FACTOR_DS,
    ATTENTION_SCALES
};
enum attention_amax { AMAX_P, AMAX_DS, ATTENTION_AMAXES };
/* Operands of many tokens. */
enum attention_operand { OPERAND_QKV, OPERAND_D_OUT, OPERAND_O, OPERANDS };

/* An operand repeats after LINES tokens, so that long sequences are made quickly. */
struct attention_lines {
    enum dtype dtype;
    int64_t cols, stride; /* elements of a token, and from one to the next */
    unsigned char *bytes; /* owned, as uploaded */
    float *value;         /* owned [LINES + 1][cols]: decoded, without factor */
};

struct attention_trial {
    struct backend *b;
    const struct certify_way *way;
    int64_t batch, length, heads, groups, dim;
    int64_t width, out_width; /* elements of a token in qkv and in o */
    void *memory[PARTS];
    struct attention_lines lines[OPERANDS]; /* that of o: only if backward reads its codes */
    uint16_t *o, *d_qkv;      /* of one sequence, owned */
    float *lse;               /* of one sequence [heads][length], owned */
    float amax[ATTENTION_AMAXES];
    double *p, *q, *other;    /* scratch [length] */
    int64_t large; /* the token of sequence 0 with a large key */
    struct attention_mask mask;
    float scale[ATTENTION_SCALES];
    /* What expected values are computed with: a mistake in the mask; scales (1 << scale) or the
     * kernel's own way of rounding that FP8 has (attention_fp8_check.c). */
    enum mask_mistake mistake;
    unsigned ignored;
};

static inline bool attention_is_fp8(const struct certify_way *way) {
    return dtype_is_fp8(way->a);
}

/* way: heads, mask, dtypes and so on; the shape is this trial's. The trial is freed by
 * attention_trial_free in any case. */
NODISCARD enum status attention_trial_open(struct attention_trial *t, struct backend *b,
                                           const struct certify_way *way, int64_t batch,
                                           int64_t length, struct err *e);
void attention_trial_free(struct attention_trial *t);

/* Bytes of the first sequence's outputs before a run; each amax is `amax` then. */
NODISCARD enum status attention_trial_run(struct attention_trial *t, bool backward, int garbage,
                                          float amax, struct err *e);
/* Reads the forward's results of one sequence, and the backward's too. */
NODISCARD enum status attention_trial_fetch(struct attention_trial *t, int64_t sequence,
                                            bool backward, struct err *e);
/* FP8's amaxes alone. */
NODISCARD enum status attention_trial_fetch_amax(struct attention_trial *t, struct err *e);
/* The forward's output, or d_qkv, alone. */
NODISCARD enum status attention_trial_fetch_one(struct attention_trial *t, int64_t sequence,
                                                enum attention_part part, struct err *e);
/* Makes the first element of a value of sequence 0 a NaN. */
NODISCARD enum status attention_trial_put_nan(struct attention_trial *t, int64_t token,
                                              struct err *e);

/* ---- operands and results ---- */

/* Elements of head `head` (queries, keys, values in this order) of a token. */
const float *attention_qkv_at(const struct attention_trial *t, int64_t sequence, int64_t token,
                              int64_t head);
/* The same of d_o, or of the codes of o. */
const float *attention_line_at(const struct attention_trial *t, enum attention_operand of,
                               int64_t sequence, int64_t token, int64_t head);
/* The first key that a query sees, under t->mistake. */
static inline int64_t attention_low(const struct attention_trial *t, int64_t sequence,
                                    int64_t token) {
    return attention_mask_low(&t->mask, t->mistake, sequence, token);
}
static inline bool attention_is_masked(const struct attention_trial *t) {
    return attention_mask_any(&t->mask);
}
static inline int64_t attention_key_head(const struct attention_trial *t, int64_t head) {
    return t->heads + head * t->groups / t->heads;
}
static inline const uint16_t *attention_o_at(const struct attention_trial *t, int64_t token,
                                             int64_t head) {
    return t->o + token * t->out_width + head * t->dim;
}
static inline const uint16_t *attention_gradient_at(const struct attention_trial *t, int64_t token,
                                                    int64_t head) {
    return t->d_qkv + token * t->width + head * t->dim;
}

/* Whether `got` is near: an error beyond the bound becomes the certificate's fault. */
bool attention_near(struct certificate *out, const char *what, int64_t token, int64_t head,
                    double got, double want, double bound);

#endif
