/* Comparing runs: what differs, what came of it, and where two runs first part, bit by bit.
 *
 * Everything found is one JSON object ("fp8lab.compare/1"); the text and the HTML page are drawn
 * from it. Run 0 is the reference of ratios and divergences:
 *   runs         [{id, path, name, status, recipe, seed, identity, verified, inputs_sha256,
 *                  results_sha256,
 *                  steps, loss_final, eval_loss_final, step_time_us_median, tokens_per_s_median,
 *                  memory_bytes_peak, ratio: {loss, eval_loss, step_time, tokens_per_s, memory}}]
 *   differences  [{section, key, factor: name or null, values: [one a run, null where absent]}]
 *   factors      names of what differs and may change results; verdict: one sentence
 *   divergences  [{a, b, equal, common_steps, step, stream, tensor, a_bits, b_bits, note}]
 *   statistics   {groups: [{runs, seeds}], tests: [...], losses: [{group, recipe, reference_mean,
 *                  mean, relative, chance, holds, by}], note}; losses where group 0 is 3 seeds of
 *                  BF16 or more
 *   equal        no pair diverges, and all have the same steps, final losses and final weights */
#ifndef FP8LAB_RUNNER_COMPARE_COMPARE_H
#define FP8LAB_RUNNER_COMPARE_COMPARE_H

#include <jansson.h>
#include <stdio.h>

#include "runner/bundle/run_view.h"

struct comparison {
    struct run_view *run; /* owned; the columns stay loaded for plots */
    int64_t count;
    json_t *report; /* owned */
    bool equal;
};

/* Loads the runs (bundle files or directories), several at a time, and compares them. */
NODISCARD enum status compare_runs(const char *const *paths, int64_t count, struct comparison *out,
                                   struct err *e);
void compare_free(struct comparison *c);

/* The report as a terminal shows it, with `all` every key that differs, implied ones too; owned by
 * the caller. */
NODISCARD enum status compare_text(const struct comparison *c, bool all, char **out, struct err *e);

/* One HTML file that needs nothing else, with plots. Replaces path atomically. */
NODISCARD enum status compare_html(const struct comparison *c, const char *path, struct err *e);

/* ---- its parts, one file each; for compare.c and tests --------------------------------------- */

/* A column of numbers about the runs, the same in the text and on the page. */
struct compare_cell {
    const char *title, *key, *ratio; /* of a row of "runs"; ratio "": it has none */
    int decimals;
    double scale;
    bool optional; /* left out where no run has it */
};
enum { COMPARE_CELLS = 8 };
/* Those to be shown for these runs; how many. */
int64_t compare_cells(const json_t *runs, const struct compare_cell *out[COMPARE_CELLS]);

/* The title of a column by its key: "eval loss" of "eval_loss_final"; the key where it has none. */
const char *compare_metric(const char *key);

/* Runs are called A, B, C... and, beyond Z, by number. */
const char *compare_letter(int64_t run, char out[8]);

/* The group (of "statistics") that the run belongs to: runs that differ in their seed alone. */
int64_t compare_group_of(const json_t *report, int64_t run);

/* What to call the group in a table or a legend, "A… fp8.delayed, 3 seeds": its first run, and
 * its recipe, or where another group has that recipe too, its name. Owned by the caller; NULL: no
 * memory. */
char *compare_group_label(const json_t *report, int64_t group);

/* The plots of the page, as HTML: losses, what lies between them and the first group's, speed. */
NODISCARD enum status compare_plots(FILE *out, const struct comparison *c, struct err *e);

/* What differs between the runs, and which of it counts as a factor. New references. */
NODISCARD enum status compare_differences(const struct run_view *const *runs, int64_t count,
                                          json_t **differences, json_t **factors, struct err *e);

struct divergence {
    bool found;
    int64_t common_steps; /* training steps that both have */
    int64_t step;         /* the first at which any stream differs */
    const char *stream;   /* "trace", "fp8.scale", "fp8.amax", "train.loss", ...; static */
    char tensor[256];     /* the first in execution order; "" where the stream has none */
    char a_bits[20], b_bits[20];
    int64_t traced;       /* the last step before it with equal fingerprints; -1: none */
};
void compare_diverge(const struct run_view *a, const struct run_view *b, struct divergence *out);

/* "statistics" of the report. New reference. */
NODISCARD enum status compare_statistics(const struct comparison *c, json_t **out, struct err *e);

/* Whether runs of one recipe hold the evaluation loss of the reference's seeds: their mean is
 * within the recipe's tolerance of theirs, or inside their range where they are just three; `by`
 * says which of the two decided. `chance`: half the 95 % interval of the difference, relative as
 * the difference is; null where a side is one run. m >= 1, n >= LOSS_SEEDS_MIN, since fewer have no
 * range worth the name. New reference, NULL without memory. */
enum { LOSS_SEEDS_MIN = 3 };
json_t *compare_loss_row(int64_t group, const char *kind, const double *reference, int64_t n,
                         const double *value, int64_t m);

/* Whether the interval of a row reaches across what is allowed, and what is said then. */
bool compare_loss_open(const json_t *row);
#define COMPARE_LOSS_OPEN \
    "95 %: by how much chance may have moved the difference of these means. Where that crosses " \
    "what is\nallowed, more seeds may turn the verdict."

#endif
