/* Compares runs: what differs, what came of it, and the first step at which two runs differ bit by
 * bit.
 *
 * The report is one JSON object ("fp8lab.compare/1"); the text and the HTML page are drawn from it.
 * Run 0 is the reference of divergences:
 *   reference    the run of ratios: the first of the baseline if there is one baseline, else 0
 *   runs         [{id, path, name, label, status, recipe, seed, identity, verified, inputs_sha256,
 *                  results_sha256, steps, step_last, eval_step, eval_tokens, loss_final,
 *                  eval_loss_final, eval_loss_best, eval_loss_byte, step_time_us_median,
 *                  tokens_per_s_median, memory_bytes_peak,
 *                  spikes_loss, spikes_grad_norm: their number, null if no step was judged,
 *                  spikes: which ones, a text, or null,
 *                  energy_j_per_token: of the GPUs alone, null without their power,
 *                  eval_sets: {name: {step, tokens, loss_tokens, loss, ratio, why}} of eval.also:
 *                  the last loss of each set of any run, null where the run has none; why: why
 *                  there is no ratio,
 *                  ratio: {loss, eval_loss, eval_loss_byte, step_time, tokens_per_s, memory,
 *                  energy}}].
 *                  A ratio of losses is null if the two are of different steps, that of evaluations
 *                  also if they are of different numbers of tokens. label: the run's
 *                  name in tables. build: the hash of its code. eval_loss_byte: eval_loss_final /
 *                  bytes per token of the whole text; null where that is not known, and if no
 *                  run's text became tokens.
 *   differences  [{section, key, factor: name or null, values: [one a run, null if absent]}]
 *   factors      names of the differences that may change results; verdict: one sentence
 *   divergences  [{a, b, equal, common_steps, step, stream, tensor, a_bits, b_bits, note}]
 *   statistics   builds: of all runs;  groups: [{runs, seeds, builds, label}]
 *                tests: [{metric, step, group, n, m, median_a, median_b, effect, effect_low,
 *                  effect_high, u, p, verdict}]; the reference's group is side a
 *                losses: does the loss hold (compare_loss.h)? One entry a baseline, several
 *                  if some of its rows ended before half of others (compare_early.c):
 *                  baseline  its group;  seeds, mean: of the baseline
 *                  diverged  a run of the baseline did: no losses at equal time, no times to one
 *                  cpu       a run computed on a CPU: its times are of an emulation
 *                  step      of the baseline, at which losses are compared; null: there is none
 *                  tokens    trained until then;  seconds: of training, for equal time
 *                  counted   tokens with loss in one evaluation; null: not known
 *                  cut       [{run, step}]: runs with later evaluations, and their last one
 *                  left_out  [{run, step, why}]: runs that have no say in `step` and no
 *                            evaluation there (compare_place.c), and their last one
 *                  why       why no row has a verdict; "" if rows may have one
 *                  parted    entries of the same baseline follow, of rows that ended early
 *                  sets      [{name, tests, counted, seeds, mean, why, left_out: [{run, why}],
 *                            rows}] of eval.also: the same verdicts on each set, as `tests` tests
 *                            (stats.h); a row is as below, to `stopped`
 *                  rows      [{group, recipe, seeds, pairs: seeds compared in pairs or 0,
 *                    baseline_mean, mean, relative, low, high: one-sided 95 % bounds of relative,
 *                    tolerance, verdict, why, seeds_needed: per side, of an undecided row; null:
 *                    not known or more than 1000, differs_in: names of other factors (--baseline),
 *                    spikes {loss, grad_norm: null if no step of a side was judged, or
 *                      {count, steps, baseline_count, baseline_steps, p, clearly_more}},
 *                    factor: the key of --factor in which alone it differs, or null,
 *                    diverged: a run of the group did,
 *                    doubted: something speaks against a good loss (add_doubts): "holds" is
 *                      withheld,
 *                    stopped {run, step, relative, paired, ended}: the worst of its runs that are
 *                      left out (struct family_stopped); null: there is none,
 *                    at_time {baseline_mean, mean, relative, low, high}: losses at equal time,
 *                    same_loss {loss: the lowest that all runs of both sides had, time, tokens
 *                      {factor: the baseline's / the row's until that loss, low, high}}}].
 *                    Unknown numbers are null.
 *                    verdict: "holds", "does not hold", "undecided", or null: none is given.
 *                    why: the reason of a null, of a divergence, or ""
 *                losses_missing: [{group, why}]: groups without a baseline
 *                speed: how much faster (compare_faster.h)? One entry a baseline:
 *                  baseline  its group;  runs, tokens_per_s: of the baseline's runs that count;
 *                            tokens_per_s is their geometric mean
 *                  left_out  [{run, why}]: runs of the family that do not count
 *                  rows      [{group, runs, tokens_per_s, ratio: to the baseline, low, high: its
 *                    one-sided 95 % bounds, verdict: "faster", "slower", "not shown", or null:
 *                    none is given, why: the reason, or ""}]. Of a CPU the ratio is null.
 *                speed_builds: builds with the same bits share a group; of each group with several,
 *                  on a GPU, an entry as in "speed". Its rows are the other builds: in place of a
 *                  group entry and rows have {build: the hash of its code, run: its first}
 *                note
 *   requirements [{requirement, met, rows: [{group, label: or "build " and its hash, met, found:
 *                what it has, and why}]}] of --require, [] without it; by compare_require()
 *   equal        no pair diverges, and all have the same steps, final losses and final weights */
