/* Text into ids: added tokens, normalizer, split stages, and the model on each word. */
#include <stdlib.h>
#include <string.h>

#include "runner/ingest/trace.h"
#include "runner/ingest/word_ids.h"

/* ---- one thread's memory ------------------------------------------------------------------- */

struct encoder {
    const struct tokenizer *t;
    struct word_ids words;
    struct bytes lossy, normal, spare;
    struct bytes stage_text[STAGES_MAX];
    struct pattern_work pattern[STAGES_MAX];
    int64_t replaced; /* U+FFFD */
    struct trace trace;
};

enum status encoder_create(struct encoder **out, const struct tokenizer *t, struct err *e) {
    struct encoder *x = calloc(1, sizeof *x);
    if (!x) return FAIL(e, ERR_MEMORY, "%zu bytes for an encoder", sizeof *x);
    enum status st = word_ids_open(&x->words, t, e);
    if (st != OK) {
        free(x);
        return st;
    }
    x->t = t;
    *out = x;
    return OK;
}

void encoder_destroy(struct encoder *x) {
    if (!x) return;
    for (int i = 0; i < STAGES_MAX; i++) {
        free(x->stage_text[i].bytes);
        pattern_work_free(&x->pattern[i]);
    }
    word_ids_close(&x->words);
    trace_free(&x->trace);
    free(x->lossy.bytes);
    free(x->normal.bytes);
    free(x->spare.bytes);
    free(x);
}

const uint32_t *encoder_ids(const struct encoder *x, int64_t *count) {
    *count = (int64_t)x->words.count;
    return x->words.id;
}

void encoder_clear(struct encoder *x) { x->words.count = 0; }

void encoder_cut(struct encoder *x, int64_t count) {
    if (x->words.count > (size_t)count) x->words.count = (size_t)count;
}

const uint32_t *encoder_places(const struct encoder *x) {
    return (const uint32_t *)(void *)x->trace.ends.bytes;
}

struct encoder_counts encoder_counts(const struct encoder *x) {
    return (struct encoder_counts){ .replaced = x->replaced, .dropped = x->words.dropped };
}

enum status encoder_push(struct encoder *x, uint32_t id, struct err *e) {
    TRY(word_ids_room(&x->words, 1, e));
    x->words.id[x->words.count++] = id;
    return OK;
}

static enum status push_all(struct encoder *x, const uint32_t *id, int64_t n, struct err *e) {
    for (int64_t i = 0; i < n; i++) TRY(encoder_push(x, id[i], e));
    return OK;
}

enum status encoder_begin(struct encoder *x, struct err *e) {
    return push_all(x, x->t->before, x->t->before_count, e);
}

enum status encoder_end(struct encoder *x, struct err *e) {
    return push_all(x, x->t->behind, x->t->behind_count, e);
}

/* ---- words ---------------------------------------------------------------------------------- */

/* The words from p on; bytes before `limit` may be read. */
static enum status some_words(struct encoder *x, const uint8_t *p, const uint8_t *const *ends,
                              int count, const uint8_t *limit, struct err *e) {
    struct word_ids *w = &x->words;
    size_t first = w->count;
    if (!x->trace.on || x->t->whole_bytes) TRY(word_ids_add(w, p, ends, count, limit, e));
    if (!x->trace.on) return OK;
    if (x->t->whole_bytes)
        return trace_ids(&x->trace, x->t, p, w->id + first, w->count - first, e);
    for (int i = 0; i < count; p = ends[i++]) {
        size_t before = w->count;
        TRY(word_ids_add(w, p, &ends[i], 1, limit, e));
        TRY(trace_word(&x->trace, x->t, p, (size_t)(ends[i] - p), w->id + before,
                       w->count - before, e));
    }
    return OK;
}

static enum status one_word(struct encoder *x, const uint8_t *p, size_t n, struct err *e) {
    const uint8_t *end = p + n;
    return some_words(x, p, &end, 1, end, e);
}

/* In tokenizers of this kind a whole document is one word. It can be cut before each U+2581 that
 * follows another character, if no merge crosses such a place. */
static enum status word(struct encoder *x, const uint8_t *p, size_t n, struct err *e) {
    static const uint8_t MARK[] = { 0xe2, 0x96, 0x81 };
    if (!x->t->cut_at_marks) return one_word(x, p, n, e);
    while (n) {
        size_t at = 0;
        while (at + 3 <= n && !memcmp(p + at, MARK, 3)) at += 3;
        const uint8_t *next = memmem(p + at, n - at, MARK, 3);
        size_t length = next ? (size_t)(next - p) : n;
        TRY(one_word(x, p, length, e));
        p += length;
        n -= length;
    }
    return OK;
}

