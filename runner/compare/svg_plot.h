/* Line plots as inline SVG, for pages that must work without a network or a script. */
#ifndef FP8LAB_RUNNER_COMPARE_SVG_PLOT_H
#define FP8LAB_RUNNER_COMPARE_SVG_PLOT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct svg_line {
    const char *name; /* in the legend; borrowed */
    int64_t color;    /* lines of one colour share one entry of the legend, the first one's name */
    const double *x, *y; /* borrowed; NaN interrupts the line */
    int64_t rows;
};

struct svg_figure {
    const char *title; /* what is drawn, with its unit */
    bool from_zero;    /* the vertical axis begins at 0 at least: shares of it are to be compared */
};

/* The rules of a style sheet that plots and keys need: colours for light and dark pages, and text
 * that stays readable where the plot is as narrow as a phone. */
const char *svg_css(void);

/* Writes the i-th colour's mark, a short piece of its line, for legends and tables. Beyond eight
 * the colours come again, dashed. */
void svg_key(FILE *out, int64_t i);

/* Writes one <figure>. Lines without points are left out; nothing is written if all are. A line of
 * more than about 1,000 points is drawn as the least and largest value of each pixel column, so
 * spikes stay visible; one whose points are far apart has a dot at each. */
void svg_plot(FILE *out, const struct svg_figure *figure, const struct svg_line *lines,
              int64_t count);

/* Writes text with & < > " ' escaped. */
void html_escape(FILE *out, const char *text);

#endif
