#include "runner/chat/loss.h"

#include <stdlib.h>
#include <string.h>

/* ---- markers --------------------------------------------------------------------------------- */

static char *copy_text(const char *bytes, int64_t n) {
    char *copy = malloc((size_t)n + 1);
    if (!copy) return NULL;
    memcpy(copy, bytes, (size_t)n);
    copy[n] = 0;
    return copy;
}

/* Renders; a template that rejects the conversation gives an empty text. */
static enum status render_or_empty(const struct chat_template *t, const struct conversation *c,
                                   int64_t messages, bool prompt, struct chat_rendering *out,
                                   struct err *e) {
    enum status st = chat_render(t, c, messages, prompt, out, e);
    if (st == OK || st == ERR_MEMORY) return st;
    *out = (struct chat_rendering){ .text = "" };
    return OK;
}

/* What the generation prompt adds to a conversation of one question. */
static enum status find_prompt(const struct chat_template *t, const struct conversation *c,
                               char **out, struct err *e) {
    struct chat_rendering without, with;
    TRY(render_or_empty(t, c, 1, false, &without, e));
    enum status st = render_or_empty(t, c, 1, true, &with, e);
    if (st == OK) {
        bool adds = with.n > without.n && !memcmp(with.text, without.text, (size_t)without.n);
        *out = copy_text(with.text + (adds ? without.n : 0), adds ? with.n - without.n : 0);
        if (!*out) st = FAIL(e, ERR_MEMORY, "the generation prompt of a template");
        chat_rendering_free(&with);
    }
    chat_rendering_free(&without);
    return st;
}

/* What stands behind the answer in a conversation of one question and one answer. */
static enum status find_end(const struct chat_template *t, const struct conversation *c,
                            char **out, struct err *e) {
    struct chat_rendering r;
    TRY(render_or_empty(t, c, 2, false, &r, e));
    int64_t from = r.n;
    for (int64_t i = 0; i < r.count; i++)
        if (r.fragments[i].origin.message == 1 && r.fragments[i].origin.field == CHAT_CONTENT)
            from = r.fragments[i].end;
    int64_t end = from, newline;
    for (int64_t n; (n = str_space(r.text + end, r.n - end)) > 0;) end += n;
    newline = str_find(r.text, r.n, end, "\n", 1); /* some write eos_token in a line of its own */
    end = newline < 0 ? r.n : newline;
    *out = copy_text(r.text + from, end - from - str_space_behind(r.text + from, end - from));
    chat_rendering_free(&r);
    return *out ? OK : FAIL(e, ERR_MEMORY, "the end-of-turn token of a template");
}

enum status chat_markers_find(const struct chat_template *t, struct chat_markers *out,
                              struct err *e) {
    struct conversation c = { 0 };
    json_t *row = json_pack("{s:[{s:s,s:s},{s:s,s:s}]}", "messages", "role", "user", "content",
                            "question", "role", "assistant", "content", "answer");
    *out = (struct chat_markers){ 0 };
    enum status st = row ? conversation_read(row, &c, e) : FAIL(e, ERR_MEMORY, "the markers");
    if (st == OK) st = find_prompt(t, &c, &out->prompt, e);
    if (st == OK) st = find_end(t, &c, &out->end, e);
    conversation_free(&c);
    json_decref(row);
    if (st != OK) chat_markers_free(out);
    return st;
}

void chat_markers_free(struct chat_markers *m) {
    free(m->prompt);
    free(m->end);
    *m = (struct chat_markers){ 0 };
}

/* ---- ranges ---------------------------------------------------------------------------------- */

struct ranges {
    struct chat_range *item;
    int64_t count, capacity;
};

static enum status add_range(struct ranges *list, struct chat_range range, struct err *e) {
    if (range.begin >= range.end) return OK;
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? 2 * list->capacity : 8;
        struct chat_range *wider = realloc(list->item, (size_t)capacity * sizeof *wider);
        if (!wider) return FAIL(e, ERR_MEMORY, "%lld loss ranges", (long long)capacity);
        list->item = wider;
        list->capacity = capacity;
    }
    list->item[list->count++] = range;
    return OK;
}