/* ---- the head ------------------------------------------------------------------------------ */

/* The head of a piece: its first bytes, as far as the package `tokenizers` gives them the offset 0
 * in the original text. In an unchanged text this is the first character. Metaspace's "first" marks
 * each piece that begins in the head. A piece without a head is never marked. */

/* The head's bytes behind the first n. */
static size_t head_behind(size_t head, size_t n) { return head > n ? head - n : 0; }

/* The head of what replace_all() makes. A replacement has the offset of the last byte that it
 * replaces. */
static size_t head_replaced(const uint8_t *text, size_t n, const struct text_ref *from,
                            const struct text_ref *to, size_t head) {
    size_t done = 0, out = 0;
    if (head > n) head = n;
    while (done < head) {
        size_t limit = head - 1 + from->n < n ? head - 1 + from->n : n; /* of a match in the head */
        const uint8_t *found = memmem(text + done, limit - done, from->text, from->n);
        if (!found) return out + head - done;
        out += (size_t)(found - text) - done;
        done = (size_t)(found - text) + from->n;
        if (done <= head) out += to->n;
    }
    return out;
}

/* ---- split stages -------------------------------------------------------------------------- */

static enum status run_stage(struct encoder *x, int at, const uint8_t *p, size_t n, size_t head,
                             struct err *e);

static enum status split_stage(struct encoder *x, int at, const uint8_t *p, size_t n, size_t head,
                               struct err *e) {
    const struct stage *s = &x->t->stage[at];
    const uint8_t *end = p + n, *ends[WORDS_AHEAD];
    bool last = at + 1 == x->t->stages && !x->t->cut_at_marks;
    while (p < end) {
        int count = split_next(x->t->unicode, s->split, p, end, ends, WORDS_AHEAD);
        if (last) TRY(some_words(x, p, ends, count, end, e));
        for (int i = 0; i < count && !last; i++) {
            TRY(run_stage(x, at + 1, p, (size_t)(ends[i] - p), head, e));
            head = head_behind(head, (size_t)(ends[i] - p));
            p = ends[i];
        }
        p = ends[count - 1];
    }
    return OK;
}

static enum status pattern_stage(struct encoder *x, int at, const uint8_t *p, size_t n,
                                 size_t head, struct err *e) {
    const struct stage *s = &x->t->stage[at];
    struct pattern_work *w = &x->pattern[at];
    TRY(pattern_split(s->pattern, s->behavior, s->invert, p, n, w, e));
    for (size_t i = 0; i < w->count; i++) {
        size_t begin = w->piece[2 * i], end = w->piece[2 * i + 1];
        TRY(run_stage(x, at + 1, p + begin, end - begin, head_behind(head, begin), e));
    }
    return OK;
}

/* Metaspace: U+0020 becomes the replacement, which is also set before the text. */
static enum status metaspace_stage(struct encoder *x, int at, const uint8_t *p, size_t n,
                                   size_t head, struct err *e) {
    const struct stage *s = &x->t->stage[at];
    const struct text_ref space = { " ", 1 }, *mark = &s->replacement;
    struct bytes *b = &x->stage_text[at];
    b->count = 0;
    struct trace_view view = x->trace.view;
    bool marked = *p == ' ' || (n >= mark->n && !memcmp(p, mark->text, mark->n));
    if (!marked && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && head)))
        TRY(bytes_add(b, mark->text, mark->n, e));
    size_t prefix = b->count;
    TRY(replace_all(b, p, n, &space, mark, e));
    if (x->trace.on) TRY(trace_stage(&x->trace, at, b->bytes, prefix, p, n, &space, mark, e));
    if (head) head = prefix + head_replaced(p, n, &space, mark, head);
    TRY(run_stage(x, at + 1, b->bytes, b->count, head, e));
    x->trace.view = view;
    return OK;
}

/* A space before the text, unless it has one. */
static enum status space_stage(struct encoder *x, int at, const uint8_t *p, size_t n, size_t head,
                               struct err *e) {
    struct bytes *b = &x->stage_text[at];
    struct trace_view view = x->trace.view;
    if (*p == ' ') return run_stage(x, at + 1, p, n, head, e);
    b->count = 0;
    TRY(bytes_add(b, " ", 1, e));
    TRY(bytes_add(b, p, n, e));
    if (x->trace.on) TRY(trace_stage(&x->trace, at, b->bytes, 1, p, n, NULL, NULL, e));
    TRY(run_stage(x, at + 1, b->bytes, b->count, head + (head > 0), e));
    x->trace.view = view;
    return OK;
}

