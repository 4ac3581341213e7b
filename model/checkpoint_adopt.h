/* The optimizer's state of another run's checkpoint as the beginning of a new run, in any recipe,
 * type of moments, number of ranks and sharding. */
#ifndef FP8LAB_MODEL_CHECKPOINT_ADOPT_H
#define FP8LAB_MODEL_CHECKPOINT_ADOPT_H

#include "model/train.h"

/* A state.safetensors (model/checkpoint.h) by the names of its tensors. */
struct state_source {
    /* The type of a tensor with `count` elements: F32, BF16 or E4M3; DTYPE_COUNT if there is none.
     * ERR_CONFIG if it has another type or number of elements. */
    enum status (*find)(void *user, const char *name, int64_t count, enum dtype *type,
                        struct err *e);
    /* Some elements of a tensor that find() has found, as f32. Exact; E4M3 without its factors. */
    enum status (*read)(void *user, const char *name, int64_t first, int64_t count, float *out,
                        struct err *e);
    void *user;
    const char *recipe_sha256; /* of checkpoint.json; equal: FP8 state is taken over too */
    int64_t step;              /* of the checkpoint */
    int64_t updates;           /* that the moments have seen: at least `step` */
    bool restart;              /* steps, schedule and data begin anew; bias corrections go on */
};

/* Call after trainer_import() of the checkpoint's weights, before the first step. The run continues
 * at source->step + 1, in schedule and data as after so many steps of its own settings. A parameter
 * without moments in the checkpoint (it was frozen) has moments of 0. Moments of another type are
 * rounded once, to nearest. With another recipe, FP8 state begins anew; delayed scales of weights
 * are made from the weights' amax.
 *
 * Every rank calls it and reads only what it updates, a few MiB at a time. ERR_CONFIG if no step is
 * left. After an error the trainer rejects steps, evaluations and saves (ERR_STATE) until both
 * calls succeed. */
NODISCARD enum status checkpoint_adopt(struct trainer *t, const struct state_source *source,
                                       struct err *e);

#endif
