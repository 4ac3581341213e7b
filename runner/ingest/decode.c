/* Ids into text: the tokens go as a list through the steps of the decoder. */
#include <stdlib.h>
#include <string.h>

#include "runner/ingest/tokenizer_parts.h"

/* Texts one behind the other; text i ends at end[i]. Owned. */
struct list {
    struct bytes text;
    size_t *end;
    size_t count, room;
};

static void list_free(struct list *l) {
    free(l->text.bytes);
    free(l->end);
    *l = (struct list){ 0 };
}

/* What was appended to l->text since the last call is one text. */
static enum status list_close(struct list *l, struct err *e) {
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 256;
        size_t *more = realloc(l->end, room * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "%zu bytes to decode", room * sizeof *more);
        l->end = more;
        l->room = room;
    }
    l->end[l->count++] = l->text.count;
    return OK;
}

static const uint8_t *list_at(const struct list *l, size_t i, size_t *n) {
    size_t begin = i ? l->end[i - 1] : 0;
    *n = l->end[i] - begin;
    return l->text.bytes + begin;
}

/* ---- steps --------------------------------------------------------------------------------- */

static int hex_of(uint8_t c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of "<0xNN>", or -1. */
static int fallback_byte(const uint8_t *p, size_t n) {
    if (n != 6 || memcmp(p, "<0x", 3) || p[5] != '>') return -1;
    int high = hex_of(p[3]), low = hex_of(p[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* Runs of bytes become one text if they are UTF-8, else U+FFFD for each byte. */
static enum status byte_fallback(struct list *out, const struct list *in, struct err *e) {
    for (size_t i = 0, n; i < in->count;) {
        const uint8_t *p = list_at(in, i, &n);
        size_t begin = out->text.count, end = i;
        for (int byte; end < in->count; end++) {
            size_t m;
            const uint8_t *q = list_at(in, end, &m);
            if ((byte = fallback_byte(q, m)) < 0) break;
            TRY(bytes_add(&out->text, &(uint8_t){ (uint8_t)byte }, 1, e));
        }
        size_t run = end - i;
        if (run == 0) {
            TRY(bytes_add(&out->text, p, n, e));
            TRY(list_close(out, e));
            i++;
            continue;
        }
        bool whole = utf8_valid(out->text.bytes + begin, run) == run;
        if (!whole) out->text.count = begin;
        for (size_t k = 0; k < (whole ? 1 : run); k++) {
            if (!whole) TRY(bytes_add(&out->text, "\xef\xbf\xbd", 3, e));
            TRY(list_close(out, e));
        }
        i = end;
    }
    return OK;
}

static enum status strip(struct list *out, const struct decoder_step *d, const uint8_t *p,
                         size_t n, struct err *e) {
    for (int64_t i = 0; i < d->start && n >= d->a.n && !memcmp(p, d->a.text, d->a.n); i++) {
        p += d->a.n;
        n -= d->a.n;
    }
    for (int64_t i = 0; i < d->stop && n >= d->a.n && !memcmp(p + n - d->a.n, d->a.text, d->a.n);
         i++)
        n -= d->a.n;
    return bytes_add(&out->text, p, n, e);
}

/* The bytes of a token that stands for bytes, or its own. */
static enum status from_byte_level(struct bytes *out, const uint8_t *p, size_t n, struct err *e) {
    size_t count;
    TRY(bytes_reserve(out, n, e));
    if (!byte_level_bytes(p, n, out->bytes + out->count, &count)) return bytes_add(out, p, n, e);
    out->count += count;
    return OK;
}

static enum status each(struct list *out, const struct list *in, const struct decoder_step *d,
                        struct err *e) {
    const struct text_ref space = { " ", 1 }, nothing = { "", 0 };
    for (size_t i = 0, n; i < in->count; i++) {
        const uint8_t *p = list_at(in, i, &n);
        switch (d->kind) {
        case DECODE_REPLACE: TRY(replace_all(&out->text, p, n, &d->a, &d->b, e)); break;
        case DECODE_STRIP: TRY(strip(out, d, p, n, e)); break;
        case DECODE_METASPACE: {
            bool first = i == 0 && d->prepend != PREPEND_NEVER;
            TRY(replace_all(&out->text, p, n, &d->a, first ? &nothing : &space, e));
            break;
        }
        case DECODE_BYTE_LEVEL: TRY(from_byte_level(&out->text, p, n, e)); break;
        default: TRY(bytes_add(&out->text, p, n, e)); break;
        }
        if (d->kind != DECODE_FUSE && d->kind != DECODE_BYTE_LEVEL) TRY(list_close(out, e));
    }
    return d->kind == DECODE_FUSE || d->kind == DECODE_BYTE_LEVEL ? list_close(out, e) : OK;
}

/* ---- all ----------------------------------------------------------------------------------- */

static enum status gather(const struct tokenizer *t, const uint32_t *ids, int64_t count,
                          bool skip_specials, struct list *out, struct err *e) {
    const struct vocab *v = &t->vocab;
    bool spaced = !t->byte_level && t->kind == TOKENIZER_JSON && t->decoders == 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t id = ids[i];
        if (id >= v->size || !v->flags[id])
            return FAIL(e, ERR_ARG, "the token %lld of those to decode is %u, which the tokenizer "
                        "does not have", (long long)i, id);
        if (skip_specials && v->flags[id] & TOKEN_SPECIAL) continue;
        if (spaced && out->count) TRY(bytes_add(&out->text, " ", 1, e));
        TRY(bytes_add(&out->text, v->text + v->begin[id], vocab_length(v, id), e));
        TRY(list_close(out, e));
    }
    return OK;
}

static enum status run_steps(const struct tokenizer *t, struct list *list, struct err *e) {
    for (int i = 0; i < t->decoders; i++) {
        /* The vocabulary of a tokenizer of bytes has the bytes already. */
        if (t->byte_level && t->decoder[i].kind == DECODE_BYTE_LEVEL) continue;
        struct list next = { 0 };
        enum status st = t->decoder[i].kind == DECODE_BYTE_FALLBACK
                             ? byte_fallback(&next, list, e)
                             : each(&next, list, &t->decoder[i], e);
        list_free(list);
        *list = next;
        if (st != OK) return st;
    }
    return OK;
}

enum status tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, int64_t count,
                             bool skip_specials, char **out, size_t *n, struct err *e) {
    struct list list = { 0 };
    struct bytes text = { 0 };
    int64_t replaced = 0;
    enum status st = gather(t, ids, count, skip_specials, &list, e);
    if (st == OK) st = run_steps(t, &list, e);
    if (st == OK && t->kind != TOKENIZER_BYTES)
        st = utf8_lossy(&text, list.text.bytes, list.text.count, &replaced, e);
    else if (st == OK)
        st = bytes_add(&text, list.text.bytes, list.text.count, e);
    if (st == OK) st = bytes_add(&text, "", 1, e);
    list_free(&list);
    if (st != OK) {
        free(text.bytes);
        return st;
    }
    *out = (char *)text.bytes;
    *n = text.count - 1;
    return OK;
}
