#include "runner/infer/logits_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/logits.h"

enum { PIECE = 64 << 20, HEADER = 128 }; /* f32 at a time; bytes of the header */

/* NumPy's format 1.0: magic, length of the dictionary, the dictionary. */
static enum status write_header(FILE *f, int64_t rows, int64_t cols, struct err *e) {
    char head[HEADER + 1];
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = HEADER - 10;
    head[9] = 0;
    int n = snprintf(head + 10, HEADER - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%"
                     PRId64 ", %" PRId64 "), }", rows, cols);
    memset(head + 10 + n, ' ', (size_t)(HEADER - 11 - n));
    head[HEADER - 1] = '\n';
    return fwrite(head, 1, HEADER, f) == HEADER ? OK : FAIL(e, ERR_IO, "%s", strerror(errno));
}

static enum status write_rows(struct trainer *t, const struct logits_sizes *s,
                              const int32_t *tokens, int64_t count, FILE *f, struct err *e) {
    int64_t each = PIECE / s->vocab < 1 ? 1 : PIECE / s->vocab, wrote = 0;
    if (each > count) each = count;
    float *logits = malloc((size_t)(each * s->vocab) * sizeof *logits);
    int64_t *row = malloc((size_t)each * sizeof *row);
    enum status st = logits && row ? OK : FAIL(e, ERR_MEMORY, "no host memory for logits");
    for (int64_t n; st == OK && wrote < count; wrote += n) {
        n = count - wrote < each ? count - wrote : each;
        for (int64_t i = 0; i < n; i++) row[i] = wrote + i;
        st = trainer_logits(t, tokens, row, n, logits, e);
        size_t values = (size_t)(n * s->vocab);
        if (st == OK && fwrite(logits, sizeof *logits, values, f) != values)
            st = FAIL(e, ERR_IO, "%s", strerror(errno));
    }
    free(row);
    free(logits);
    return st;
}

enum status logits_file_write(struct trainer *t, const struct logits_sizes *sizes,
                              const int32_t *ids, int64_t count, const char *path, struct err *e) {
    int32_t *tokens = calloc((size_t)(sizes->batch * sizes->length), sizeof *tokens);
    if (!tokens) return FAIL(e, ERR_MEMORY, "no host memory for a batch");
    memcpy(tokens, ids, (size_t)count * sizeof *ids);
    FILE *f = fopen(path, "wbe");
    enum status st = f ? write_header(f, count, sizes->vocab, e)
                       : FAIL(e, ERR_IO, "%s", strerror(errno));
    if (st == OK) st = write_rows(t, sizes, tokens, count, f, e);
    if (f && fclose(f) != 0 && st == OK) st = FAIL(e, ERR_IO, "%s", strerror(errno));
    free(tokens);
    if (st != OK) err_prefix(e, "write %.300s", path);
    return st;
}
