#include "runner/bundle/run_pick.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/sha256.h"
#include "runner/base/plain_text.h"

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
    bool of_data;           /* a loss: two say nothing of each other if their data differ */
};
static const struct measure MEASURES[] = {
    { "eval.loss", "eval_loss_best", -1, true },
    { "loss", "loss_final", -1, true },
    { "tokens_per_s", "tokens_per_s_median", 1, false },
    { "step_time", "step_time_us_median", -1, false },
};

/* What a loss is about. */
struct subject {
    char id[128], data[SHA256_HEX]; /* id "": of no run */
    int64_t vocab;
};

static struct subject subject_of(const struct run_view *v) {
    struct subject s = { .vocab = json_int(json_object_get(v->resolved, "model"), "vocab") };
    const char *data = json_text(json_object_get(v->run, "inputs"), "data", "?");
    snprintf(s.id, sizeof s.id, "%s", json_text(v->run, "id", "?"));
    snprintf(s.data, sizeof s.data, "%s", data);
    plain_text(s.id); /* a bundle may be a stranger's */
    plain_text(s.data);
    return s;
}

static bool same_subject(const struct subject *a, const struct subject *b) {
    return a->vocab == b->vocab && !strcmp(a->data, b->data);
}

static enum status refuse_subjects(const struct pick_request *q, const struct subject *a,
                                   const struct subject *b, struct err *e) {
    char with[2][40] = { "", "" };
    const struct subject *both[2] = { a, b };
    for (int i = 0; i < 2 && a->vocab != b->vocab; i++)
        snprintf(with[i], sizeof with[i], ", vocabulary %lld", (long long)both[i]->vocab);
    return FAIL(e, ERR_ARG, "%.60s: no loss is the best of other data or another vocabulary: "
                "%.127s (data %.12s%s) and %.127s (data %.12s%s) are both in %s; name a run by its "
                "id or name:GLOB, or keep the runs of one data in a folder for --runs", q->text,
                a->id, a->data, with[0], b->id, b->data, with[1], q->where);
}

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

/* The best of the folder, as far as it was searched. */
struct best {
    int64_t index, unread; /* index -1: none */
    double value;
    struct subject first, other; /* other: of a run with other data or vocabulary */
};

static void look_at(const struct pick_request *q, const struct measure *m, int64_t i,
                    struct best *best) {
    struct run_view view;
    enum run_view_depth depth = m->of_data ? RUN_VIEW_INPUTS : RUN_VIEW_BRIEF;
    if (run_view_load(q->runs->file[i].path, depth, &view, NULL) != OK) {
        best->unread++;
        return;
    }
    double value = counts(q, view.run) ? value_of(&view, m) : (double)NAN;
    struct subject subject = subject_of(&view);
    run_view_free(&view);
    if (isnan(value)) return;
    if (!*best->first.id) best->first = subject;
    if (!same_subject(&best->first, &subject)) best->other = subject;
    if (best->index >= 0 && !(value > best->value)) return;
    best->index = i;
    best->value = value;
}

static enum status pick_best(const struct pick_request *q, int64_t *index, struct err *e) {
    const char *name = q->text + strlen(BEST);
    const struct measure *m = MEASURES, *end = m + sizeof MEASURES / sizeof *MEASURES;
    struct best best = { .index = -1 };
    char note[48];
    while (m < end && strcmp(m->name, name) != 0) m++;
    if (m == end)
        return FAIL(e, ERR_ARG, "%.60s: unknown; use best:eval.loss, best:loss, "
                    "best:tokens_per_s or best:step_time", q->text);
    for (int64_t i = 0; i < q->runs->count; i++) look_at(q, m, i, &best);
    *index = best.index;
    if (m->of_data && *best.other.id) return refuse_subjects(q, &best.first, &best.other, e);
    if (best.index >= 0) return OK;
    return FAIL(e, ERR_ARG, "no finished run in %s has %s%s", q->where, name,
                unread_text(best.unread, note));
}

enum status run_pick(const struct pick_request *q, int64_t *index, struct err *e) {
    *index = -1;
    if (starts(q->text, NAME)) return pick_name(q, index, e);
    if (starts(q->text, BEST)) return pick_best(q, index, e);
    return pick_last(q, index, e);
}