static enum status run_stage(struct encoder *x, int at, const uint8_t *p, size_t n, size_t head,
                             struct err *e) {
    if (n == 0) return OK;
    if (at == x->t->stages) return word(x, p, n, e);
    switch (x->t->stage[at].kind) {
    case STAGE_SPLIT: return split_stage(x, at, p, n, head, e);
    case STAGE_PATTERN: return pattern_stage(x, at, p, n, head, e);
    case STAGE_METASPACE: return metaspace_stage(x, at, p, n, head, e);
    case STAGE_SPACE_BEFORE: return space_stage(x, at, p, n, head, e);
    }
    return OK;
}

/* ---- normalizer ---------------------------------------------------------------------------- */

enum status replace_all(struct bytes *out, const uint8_t *text, size_t n,
                        const struct text_ref *from, const struct text_ref *to, struct err *e) {
    const uint8_t *end = text + n, *found;
    while ((found = memmem(text, (size_t)(end - text), from->text, from->n))) {
        TRY(bytes_add(out, text, (size_t)(found - text), e));
        TRY(bytes_add(out, to->text, to->n, e));
        text = found + from->n;
    }
    return bytes_add(out, text, (size_t)(end - text), e);
}

/* `head`: of the text, and then of what became of it. `trace`: its view has the text, and then
 * what became of it; NULL: none. */
static enum status normalize(const struct tokenizer *t, struct bytes *out, struct bytes *spare,
                             const uint8_t *text, size_t n, size_t *head, struct trace *trace,
                             struct err *e) {
    TRY(bytes_add(out, text, n, e));
    if (trace) trace->view.origin += (size_t)(text - trace->view.base);
    if (trace) trace->view.base = out->bytes;
    for (int i = 0; i < t->steps && out->count; i++) {
        const struct normal_step *s = &t->step[i];
        if (s->kind == STEP_NFC && nfc_unchanged(t->unicode, out->bytes, out->count)) continue;
        spare->count = 0;
        switch (s->kind) {
        case STEP_NFC: TRY(nfc_add(t->unicode, spare, out->bytes, out->count, head, e)); break;
        case STEP_REPLACE:
            TRY(replace_all(spare, out->bytes, out->count, &s->a, &s->b, e));
            *head = head_replaced(out->bytes, out->count, &s->a, &s->b, *head);
            break;
        case STEP_PREPEND:
            TRY(bytes_add(spare, s->a.text, s->a.n, e));
            TRY(bytes_add(spare, out->bytes, out->count, e));
            if (*head) *head += s->a.n;
            break;
        }
        if (trace)
            TRY(trace_step(trace, t->unicode, s, spare->bytes, out->bytes, out->count, e));
        struct bytes swap = *out;
        *out = *spare;
        *spare = swap;
    }
    return OK;
}

/* Whether the normalizer certainly leaves the text as it is. */
static bool is_normal(const struct tokenizer *t, const uint8_t *text, size_t n) {
    for (int i = 0; i < t->steps; i++)
        if (t->step[i].kind != STEP_NFC || !nfc_unchanged(t->unicode, text, n)) return false;
    return true;
}

enum status add_token(struct tokenizer *t, const struct added *token, struct err *e) {
    struct added_pass *pass = token->normalized ? &t->normalized : &t->raw;
    struct bytes text = { 0 }, spare = { 0 };
    struct text_ref copy = { 0 };
    size_t head = 0;
    enum status st = token->normalized
                         ? normalize(t, &text, &spare, (const uint8_t *)token->text, token->n,
                                     &head, NULL, e)
                         : bytes_add(&text, token->text, token->n, e);
    if (st == OK) st = text_copy(&copy, (const char *)text.bytes, text.count, e);
    struct added *more = st == OK ? realloc(pass->token, (size_t)(pass->count + 1) * sizeof *more)
                                  : NULL;
    if (st == OK && !more) st = FAIL(e, ERR_MEMORY, "memory for added tokens");
    if (st == OK) {
        pass->token = more;
        more[pass->count] = *token;
        more[pass->count].text = copy.text;
        more[pass->count++].n = copy.n;
    } else {
        free(copy.text);
    }
    free(text.bytes);
    free(spare.bytes);
    return st;
}

/* ---- added tokens -------------------------------------------------------------------------- */

