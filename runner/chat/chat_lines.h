/* Conversations of a file of JSON lines, one after the other. */
#ifndef FP8LAB_RUNNER_CHAT_LINES_H
#define FP8LAB_RUNNER_CHAT_LINES_H

#include <stdio.h>

#include "runner/base/canonical.h"
#include "runner/chat/conversation.h"

struct chat_lines {
    FILE *file;       /* owned */
    const char *path; /* borrowed */
    struct text line; /* owned */
    int64_t number;   /* of the last line read, from 1 */
};

NODISCARD enum status chat_lines_open(struct chat_lines *l, const char *path, struct err *e);
void chat_lines_close(struct chat_lines *l); /* allowed for a zeroed struct */

/* Reads the next conversation; *more is false at the end of the file. Empty lines are skipped, a
 * byte order mark and carriage returns are ignored, and the last line needs no newline. Errors of a
 * line begin with "FILE:LINE: "; the caller may go on with the next one after ERR_FORMAT. */
NODISCARD enum status chat_lines_next(struct chat_lines *l, struct conversation *out, bool *more,
                                      struct err *e);

#endif
