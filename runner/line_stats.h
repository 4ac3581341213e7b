/* What a file of JSON lines holds. */
#ifndef FP8LAB_RUNNER_LINE_STATS_H
#define FP8LAB_RUNNER_LINE_STATS_H

#include <jansson.h>

#include "kernels/base.h"

enum line_kind { LINES_NONE, LINES_CONVERSATIONS, LINES_TEXT, LINES_OTHER };

struct line_stats {
    enum line_kind kind; /* LINES_NONE: no JSON lines */
    int64_t lines;       /* that are not empty */
    json_t *keys;        /* of the first line, in its order; owned, NULL for LINES_NONE */
};

/* "conversations", "text", "other". */
const char *line_kind_name(enum line_kind kind);

/* A file has JSON lines if its first line with anything on it is a whole object. Only that line is
 * parsed; all are counted. A file that is no regular file is LINES_NONE: it can be read once only.
 * The caller releases the keys. */
NODISCARD enum status line_stats_file(const char *path, struct line_stats *out, struct err *e);
/* The same of n bytes in memory, which are not all of the text if there is `more`. */
NODISCARD enum status line_stats_memory(const char *text, int64_t n, bool more,
                                        struct line_stats *out, struct err *e);

#endif
