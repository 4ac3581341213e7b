/* Weights of another program, which are not one of our checkpoints, into a new trainer. */
#ifndef FP8LAB_MODEL_IMPORT_H
#define FP8LAB_MODEL_IMPORT_H

#include "model/train.h"

struct param;

struct weight_source {
    /* Called before a parameter is read, for what reading it needs. NULL: nothing. */
    enum status (*prepare)(void *user, const struct param *p, struct err *e);
    /* Elements first .. first+count-1 of the canonical parameter (model/params.h) as f32. Several
     * threads call it at once, for one parameter. */
    enum status (*read)(void *user, const struct param *p, int64_t first, int64_t count, float *out,
                        struct err *e);
    void *user;
};

/* Replaces the weights, and their masters, before the first step; moments stay 0. A weight is
 * rounded once, to the nearest value of its type. Every rank calls it and reads only the
 * elements that it updates, at most 32 MiB at a time. ERR_NUMERIC names a weight that is not
 * finite. After an error the trainer rejects steps, evaluations and saves (ERR_STATE) until an
 * import succeeds. */
NODISCARD enum status trainer_import(struct trainer *t, const struct weight_source *source,
                                     struct err *e);

/* Why a trainer rejects steps after a failed import, or a failed checkpoint_adopt(). */
extern const char IMPORT_IN_PART[];

/* Uploads f32 values to elements at .. at+n-1 of x. If x is BF16 they become BF16 in place, rounded
 * to nearest. */
NODISCARD enum status import_put(struct backend *b, const struct tensor *x, int64_t at, int64_t n,
                                 float *values, struct err *e);

#endif
