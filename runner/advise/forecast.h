/* The time of a step from its work and from what a machine reached in other steps.
 *
 * Each operator has a base: its FLOP at the best rate of its class, plus its bytes at the rate of a
 * copy, plus a launch. The measured operators of its class have a ratio of time to base. The
 * forecast multiplies the base by the mean of these ratios, in which near shapes weigh more. The
 * sum of all operators is corrected in the same way for what a whole step saves or adds. */
#ifndef FP8LAB_RUNNER_ADVISE_FORECAST_H
#define FP8LAB_RUNNER_ADVISE_FORECAST_H

#include "runner/advise/measured.h"

struct forecast {
    bool known;
    double step_us;              /* 0 unless known */
    double part_us[PART_COUNT];  /* of operators one at a time */
    bool outside;                /* its mean operator is OUTSIDE times shorter or longer than in
                                    every measured step: launches or power may decide */
    double assumed; /* share of the time from operators that were never measured in this recipe */
    char missing[160]; /* why there is no forecast; "" if it is known, or nothing was measured */
};

/* `recipe`: of the step whose operators `works` are; without times. ranks 1: this is all. With
 * more it is the time of one rank's arithmetic; collectives that are not hidden come on top. */
void forecast_step(const struct measured *m, const struct step_works *works,
                   enum recipe_kind recipe, struct forecast *out);

#endif
