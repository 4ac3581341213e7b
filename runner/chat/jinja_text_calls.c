/* Methods and filters of strings. */
#include <string.h>

#include "runner/chat/jinja_run.h"

static enum status text(struct value *out, struct str *s) {
    *out = VALUE(VALUE_STR, .str = s);
    return OK;
}

/* The bytes of a string in one place, and their number. */
struct bytes {
    const char *at;
    int64_t n;
};

static enum status flat(struct call *c, struct str *s, struct bytes *out, struct err *e) {
    out->n = s->n;
    return str_flat(c->run->arena, s, &out->at, e);
}

/* The string that a filter works on: any value as text. */
static enum status subject(struct call *c, struct str **out, struct err *e) {
    return jinja_str(c->run, &c->self, out, e);
}

/* ---- strip ----------------------------------------------------------------------------------- */

static enum status strip_with(struct call *c, bool left, bool right, struct value *out,
                              struct err *e) {
    struct str *s, *chars = NULL;
    TRY(subject(c, &s, e));
    if (c->arg[0].kind != VALUE_NONE) TRY(call_str(c, 0, NULL, &chars, e));
    TRY(str_strip(c->run->arena, s, chars, left, right, &s, e));
    return text(out, s);
}

static enum status strip(struct call *c, struct value *out, struct err *e) {
    return strip_with(c, true, true, out, e);
}

static enum status lstrip(struct call *c, struct value *out, struct err *e) {
    return strip_with(c, true, false, out, e);
}

static enum status rstrip(struct call *c, struct value *out, struct err *e) {
    return strip_with(c, false, true, out, e);
}

static enum status remove_part(struct call *c, bool front, struct value *out, struct err *e) {
    struct str *part, *s = c->self.str;
    struct bytes all, piece;
    TRY(call_str(c, 0, NULL, &part, e));
    TRY(flat(c, s, &all, e));
    TRY(flat(c, part, &piece, e));
    int64_t rest = all.n - piece.n;
    bool there = rest >= 0 && !memcmp(all.at + (front ? 0 : rest), piece.at, (size_t)piece.n);
    if (there) TRY(str_cut(c->run->arena, s, front ? piece.n : 0, front ? all.n : rest, &s, e));
    return text(out, s);
}

static enum status removeprefix(struct call *c, struct value *out, struct err *e) {
    return remove_part(c, true, out, e);
}

static enum status removesuffix(struct call *c, struct value *out, struct err *e) {
    return remove_part(c, false, out, e);
}

/* ---- split ----------------------------------------------------------------------------------- */

/* A list that grows by parts of one string. */
struct parts {
    struct call *call;
    struct str *s;
    struct value *item;
    int64_t count, capacity;
};

static enum status part(struct parts *p, int64_t begin, int64_t end, struct err *e) {
    struct chat_arena *a = p->call->run->arena;
    TRY(run_steps(p->call->run, 1 + p->s->count / 4, e));
    TRY(chat_grow(a, &p->item, p->count, &p->capacity, sizeof *p->item, e));
    p->item[p->count] = VALUE(VALUE_STR);
    return str_cut(a, p->s, begin, end, &p->item[p->count++].str, e);
}

static enum status parts_list(struct parts *p, struct value *out, struct err *e) {
    TRY(value_list(p->call->run->arena, LIST_LIST, 0, out, e));
    out->list->item = p->item;
    out->list->count = p->count;
    return OK;
}

static enum status split_space(struct parts *p, struct bytes s, int64_t limit, struct err *e) {
    int64_t at = 0, space;
    for (;;) {
        while ((space = str_space(s.at + at, s.n - at)) > 0) at += space;
        if (at >= s.n) return OK;
        int64_t begin = at, length;
        if (p->count == limit) return part(p, begin, s.n, e);
        while (at < s.n && !str_space(s.at + at, s.n - at)) {
            str_code(s.at + at, s.n - at, &length);
            at += length;
        }
        TRY(part(p, begin, at, e));
    }
}

