#include <string.h>

#include "runner/chat/jinja_run.h"

/* ---- limits and places ----------------------------------------------------------------------- */

enum status run_steps(struct run *r, int64_t n, struct err *e) {
    r->steps += n;
    if (r->steps > JINJA_STEPS)
        return FAIL(e, ERR_UNSUPPORTED, "the template needs more than %d steps", JINJA_STEPS);
    return OK;
}

enum status run_enter(struct run *r, struct err *e) {
    if (++r->depth > JINJA_DEPTH)
        return FAIL(e, ERR_UNSUPPORTED, "more than %d expressions and calls inside each other",
                    JINJA_DEPTH);
    return run_steps(r, 1, e);
}

enum status run_place(struct run *r, const struct node *at, enum status st, struct err *e) {
    if (st == OK || r->placed) return st;
    r->placed = true;
    err_prefix(e, "%s:%d", r->name, (int)at->line);
    return st;
}

enum status run_elements(struct run *r, const struct value *v, struct list **list,
                         struct err *e) {
    if (v->kind == VALUE_STR) TRY(run_steps(r, v->str->n * (1 + v->str->count / 16), e));
    TRY(value_elements(r->arena, v, list, e));
    return run_steps(r, (*list)->count, e);
}

/* ---- variables and output -------------------------------------------------------------------- */

enum status run_scope(struct run *r, struct scope **out, struct err *e) {
    struct scope *parent = r->scope; /* out may be &r->scope */
    TRY(chat_alloc(r->arena, sizeof **out, out, e));
    (*out)->parent = parent;
    return OK;
}

enum status run_set(struct run *r, const char *name, const struct value *v, struct err *e) {
    struct scope *s = r->scope;
    for (int64_t i = 0; i < s->count; i++)
        if (!strcmp(s->binding[i].name, name)) {
            s->binding[i].value = *v;
            return OK;
        }
    TRY(chat_grow(r->arena, &s->binding, s->count, &s->capacity, sizeof *s->binding, e));
    s->binding[s->count++] = (struct binding){ name, *v };
    return OK;
}

static enum status emit(struct run *r, const struct value *v, struct err *e) {
    struct str *s;
    TRY(jinja_str(r, v, &s, e));
    TRY(run_steps(r, s->count, e));
    for (int64_t i = 0; i < s->count; i++) {
        struct piece piece = s->pieces[i];
        piece.origin.generated |= r->generating;
        TRY(str_add_piece(r->arena, r->out, piece, e));
    }
    if (r->out->n > JINJA_OUTPUT)
        return FAIL(e, ERR_UNSUPPORTED, "the template writes more than %d MiB", JINJA_OUTPUT >> 20);
    return OK;
}

/* Runs a body in a scope of its own, and collects what it writes. */
static enum status capture(struct run *r, const struct node *body, struct scope *scope,
                           struct value *out, struct err *e) {
    struct str_builder text = { 0 }, *before = r->out;
    struct scope *outer = r->scope;
    r->out = &text;
    r->scope = scope;
    enum status st = jinja_exec(r, body, e);
    r->out = before;
    r->scope = outer;
    if (st != OK) return st;
    *out = VALUE(VALUE_STR);
    return str_finish(r->arena, &text, &out->str, e);
}

/* ---- set ------------------------------------------------------------------------------------- */

/* Gives one value to one name, or its elements to several. */
static enum status assign(struct run *r, const struct node *node, const struct value *v,
                          struct err *e) {
    struct list *parts;
    if (node->name_count == 1) return run_set(r, node->names[0], v, e);
    TRY(run_elements(r, v, &parts, e));
    if (parts->count != node->name_count)
        return FAIL(e, ERR_CONFIG, "%lld values for %lld names", (long long)parts->count,
                    (long long)node->name_count);
    for (int64_t i = 0; i < parts->count; i++)
        TRY(run_set(r, node->names[i], &parts->item[i], e));
    return OK;
}