#ifndef FP8LAB_RUNNER_COMPARE_COMPARE_H
#define FP8LAB_RUNNER_COMPARE_COMPARE_H

#include <jansson.h>
#include <stdio.h>

#include "runner/bundle/run_view.h"

struct compare_options {
    const double *tolerance; /* relative, borrowed; NULL: each recipe's own */
    const char *baseline;    /* the name of a row, borrowed; NULL: BF16, found by its recipe */
    const char *factor;      /* "KEY=VALUE", borrowed: a row of another value is judged against the
                              * row that differs only in KEY and has VALUE; NULL: none */
    bool lean;               /* of training keep steps and losses only: there will be no plots */
};

struct divergence {
    bool found;
    int64_t common_steps; /* training steps that both have */
    int64_t step;         /* the first at which any result differs */
    int result;           /* of its metric (record/streams.h) */
    char stream[2 * COLUMN_NAME_CAP]; /* "trace", "fp8.scale", "fp8.amax", "train.loss", ... */
    char tensor[256];     /* the first in execution order; "" if the stream has none */
    char a_bits[20], b_bits[20];
    int64_t traced;       /* the last step before it with equal fingerprints; -1: none */
};

struct curve; /* curve.h */
struct heat;  /* health/heat.h */
struct spread; /* spread.h */
struct step_times;
struct spikes; /* health/spikes.h */
struct run_speed; /* run_speed.h */

struct comparison {
    struct compare_options options;
    struct run_view *run; /* owned; of the records, those of training and evaluation stay loaded */
    struct curve *curve;  /* the evaluations of each run; owned */
    struct run_speed *speed; /* of each run; owned */
    struct heat *heat;    /* its FP8 figures layer by step, empty with `lean`; owned */
    struct spread *spread; /* its last histograms, empty with `lean`; owned */
    struct step_times *times; /* tokens and time of each run's steps, unless lean; owned */
    struct spikes *spikes; /* of each run's loss and gradient norm; owned */
    struct divergence *divergence; /* of each run from run 0, but for run 0; owned */
    int64_t count;
    json_t *report; /* owned */
    bool equal;
};

/* Loads the runs (bundle files or directories), several at a time, and compares them. options NULL:
 * none. ERR_ARG: no row is called as options->baseline. */
