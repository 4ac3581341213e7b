#include "runner/bundle/run_pick.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/bundle/run_view.h"

static const char LAST[] = "last", NAME[] = "name:", BEST[] = "best:";

static bool starts(const char *text, const char *head) {
    return strncmp(text, head, strlen(head)) == 0;
}

bool run_is_form(const char *text) {
    return !strcmp(text, LAST) || starts(text, "last~") || starts(text, NAME) ||
           starts(text, BEST);
}

static enum status pick_last(const char *text, const struct tree *runs, const char *where,
                             int64_t *index, struct err *e) {
    const char *digits = text + strlen(LAST) + 1;
    char *end = NULL;
    long long before = 0;
    errno = 0;
    if (text[strlen(LAST)]) before = strtoll(digits, &end, 10);
    if (end && (end == digits || *end || *digits < '0' || *digits > '9' || errno))
        return FAIL(e, ERR_ARG, "%.60s: after last~ comes a whole number, such as last~2", text);
    if (runs->count == 0) return FAIL(e, ERR_ARG, "there are no runs in %s", where);
    if (before >= runs->count)
        return FAIL(e, ERR_ARG, "%.60s: %s has %lld runs; last~%lld is the oldest", text, where,
                    (long long)runs->count, (long long)runs->count - 1);
    *index = runs->count - 1 - before;
    return OK;
}

/* " (3 could not be read)"; "" for none. */
static const char *unread_text(int64_t unread, char out[48]) {
    out[0] = '\0';
    if (unread) snprintf(out, 48, " (%lld could not be read)", (long long)unread);
    return out;
}

static enum status pick_name(const char *text, const struct tree *runs, const char *where,
                             int64_t *index, struct err *e) {
    const char *glob = text + strlen(NAME);
    int64_t unread = 0;
    char note[48];
    for (int64_t i = runs->count - 1; i >= 0; i--) {
        struct run_view view;
        if (run_view_load(runs->file[i].path, RUN_VIEW_BRIEF, &view, NULL) != OK) {
            unread++;
            continue;
        }
        bool found = fnmatch(glob, json_text(view.run, "name", ""), 0) == 0;
        run_view_free(&view);
        if (!found) continue;
        *index = i;
        return OK;
    }
    return FAIL(e, ERR_ARG, "no run in %s is called %.100s%s", where, glob,
                unread_text(unread, note));
}

/* ---- the best ------------------------------------------------------------------------------ */

struct measure {
    const char *name, *key; /* of the summary */
    double sign;            /* +1: the largest is the best */
};
static const struct measure MEASURES[] = {
    { "eval.loss", "eval_loss_best", -1 },
    { "loss", "loss_final", -1 },
    { "tokens_per_s", "tokens_per_s_median", 1 },
    { "step_time", "step_time_us_median", -1 },
};

/* The run's value, the better the larger; NaN if it does not count: smoke runs, and runs that
 * failed or were stopped. */
static double value_of(const struct run_view *v, const struct measure *m) {
    const char *status = json_text(v->run, "status", "");
    const json_t *value = json_object_get(v->summary, m->key);
    bool finished = !strcmp(status, "done") || !strcmp(status, "time_limit");
    if (!finished || json_is_true(json_object_get(v->run, "smoke")) || !json_is_number(value))
        return (double)NAN;
    return m->sign * json_number_value(value);
}

static enum status pick_best(const char *text, const struct tree *runs, const char *where,
                             int64_t *index, struct err *e) {
    const char *name = text + strlen(BEST);
    const struct measure *m = MEASURES, *end = m + sizeof MEASURES / sizeof *MEASURES;
    int64_t unread = 0;
    char note[48];
    double best = -(double)INFINITY;
    while (m < end && strcmp(m->name, name) != 0) m++;
    if (m == end)
        return FAIL(e, ERR_ARG, "%.60s: unknown; use best:eval.loss, best:loss, "
                    "best:tokens_per_s or best:step_time", text);
    *index = -1;
    for (int64_t i = 0; i < runs->count; i++) {
        struct run_view view;
        if (run_view_load(runs->file[i].path, RUN_VIEW_BRIEF, &view, NULL) != OK) {
            unread++;
            continue;
        }
        double value = value_of(&view, m);
        if (value > best) {
            best = value;
            *index = i;
        }
        run_view_free(&view);
    }
    if (*index >= 0) return OK;
    return FAIL(e, ERR_ARG, "no finished run in %s has %s%s", where, name,
                unread_text(unread, note));
}

enum status run_pick(const char *text, const struct tree *runs, const char *where, int64_t *index,
                     struct err *e) {
    *index = -1;
    if (starts(text, NAME)) return pick_name(text, runs, where, index, e);
    if (starts(text, BEST)) return pick_best(text, runs, where, index, e);
    return pick_last(text, runs, where, index, e);
}
