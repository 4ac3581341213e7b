/* One product on a device, with operands that the host knows: private to kernels/certify. */
#ifndef FP8LAB_KERNELS_CERTIFY_GEMM_TRIAL_H
#define FP8LAB_KERNELS_CERTIFY_GEMM_TRIAL_H

#include "kernels/certify/certificate.h"

enum trial_fill {
    TRIAL_WHOLE, /* 0 and +-1, factors of few bits: exact in every published arithmetic */
    TRIAL_NOISE
};

/* A matrix whose stored lines repeat after PERIOD lines, so that a large one is made quickly. */
enum { TRIAL_PERIOD = 13, TRIAL_ROWS = 8, TRIAL_COLS = 8 };
/* From this K on the host's threads share the sampled outputs, and from such a line on the filling
 * of operands. */
enum { TRIAL_LONG = 1024 };
/* Whole numbers: row 0 is zero; row 1 has one large outlier; row 2 has a NaN: among its codes, or
 * in NVFP4, whose codes have none, in a block's scale. */
enum { ROW_ZERO, ROW_OUTLIER, ROW_NAN };

struct trial_operand {
    struct tensor view;   /* device */
    enum dtype dtype;
    int64_t rows, k;
    bool by_k;            /* stored as [k, rows]: a view of BF16, an untransposed twin of FP8 */
    int64_t line;         /* elements of a stored line, with padding */
    unsigned char *codes; /* host: PERIOD stored lines, owned */
    float *values;        /* the same lines decoded, owned */
    unsigned char *factors; /* host: the whole scale, owned; NULL: none */
    float amax;           /* of NVFP4: what the tensor's factor is made of */
};

struct gemm_trial {
    struct backend *b;
    const struct certify_way *way; /* kind */
    int64_t m, n, k;               /* of this trial */
    enum trial_fill fill;
    struct trial_operand a, w;
    struct tensor out, bias, residual; /* device */
    int64_t row[TRIAL_ROWS], col[TRIAL_COLS]; /* the sampled outputs */
    int rows, cols;
    unsigned char *got[2]; /* the sampled rows after each of two runs, owned */
};

/* Allocates and fills; `t` is freed by gemm_trial_free in any case. */
NODISCARD enum status gemm_trial_open(struct gemm_trial *t, struct backend *b,
                                      const struct certify_way *way, const int64_t shape[3],
                                      enum trial_fill fill, struct err *e);
void gemm_trial_free(struct gemm_trial *t);
struct matmul_args gemm_trial_args(const struct gemm_trial *t);
/* Fills the sampled rows of out with bytes `garbage` (with beta: with what is added), multiplies,
 * and reads these rows into got[run]. */
NODISCARD enum status gemm_trial_run(struct gemm_trial *t, int run, int garbage, struct err *e);

/* The stored value of an operand and its factor's index into the scale. */
float trial_value(const struct trial_operand *o, int64_t row, int64_t k);
/* What is read there if rows are taken for contiguous. The same unless `by_k`. */
float trial_value_of_rows(const struct trial_operand *o, int64_t row, int64_t k);
int64_t trial_factor_index(const struct trial_operand *o, int64_t row, int64_t block);
float trial_factor_at(const struct trial_operand *o, int64_t index);
int64_t trial_factor_count(const struct trial_operand *o);
/* What NVFP4's sum is multiplied by: both tensors' factors; 1 for other operands. */
float trial_tensor_factor(const struct gemm_trial *t);
/* Products along K that share a factor; 0: all. */
int64_t trial_block(enum scale_kind kind);
/* What is added to output (row, col), at most 3: `what` is one of these. */
enum trial_addend { ADD_BIAS, ADD_OUT, ADD_RESIDUAL };
float trial_added(const struct gemm_trial *t, enum trial_addend what, int64_t row, int64_t col);
/* The output at the i-th sampled row and j-th column of a run, and its bits. */
float gemm_trial_got(const struct gemm_trial *t, int run, int i, int j, uint32_t *bits);

#endif