static enum status split(struct call *c, struct value *out, struct err *e) {
    struct parts p = { .call = c, .s = c->self.str };
    struct str *separator = NULL;
    struct bytes s, by;
    int64_t limit, at = 0, found;
    TRY(flat(c, p.s, &s, e));
    TRY(call_int(c, 1, -1, &limit, e));
    if (c->arg[0].kind != VALUE_NONE) TRY(call_str(c, 0, NULL, &separator, e));
    if (!separator) {
        TRY(split_space(&p, s, limit, e));
        return parts_list(&p, out, e);
    }
    TRY(flat(c, separator, &by, e));
    if (by.n == 0) return FAIL(e, ERR_CONFIG, "split: the separator is empty");
    while (p.count != limit && (found = str_find(s.at, s.n, at, by.at, by.n)) >= 0) {
        TRY(part(&p, at, found, e));
        at = found + by.n;
    }
    TRY(part(&p, at, s.n, e));
    return parts_list(&p, out, e);
}

static enum status rsplit(struct call *c, struct value *out, struct err *e) {
    struct parts p = { .call = c, .s = c->self.str };
    struct str *separator = NULL;
    struct bytes s, by;
    int64_t limit;
    TRY(call_int(c, 1, -1, &limit, e));
    if (limit < 0 || c->arg[0].kind != VALUE_STR) {
        if (limit < 0) return split(c, out, e);
        return FAIL(e, ERR_UNSUPPORTED, "rsplit with a limit and no separator is not supported");
    }
    TRY(call_str(c, 0, NULL, &separator, e));
    TRY(flat(c, p.s, &s, e));
    TRY(flat(c, separator, &by, e));
    if (by.n == 0) return FAIL(e, ERR_CONFIG, "rsplit: the separator is empty");
    int64_t end = s.n;
    for (int64_t at = s.n - by.n; at >= 0 && p.count < limit; at--) {
        if (memcmp(s.at + at, by.at, (size_t)by.n) != 0) continue;
        TRY(part(&p, at + by.n, end, e));
        end = at;
        at -= by.n - 1;
    }
    TRY(part(&p, 0, end, e));
    for (int64_t i = 0, k = p.count - 1; i < k; i++, k--) {
        struct value other = p.item[i];
        p.item[i] = p.item[k];
        p.item[k] = other;
    }
    return parts_list(&p, out, e);
}

