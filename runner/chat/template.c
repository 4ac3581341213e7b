#include "runner/chat/template.h"

#include <stdio.h>
#include <string.h>

#include "runner/chat/jinja_run.h"

enum { VALUE_DEPTH = 100 };

/* ---- JSON as values -------------------------------------------------------------------------- */

static enum status from_json(struct chat_arena *a, const json_t *json, struct chat_origin origin,
                             int depth, struct value *out, struct err *e);

static enum status from_array(struct chat_arena *a, const json_t *json, struct chat_origin origin,
                              int depth, struct value *out, struct err *e) {
    TRY(value_list(a, LIST_LIST, (int64_t)json_array_size(json), out, e));
    for (size_t i = 0; i < json_array_size(json); i++)
        TRY(from_json(a, json_array_get(json, i), origin, depth + 1, &out->list->item[i], e));
    return OK;
}

/* Which field of a message a key is. */
static enum chat_field field_of(const char *key) {
    static const struct { const char *key; enum chat_field field; } FIELDS[] = {
        { "role", CHAT_ROLE },           { "content", CHAT_CONTENT },
        { "thinking", CHAT_REASONING },  { "reasoning", CHAT_REASONING },
        { "tool_calls", CHAT_TOOL_CALLS }, { "reasoning_content", CHAT_REASONING },
    };
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
        if (!strcmp(key, FIELDS[i].key)) return FIELDS[i].field;
    return CHAT_OTHER;
}

/* The members of an object. As `message`, each gets the origin of its field. */
static enum status from_object(struct chat_arena *a, const json_t *json, struct chat_origin origin,
                               bool message, int depth, struct value *out, struct err *e) {
    const char *key;
    json_t *member;
    *out = VALUE(VALUE_MAP);
    TRY(chat_alloc(a, sizeof *out->map, &out->map, e));
    json_object_foreach((json_t *)json, key, member) { /* jansson's iterators take no const */
        struct map *m = out->map;
        TRY(chat_grow(a, &m->entry, m->count, &m->capacity, sizeof *m->entry, e));
        struct entry *entry = &m->entry[m->count];
        struct chat_origin inner = origin;
        if (message) inner.field = (uint8_t)field_of(key);
        entry->key = VALUE(VALUE_STR);
        TRY(str_from(a, key, (int64_t)strlen(key), inner, &entry->key.str, e));
        TRY(from_json(a, member, inner, depth + 1, &entry->value, e));
        m->count++;
    }
    return OK;
}

static enum status from_json(struct chat_arena *a, const json_t *json, struct chat_origin origin,
                             int depth, struct value *out, struct err *e) {
    enum status st = OK;
    if (depth > VALUE_DEPTH)
        return FAIL(e, ERR_FORMAT, "a value of more than %d levels", VALUE_DEPTH);
    switch (json_typeof(json)) {
    case JSON_OBJECT: st = from_object(a, json, origin, false, depth, out, e); break;
    case JSON_ARRAY: st = from_array(a, json, origin, depth, out, e); break;
    case JSON_STRING:
        *out = VALUE(VALUE_STR);
        st = str_from(a, json_string_value(json), (int64_t)json_string_length(json), origin,
                      &out->str, e);
        break;
    case JSON_INTEGER: *out = VALUE(VALUE_INT, .integer = json_integer_value(json)); break;
    case JSON_REAL: *out = VALUE(VALUE_REAL, .real = json_real_value(json)); break;
    case JSON_TRUE:
    case JSON_FALSE: *out = VALUE(VALUE_BOOL, .boolean = json_is_true(json)); break;
    case JSON_NULL: *out = VALUE(VALUE_NONE); break;
    }
    out->origin = origin;
    return st;
}

/* ---- parsing --------------------------------------------------------------------------------- */