static bool wants(const struct conversation *c, enum chat_loss which, int64_t message) {
    if (message < 0 || message >= c->count) return false;
    if (!c->assistant[message] || !c->trained[message]) return false;
    for (int64_t i = message + 1; i < c->count && which == CHAT_LOSS_LAST; i++)
        if (c->assistant[i]) return false;
    return true;
}

/* What an assistant wrote, as opposed to its role and name. */
static bool is_written(struct chat_origin origin) {
    return origin.field == CHAT_CONTENT || origin.field == CHAT_REASONING ||
           origin.field == CHAT_TOOL_CALLS;
}

/* Runs of fragments inside {% generation %}. White space of the template at the end of a run is the
 * newline after the end-of-turn token. */
static enum status generated(const struct conversation *c, const struct chat_rendering *r,
                             enum chat_loss which, struct ranges *list, struct err *e) {
    for (int64_t i = 0; i < r->count; i++) {
        const struct chat_fragment *f = &r->fragments[i];
        int64_t message = -1, k = i;
        for (; k < r->count && r->fragments[k].origin.generated; k++) {
            int64_t of = r->fragments[k].origin.message;
            if (message >= 0 && of >= 0 && of != message) break; /* the next turn, without a gap */
            if (of >= 0) message = of;
        }
        if (k == i) continue;
        struct chat_range range = { f->begin, r->fragments[k - 1].end, message };
        if (r->fragments[k - 1].origin.field == CHAT_TEMPLATE)
            range.end -= str_space_behind(r->text + r->fragments[k - 1].begin,
                                          range.end - r->fragments[k - 1].begin);
        if (wants(c, which, message)) TRY(add_range(list, range, e));
        i = k - 1;
    }
    return OK;
}

/* The place behind the header that stands somewhere in text[from, to): behind the longest beginning
 * of the generation prompt that ends with a token or a line. -1: no such beginning is there. */
static int64_t behind_prompt(const struct chat_rendering *r, const char *prompt, int64_t from,
                             int64_t to) {
    int64_t best = 0, place = -1;
    for (int64_t at = from; at < to; at++) {
        int64_t n = 0;
        while (at + n < to && prompt[n] && r->text[at + n] == prompt[n]) n++;
        while (prompt[n] && n > 0 && prompt[n - 1] != '>' && prompt[n - 1] != '\n') n--;
        if (n < best || n == 0) continue;
        best = n;
        place = at + n;
    }
    return place;
}

/* The same for a template without a generation prompt: the length of the conversation before the
 * turn, if that is how the whole begins. */
static enum status behind_prefix(const struct chat_template *t, const struct conversation *c,
                                 const struct chat_rendering *r, int64_t message, int64_t from,
                                 int64_t to, int64_t *place, struct err *e) {
    struct chat_rendering before;
    *place = to;
    if (message == 0) return OK;
    /* Some templates reject a conversation that ends there. */
    TRY(render_or_empty(t, c, message, true, &before, e));
    bool within = before.n > 0 && before.n >= from && before.n <= to;
    if (within && !memcmp(before.text, r->text, (size_t)before.n)) *place = before.n;
    chat_rendering_free(&before);
    return OK;
}

/* The number of bytes that a turn's end has in common with the end of a conversation that stops
 * behind this message: whole, or up to a '>' that ends a token. */
static enum status common_end(const struct chat_template *t, const struct conversation *c,
                              int64_t message, const char *gap, int64_t gap_n, int64_t *n,
                              struct err *e) {
    struct chat_rendering r;
    int64_t from = -1;
    *n = 0;
    TRY(render_or_empty(t, c, message + 1, false, &r, e));
    for (int64_t i = 0; i < r.count; i++) {
        const struct chat_fragment *f = &r.fragments[i];
        bool counts = f->end > f->begin || from < 0; /* an empty one only if there is no other */
        if (counts && f->origin.message == message && is_written(f->origin)) from = f->end;
    }
    while (from >= 0 && from + *n < r.n && *n < gap_n && r.text[from + *n] == gap[*n]) ++*n;
    bool whole = from >= 0 && from + *n == r.n;
    while (!whole && *n > 0 && gap[*n - 1] != '>') --*n;
    *n -= str_space_behind(gap, *n);
    chat_rendering_free(&r);
    return OK;
}

