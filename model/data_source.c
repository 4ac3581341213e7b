/* The files of a data stream, and the runs of tokens in them. */
#include "model/data_source.h"

#include <stdio.h>
#include <stdlib.h>

enum status data_add_file(struct data *d, const char *path, int64_t *index, struct err *e) {
    struct input_file *fresh = realloc(d->file, (size_t)(d->file_count + 1) * sizeof *fresh);
    if (!fresh) return FAIL(e, ERR_MEMORY, "no host memory for the list of files");
    d->file = fresh;
    char *rooted = NULL;
    if (d->root && asprintf(&rooted, "%s/%s", d->root, path) < 0)
        return FAIL(e, ERR_MEMORY, "no host memory for a path");
    enum status st = input_open(&d->file[d->file_count], rooted ? rooted : path, e);
    free(rooted);
    if (st == OK) *index = d->file_count++;
    return st;
}

enum status stream_append(struct data *d, struct token_stream *s, int64_t file, int64_t offset,
                          int64_t count, int token_bytes, struct err *e) {
    if (s->run_count && s->token_bytes != token_bytes)
        return FAIL(e, ERR_FORMAT, "%s has tokens of %d bytes, but %s, of the same part of the "
                    "data, has tokens of %d; make them parts of their own", d->file[file].path,
                    token_bytes, d->file[s->run[0].file].path, s->token_bytes);
    s->token_bytes = token_bytes;
    struct token_run *fresh = realloc(s->run, (size_t)(s->run_count + 1) * sizeof *fresh);
    if (!fresh) return FAIL(e, ERR_MEMORY, "no host memory for the list of token runs");
    s->run = fresh;
    struct token_run run = { .file = file, .offset = offset, .first = s->count, .count = count,
                             .loss = -1 };
    s->run[s->run_count++] = run;
    s->count += count;
    return OK;
}
