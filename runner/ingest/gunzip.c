#include "runner/ingest/gunzip.h"

#define ZLIB_CONST
#include <stdlib.h>
#include <zlib.h>

struct gunzip {
    z_stream z;
    bool inside; /* a member */
};

enum status gunzip_create(struct gunzip **out, struct err *e) {
    enum { GZIP_ONLY = 16 };
    struct gunzip *g = calloc(1, sizeof *g);
    if (g && inflateInit2(&g->z, GZIP_ONLY + MAX_WBITS) == Z_OK) {
        *out = g;
        return OK;
    }
    free(g);
    return FAIL(e, ERR_MEMORY, "memory to unpack gzip");
}

void gunzip_destroy(struct gunzip *g) {
    if (g) inflateEnd(&g->z);
    free(g);
}

/* Skips zeros, which tapes and some tools write behind a member. */
static void begin_member(struct gunzip *g) {
    while (g->z.avail_in && !*g->z.next_in) {
        g->z.next_in++;
        g->z.avail_in--;
    }
    if (!g->z.avail_in) return;
    inflateReset(&g->z);
    g->inside = true;
}

enum status gunzip_some(struct gunzip *g, const unsigned char *in, size_t n, size_t *used,
                        unsigned char *out, size_t room, size_t *made, struct err *e) {
    int rc = Z_OK;
    g->z.next_in = in;
    g->z.avail_in = (unsigned)n;
    g->z.next_out = out;
    g->z.avail_out = (unsigned)room;
    do { /* without input, too: zlib may still hold output */
        if (!g->inside) begin_member(g);
        if (!g->inside) break;
        rc = inflate(&g->z, Z_NO_FLUSH);
        g->inside = rc != Z_STREAM_END;
    } while (g->z.avail_in && g->z.avail_out && (rc == Z_OK || rc == Z_STREAM_END));
    *used = n - g->z.avail_in;
    *made = room - g->z.avail_out;
    if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR) return OK;
    if (rc == Z_MEM_ERROR) return FAIL(e, ERR_MEMORY, "memory to unpack gzip");
    return FAIL(e, ERR_FORMAT, "damaged gzip: %s; gzip -t checks it", g->z.msg ? g->z.msg : "?");
}

enum status gunzip_end(const struct gunzip *g, struct err *e) {
    if (!g->inside) return OK;
    return FAIL(e, ERR_FORMAT, "damaged gzip: it is truncated; gzip -t checks it");
}
