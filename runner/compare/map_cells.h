/* Maps of cells on the page: rows are layers, the shade of a cell is its level. */
#ifndef FP8LAB_RUNNER_COMPARE_MAP_CELLS_H
#define FP8LAB_RUNNER_COMPARE_MAP_CELLS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Sizes in SVG units. */
enum { MAP_LEFT = 64, MAP_TOP = 10, MAP_WIDTH = 500, MAP_BELOW = 34 };
/* Levels of a cell: 0 is not drawn, 3 is full. */
enum { MAP_LEVELS = 4 };

struct map_cells {
    const char *style;    /* its class in report.css: "heat" warns, "spread" does not */
    const uint8_t *level; /* [rows][stride] */
    int64_t rows, columns, stride;
};

int map_row_height(int64_t rows);
/* Height of the whole picture. */
int64_t map_height(int64_t rows);

/* The frame, and the cells. */
void map_cells_put(FILE *out, const struct map_cells *m);

/* Whether a row's name has room: about ten of them, the last one always. */
bool map_row_is_named(int64_t rows, int64_t row);
/* Begins a row's name, which the caller writes and closes with </text>. */
void map_row_name(FILE *out, int64_t rows, int64_t row);

#endif
