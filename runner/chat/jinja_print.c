/* Values as text: Python's str, repr and json.dumps. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/chat/jinja_run.h"

enum { PRINT_DEPTH = 100 };

enum form { FORM_REPR, FORM_JSON };

struct printer {
    struct run *run;
    struct str_builder out;
    enum form form;
    const struct json_style *style; /* of FORM_JSON */
    int depth;
};

/* Adds bytes that live as long as the rendering. */
static enum status put(struct printer *p, const char *bytes, int64_t n, struct chat_origin origin,
                       struct err *e) {
    if (p->out.n > JINJA_OUTPUT)
        return FAIL(e, ERR_UNSUPPORTED, "a string of more than %d MiB", JINJA_OUTPUT >> 20);
    TRY(run_steps(p->run, 1, e));
    return str_add_piece(p->run->arena, &p->out, (struct piece){ bytes, n, origin }, e);
}

static enum status put_text(struct printer *p, const char *text, struct chat_origin origin,
                            struct err *e) {
    return put(p, text, (int64_t)strlen(text), origin, e);
}

static enum status put_copy(struct printer *p, const char *text, struct chat_origin origin,
                            struct err *e) {
    struct str *copy;
    TRY(str_format(p->run->arena, origin, &copy, e, "%s", text));
    return put(p, copy->flat, copy->n, origin, e);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static enum status put_real(struct printer *p, const struct value *v, struct err *e) {
    if (isnan(v->real)) return put_text(p, p->form == FORM_JSON ? "NaN" : "nan", v->origin, e);
    if (isinf(v->real)) {
        static const char *const WORDS[2][2] = { { "inf", "-inf" }, { "Infinity", "-Infinity" } };
        return put_text(p, WORDS[p->form == FORM_JSON][v->real < 0], v->origin, e);
    }
    struct text t = { 0 };
    canonical_add_double(&t, v->real);
    enum status st = t.failed ? FAIL(e, ERR_MEMORY, "a number as text")
                              : put_copy(p, t.bytes, v->origin, e);
    text_free(&t);
    return st;
}

static enum status put_integer(struct printer *p, const struct value *v, struct err *e) {
    char form[24];
    snprintf(form, sizeof form, "%" PRId64, v->integer);
    return put_copy(p, form, v->origin, e);
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Whether Python's repr keeps the character: Unicode categories C and Z are escaped. Unassigned
 * code points count as printable here. */
static bool printable(uint32_t c) {
    static const struct { uint32_t first, last; } HIDDEN[] = {
        { 0x0000, 0x001f },   { 0x007f, 0x00a0 },   { 0x00ad, 0x00ad },   { 0x0600, 0x0605 },
        { 0x061c, 0x061c },   { 0x06dd, 0x06dd },   { 0x070f, 0x070f },   { 0x0890, 0x0891 },
        { 0x08e2, 0x08e2 },   { 0x1680, 0x1680 },   { 0x180e, 0x180e },   { 0x2000, 0x200f },
        { 0x2028, 0x202f },   { 0x205f, 0x206f },   { 0x3000, 0x3000 },   { 0xe000, 0xf8ff },
        { 0xfeff, 0xfeff },   { 0xfff0, 0xfffb },   { 0xfffe, 0xffff },   { 0x110bd, 0x110bd },
        { 0x110cd, 0x110cd }, { 0x13430, 0x1343f }, { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a },
        { 0xe0000, 0xe00ff }, { 0xe01f0, 0x10ffff },
    };
    for (size_t i = 0; i < sizeof HIDDEN / sizeof *HIDDEN; i++)
        if (c >= HIDDEN[i].first && c <= HIDDEN[i].last) return false;
    return true;
}

/* The escape for a character, or an empty text if it stays. */
static void escaped(const struct printer *p, uint32_t c, char quote, char form[16]) {
    static const char NAMES[] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                  ['\r'] = 'r' };
    bool json = p->form == FORM_JSON;
    bool named = c < sizeof NAMES && NAMES[c] && (json || (c != '\b' && c != '\f'));
    form[0] = 0;
    if (c == '\\' || c == (unsigned char)quote) snprintf(form, 16, "\\%c", (char)c);
    else if (named) snprintf(form, 16, "\\%c", NAMES[c]);
    else if (json && (c < 0x20 || (p->style->ascii && c > 0x7e && c < 0x10000)))
        snprintf(form, 16, "\\u%04x", c);
    else if (json && p->style->ascii && c >= 0x10000)
        snprintf(form, 16, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    else if (!json && !printable(c))
        snprintf(form, 16, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

static enum status put_piece(struct printer *p, struct piece piece, char quote, struct err *e) {
    char form[16];
    int64_t from = 0, length;
    TRY(run_steps(p->run, piece.n / 16, e));
    for (int64_t at = 0; at < piece.n; at += length) {
        uint32_t c = str_code(piece.bytes + at, piece.n - at, &length);
        bool keep = c >= 0x20 && c < 0x7f && c != '\\' && c != (unsigned char)quote;
        if (keep) continue;
        escaped(p, c, quote, form);
        if (!form[0]) continue;
        if (at > from) TRY(put(p, piece.bytes + from, at - from, piece.origin, e));
        TRY(put_copy(p, form, piece.origin, e));
        from = at + length;
    }
    return piece.n > from ? put(p, piece.bytes + from, piece.n - from, piece.origin, e) : OK;
}

static enum status put_string(struct printer *p, struct str *s, struct err *e) {
    const char *flat;
    TRY(str_flat(p->run->arena, s, &flat, e));
    bool single = memchr(flat, '\'', (size_t)s->n) != NULL;
    bool twofold = memchr(flat, '"', (size_t)s->n) != NULL;
    const char *quote = p->form == FORM_JSON || (single && !twofold) ? "\"" : "'";
    struct chat_origin origin = str_origin(s);
    TRY(put_text(p, quote, origin, e));
    for (int64_t i = 0; i < s->count; i++) TRY(put_piece(p, s->pieces[i], *quote, e));
    return put_text(p, quote, origin, e);
}

/* ---- lists and mappings ---------------------------------------------------------------------- */

static enum status put_value(struct printer *p, const struct value *v, struct err *e);

/* The text between two elements, or behind an opening and before a closing bracket of JSON. */
static enum status put_break(struct printer *p, bool comma, struct chat_origin origin,
                             struct err *e) {
    if (p->form == FORM_REPR) return comma ? put_text(p, ", ", origin, e) : OK;
    const struct str *item = p->style->item;
    if (comma) TRY(put(p, item->flat, item->n, origin, e));
    if (!p->style->indent) return OK;
    TRY(put_text(p, "\n", origin, e));
    for (int i = 0; i < p->depth; i++)
        TRY(put(p, p->style->indent->flat, p->style->indent->n, origin, e));
    return OK;
}

static enum status put_list(struct printer *p, const struct value *v, struct err *e) {
    const struct list *l = v->list;
    bool tuple = p->form == FORM_REPR && l->form == LIST_TUPLE;
    if (l->form > LIST_TUPLE)
        return FAIL(e, ERR_UNSUPPORTED, "a range, a view or an iterator cannot be printed; apply "
                    "the filter 'list'");
    TRY(put_text(p, tuple ? "(" : "[", v->origin, e));
    p->depth++;
    for (int64_t i = 0; i < l->count; i++) {
        TRY(put_break(p, i > 0, v->origin, e));
        TRY(put_value(p, &l->item[i], e));
    }
    p->depth--;
    if (l->count) TRY(put_break(p, false, v->origin, e));
    if (tuple && l->count == 1) TRY(put_text(p, ",", v->origin, e));
    return put_text(p, tuple ? ")" : "]", v->origin, e);
}

static enum status put_key(struct printer *p, const struct value *key, struct chat_origin origin,
                           struct err *e) {
    if (p->form == FORM_REPR) {
        TRY(put_value(p, key, e));
        return put_text(p, ": ", origin, e);
    }
    if (key->kind == VALUE_LIST)
        return FAIL(e, ERR_CONFIG, "%s cannot be a key of JSON", value_kind_name(key));
    if (key->kind != VALUE_STR) TRY(put_text(p, "\"", origin, e));
    TRY(put_value(p, key, e));
    if (key->kind != VALUE_STR) TRY(put_text(p, "\"", origin, e));
    return put(p, p->style->key->flat, p->style->key->n, origin, e);
}

static int by_key(const void *a, const void *b) {
    const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;
    return str_order(x->key.str, y->key.str);
}

/* The entries of a mapping, by key if the style asks for it. */
static enum status ordered(struct printer *p, const struct map *m, const struct entry ***out,
                           struct err *e) {
    bool strings = true;
    TRY(chat_alloc(p->run->arena, m->count * (int64_t)sizeof **out, out, e));
    for (int64_t i = 0; i < m->count; i++) {
        (*out)[i] = &m->entry[i];
        strings &= m->entry[i].key.kind == VALUE_STR;
    }
    if (p->form != FORM_JSON || !p->style->sort || m->count < 2) return OK;
    if (!strings)
        return FAIL(e, ERR_UNSUPPORTED, "keys other than strings cannot be sorted");
    for (int64_t i = 0; i < m->count; i++)
        TRY(run_steps(p->run, 20 + 20 * str_cost(m->entry[i].key.str), e));
    qsort(*out, (size_t)m->count, sizeof **out, by_key);
    return OK;
}

static enum status put_map(struct printer *p, const struct value *v, struct err *e) {
    const struct map *m = v->map;
    const struct entry **entry;
    TRY(ordered(p, m, &entry, e));
    TRY(put_text(p, "{", v->origin, e));
    p->depth++;
    for (int64_t i = 0; i < m->count; i++) {
        TRY(put_break(p, i > 0, v->origin, e));
        TRY(put_key(p, &entry[i]->key, v->origin, e));
        TRY(put_value(p, &entry[i]->value, e));
    }
    p->depth--;
    if (m->count) TRY(put_break(p, false, v->origin, e));
    return put_text(p, "}", v->origin, e);
}

/* ---- one value ------------------------------------------------------------------------------- */

static enum status put_value(struct printer *p, const struct value *v, struct err *e) {
    bool json = p->form == FORM_JSON;
    TRY(run_steps(p->run, 1, e));
    if (p->depth > PRINT_DEPTH)
        return FAIL(e, ERR_UNSUPPORTED, "a value of more than %d levels", PRINT_DEPTH);
    switch (v->kind) {
    case VALUE_NONE: return put_text(p, json ? "null" : "None", v->origin, e);
    case VALUE_BOOL:
        if (json) return put_text(p, v->boolean ? "true" : "false", v->origin, e);
        return put_text(p, v->boolean ? "True" : "False", v->origin, e);
    case VALUE_INT: return put_integer(p, v, e);
    case VALUE_REAL: return put_real(p, v, e);
    case VALUE_STR: return put_string(p, v->str, e);
    case VALUE_LIST: return put_list(p, v, e);
    case VALUE_MAP: return put_map(p, v, e);
    case VALUE_UNDEFINED:
        if (!json) return put_text(p, "Undefined", v->origin, e);
        return FAIL(e, ERR_CONFIG, "%s%s%s is undefined and has no JSON form", v->name ? "'" : "",
                    v->name ? v->name : "a value", v->name ? "'" : "");
    default: return FAIL(e, ERR_UNSUPPORTED, "%s cannot be printed", value_kind_name(v));
    }
}

enum status jinja_str(struct run *r, const struct value *v, struct str **out, struct err *e) {
    struct printer p = { .run = r, .form = FORM_REPR };
    if (v->kind == VALUE_STR) {
        *out = v->str;
        return OK;
    }
    if (v->kind != VALUE_UNDEFINED) TRY(put_value(&p, v, e));
    return str_finish(r->arena, &p.out, out, e);
}

enum status jinja_json(struct run *r, const struct value *v, const struct json_style *style,
                       struct str **out, struct err *e) {
    struct printer p = { .run = r, .form = FORM_JSON, .style = style };
    const char *flat;
    if (style->indent) TRY(str_flat(r->arena, style->indent, &flat, e));
    TRY(str_flat(r->arena, style->item, &flat, e));
    TRY(str_flat(r->arena, style->key, &flat, e));
    TRY(put_value(&p, v, e));
    return str_finish(r->arena, &p.out, out, e);
}
