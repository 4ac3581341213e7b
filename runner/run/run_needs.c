#include "runner/run/run_needs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/bundle/run_view.h"

static enum status add_need(struct run_needs *n, const char *child, const json_t *record,
                            struct err *e) {
    struct run_need *need = realloc(n->need, (size_t)(n->count + 1) * sizeof *need);
    if (!need) return FAIL(e, ERR_MEMORY, "what %s needs", child);
    n->need = need;
    need += n->count++;
    *need = (struct run_need){ .step = json_int(record, "step") };
    snprintf(need->child, sizeof need->child, "%s", child);
    snprintf(need->parent, sizeof need->parent, "%s", json_text(record, "run", ""));
    snprintf(need->path, sizeof need->path, "%s", json_text(record, "path", ""));
    return OK;
}

/* The records of a run's beginning: run.json's "extends", and init.json. */
static enum status add_needs(struct run_needs *n, const char *path, struct err *e) {
    struct run_view view;
    struct err why = { 0 };
    if (run_view_load(path, RUN_VIEW_DOCUMENTS, &view, &why) != OK) {
        if (why.code == ERR_MEMORY) return FAIL(e, ERR_MEMORY, "%s", why.text);
        snprintf(n->unread, sizeof n->unread, "%s", path);
        return OK;
    }
    const json_t *extends = json_object_get(view.run, "extends");
    enum status st = json_is_object(extends) ? add_need(n, path, extends, e) : OK;
    if (st == OK && json_is_object(view.init)) st = add_need(n, path, view.init, e);
    run_view_free(&view);
    return st;
}

enum status run_needs_find(const char *runs, const char *const *but, int64_t but_count,
                           struct run_needs *out, struct err *e) {
    struct tree all;
    *out = (struct run_needs){ 0 };
    TRY(run_list(runs, &all, e));
    enum status st = OK;
    for (int64_t i = 0; st == OK && i < all.count; i++) {
        char stem[PATH_CAP], other[PATH_CAP], name[PATH_CAP], named[PATH_CAP];
        bool left_out = false;
        run_stem(stem, all.file[i].path);
        path_base(name, stem);
        for (int64_t k = 0; k < but_count && !left_out; k++) {
            run_stem(other, but[k]);
            path_base(named, other);
            left_out = !strcmp(name, named);
        }
        if (!left_out) st = add_needs(out, all.file[i].path, e);
    }
    tree_free(&all);
    if (st != OK) run_needs_free(out);
    return st;
}

void run_needs_free(struct run_needs *n) {
    free(n->need);
    *n = (struct run_needs){ 0 };
}

/* Whether `path` is `whole` or below it; both as realpath() gives them. */
static bool is_within(const char *path, const char *whole) {
    char real[PATH_CAP], other[PATH_CAP];
    const char *x = realpath(path, real) ? real : path, *y = realpath(whole, other) ? other : whole;
    size_t n = strlen(y);
    return n > 0 && !strncmp(x, y, n) && (x[n] == '\0' || x[n] == '/');
}

const struct run_need *run_needs_of(const struct run_needs *needs, const char *id, int64_t step,
                                    const char *const *paths, int64_t count) {
    for (int64_t i = 0; i < needs->count; i++) {
        const struct run_need *need = &needs->need[i];
        if (*id && !strcmp(need->parent, id) && (step < 0 || need->step == step)) return need;
        for (int64_t k = 0; k < count && *need->path; k++)
            if (is_within(need->path, paths[k])) return need;
    }
    return NULL;
}