NODISCARD enum status compare_runs(const char *const *paths, int64_t count,
                                   const struct compare_options *options, struct comparison *out,
                                   struct err *e);
void compare_free(struct comparison *c);

/* The report as text for a terminal; `all`: also the keys that recipes imply. Owned by the
 * caller. */
NODISCARD enum status compare_text(const struct comparison *c, bool all, char **out, struct err *e);

/* The runs and verdicts as a table for other programs. CSV: RFC 4180 with line feeds; titles, then
 * a row per run with the values of the report and the verdicts of its group. Text that a
 * spreadsheet would take for a formula has an apostrophe before it. Owned by the caller. */
enum compare_format { COMPARE_CSV, COMPARE_MARKDOWN };
NODISCARD enum status compare_table(const struct comparison *c, enum compare_format format,
                                    char **out, struct err *e);

/* Writes the heat maps of FP8 runs as HTML; nothing without one. */
void compare_heat(FILE *out, const struct comparison *c);
/* Writes maps of the histograms of runs that counted some; nothing without one. */
void compare_spread(FILE *out, const struct comparison *c);

/* What each page has, and no other file: its first bytes, and the beginning of its title. */
#define PAGE_BEGINS "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
#define PAGE_MARK "<title>fp8lab "

/* Writes one HTML file with plots that loads nothing else. Replaces path atomically. */
NODISCARD enum status compare_html(const struct comparison *c, const char *path, struct err *e);

/* ---- its parts, one file each; for compare.c and tests --------------------------------------- */

/* A column of numbers about the runs, the same in the text and on the page. */
struct compare_cell {
    const char *title, *key, *ratio; /* keys of a row of "runs"; ratio "": none */
    int decimals;
    double scale;
    bool optional; /* left out if no run has it */
};
enum { COMPARE_CELLS = 11 };
/* A column, 0 <= cell < COMPARE_CELLS. */
const struct compare_cell *compare_cell(int64_t cell);
/* The columns to show for these runs; returns their number. */
int64_t compare_cells(const json_t *runs, const struct compare_cell *out[COMPARE_CELLS]);

/* The title of a column by its key: "eval loss" for "eval_loss_final"; the key itself if it has
 * none. */
const char *compare_metric(const char *key);

/* Runs are called A, B, C... and, beyond Z, by number. */
const char *compare_letter(int64_t run, char out[8]);
/* The letter of a group's first run. */
const char *compare_group_letter(const json_t *statistics, int64_t group, char out[8]);

/* The group (of "statistics") that the run belongs to: runs that differ in their seed alone. */
int64_t compare_group_of(const json_t *report, int64_t run);

/* The run that ratios are of ("reference" of the report). */
int64_t compare_reference(const json_t *report);

/* The group that is the baseline of all entries of "losses"; -1: there is none, or several. Several
 * entries may have one baseline (compare_early.c). */
int64_t compare_only_baseline(const json_t *losses);

/* The name of the group in a table or a legend, "A… fp8.delayed, 3 seeds": its first run and its
 * label. Owned by the caller; NULL: no memory. */
char *compare_group_label(const json_t *report, int64_t group);

/* Below a table with an undecided verdict: two lines of a text. */
#define COMPARE_UNDECIDED \
    "undecided: what is allowed lies between the bounds; more seeds or steps bring them nearer"
#define COMPARE_SEEDS_NEEDED \
    "the number of seeds holds only if difference and scatter stay as they are"
/* Below each table of losses. */
#define COMPARE_BOUNDS \
    "bounds: one-sided, 95 % each (Student's t), if the losses of seeds scatter normally"
/* Below it, if rows of the same baseline follow in tables of their own. */
#define COMPARE_PARTED "rows that ended before half of that are judged by themselves, below"
/* Below it: of how much text each loss is, and whether that is little. "": not known. */
enum { COMPARE_COUNTED_CAP = 200 };
void compare_counted(const json_t *family, char out[COMPARE_COUNTED_CAP]);
/* Below a table with runs of several builds in one row. */
#define COMPARE_BUILDS \
    "runs of several builds are in one row where a run of the same seed has the same bits in " \
    "each; times mix these builds"