/* The place behind the end-of-turn token in text[from, to), the template's text behind a turn. The
 * template may end some turns with another token, as <|eom_id|> or <|end|>: a conversation that
 * stops there shows it. Otherwise a token <|...|> directly behind the turn counts, unless a turn's
 * header begins with it. */
static enum status behind_end(const struct chat_template *t, const struct chat_markers *m,
                              const struct conversation *c, const struct chat_rendering *r,
                              int64_t message, int64_t from, int64_t to, int64_t *place,
                              struct err *e) {
    int64_t n = (int64_t)strlen(m->end), common = 0;
    int64_t at = n ? str_find(r->text, to, from, m->end, n) : -1;
    *place = at >= 0 ? at + n : from;
    if (at >= 0 || n == 0) return OK;
    TRY(common_end(t, c, message, r->text + from, to - from, &common, e));
    *place = from + common;
    if (common || to - from < 4 || memcmp(r->text + from, "<|", 2) != 0) return OK;
    at = str_find(r->text, to, from, "|>", 2);
    bool header = at >= 0 && !strncmp(m->prompt, r->text + from, (size_t)(at + 2 - from));
    if (at >= 0 && !header) *place = at + 2;
    return OK;
}

/* Whether the template's text between two written fragments of one message begins the header of
 * another role. Then it has the first token of the generation prompt, but not the whole prompt. */
static bool other_header(const struct chat_rendering *r, const char *prompt, int64_t from,
                         int64_t to) {
    const char *token_end = strchr(prompt, '>');
    if (!token_end || *prompt != '<') return false;
    if (str_find(r->text, to, from, prompt, (int64_t)strlen(prompt)) >= 0) return false;
    return str_find(r->text, to, from, prompt, token_end + 1 - prompt) >= 0;
}

/* The turn whose first written fragment is f[i]. *next is the first fragment behind it. */
static enum status turn(const struct chat_template *t, const struct chat_markers *m,
                        const struct conversation *c, const struct chat_rendering *r, int64_t i,
                        int64_t *next, struct chat_range *out, struct err *e) {
    const struct chat_fragment *f = r->fragments;
    int64_t message = f[i].origin.message, last = i, gap = i, behind;
    while (gap > 0 && (f[gap - 1].origin.field == CHAT_TEMPLATE ||
                       f[gap - 1].origin.message == message))
        gap--;
    for (behind = i + 1; behind < r->count; behind++) {
        if (f[behind].origin.message >= 0 && f[behind].origin.message != message) break;
        if (f[behind].origin.message != message || !is_written(f[behind].origin)) continue;
        if (f[behind].begin == f[behind].end) continue;
        if (other_header(r, m->prompt, f[last].end, f[behind].begin)) break;
        last = behind;
    }
    *out = (struct chat_range){ behind_prompt(r, m->prompt, f[gap].begin, f[i].begin), 0,
                                message };
    if (out->begin < 0)
        TRY(behind_prefix(t, c, r, message, f[gap].begin, f[i].begin, &out->begin, e));
    int64_t to = behind < r->count ? f[behind].begin : r->n;
    *next = behind;
    return behind_end(t, m, c, r, message, f[last].end, to, &out->end, e);
}

enum status chat_loss_ranges(const struct chat_template *t, const struct chat_markers *m,
                             const struct conversation *c, const struct chat_rendering *r,
                             enum chat_loss which, struct chat_range **out, int64_t *count,
                             struct err *e) {
    struct ranges list = { 0 };
    enum status st = OK;
    if (t->generation) st = generated(c, r, which, &list, e);
    for (int64_t i = 0, next; i < r->count && !t->generation && st == OK; i = next) {
        struct chat_origin origin = r->fragments[i].origin;
        struct chat_range range;
        next = i + 1;
        if (!is_written(origin) || !wants(c, which, origin.message)) continue;
        st = turn(t, m, c, r, i, &next, &range, e);
        if (st == OK) st = add_range(&list, range, e);
    }
    if (st != OK) {
        free(list.item);
        list = (struct ranges){ 0 };
    }
    *out = list.item;
    *count = list.count;
    return st;
}
