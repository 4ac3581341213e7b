/* Each plot of a comparison as a file, for papers. */
#include <stdio.h>

#include "runner/base/text_stream.h"
#include "runner/compare/plots.h"

struct svg_folder {
    const char *dir;
    int64_t count; /* files written */
};

static enum status write_plot(void *context, const struct svg_figure *figure,
                              const struct svg_line *lines, int64_t count, struct err *e) {
    struct svg_folder *folder = context;
    char name[64], path[PATH_CAP];
    struct text text = { 0 };
    snprintf(name, sizeof name, "%s.svg", figure->id);
    TRY(path_join(path, folder->dir, name, e));
    FILE *out = text_stream_open(&text);
    if (!out) return FAIL(e, ERR_MEMORY, "no memory for %s", path);
    svg_file(out, figure, lines, count);
    enum status st = text_stream_close(out, &text) ? file_replace(path, text.bytes, text.size, e)
                                                   : FAIL(e, ERR_MEMORY, "no memory for %s", path);
    text_free(&text);
    folder->count += st == OK;
    return st;
}

enum status compare_svg(const struct comparison *c, const char *dir, int64_t *count,
                        struct err *e) {
    struct svg_folder folder = { .dir = dir };
    TRY(directory_make(dir, e));
    TRY(compare_each_plot(c, &(struct plot_visitor){ write_plot, &folder }, e));
    *count = folder.count;
    return OK;
}