enum status chat_template_parse(struct chat_template *t, const char *name, const char *bytes,
                                size_t n, struct err *e) {
    *t = (struct chat_template){ .arena = { .limit = JINJA_MEMORY } };
    if (n > CHAT_TEMPLATE_LIMIT)
        return FAIL(e, ERR_UNSUPPORTED, "%s: a chat template of more than %d bytes", name,
                    CHAT_TEMPLATE_LIMIT);
    t->variables = json_object();
    t->tokens = json_object();
    enum status st = t->variables && t->tokens ? OK : FAIL(e, ERR_MEMORY, "%s: variables", name);
    if (st == OK) st = chat_alloc(&t->arena, (int64_t)strlen(name) + 1, &t->name, e);
    if (st == OK) strcpy(t->name, name);
    if (st == OK) st = chat_alloc(&t->arena, (int64_t)n + 1, &t->source, e);
    if (st == OK) memcpy(t->source, bytes, n);
    t->source_n = (int64_t)n;
    if (st == OK) st = sha256_bytes(bytes, n, t->sha256, e);
    if (st == OK)
        st = jinja_parse(&t->arena, t->name, bytes, (int64_t)n, &t->tree, &t->generation, e);
    if (st != OK) chat_template_free(t);
    return st;
}

void chat_template_free(struct chat_template *t) {
    chat_arena_free(&t->arena);
    json_decref(t->variables);
    json_decref(t->tokens);
    *t = (struct chat_template){ 0 };
}

enum status chat_template_set(struct chat_template *t, const char *name, const json_t *value,
                              struct err *e) {
    if (json_object_set(t->variables, name, (json_t *)value) == 0) return OK;
    return FAIL(e, ERR_MEMORY, "the variable %s", name);
}

enum status chat_template_tokens(struct chat_template *t, const json_t *config, struct err *e) {
    static const char *const NAMES[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token" };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        json_t *token = json_object_get(config, NAMES[i]);
        if (!token || json_is_null(token)) continue;
        if (json_is_object(token)) token = json_object_get(token, "content");
        if (!json_is_string(token))
            return FAIL(e, ERR_FORMAT, "%s: expected a string or an object with content",
                        NAMES[i]);
        if (json_object_set(t->tokens, NAMES[i], token) != 0)
            return FAIL(e, ERR_MEMORY, "the token %s", NAMES[i]);
    }
    return OK;
}

enum status chat_template_date(struct chat_template *t, const char *date, struct err *e) {
    int year, month, day, n = 0;
    bool read = strlen(date) == 10 && date[4] == '-' && date[7] == '-' &&
                sscanf(date, "%4d-%2d-%2d%n", &year, &month, &day, &n) == 3 && n == 10;
    if (!read || year < 1 || month < 1 || month > 12 || day < 1 || day > 31)
        return FAIL(e, ERR_ARG, "the date '%s': expected year-month-day, as 2024-07-26", date);
    strcpy(t->date, date);
    return OK;
}

/* ---- rendering ------------------------------------------------------------------------------- */

static enum status set_json(struct run *r, const char *name, const json_t *json,
                            struct chat_origin origin, struct err *e) {
    struct value v = VALUE(VALUE_NONE);
    if (json) TRY(from_json(r->arena, json, origin, 0, &v, e));
    return run_set(r, name, &v, e);
}

static enum status set_members(struct run *r, const json_t *object, struct chat_origin origin,
                               struct err *e) {
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)object, key, member) TRY(set_json(r, key, member, origin, e));
    return OK;
}

static enum status set_messages(struct run *r, const struct conversation *c, int64_t count,
                                struct err *e) {
    struct value list;
    TRY(value_list(r->arena, LIST_LIST, count, &list, e));
    for (int64_t i = 0; i < count; i++) {
        struct chat_origin origin = { (int32_t)i, CHAT_OTHER, false };
        const json_t *message = json_array_get(c->messages, (size_t)i);
        TRY(from_object(r->arena, message, origin, true, 1, &list.list->item[i], e));
        list.list->item[i].origin = origin;
    }
    return run_set(r, "messages", &list, e);
}

