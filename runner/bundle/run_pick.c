#include "runner/bundle/run_pick.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char LAST[] = "last", NAME[] = "name:", BEST[] = "best:";

static bool starts(const char *text, const char *head) {
    return strncmp(text, head, strlen(head)) == 0;
}

bool run_is_form(const char *text) {
    return !strcmp(text, LAST) || starts(text, "last~") || starts(text, NAME) ||
           starts(text, BEST);
}

static bool counts(const struct pick_request *q, const json_t *run) {
    bool early = !strcmp(json_text(run, "status", ""), "interrupted");
    return q->counts == RUNS_ALL || !run_repeats(run) || (q->counts == RUNS_WHOLE && !early);
}

/* A run that cannot be read counts: the verb then says why. */
static bool is_counted(const struct pick_request *q, int64_t i) {
    struct run_view view;
    if (q->counts == RUNS_ALL) return true;
    if (run_view_load(q->runs->file[i].path, RUN_VIEW_BRIEF, &view, NULL) != OK) return true;
    bool counted = counts(q, view.run);
    run_view_free(&view);
    return counted;
}

/* There are too few runs: `seen` that count. */
static enum status refuse_last(const struct pick_request *q, int64_t seen, struct err *e) {
    static const char *const KIND[] = { "", " that repro did not end early",
                                        " that repro did not make" };
    if (q->runs->count == 0) return FAIL(e, ERR_ARG, "there are no runs in %s", q->where);
    if (seen == 0)
        return FAIL(e, ERR_ARG, "%.60s: %s has only runs that repro %s; name one, such as %s",
                    q->text, q->where, q->counts == RUNS_ORIGINAL ? "made" : "ended early",
                    q->runs->file[q->runs->count - 1].path);
    return FAIL(e, ERR_ARG, "%.60s: %s has %lld run%s%s; last~%lld is the oldest", q->text,
                q->where, (long long)seen, seen == 1 ? "" : "s", KIND[q->counts],
                (long long)seen - 1);
}

static enum status pick_last(const struct pick_request *q, int64_t *index, struct err *e) {
    const char *digits = q->text + strlen(LAST) + 1;
    char *end = NULL;
    long long before = 0;
    int64_t seen = 0;
    errno = 0;
    if (q->text[strlen(LAST)]) before = strtoll(digits, &end, 10);
    if (end && (end == digits || *end || *digits < '0' || *digits > '9' || errno))
        return FAIL(e, ERR_ARG, "%.60s: after last~ comes a whole number, such as last~2", q->text);
    for (int64_t i = q->runs->count - 1; i >= 0; i--) {
        if (!is_counted(q, i) || seen++ < before) continue;
        *index = i;
        return OK;
    }
    return refuse_last(q, seen, e);
}

/* " (3 could not be read)"; "" for none. */
static const char *unread_text(int64_t unread, char out[48]) {
    out[0] = '\0';
    if (unread) snprintf(out, 48, " (%lld could not be read)", (long long)unread);
    return out;
}

static enum status pick_name(const struct pick_request *q, int64_t *index, struct err *e) {
    const struct tree *runs = q->runs;
    const char *glob = q->text + strlen(NAME);
    int64_t unread = 0;
    char note[48];
    for (int64_t i = runs->count - 1; i >= 0; i--) {
        struct run_view view;
        if (run_view_load(runs->file[i].path, RUN_VIEW_BRIEF, &view, NULL) != OK) {
            unread++;
            continue;
        }
        bool found = counts(q, view.run) && fnmatch(glob, json_text(view.run, "name", ""), 0) == 0;
        run_view_free(&view);
        if (!found) continue;
        *index = i;
        return OK;
    }
    return FAIL(e, ERR_ARG, "no run in %s is called %.100s%s", q->where, glob,
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

static enum status pick_best(const struct pick_request *q, int64_t *index, struct err *e) {
    const struct tree *runs = q->runs;
    const char *name = q->text + strlen(BEST);
    const struct measure *m = MEASURES, *end = m + sizeof MEASURES / sizeof *MEASURES;
    int64_t unread = 0;
    char note[48];
    double best = -(double)INFINITY;
    while (m < end && strcmp(m->name, name) != 0) m++;
    if (m == end)
        return FAIL(e, ERR_ARG, "%.60s: unknown; use best:eval.loss, best:loss, "
                    "best:tokens_per_s or best:step_time", q->text);
    *index = -1;
    for (int64_t i = 0; i < runs->count; i++) {
        struct run_view view;
        if (run_view_load(runs->file[i].path, RUN_VIEW_BRIEF, &view, NULL) != OK) {
            unread++;
            continue;
        }
        double value = counts(q, view.run) ? value_of(&view, m) : (double)NAN;
        if (value > best) {
            best = value;
            *index = i;
        }
        run_view_free(&view);
    }
    if (*index >= 0) return OK;
    return FAIL(e, ERR_ARG, "no finished run in %s has %s%s", q->where, name,
                unread_text(unread, note));
}

enum status run_pick(const struct pick_request *q, int64_t *index, struct err *e) {
    *index = -1;
    if (starts(q->text, NAME)) return pick_name(q, index, e);
    if (starts(q->text, BEST)) return pick_best(q, index, e);
    return pick_last(q, index, e);
}
