#include "runner/compare/map_cells.h"

#include "kernels/base.h"

int map_row_height(int64_t rows) { return rows > 60 ? 4 : rows > 24 ? 8 : 14; }

int64_t map_height(int64_t rows) { return MAP_TOP + rows * map_row_height(rows) + MAP_BELOW; }

/* All cells of a level as one path: neighbours of a row are one rectangle. */
static void put_level(FILE *out, const struct map_cells *m, int level) {
    int height = map_row_height(m->rows);
    bool open = false;
    for (int64_t row = 0; row < m->rows; row++)
        for (int64_t at = 0, next; at < m->columns; at = next) {
            const uint8_t *cells = m->level + row * m->stride;
            for (next = at + 1; next < m->columns && cells[next] == cells[at];) next++;
            if (cells[at] != level) continue;
            int64_t x = MAP_WIDTH * at / m->columns, end = MAP_WIDTH * next / m->columns;
            if (!open) fprintf(out, "<path class=\"%s\" d=\"", m->style);
            fprintf(out, "M%lld %lldh%lldv%dh-%lldz", (long long)(MAP_LEFT + x),
                    (long long)(MAP_TOP + row * height), (long long)(end - x), height,
                    (long long)(end - x));
            open = true;
        }
    if (open)
        fprintf(out, "\" fill-opacity=\"%s\"/>\n", level == 1 ? ".3" : level == 2 ? ".6" : "1");
}

void map_cells_put(FILE *out, const struct map_cells *m) {
    fprintf(out, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%lld\"/>\n",
            MAP_LEFT, MAP_TOP, MAP_WIDTH, (long long)(m->rows * map_row_height(m->rows)));
    for (int level = 1; level < MAP_LEVELS; level++) put_level(out, m, level);
}

/* Text is larger on a phone: SPACE keeps two names apart. */
enum { SPACE = 26 };
bool map_row_is_named(int64_t rows, int64_t row) {
    int64_t apart = ceil_div(SPACE, map_row_height(rows)), tenth = ceil_div(rows, 10);
    int64_t every = tenth > apart ? tenth : apart;
    return row == rows - 1 || (row % every == 0 && row + apart < rows);
}

void map_row_name(FILE *out, int64_t rows, int64_t row) {
    int height = map_row_height(rows);
    fprintf(out, "<text x=\"%d\" y=\"%lld\" text-anchor=\"end\">", MAP_LEFT - 6,
            (long long)(MAP_TOP + row * height + height / 2 + 4));
}
