#include "runner/ingest/text_head.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Text has almost no control characters; programs, token ids, archives and images have some
 * percent. */
static const double CONTROLS_MAX = 0.01;
/* So many may be in a text of any length: in a small one a single byte is more than that share. */
enum { CONTROLS_ALLOWED = 16 };
/* Fewer bytes say too little about an encoding. */
enum { WIDE_MIN = 64 };

bool text_is_control(int byte) {
    return byte < ' ' && !(byte >= '\t' && byte <= '\r') && byte != '\033';
}

void text_head_add(struct text_head *h, const void *text, size_t n) {
    const unsigned char *p = text;
    for (size_t i = 0; i < n && h->bytes < TEXT_HEAD; i++, h->bytes++) {
        h->controls += text_is_control(p[i]);
        h->zeros[h->bytes & 1] += p[i] == 0;
    }
}

static bool has_many(const struct text_head *h) {
    return (double)h->controls > CONTROLS_MAX * (double)h->bytes;
}

bool text_head_is_other(const struct text_head *h) {
    return h->controls > CONTROLS_ALLOWED && has_many(h);
}

bool text_head_is_odd(const struct text_head *h) {
    return !text_head_is_other(h) && (has_many(h) || h->zeros[0] + h->zeros[1] > 0);
}

/* Latin text in UTF-16 has a zero in nearly each unit, at the same place, and few other control
 * characters. NULL: it is not that. */
static const char *wide_name(const struct text_head *h) {
    int64_t zeros = h->zeros[0] + h->zeros[1];
    bool one_side = h->zeros[0] == 0 || h->zeros[1] == 0;
    bool units = h->bytes % 2 == 0 && h->bytes >= WIDE_MIN;
    if (!units || !one_side || 4 * zeros < h->bytes) return NULL;
    if ((double)(h->controls - zeros) > CONTROLS_MAX * (double)h->bytes) return NULL;
    return h->zeros[0] ? "UTF-16BE" : "UTF-16LE";
}

void text_head_words(char out[TEXT_HEAD_CAP], const struct text_head *h, const char *name) {
    const char *wide = wide_name(h);
    char hint[160] = "";
    if (wide)
        snprintf(hint, sizeof hint, ", as in UTF-16 without a byte-order mark ("
                 "iconv -f %s -t UTF-8 IN >OUT)", wide);
    snprintf(out, TEXT_HEAD_CAP, "%.256s is not text: %.1f %% of its %s%s are control characters%s",
             name, 100 * (double)h->controls / (double)h->bytes, h->unpacked ? "unpacked " : "",
             h->bytes < TEXT_HEAD ? "bytes" : "first 64 KiB", hint);
}

enum status text_head_check(const struct text_head *h, const char *name, bool lines,
                            struct err *e) {
    char words[TEXT_HEAD_CAP];
    if (!text_head_is_other(h)) return OK;
    text_head_words(words, h, name);
    return FAIL(e, ERR_FORMAT, "%s. Make text in UTF-8 of it, or leave it out%s", words,
                lines ? "" : "; the tokenizer \"bytes\" takes any bytes");
}

size_t text_without_mark(void *text, size_t n) {
    static const char MARK[] = "\xef\xbb\xbf";
    const size_t m = sizeof MARK - 1;
    if (n < m || memcmp(text, MARK, m) != 0) return n;
    memmove(text, (char *)text + m, n - m);
    return n - m;
}

void text_doubts_add(struct text_doubts *d, const struct text_head *h, const char *name) {
    bool other = text_head_is_other(h);
    struct text_doubt *doubt = other ? &d->other : &d->odd;
    d->files++;
    if ((!other && !text_head_is_odd(h)) || doubt->count++) return;
    doubt->head = *h;
    snprintf(doubt->name, sizeof doubt->name, "%s", name);
}

void text_doubts_warning(char out[TEXT_HEAD_CAP], const struct text_doubts *d) {
    const struct text_doubt *first = d->other.count ? &d->other : &d->odd;
    const struct text_head *h = &first->head;
    char words[TEXT_HEAD_CAP], others[80] = "";
    out[0] = '\0';
    if (!first->count) return;
    if (first->count > 1)
        snprintf(others, sizeof others, ", and %s%" PRId64 " more of %" PRId64 " files",
                 d->other.count ? "those of " : "", first->count - 1, d->files);
    if (d->other.count) {
        text_head_words(words, h, first->name);
        snprintf(out, TEXT_HEAD_CAP, "%.600s; its bytes are read as they are%s", words, others);
        return;
    }
    snprintf(out, TEXT_HEAD_CAP, "%s%s: %s in the first 64 KiB, so it may be no text; all of it is "
             "read as text", first->name, others,
             h->zeros[0] + h->zeros[1] ? "bytes of zero" : "control characters");
}
