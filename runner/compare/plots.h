/* The plots of a comparison: losses, their difference from the baseline's, speed, the device. */
#ifndef FP8LAB_RUNNER_COMPARE_PLOTS_H
#define FP8LAB_RUNNER_COMPARE_PLOTS_H

#include "runner/compare/compare.h"
#include "runner/compare/svg_plot.h"

/* Called with each plot that has a point; figure and lines are borrowed until it returns. */
struct plot_visitor {
    enum status (*plot)(void *context, const struct svg_figure *figure,
                        const struct svg_line *lines, int64_t count, struct err *e);
    void *context;
};
NODISCARD enum status compare_each_plot(const struct comparison *c,
                                        const struct plot_visitor *visitor, struct err *e);

/* Writes the plots of the page as HTML, and behind them their numbers for the page's script: JSON
 * in a data block, which has no text of a bundle. */
NODISCARD enum status compare_plots(FILE *out, const struct comparison *c, struct err *e);

/* Writes each plot as a file of the directory, which is made: train_loss.svg and others. *count:
 * the files. */
NODISCARD enum status compare_svg(const struct comparison *c, const char *dir, int64_t *count,
                                  struct err *e);

/* ---- plot_data.c: the numbers of plots as JSON ----------------------------------------------- */

/* {"frame": of the SVG, "runs": [{group, tokens: a step, step, seconds}], "plots": [...]}. Writes
 * the beginning, up to the first plot. Arrays are [first, distance] or, in base64, little-endian
 * f32. */
void plot_data_open(FILE *out, const struct comparison *c);
/* One plot: {"id", "zero", "lines": [{run, x, low, high: absent if it is low}]}; a band has
 * "band": 1. Rows are thinned to `buckets`, each with its least and its largest value, so that no
 * spike is lost. */
void plot_data_add(FILE *out, const struct svg_figure *figure, const struct svg_line *lines,
                   int64_t count, int64_t buckets);

#endif