/* The length of the line break at s, by Python's str.splitlines; 0: none. */
static int64_t line_break(const char *s, int64_t n) {
    int64_t length;
    uint32_t c = str_code(s, n, &length);
    if (c == '\r' && n > 1 && s[1] == '\n') return 2;
    bool breaks = (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                  c == 0x2028 || c == 0x2029;
    return breaks ? length : 0;
}

static enum status split_lines(struct parts *p, struct bytes s, bool keep, struct err *e) {
    int64_t begin = 0, length;
    for (int64_t at = 0; at < s.n;) {
        int64_t ends = line_break(s.at + at, s.n - at);
        str_code(s.at + at, s.n - at, &length);
        if (ends) TRY(part(p, begin, keep ? at + ends : at, e));
        at += ends ? ends : length;
        if (ends) begin = at;
    }
    return begin < s.n ? part(p, begin, s.n, e) : OK;
}

static enum status splitlines(struct call *c, struct value *out, struct err *e) {
    struct parts p = { .call = c, .s = c->self.str };
    struct bytes s;
    TRY(flat(c, p.s, &s, e));
    TRY(split_lines(&p, s, call_bool(c, 0, false), e));
    return parts_list(&p, out, e);
}

/* ---- searching ------------------------------------------------------------------------------- */

static enum status borders(struct call *c, bool front, struct value *out, struct err *e) {
    struct bytes s, by;
    struct list one = { .count = 1, .item = &c->arg[0] }, *list = &one;
    bool tuple = c->arg[0].kind == VALUE_LIST && c->arg[0].list->form == LIST_TUPLE;
    if (tuple) list = c->arg[0].list;
    *out = VALUE(VALUE_BOOL, .boolean = false);
    TRY(flat(c, c->self.str, &s, e));
    for (int64_t i = 0; i < list->count && !out->boolean; i++) {
        if (list->item[i].kind != VALUE_STR)
            return FAIL(e, ERR_CONFIG, "'%s' needs a string, not %s", c->name,
                        value_kind_name(&list->item[i]));
        TRY(flat(c, list->item[i].str, &by, e));
        out->boolean = by.n <= s.n &&
                       !memcmp(s.at + (front ? 0 : s.n - by.n), by.at, (size_t)by.n);
    }
    return OK;
}

static enum status startswith(struct call *c, struct value *out, struct err *e) {
    return borders(c, true, out, e);
}

static enum status endswith(struct call *c, struct value *out, struct err *e) {
    return borders(c, false, out, e);
}

static enum status find_place(struct call *c, bool last, int64_t *at, struct bytes *s,
                              struct err *e) {
    struct str *what;
    struct bytes by;
    TRY(call_str(c, 0, NULL, &what, e));
    TRY(flat(c, c->self.str, s, e));
    TRY(flat(c, what, &by, e));
    *at = str_find(s->at, s->n, 0, by.at, by.n);
    for (int64_t k = s->n - by.n; last && k >= 0; k--)
        if (!memcmp(s->at + k, by.at, (size_t)by.n)) {
            *at = k;
            break;
        }
    return OK;
}

static enum status find_with(struct call *c, bool last, struct value *out, struct err *e) {
    struct bytes s;
    int64_t at;
    TRY(find_place(c, last, &at, &s, e));
    *out = VALUE(VALUE_INT, .integer = at < 0 ? -1 : str_count(s.at, at));
    return OK;
}

static enum status find(struct call *c, struct value *out, struct err *e) {
    return find_with(c, false, out, e);
}

static enum status rfind(struct call *c, struct value *out, struct err *e) {
    return find_with(c, true, out, e);
}

static enum status index_of(struct call *c, struct value *out, struct err *e) {
    TRY(find(c, out, e));
    return out->integer < 0 ? FAIL(e, ERR_CONFIG, "index: the part is not in the string") : OK;
}

static enum status count(struct call *c, struct value *out, struct err *e) {
    struct str *what;
    struct bytes s, by;
    int64_t times = 0, at = 0;
    TRY(call_str(c, 0, NULL, &what, e));
    TRY(flat(c, c->self.str, &s, e));
    TRY(flat(c, what, &by, e));
    if (by.n == 0) times = str_count(s.at, s.n) + 1;
    while (by.n && (at = str_find(s.at, s.n, at, by.at, by.n)) >= 0) {
        at += by.n;
        times++;
    }
    *out = VALUE(VALUE_INT, .integer = times);
    return OK;
}

/* ---- replace, join, indent ------------------------------------------------------------------- */

static enum status replace(struct call *c, struct value *out, struct err *e) {
    struct chat_arena *a = c->run->arena;
    struct str_builder b = { 0 };
    struct str *s, *old, *new, *between;
    struct bytes all, by;
    int64_t limit, at = 0, found;
    TRY(subject(c, &s, e));
    TRY(call_str(c, 0, NULL, &old, e));
    TRY(call_str(c, 1, NULL, &new, e));
    if (c->arg[2].kind == VALUE_NONE) c->arg[2].kind = VALUE_ABSENT;
    TRY(call_int(c, 2, -1, &limit, e));
    TRY(flat(c, s, &all, e));
    TRY(flat(c, old, &by, e));
    if (by.n == 0) return FAIL(e, ERR_UNSUPPORTED, "replacing an empty string is not supported");
    while (limit-- != 0 && (found = str_find(all.at, all.n, at, by.at, by.n)) >= 0) {
        TRY(run_steps(c->run, 1 + (s->count + new->count) / 4, e));
        if (found > at) {
            TRY(str_cut(a, s, at, found, &between, e));
            TRY(str_add(a, &b, between, e));
        }
        TRY(str_add(a, &b, new, e));
        at = found + by.n;
        if (b.n > JINJA_OUTPUT)
            return FAIL(e, ERR_UNSUPPORTED, "a string of more than %d MiB", JINJA_OUTPUT >> 20);
    }
    if (at == 0) return text(out, s);
    if (at < all.n) {
        TRY(str_cut(a, s, at, all.n, &between, e));
        TRY(str_add(a, &b, between, e));
    }
    *out = VALUE(VALUE_STR);
    return str_finish(a, &b, &out->str, e);
}

static enum status join_list(struct call *c, const struct list *l, struct str *between,
                             bool strict, struct value *out, struct err *e) {
    struct str_builder b = { 0 };
    for (int64_t i = 0; i < l->count; i++) {
        struct str *s;
        if (strict && l->item[i].kind != VALUE_STR)
            return FAIL(e, ERR_CONFIG, "join: element %lld is %s", (long long)i,
                        value_kind_name(&l->item[i]));
        TRY(jinja_str(c->run, &l->item[i], &s, e));
        TRY(run_steps(c->run, 1 + s->count + between->count, e));
        if (i) TRY(str_add(c->run->arena, &b, between, e));
        TRY(str_add(c->run->arena, &b, s, e));
        if (b.n > JINJA_OUTPUT)
            return FAIL(e, ERR_UNSUPPORTED, "a string of more than %d MiB", JINJA_OUTPUT >> 20);
    }
    *out = VALUE(VALUE_STR);
    return str_finish(c->run->arena, &b, &out->str, e);
}

static enum status join_method(struct call *c, struct value *out, struct err *e) {
    struct list *l;
    TRY(run_elements(c->run, &c->arg[0], &l, e));
    return join_list(c, l, c->self.str, true, out, e);
}

static enum status join_filter(struct call *c, struct value *out, struct err *e) {
    struct list *l, *parts;
    struct str *nothing, *between;
    struct value made;
    TRY(str_from(c->run->arena, "", 0, CHAT_FROM_TEMPLATE, &nothing, e));
    TRY(call_str(c, 0, nothing, &between, e));
    TRY(run_elements(c->run, &c->self, &l, e));
    if (c->arg[1].kind == VALUE_ABSENT || c->arg[1].kind == VALUE_NONE)
        return join_list(c, l, between, false, out, e);
    TRY(value_list(c->run->arena, LIST_LIST, l->count, &made, e));
    parts = made.list;
    for (int64_t i = 0; i < l->count; i++)
        TRY(jinja_item(c->run, &l->item[i], &c->arg[1], &parts->item[i], e));
    return join_list(c, parts, between, false, out, e);
}

static enum status indent(struct call *c, struct value *out, struct err *e) {
    struct chat_arena *a = c->run->arena;
    struct str_builder b = { 0 };
    struct parts p = { .call = c };
    struct value width = c->arg[0], space, by;
    struct bytes s;
    TRY(subject(c, &p.s, e));
    TRY(value_text(a, " ", 1, &space, e));
    if (width.kind == VALUE_ABSENT) width = VALUE(VALUE_INT, .integer = 4);
    if (width.kind == VALUE_STR) by = width;
    else TRY(jinja_binary(c->run, "*", &space, &width, &by, e));
    TRY(flat(c, p.s, &s, e));
    TRY(split_lines(&p, s, false, e));
    /* Jinja adds a newline before it splits into lines, so an empty last line counts. */
    if (s.n == 0 || line_break(s.at + s.n - 1, 1)) TRY(part(&p, s.n, s.n, e));
    for (int64_t i = 0; i < p.count; i++) {
        struct str *line = p.item[i].str;
        bool begins = i ? line->n > 0 || call_bool(c, 2, false) : call_bool(c, 1, false);
        TRY(run_steps(c->run, 1 + line->count, e));
        struct piece newline = { "\n", 1, CHAT_FROM_TEMPLATE };
        if (i) TRY(str_add_piece(a, &b, newline, e));
        if (begins) TRY(str_add(a, &b, by.str, e));
        TRY(str_add(a, &b, line, e));
        if (b.n > JINJA_OUTPUT)
            return FAIL(e, ERR_UNSUPPORTED, "a string of more than %d MiB", JINJA_OUTPUT >> 20);
    }
    *out = VALUE(VALUE_STR);
    return str_finish(a, &b, &out->str, e);
}

/* ---- letters --------------------------------------------------------------------------------- */

enum letters { LETTERS_LOWER, LETTERS_UPPER, LETTERS_CAPITAL, LETTERS_TITLE };

static bool is_letter(char x) { return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z'); }

/* Whether a character beyond Latin-1 may have another case: the blocks of Unicode 16 that contain
 * letters with case, taken widely. */
static bool may_have_case(uint32_t c) {
    static const struct { uint32_t first, last; } BLOCKS[] = {
        { 0x0100, 0x02af },   { 0x0345, 0x0345 },   { 0x0370, 0x058f },   { 0x10a0, 0x10ff },
        { 0x13a0, 0x13ff },   { 0x1c80, 0x1cbf },   { 0x1d00, 0x1dbf },   { 0x1e00, 0x1fff },
        { 0x2100, 0x218f },   { 0x24b0, 0x24ff },   { 0x2c00, 0x2d2f },   { 0xa640, 0xa69f },
        { 0xa720, 0xa7ff },   { 0xab30, 0xabbf },   { 0xfb00, 0xfb17 },   { 0xff21, 0xff5a },
        { 0x10400, 0x10fff }, { 0x118a0, 0x118df }, { 0x16e40, 0x16e7f }, { 0x1df00, 0x1dfff },
        { 0x1e900, 0x1e95f },
    };
    for (size_t i = 0; i < sizeof BLOCKS / sizeof *BLOCKS; i++)
        if (c >= BLOCKS[i].first && c <= BLOCKS[i].last) return true;
    return false;
}

/* The other case of a letter of Latin-1, Greek or Cyrillic (two bytes in UTF-8); c itself if it has
 * none, 0 if it is not known here. Python's lower() of a capital sigma looks at its neighbours. */
static uint32_t other_case(uint32_t c, bool up) {
    static const struct { uint32_t first, last, to; } CAPITALS[] = {
        { 0x00c0, 0x00d6, 0x20 }, { 0x00d8, 0x00de, 0x20 }, { 0x0391, 0x03a1, 0x20 },
        { 0x03a4, 0x03a9, 0x20 }, { 0x0400, 0x040f, 0x50 }, { 0x0410, 0x042f, 0x20 },
    };
    for (size_t i = 0; i < sizeof CAPITALS / sizeof *CAPITALS; i++) {
        uint32_t to = CAPITALS[i].to;
        if (c >= CAPITALS[i].first && c <= CAPITALS[i].last) return up ? c : c + to;
        if (c >= CAPITALS[i].first + to && c <= CAPITALS[i].last + to) return up ? c - to : c;
    }
    if (c == 0x03c2 || c == 0x03c3) return up ? 0x03a3 : c;
    if (c == 0xb5 || c == 0xdf || c == 0xff) return up ? 0 : c; /* capitals beyond these blocks */
    return c < 0x100 || !may_have_case(c) ? c : 0;
}

/* Changes the case of one character of n bytes in place; false: not known here. */
static bool change_case(char *at, int64_t n, bool up) {
    int64_t length;
    uint32_t c = str_code(at, n, &length), other = c < 0x80 ? c : other_case(c, up);
    if (is_letter(*at)) *at = (char)(up ? *at & ~32 : *at | 32);
    if (other != c && other) {
        at[0] = (char)(0xc0 | other >> 6);
        at[1] = (char)(0x80 | (other & 0x3f));
    }
    return other != 0 || c == 0;
}

/* Each piece is copied, so that origins stay. */
static enum status letters(struct call *c, enum letters kind, struct value *out, struct err *e) {
    struct chat_arena *a = c->run->arena;
    struct str_builder b = { 0 };
    struct str *s;
    bool first = true;
    TRY(subject(c, &s, e));
    for (int64_t i = 0; i < s->count; i++) {
        struct piece piece = s->pieces[i];
        char *copy;
        TRY(chat_alloc(a, piece.n, &copy, e));
        memcpy(copy, piece.bytes, (size_t)piece.n);
        for (int64_t k = 0, length; k < piece.n; k += length) {
            str_code(copy + k, piece.n - k, &length);
            bool up = kind == LETTERS_UPPER || (kind >= LETTERS_CAPITAL && first);
            bool known = kind != LETTERS_TITLE || length == 1;
            if (!known || !change_case(copy + k, length, up))
                return FAIL(e, ERR_UNSUPPORTED, "'%s' of the character '%.*s' is not supported",
                            c->name, (int)length, copy + k);
            first = kind == LETTERS_TITLE && !is_letter(copy[k]);
        }
        TRY(str_add_piece(a, &b, (struct piece){ copy, piece.n, piece.origin }, e));
    }
    *out = VALUE(VALUE_STR);
    return str_finish(a, &b, &out->str, e);
}

static enum status lower(struct call *c, struct value *out, struct err *e) {
    return letters(c, LETTERS_LOWER, out, e);
}

static enum status upper(struct call *c, struct value *out, struct err *e) {
    return letters(c, LETTERS_UPPER, out, e);
}

static enum status capitalize(struct call *c, struct value *out, struct err *e) {
    return letters(c, LETTERS_CAPITAL, out, e);
}

static enum status title(struct call *c, struct value *out, struct err *e) {
    return letters(c, LETTERS_TITLE, out, e);
}

/* isdigit and isalpha of ASCII. */
static enum status all_of(struct call *c, bool digits, struct value *out, struct err *e) {
    struct bytes s;
    TRY(flat(c, c->self.str, &s, e));
    bool all = s.n > 0;
    for (int64_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.at[i] >= 0x80)
            return FAIL(e, ERR_UNSUPPORTED, "'%s' of text that is not ASCII is not supported",
                        c->name);
        all &= digits ? s.at[i] >= '0' && s.at[i] <= '9' : is_letter(s.at[i]);
    }
    *out = VALUE(VALUE_BOOL, .boolean = all);
    return OK;
}

static enum status isdigit_(struct call *c, struct value *out, struct err *e) {
    return all_of(c, true, out, e);
}

static enum status isalpha_(struct call *c, struct value *out, struct err *e) {
    return all_of(c, false, out, e);
}

/* ---- other filters --------------------------------------------------------------------------- */

static enum status as_string(struct call *c, struct value *out, struct err *e) {
    struct str *s;
    TRY(subject(c, &s, e));
    return text(out, s);
}

static enum status safe(struct call *c, struct value *out, struct err *e) {
    struct str *s, *copy;
    TRY(subject(c, &s, e));
    TRY(chat_alloc(c->run->arena, sizeof *copy, &copy, e));
    *copy = *s;
    copy->safe = true;
    return text(out, copy);
}

/* transformers' own tojson: the arguments of json.dumps, and no escaping of HTML. */
static enum status tojson(struct call *c, struct value *out, struct err *e) {
    struct chat_arena *a = c->run->arena;
    struct json_style style = { .ascii = call_bool(c, 0, false), .sort = call_bool(c, 3, false) };
    struct value space, indented;
    bool lines = c->arg[1].kind != VALUE_ABSENT && c->arg[1].kind != VALUE_NONE;
    TRY(value_text(a, " ", 1, &space, e));
    if (lines && c->arg[1].kind == VALUE_STR) style.indent = c->arg[1].str;
    else if (lines) {
        TRY(jinja_binary(c->run, "*", &space, &c->arg[1], &indented, e));
        style.indent = indented.str;
    }
    TRY(str_from(a, lines ? "," : ", ", lines ? 1 : 2, CHAT_FROM_TEMPLATE, &style.item, e));
    TRY(str_from(a, ": ", 2, CHAT_FROM_TEMPLATE, &style.key, e));
    if (c->arg[2].kind != VALUE_ABSENT && c->arg[2].kind != VALUE_NONE) {
        struct list *two;
        TRY(run_elements(c->run, &c->arg[2], &two, e));
        if (two->count != 2 || two->item[0].kind != VALUE_STR || two->item[1].kind != VALUE_STR)
            return FAIL(e, ERR_CONFIG, "tojson: separators must be two strings");
        style.item = two->item[0].str;
        style.key = two->item[1].str;
    }
    *out = VALUE(VALUE_STR);
    return jinja_json(c->run, &c->self, &style, &out->str, e);
}

const struct callable JINJA_TEXT_METHODS[] = {
    { "strip", "chars", 0, strip },
    { "lstrip", "chars", 0, lstrip },
    { "rstrip", "chars", 0, rstrip },
    { "split", "sep maxsplit", 0, split },
    { "rsplit", "sep maxsplit", 0, rsplit },
    { "splitlines", "keepends", 0, splitlines },
    { "startswith", "prefix", 1, startswith },
    { "endswith", "suffix", 1, endswith },
    { "removeprefix", "prefix", 1, removeprefix },
    { "removesuffix", "suffix", 1, removesuffix },
    { "find", "sub", 1, find },
    { "rfind", "sub", 1, rfind },
    { "index", "sub", 1, index_of },
    { "count", "sub", 1, count },
    { "replace", "old new count", 2, replace },
    { "join", "iterable", 1, join_method },
    { "lower", "", 0, lower },
    { "upper", "", 0, upper },
    { "capitalize", "", 0, capitalize },
    { "title", "", 0, title },
    { "isdigit", "", 0, isdigit_ },
    { "isalpha", "", 0, isalpha_ },
    /* Python has these too. */
    { .name = "casefold" }, { .name = "center" }, { .name = "encode" }, { .name = "expandtabs" },
    { .name = "format" }, { .name = "format_map" }, { .name = "isalnum" }, { .name = "isascii" },
    { .name = "isdecimal" }, { .name = "isidentifier" }, { .name = "islower" },
    { .name = "isnumeric" }, { .name = "isprintable" }, { .name = "isspace" },
    { .name = "istitle" }, { .name = "isupper" }, { .name = "ljust" }, { .name = "maketrans" },
    { .name = "partition" }, { .name = "rindex" }, { .name = "rjust" }, { .name = "rpartition" },
    { .name = "swapcase" }, { .name = "translate" }, { .name = "zfill" },
    { .name = NULL },
};

const struct callable JINJA_TEXT_FILTERS[] = {
    { "trim", "chars", 0, strip },
    { "tojson", "ensure_ascii indent separators sort_keys", 0, tojson },
    { "string", "", 0, as_string },
    { "safe", "", 0, safe },
    { "join", "d attribute", 0, join_filter },
    { "replace", "old new count", 2, replace },
    { "indent", "width first blank", 0, indent },
    { "lower", "", 0, lower },
    { "upper", "", 0, upper },
    { "capitalize", "", 0, capitalize },
    { .name = NULL },
};
