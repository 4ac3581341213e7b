/* Line plots as inline SVG, for pages that must work without a network or a script. */
#ifndef FP8LAB_RUNNER_SVG_PLOT_H
#define FP8LAB_RUNNER_SVG_PLOT_H

#include <stdio.h>

#include "runner/columns.h"

struct svg_line {
    const char *name;
    const struct column *x, *y; /* width 1, `rows` values each; NaN interrupts the line */
    int64_t rows;
};

/* The i-th colour of lines, for legends and tables too. */
const char *svg_color(int64_t i);

/* Writes one <figure>. Lines without points are left out; nothing is written if all are. A line of
 * more than about 1,500 points is drawn as the least and largest value of each pixel column, so
 * spikes stay visible. */
void svg_plot(FILE *out, const char *title, const struct svg_line *lines, int64_t count);

/* Writes text with & < > " ' escaped. */
void html_escape(FILE *out, const char *text);

#endif