/* What a token with lstrip or rstrip takes with it: nothing before `from`. */
static size_t spaces_before(const struct unicode *u, const uint8_t *text, size_t from, size_t at) {
    if (at < from) return from;
    while (at > from) {
        size_t start = at - 1;
        int length;
        while (start > from && (text[start] & 0xc0) == 0x80) start--;
        if (!(u->class_of[utf8_at(text + start, &length)] & UC_SPACE)) break;
        at = start;
    }
    return at;
}

static size_t spaces_behind(const struct unicode *u, const uint8_t *text, size_t n, size_t at) {
    int length;
    while (at < n && u->class_of[utf8_at(text + at, &length)] & UC_SPACE) at += (size_t)length;
    return at;
}

typedef enum status (*piece_function)(struct encoder *x, const uint8_t *p, size_t n, size_t head,
                                      struct err *e);

/* The tokens of one pass, and what is between them through `piece`. A token inside the spaces that
 * another one has taken is found too, and the text goes on behind it, as in `tokenizers`. If lstrip
 * leaves nothing of such a token, it has no id. */
static enum status pass(struct encoder *x, const struct added_pass *a, const uint8_t *text,
                        size_t n, size_t head, piece_function piece, struct err *e) {
    size_t done = 0, from = 0, at;
    const struct added *match;
    while ((match = added_find(a, text, n, from, &at))) {
        size_t end = from = at + match->n, last = end - 1;
        if (match->special && x->t->ordinary) continue;
        if (match->special && x->trace.on && !trace_allows(&x->trace, text + at, match->n)) {
            from = at + 1; /* one that is allowed may begin inside */
            continue;
        }
        if (match->lstrip) at = spaces_before(x->t->unicode, text, done, at);
        if (match->rstrip) end = spaces_behind(x->t->unicode, text, n, end);
        if (at > done) TRY(piece(x, text + done, at - done, head_behind(head, done), e));
        done = end;
        if (at == end) continue;
        TRY(encoder_push(x, match->id, e));
        if (x->trace.on) TRY(trace_push(&x->trace, text + last, e));
    }
    return done < n ? piece(x, text + done, n - done, head_behind(head, done), e) : OK;
}

static enum status plain_piece(struct encoder *x, const uint8_t *p, size_t n, size_t head,
                               struct err *e) {
    return run_stage(x, 0, p, n, head, e);
}

static enum status raw_piece(struct encoder *x, const uint8_t *p, size_t n, size_t head,
                             struct err *e) {
    struct trace_view view = x->trace.view;
    if (!is_normal(x->t, p, n)) {
        x->normal.count = 0;
        TRY(normalize(x->t, &x->normal, &x->spare, p, n, &head, x->trace.on ? &x->trace : NULL,
                      e));
        p = x->normal.bytes;
        n = x->normal.count;
    }
    TRY(pass(x, &x->t->normalized, p, n, head, plain_piece, e));
    x->trace.view = view;
    return OK;
}

static enum status whole_text(struct encoder *x, const uint8_t *p, size_t n, struct err *e) {
    int head;
    if (x->t->kind == TOKENIZER_BYTES) return one_word(x, p, n, e);
    utf8_at(p, &head);
    return pass(x, &x->t->raw, p, n, (size_t)head, raw_piece, e);
}

static enum status check_length(size_t n, struct err *e) {
    if (n < 1u << 28) return OK;
    return FAIL(e, ERR_FORMAT, "a text of %zu bytes; a document must have less than 256 MiB", n);
}

enum status encoder_add_placed(struct encoder *x, const char *text, size_t n,
                               const struct byte_range *control, int64_t count, struct err *e) {
    const uint8_t *p = (const uint8_t *)text;
    enum status st = check_length(n, e);
    if (st == OK && utf8_valid(p, n) < n)
        st = FAIL(e, ERR_FORMAT, "byte %zu of the text is not UTF-8", utf8_valid(p, n));
    trace_begin(&x->trace, p, control, count);
    if (st == OK && n > 0) st = whole_text(x, p, n, e);
    x->trace.on = false;
    return st;
}

enum status encoder_add(struct encoder *x, const char *text, size_t n, struct err *e) {
    const uint8_t *p = (const uint8_t *)text;
    TRY(check_length(n, e));
    if (n == 0) return OK;
    if (x->t->kind != TOKENIZER_BYTES && utf8_valid(p, n) < n) {
        x->lossy.count = 0;
        TRY(utf8_lossy(&x->lossy, p, n, &x->replaced, e));
        p = x->lossy.bytes;
        n = x->lossy.count;
    }
    return whole_text(x, p, n, e);
}
