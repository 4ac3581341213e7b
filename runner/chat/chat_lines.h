/* Conversations of a file of JSON lines, one after the other. The file may be packed (source.h). */
#ifndef FP8LAB_RUNNER_CHAT_LINES_H
#define FP8LAB_RUNNER_CHAT_LINES_H

#include "runner/base/canonical.h"
#include "runner/base/paths.h"
#include "runner/chat/conversation.h"
#include "runner/ingest/source.h"

struct chat_lines {
    struct source *source;    /* owned */
    const char *file;         /* borrowed */
    char path[PATH_CAP + 130]; /* the file; of a tar with the name in it, "a.tar: b.jsonl" */
    struct text line;         /* owned */
    int64_t number;           /* of the last line read, from 1 */
    char block[1 << 16];      /* bytes at .. filled-1 are unread */
    size_t at, filled;
    bool inside;              /* a file of the source is being read */
};

NODISCARD enum status chat_lines_open(struct chat_lines *l, const char *path, struct err *e);
void chat_lines_close(struct chat_lines *l); /* allowed for a zeroed struct */

/* Reads the next conversation; *more is false at the end of the file. Empty lines are skipped, a
 * byte order mark and carriage returns are ignored, and the last line needs no newline. Errors of a
 * line begin with "FILE:LINE: "; the caller may go on with the next one after ERR_FORMAT. */
NODISCARD enum status chat_lines_next(struct chat_lines *l, struct conversation *out, bool *more,
                                      struct err *e);

#endif
