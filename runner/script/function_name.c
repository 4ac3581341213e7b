#include "runner/script/function_name.h"

#include <ctype.h>
#include <string.h>

/* One step from the result down to a value; index 0: a key. */
struct step {
    const struct step *above; /* NULL: the result itself */
    const char *key;
    int64_t index;
};

struct search {
    struct script *script;
    const char *name; /* wanted; NULL: the function on top of the stack is */
    const char *found;
    int reference; /* of what was found */
};

static bool is_plain(const char *key) {
    bool plain = isalpha((unsigned char)*key) || *key == '_';
    for (; *key && plain; key++) plain = isalnum((unsigned char)*key) || *key == '_';
    return plain;
}

static void add_step(struct text *out, const struct step *at) {
    if (!at->above) return;
    add_step(out, at->above);
    if (!at->index && is_plain(at->key)) {
        text_puts(out, out->size ? "." : "");
        text_puts(out, at->key);
        return;
    }
    text_puts(out, "[");
    if (at->index) canonical_add_int(out, at->index);
    else canonical_add_string(out, at->key, strlen(at->key));
    text_puts(out, "]");
}

static const char *name_of(struct pool *p, const struct step *at) {
    struct text name = { 0 };
    add_step(&name, at);
    const char *copy = name.failed ? NULL : pool_copy(p, name.bytes ? name.bytes : "");
    text_free(&name);
    if (!copy) p->exhausted(p->context);
    return copy;
}

static bool matches(struct search *x, const struct value *v, const struct step *at) {
    lua_State *L = x->script->L;
    if (x->name) {
        const char *name = name_of(&x->script->pool, at);
        return strcmp(name, x->name) == 0;
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, v->function);
    bool same = lua_rawequal(L, -1, -2);
    lua_pop(L, 1);
    return same;
}

/* Items in their order, then members in that of their keys: the same on every machine. */
static bool visit(struct search *x, struct value *v, const struct step *at) {
    if (v->type == VALUE_FUNCTION && matches(x, v, at)) {
        x->found = name_of(&x->script->pool, at);
        x->reference = v->function;
        return true;
    }
    if (v->type != VALUE_TABLE) return false;
    value_sort_members(v);
    for (int64_t i = 0; i < v->item_count; i++)
        if (visit(x, v->items[i], &(struct step){ .above = at, .index = i + 1 })) return true;
    for (int64_t i = 0; i < v->member_count; i++)
        if (visit(x, v->members[i].value, &(struct step){ .above = at, .key = v->members[i].key }))
            return true;
    return false;
}

static bool search(struct search *x) {
    struct script *s = x->script;
    if (!s->result) s->result = script_tree(s, 1, (struct place){ 0 });
    return visit(x, s->result, &(struct step){ 0 });
}

const char *function_name(struct script *s, int reference) {
    struct search x = { .script = s };
    lua_rawgeti(s->L, LUA_REGISTRYINDEX, reference);
    search(&x);
    lua_pop(s->L, 1);
    return x.found;
}

bool function_push(struct script *s, const char *name) {
    struct search x = { .script = s, .name = name };
    if (!search(&x)) return false;
    lua_rawgeti(s->L, LUA_REGISTRYINDEX, x.reference);
    return true;
}