static enum status set_context(struct run *r, const struct chat_template *t,
                               const struct conversation *c, int64_t messages, bool prompt,
                               struct err *e) {
    struct value v = VALUE(VALUE_BOOL, .boolean = prompt);
    struct chat_origin tools = { -1, CHAT_TOOLS, false }, given = { -1, CHAT_VARIABLE, false };
    TRY(set_members(r, t->tokens, CHAT_FROM_TEMPLATE, e));
    TRY(set_members(r, t->variables, given, e));
    TRY(set_members(r, c->arguments, given, e));
    TRY(set_json(r, "tools", c->tools, tools, e));
    TRY(set_json(r, "documents", c->documents, given, e));
    TRY(run_set(r, "add_generation_prompt", &v, e));
    return set_messages(r, c, messages, e);
}

/* Whether a piece of a tool call was printed before: some templates repeat the function's name in
 * front of the tool's answer, which the assistant does not write. */
static bool is_repeated(const struct str_builder *b, int64_t i) {
    enum { LOOK_BACK = 500 };
    const struct piece *p = &b->pieces[i];
    if (p->origin.field != CHAT_TOOL_CALLS || p->n == 0) return false;
    for (int64_t k = i; k-- > 0 && i - k <= LOOK_BACK;)
        if (b->pieces[k].bytes == p->bytes && b->pieces[k].origin.message == p->origin.message)
            return true;
    return false;
}

/* One text from the pieces, and their origins. */
static enum status collect(const struct str_builder *b, struct chat_rendering *out,
                           struct err *e) {
    int64_t at = 0;
    struct chat_fragment *f = NULL;
    TRY(chat_alloc(&out->arena, b->n + 1, &out->text, e));
    TRY(chat_alloc(&out->arena, b->count * (int64_t)sizeof *f, &out->fragments, e));
    for (int64_t i = 0; i < b->count; i++) {
        struct piece *p = &b->pieces[i];
        if (is_repeated(b, i)) p->origin.field = CHAT_OTHER;
        struct chat_origin last = f ? f->origin : CHAT_FROM_TEMPLATE;
        memcpy(out->text + at, p->bytes, (size_t)p->n);
        bool same = f && last.message == p->origin.message && last.field == p->origin.field &&
                    last.generated == p->origin.generated;
        if (!same) {
            f = &out->fragments[out->count++];
            *f = (struct chat_fragment){ at, at, p->origin };
        }
        at += p->n;
        f->end = at;
    }
    out->n = at;
    return OK;
}

enum status chat_render(const struct chat_template *t, const struct conversation *c,
                        int64_t messages, bool generation_prompt, struct chat_rendering *out,
                        struct err *e) {
    struct str_builder text = { 0 };
    *out = (struct chat_rendering){ .arena = { .limit = JINJA_MEMORY } };
    if (t->without_tools && c->tools)
        return FAIL(e, ERR_UNSUPPORTED, "%s: conversations with tools have the template 'tool_use' "
                    "of their own, which is not supported; name a template: `fp8lab data "
                    "--template`, data.template in a script",
                    t->name);
    struct run r = { .arena = &out->arena, .name = t->name, .out = &text,
                     .date = *t->date ? t->date : NULL };
    enum status st = run_scope(&r, &r.scope, e);
    if (st == OK) st = set_context(&r, t, c, messages, generation_prompt, e);
    if (st == OK) st = jinja_exec(&r, t->tree, e);
    if (st == OK) st = collect(&text, out, e);
    if (st != OK) chat_rendering_free(out);
    return st;
}

void chat_rendering_free(struct chat_rendering *r) {
    chat_arena_free(&r->arena);
    *r = (struct chat_rendering){ 0 };
}

bool chat_origin_is_control(struct chat_origin origin) {
    return origin.field == CHAT_TEMPLATE || origin.field == CHAT_ROLE;
}