static enum status set(struct run *r, const struct node *node, struct err *e) {
    struct value v;
    struct scope *scope;
    if (node->kind == NODE_SET_BLOCK) {
        TRY(run_scope(r, &scope, e));
        TRY(capture(r, node->right, scope, &v, e));
        if (node->left) {
            struct value before = r->filtered;
            r->filtered = v;
            TRY(jinja_eval(r, node->left, &v, e));
            r->filtered = before;
        }
    } else {
        TRY(jinja_eval(r, node->left, &v, e));
    }
    if (!node->name) return assign(r, node, &v, e);
    const struct value *space = run_find(r, node->name);
    if (!space || space->kind != VALUE_NAMESPACE)
        return FAIL(e, ERR_CONFIG, "'%s' is not a namespace, so its attribute '%s' cannot be set",
                    node->name, node->names[0]);
    struct value key;
    TRY(value_text(r->arena, node->names[0], (int64_t)strlen(node->names[0]), &key, e));
    TRY(map_put(r->arena, space->map, &key, &v, &r->steps, e));
    return run_steps(r, 0, e);
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* The scope of one iteration. The last one is used again unless a macro keeps it. */
static enum status iteration(struct run *r, const struct node *node, const struct value *v,
                             struct scope **scope, struct err *e) {
    if (!*scope || (*scope)->kept) TRY(run_scope(r, scope, e));
    (*scope)->count = 0;
    r->scope = *scope;
    return assign(r, node, v, e);
}

/* The elements of `all` for which the condition holds. */
static enum status filter(struct run *r, const struct node *node, const struct list *all,
                          struct list **out, struct err *e) {
    struct value kept, condition;
    struct scope *outer = r->scope, *scope = NULL;
    TRY(value_list(r->arena, LIST_LIST, all->count, &kept, e));
    kept.list->count = 0;
    enum status st = OK;
    for (int64_t i = 0; i < all->count && st == OK; i++) {
        st = iteration(r, node, &all->item[i], &scope, e);
        if (st == OK) st = jinja_eval(r, node->third, &condition, e);
        if (st == OK && value_true(&condition)) kept.list->item[kept.list->count++] = all->item[i];
        r->scope = outer;
    }
    *out = kept.list;
    return st;
}

static enum status turns(struct run *r, const struct node *node, struct loop *loop,
                         struct err *e) {
    struct scope *outer = r->scope, *scope = NULL;
    struct value self = VALUE(VALUE_LOOP, .loop = loop);
    enum status st = OK;
    for (; loop->index < loop->list->count && st == OK; loop->index++) {
        st = iteration(r, node, &loop->list->item[loop->index], &scope, e);
        if (st == OK) st = run_set(r, "loop", &self, e);
        if (st == OK) st = jinja_exec(r, node->right, e);
        r->scope = outer;
        bool leaves = r->flow == FLOW_BREAK;
        r->flow = FLOW_ON;
        if (leaves) break;
    }
    return st;
}

static enum status loop(struct run *r, const struct node *node, struct err *e) {
    struct value over;
    struct loop *state;
    struct scope *scope, *outer = r->scope;
    TRY(jinja_eval(r, node->left, &over, e));
    TRY(chat_alloc(r->arena, sizeof *state, &state, e));
    TRY(run_elements(r, &over, &state->list, e));
    if (node->third) TRY(filter(r, node, state->list, &state->list, e));
    enum status st = turns(r, node, state, e);
    if (st != OK || state->list->count || node->count == 0) return st;
    TRY(run_scope(r, &scope, e));
    r->scope = scope;
    st = jinja_exec(r, node->item[0], e);
    r->scope = outer;
    return st;
}

/* ---- macros ---------------------------------------------------------------------------------- */

static enum status make_macro(struct run *r, const struct node *node, struct err *e) {
    struct value v = VALUE(VALUE_MACRO);
    TRY(chat_alloc(r->arena, sizeof *v.macro, &v.macro, e));
    *v.macro = (struct macro){ node, r->scope };
    for (struct scope *s = r->scope; s; s = s->parent) s->kept = true;
    return run_set(r, node->name, &v, e);
}

/* The argument for parameter i; NULL: not given. */
static const struct value *argument(const struct node *macro, const struct arguments *all,
                                    int64_t i) {
    if (i < all->positional) return &all->value[i];
    for (int64_t k = all->positional; k < all->count; k++)
        if (!strcmp(all->names[k - all->positional], macro->names[i])) return &all->value[k];
    return NULL;
}

static enum status check_arguments(const struct node *macro, const struct arguments *all,
                                   struct err *e) {
    if (all->positional > macro->name_count)
        return FAIL(e, ERR_CONFIG, "the macro '%s' takes %lld arguments, not %lld", macro->name,
                    (long long)macro->name_count, (long long)all->positional);
    for (int64_t k = all->positional; k < all->count; k++) {
        const char *name = all->names[k - all->positional];
        int64_t i = 0;
        while (i < macro->name_count && strcmp(macro->names[i], name) != 0) i++;
        if (i == macro->name_count || i < all->positional)
            return FAIL(e, ERR_CONFIG, "the macro '%s' %s argument '%s'", macro->name,
                        i == macro->name_count ? "has no" : "gets twice its", name);
    }
    return OK;
}

enum status jinja_call_macro(struct run *r, const struct macro *m, const struct arguments *all,
                             struct value *out, struct err *e) {
    const struct node *node = m->node;
    struct scope *outer = r->scope, *scope;
    enum flow flow = r->flow;
    TRY(check_arguments(node, all, e));
    r->scope = m->scope;
    enum status st = run_scope(r, &scope, e);
    if (st == OK) r->scope = scope;
    for (int64_t i = 0; i < node->name_count && st == OK; i++) {
        const struct value *given = argument(node, all, i);
        struct value v = VALUE(VALUE_UNDEFINED, .name = node->names[i]);
        if (given) v = *given;
        else if (node->item[i]) st = jinja_eval(r, node->item[i], &v, e);
        if (st == OK) st = run_set(r, node->names[i], &v, e);
    }
    if (st == OK) st = capture(r, node->right, r->scope, out, e);
    r->scope = outer;
    r->flow = flow;
    return st;
}

/* ---- one statement --------------------------------------------------------------------------- */

static enum status generation(struct run *r, const struct node *node, struct err *e) {
    struct value text;
    struct scope *scope;
    bool before = r->generating;
    TRY(run_scope(r, &scope, e));
    r->generating = true;
    enum status st = capture(r, node->right, scope, &text, e);
    if (st == OK) st = emit(r, &text, e);
    r->generating = before;
    return st;
}

static enum status branch(struct run *r, const struct node *node, struct err *e) {
    for (int64_t i = 0; i < node->count; i += 2) {
        struct value condition = VALUE(VALUE_BOOL, .boolean = true);
        if (node->item[i]) TRY(jinja_eval(r, node->item[i], &condition, e));
        if (value_true(&condition)) return jinja_exec(r, node->item[i + 1], e);
    }
    return OK;
}

static enum status exec_node(struct run *r, const struct node *node, struct err *e) {
    struct value v;
    switch (node->kind) {
    case NODE_TEXT: return emit(r, &node->constant, e);
    case NODE_OUTPUT:
        TRY(jinja_eval(r, node->left, &v, e));
        return emit(r, &v, e);
    case NODE_BODY:
        for (int64_t i = 0; i < node->count && r->flow == FLOW_ON; i++)
            TRY(jinja_exec(r, node->item[i], e));
        return OK;
    case NODE_IF: return branch(r, node, e);
    case NODE_FOR: return loop(r, node, e);
    case NODE_SET:
    case NODE_SET_BLOCK: return set(r, node, e);
    case NODE_MACRO: return make_macro(r, node, e);
    case NODE_GENERATION: return generation(r, node, e);
    case NODE_BREAK: r->flow = FLOW_BREAK; return OK;
    case NODE_CONTINUE: r->flow = FLOW_CONTINUE; return OK;
    default: return FAIL(e, ERR_CONFIG, "an expression cannot stand as a statement");
    }
}

enum status jinja_exec(struct run *r, const struct node *node, struct err *e) {
    enum status st = run_enter(r, e);
    if (st == OK) st = exec_node(r, node, e);
    r->depth--;
    return run_place(r, node, st, e);
}
