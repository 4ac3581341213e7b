/* Whether a repeated run is as fast as the bundle's: the question of a new machine. The medians of
 * the step time are compared over the same steady steps of both runs, if GPU, number of GPUs,
 * backend and configuration are the same. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_SPEED_H
#define FP8LAB_RUNNER_REPRO_REPRO_SPEED_H

#include <jansson.h>

#include "runner/bundle/run_view.h"

/* With fewer steady steps there is no ratio. */
enum { REPRO_SPEED_STEPS = 10 };

struct repro_speed {
    double ratio;  /* speed here, of the bundle's; NaN: not compared */
    double then_us, now_us; /* medians of a step; NaN as well */
    int64_t steps; /* steady ones of each run */
    double band;   /* of --speed, as a share; NaN: not given */
    bool slower;   /* than the band allows */
    char why[240]; /* why it was not compared, or "" */
    json_t *notes; /* texts: what differs that may change speed, and what slowed a run; owned */
};

/* "5%" into 0.05; NULL: NaN. ERR_ARG. */
NODISCARD enum status repro_speed_band(const char *text, double *band, struct err *e);

/* `comparable`: both made the same steps of one configuration. Free *out with repro_speed_free(),
 * after an error too. ERR_MEMORY. */
NODISCARD enum status repro_speed_judge(const struct run_view *then, const struct run_view *now,
                                        bool comparable, double band, struct repro_speed *out,
                                        struct err *e);
void repro_speed_free(struct repro_speed *s);

/* The exit code, where that of the verdict is `code`. Only a band changes EXIT_OK: to EXIT_DIFFERS
 * for a slower run, and to EXIT_HARDWARE if the speed could not be compared. */
int repro_speed_exit_code(const struct repro_speed *s, int code);

/* "0.978 of the bundle's (same GPU; driver 580.95, not 570.124)", or "not compared: ...". */
enum { REPRO_SPEED_CAP = 1024 };
void repro_speed_text(const struct repro_speed *s, char out[REPRO_SPEED_CAP]);

/* As runner/JSON.md says; new reference, NULL: no memory. */
json_t *repro_speed_json(const struct repro_speed *s);

#endif
