/* What a machine reached in training steps: the operators of `bench step --json` files. */
#ifndef FP8LAB_RUNNER_ADVISE_MEASURED_H
#define FP8LAB_RUNNER_ADVISE_MEASURED_H

#include "model/recipe.h"
#include "runner/bench/step_work.h"

struct json_t;

/* Microseconds: a step that was timed takes longer. It keeps what is computed from it finite. */
#define MEASURED_US_MIN 1e-3

struct measured_step {
    char name[128];
    enum recipe_kind recipe;
    struct step_works works; /* owned; each with a time */
    double step_us, parts_us; /* of a whole step, and of its operators one at a time */
};

struct measured {
    struct measured_step *step; /* owned */
    int64_t count;
    double copy_bytes_per_us; /* the best copy of all files */
    char busy[128];           /* the name of a step that a busy machine took; "": none is known */
    int64_t unused;           /* files of another machine */
    char other[128];          /* the device of one of these */
};

/* Adds the steps of a file, if it was measured on the machine of `facts`: the same GPU, or without
 * one the same instruction set. A file of another machine counts as unused; a step that an earlier
 * file has, to the last digit, counts once. ERR_IO, ERR_CONFIG:
 * the text names the file and what is wrong with it. */
NODISCARD enum status measured_add(struct measured *m, const char *path,
                                   const struct json_t *facts, struct err *e);
void measured_free(struct measured *m);

/* Whether some step has this recipe. */
bool measured_has(const struct measured *m, enum recipe_kind recipe);

#endif