/* Whether a row has some. */
bool compare_joined_builds(const json_t *statistics);
/* Below the table of times: four sentences, each with `begin` before and `end` behind it. */
#define COMPARE_SPEED(begin, end) \
    begin "time: of training steps, without evaluations and checkpoints" end \
    begin "same loss: the lowest that the runs of both rows reached" end \
    begin "x: the baseline's time or tokens to that loss, divided by this row's; " \
          "below 1 is slower" end \
    begin "between two evaluations the loss is on a line; outside of them there is no value" end

/* Whether a CPU computed the run, or it does not say what did: its times may be no GPU's. */
bool compare_on_cpu(const struct run_view *v);
/* Below it, if a run was on a CPU. */
#define COMPARE_CPU_TIMES \
    "times on a CPU say nothing about a GPU: a CPU emulates recipes, and runs may have shared it"

/* In place of that table. */
#define COMPARE_NO_SPEED \
    "a run of the baseline diverged: no losses at equal time, no time to the same loss"

/* Whether a row of this family of losses has a number of the second table, which is left out
 * otherwise: every row may have diverged. */
bool compare_has_speed(const json_t *family);

/* Below a table with the loss a byte. */
#define COMPARE_BYTE "eval loss per byte of text, by the bytes per token of the run's whole text"
/* Whether a run has that number. */
bool compare_has(const json_t *runs, const char *key);

/* The columns of UTF-8 text on a terminal, one a character. */
int compare_columns(const char *text);
/* The columns that the labels of rows, of "runs" or "groups", need in a table. */
int compare_label_width(const json_t *rows);

/* Fills run, curve, times, divergence. After an error compare_free() frees what was loaded. */
NODISCARD enum status compare_load(struct comparison *c, const char *const *paths, struct err *e);

/* What differs between the runs, and which of it counts as a factor. New references. */
NODISCARD enum status compare_differences(const struct run_view *const *runs, int64_t count,
                                          json_t **differences, json_t **factors, struct err *e);

/* ---- what runs read: compare_content.c ------------------------------------------------------- */

struct compared {
    const struct run_view *const *runs; /* borrowed */
    int64_t count;
};
/* The factor of a key in which the runs differ, by what they read: NULL where another key is the
 * factor, or none. `factor`: the key's own, if content does not decide. */
const char *compare_content_factor(const struct compared *c, const char *section, const char *key,
                                   const char *factor);
/* Adds the initial weights of a run to its inputs: "weights", and "optimizer.KEY" of the moments
 * that it began with. */
void compare_put_start(const struct run_view *v, json_t *flat, bool *failed);

void compare_diverge(const struct run_view *a, const struct run_view *b, struct divergence *out);

/* ---- repeats: compare_groups.c --------------------------------------------------------------- */

/* Runs that differ only in their seed (and in the table of algorithms that each measured). Runs of
 * other builds belong to the group if a finished run of one seed has the same results in both. */
struct compare_groups {
    int64_t *of, *first; /* the group of each run; the first run of each group; owned */
    int64_t count;
};
NODISCARD enum status compare_find_groups(const struct comparison *c, struct compare_groups *g,
                                          struct err *e);
void compare_groups_free(struct compare_groups *g);

/* The factors in which two runs differ, except seed, table of algorithms and, with `recipe_too`,
 * recipe. *out: array of names, new reference. */
NODISCARD enum status compare_other_factors(const struct run_view *a, const struct run_view *b,
                                            bool recipe_too, json_t **out, struct err *e);

/* The factors in which two groups differ, except seed, table of algorithms and, with `recipe_too`,
 * recipe: of two runs of one build if they have one in common. *out: array of names, new
 * reference. */
