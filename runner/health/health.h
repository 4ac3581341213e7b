/* The health of a run's FP8 tensors: which are in trouble, since when, and what may help.
 *
 * Read are the records of every step (amax, scale, saturated, underflow) and of the steps that
 * measured errors (snr_db, rms). The window is the end of the run: its last tenth, at least
 * WINDOW_LEAST records; of the measurements the last third, at least MEASURED_LEAST. A symptom is a
 * condition that held in at least half of the window; its `since` is the earliest step from which
 * on it held at least every second time. So one spike is no symptom, and neither is the start of
 * delayed scaling, whose first scale is 1. */
#ifndef FP8LAB_RUNNER_HEALTH_HEALTH_H
#define FP8LAB_RUNNER_HEALTH_HEALTH_H

#include "model/recipe.h"
#include "runner/bundle/run_view.h"

/* JUDGED_LEAST: with fewer records, only values that are not finite are a symptom. TREND_LEAST:
 * with fewer measurements, no trend is. */
enum { WINDOW_LEAST = 20, JUDGED_LEAST = 5, MEASURED_LEAST = 3, TREND_LEAST = 6 };

/* What is known of one tensor at one step; NaN: not recorded. */
struct health_row {
    double amax, scale, saturated, underflow;
    double snr_db, rms;
};

/* How one rule has held, record by record from the last one back. */
struct health_count {
    int64_t held;     /* records of the window in which it held; of all, for a rule with `any` */
    int64_t score;    /* records that held, minus the others, since the end */
    int64_t since;    /* step; -1: it never held */
};

enum { HEALTH_RULES_MAX = 16 };

enum health_level { HEALTH_FINE, HEALTH_WATCH, HEALTH_TROUBLE };

/* One label of the FP8 records. */
struct health_tensor {
    const char *name;  /* borrowed from the run's columns */
    bool fp8;
    bool known;        /* the recipe says the three below; otherwise fp8 is seen in the records */
    enum dtype code;
    enum scale_kind kind;
    bool delayed;
    /* Means over the window; NaN without a value. */
    double range_used; /* amax * scale / largest value of the format; 1: all of it */
    double saturated, underflow;
    double snr_db, crest;        /* over the measurements of the window; crest: amax / rms */
    double snr_first;            /* mean over the first third of the measurements */
    struct health_count count[HEALTH_RULES_MAX];
    enum health_level level; /* of its worst symptom */
};

/* Index of a symptom's rule in HEALTH_RULES, and of its tensor. */
struct health_finding {
    int rule;
    int64_t tensor, since; /* since: a step */
    enum health_level level;
};

struct health {
    char recipe[40];              /* kind of the run's recipe, or "?" */
    int64_t step_first, step_last; /* of the FP8 records; -1 without one */
    int64_t records, window, measured, measured_window;
    bool judged;                  /* there were enough records */
    int64_t tensor_count, fp8_count;
    struct health_tensor *tensor; /* owned */
    int64_t finding_count;
    struct health_finding *finding; /* owned; trouble first, then by rule, then as in the records */
    enum health_level level;      /* the worst of all */
};

/* One row of the table of rules. */
struct health_rule {
    const char *name;
    enum health_level level;
    bool measured;  /* judged in the steps that measured errors */
    bool any;       /* once is enough */
    int64_t seldom; /* > 0: a symptom if it held so often in the window, but in less than half */
    bool (*holds)(const struct health_tensor *t, const struct health_row *row);
    /* The level of a symptom by the means of the window; NULL: `level`. */
    enum health_level (*confirm)(const struct health_tensor *t);
    const char *means;  /* what it says */
    const char *why;    /* why this threshold */
    const char *advice; /* what to try */
    const char *source;
};
extern const struct health_rule HEALTH_RULES[];
extern const int HEALTH_RULE_COUNT;

/* A step as it was recorded; -1: it cannot be one. */
int64_t health_step(double step);

/* The signal-to-noise ratio in decibels below which a format loses more than its own rounding. */
double health_snr_floor(const struct health_tensor *t);

/* Fills the fp8 to delayed members of a tensor whose name is set. `fallback`: names of GEMMs that
 * ran in BF16, or NULL. */
void health_identify(struct health_tensor *t, const struct recipe *recipe, const json_t *fallback);

/* The FP8 signal-to-noise ratio of the format alone, in decibels. */
double health_snr_format(const struct health_tensor *t);

/* Whether its elements can exceed the format. With a scale from its own amax the count has elements
 * that equal the amax: their product is above the largest value by a rounding. */
bool health_can_saturate(const struct health_tensor *t);

/* Only names and formats of the tensors, as many as the FP8 records have. ERR_MEMORY. *out as
 * below. */
NODISCARD enum status health_tensors(const struct run_view *v, struct health *out, struct err *e);

/* Judges a run that was loaded whole. Without FP8 tensors fp8_count is 0. ERR_MEMORY. *out is valid
 * for health_free after an error too. */
NODISCARD enum status health_make(const struct run_view *v, struct health *out, struct err *e);
void health_free(struct health *h);

/* The report as JSON (runner/JSON.md); new reference, NULL: no memory. */
json_t *health_json(const struct health *h, const struct run_view *v);
/* The same for a terminal, to `print` line by line. all: no list is cut. */
void health_print(const struct health *h, bool all,
                  void (*print)(void *to, enum health_level level, const char *line), void *to);

#endif
