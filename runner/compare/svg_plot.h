/* Line plots as inline SVG, for pages without a network. They need no script. */
#ifndef FP8LAB_RUNNER_COMPARE_SVG_PLOT_H
#define FP8LAB_RUNNER_COMPARE_SVG_PLOT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Sizes in SVG units: the data frame and its margins. SVG_LEFT and SVG_BOTTOM fit labels at their
 * size on a phone (22 units). */
enum { SVG_LEFT = 74, SVG_TOP = 14, SVG_WIDTH = 540, SVG_HEIGHT = 270, SVG_RIGHT = 26,
       SVG_BOTTOM = 62 };

struct svg_line {
    const char *name; /* in the legend; borrowed */
    int64_t color;    /* lines of one colour share one legend entry, with the first line's name */
    int64_t run;
    const double *x, *y; /* borrowed; NaN interrupts the line */
    const double *high;  /* the upper edge of a band, y is the lower one; NULL: a line. Borrowed. */
    int64_t rows;
};

struct svg_figure {
    const char *id;    /* a word, for file names and the page's script */
    const char *title; /* what is drawn, with its unit */
    bool from_zero;    /* the vertical axis begins at or below 0, for ratios of values */
};

/* The least and the largest value of the rows [from, from + count) of a line, or of both edges of a
 * band; false if none can be drawn. */
bool svg_extent(const struct svg_line *line, int64_t from, int64_t count, double *low,
                double *high);

/* The CSS rules for plots and keys: colours for light and dark pages, and text that stays readable
 * on a phone. */
const char *svg_css(void);

/* Writes the i-th colour's mark, a short piece of its line, for legends and tables. After eight the
 * colours repeat, dashed. */
void svg_key(FILE *out, int64_t i);

/* Writes one <figure>. Lines without points are left out; writes nothing if all are. A line of more
 * than about 1,000 points is drawn as the minimum and maximum of each pixel column, so spikes stay
 * visible. A line with distant points has a dot at each. */
void svg_plot(FILE *out, const struct svg_figure *figure, const struct svg_line *lines,
              int64_t count);

/* Writes the plot as an SVG file by itself, with title and legend, on white. */
void svg_file(FILE *out, const struct svg_figure *figure, const struct svg_line *lines,
              int64_t count);

/* Writes text with & < > " ' escaped; control characters become '?'. */
void html_escape(FILE *out, const char *text);

#endif