NODISCARD enum status compare_group_factors(const struct comparison *c,
                                            const struct compare_groups *g, int64_t a, int64_t b,
                                            bool recipe_too, json_t **out, struct err *e);

/* The number of builds of a group's runs; group -1: of all. */
int64_t compare_builds(const struct comparison *c, const struct compare_groups *g, int64_t group);

/* One run of the group for each of its seeds. Of several runs with one seed the longest counts: a
 * run that was stopped and repeated is no repeat. *run: owned by the caller. */
NODISCARD enum status compare_repeats(const struct comparison *c, const struct compare_groups *g,
                                      int64_t group, int64_t **run, int64_t *count, struct err *e);

/* ---- further sets: compare_sets.c ------------------------------------------------------------ */

/* Whether both runs evaluated the same bytes under this name of eval.also. */
bool compare_same_set(const struct run_view *a, const struct run_view *b, const char *name);
/* Adds "eval_sets" to each row of "runs". reference: the run of ratios. */
void compare_put_sets(const struct comparison *c, json_t *rows, int64_t reference, bool *failed);
/* compare_sets_text.c: the last losses of the sets, and the verdicts on each; nothing without a
 * set. */
void compare_sets_text(FILE *out, const json_t *report);
void compare_sets_page(FILE *out, const json_t *report, bool *failed);
/* Of how much text each loss of a set of a family is, and whether that is little; "": not known. */
void compare_set_counted(const json_t *set, char out[COMPARE_COUNTED_CAP]);
/* Below the verdicts on sets. */
enum { COMPARE_SET_BOUNDS_CAP = 240 };
void compare_set_bounds(const json_t *set, char out[COMPARE_SET_BOUNDS_CAP]);
#define COMPARE_SETS_APART \
    "these verdicts are of further sets, and change none on the run's own held-out data"
/* The names of the sets of all runs, in bytewise order. New reference; NULL: no memory. */
json_t *compare_set_names(const struct comparison *c);

/* ---- records by step: compare_steps.c -------------------------------------------------------- */

/* The last step of a table of records; -1: it has none, or there is no table. */
int64_t compare_last_step(const struct columns *t);
/* The last step that all `count` tables have; -1: none. */
int64_t compare_common_step(const struct columns *const *t, int64_t count);
/* The value of a column at the step; NaN if there is none. */
double compare_value_at(const struct columns *t, const char *name, int64_t step);

/* ---- spikes: compare_spikes.c ---------------------------------------------------------------- */

/* Adds "spikes" to each row of `losses`: whether the group has clearly more than its baseline.
 * Events, also periodic ones, count until the last step that a run of each side reached. */
NODISCARD enum status compare_spikes(const struct comparison *c, const struct compare_groups *g,
                                     json_t *losses, struct err *e);
/* Adds the spikes of a run to its row of "runs". */
void compare_put_spikes(const struct comparison *c, int64_t run, json_t *row, bool *failed);
/* A sentence about a row of a family, if it has clearly more: of the loss, or of the norm. */
enum { COMPARE_SPIKES_CAP = 240 };
bool compare_spikes_warning(const json_t *statistics, const json_t *family, const json_t *row,
                            bool loss, char out[COMPARE_SPIKES_CAP]);

/* ---- names and statistics -------------------------------------------------------------------- */

/* The name of each group: the recipe with the options that are not the kind's default, then the
 * keys in which rows differ. Left out: an option that all FP8 groups (two or more) share, and a
 * value that more than half of the groups share. Two names are equal only if the groups' inputs and
 * run names are. *out: array of strings, new reference. */
NODISCARD enum status compare_names(const struct comparison *c, const struct compare_groups *g,
                                    const json_t *differences, json_t **out, struct err *e);

/* "statistics" of the report. New reference. */
NODISCARD enum status compare_statistics(const struct comparison *c, const json_t *differences,
                                         json_t **out, struct err *e);

#endif
