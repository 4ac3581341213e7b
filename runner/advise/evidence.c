#include "runner/advise/evidence.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/file_tree.h"
#include "runner/base/json_number.h"
#include "runner/compare/compare.h"
#include "runner/run/run_status.h"

static const json_t *section(const json_t *config, const char *name) {
    return json_object_get(config, name);
}

/* Whether a run says anything about a loss. A run that is not over would shorten the comparison to
 * its few steps; one that was never evaluated, such as a measurement of speed, would end it. A loss
 * that is not finite ends a run: it diverged. */
static bool is_evidence(const struct run_view *view) {
    const char *error = json_text(json_object_get(view->run, "error"), "code", "");
    bool failed = !strcmp(json_text(view->run, "status", ""), "failed");
    bool over = run_may_go_on(view->run, NULL) != OK;
    bool evaluated = json_is_number(json_object_get(view->summary, "eval_loss_final"));
    return (over && evaluated) || (failed && !strcmp(error, "ERR_NUMERIC"));
}

/* Whether the initial weights were given. Training them further says little of random ones. */
static bool has_init(const json_t *config) { return json_is_object(section(config, "init")); }

static const char *precision_of(const json_t *config) {
    return json_text(section(config, "attention"), "precision", "bf16");
}

bool evidence_is_of_attention(const json_t *config) {
    return strcmp(precision_of(config), "fp8") == 0;
}

/* Notes that a run is left out, and why. Lack of memory is no fault of the run. */
static enum status leave_out(struct evidence *out, const struct err *why, struct err *e) {
    bool failed = false;
    if (why->code != ERR_MEMORY) json_append(out->unreadable, json_from_text(why->text), &failed);
    return why->code == ERR_MEMORY || failed ? FAIL(e, ERR_MEMORY, "reading runs") : OK;
}

/* Adds the run at `path` if it trained this model, from random weights unless the script has given
 * ones, with attention of a precision that is compared, and counts. */
static enum status admit(const char *path, const json_t *config, const char **paths,
                         struct evidence *out, struct err *e) {
    struct run_view view;
    struct err why;
    if (run_view_load(path, RUN_VIEW_INPUTS, &view, &why) != OK) return leave_out(out, &why, e);
    if (is_evidence(&view) && (has_init(config) || !has_init(view.resolved)) &&
        json_equal(section(view.resolved, "model"), section(config, "model")) &&
        (evidence_is_of_attention(config) || !evidence_is_of_attention(view.resolved)))
        paths[out->runs++] = path;
    run_view_free(&view);
    return OK;
}

/* ---- verdicts ------------------------------------------------------------------------------- */

/* A group's first run; NULL: no such group. */
static const struct run_view *first_of_group(const struct comparison *c, const json_t *number) {
    const json_t *groups = json_object_get(json_object_get(c->report, "statistics"), "groups");
    const json_t *group = json_array_get(groups, (size_t)json_integer_value(number));
    const json_t *first = json_array_get(json_object_get(group, "runs"), 0);
    int64_t run = json_integer_value(first);
    return first && run >= 0 && run < c->count ? &c->run[run] : NULL;
}

/* Its configuration. Borrowed. */
static json_t *config_of_group(const struct comparison *c, const json_t *number) {
    const struct run_view *run = first_of_group(c, number);
    return run ? run->resolved : NULL;
}

/* The hash of its initial weights; NULL: random ones, or not recorded. */
static json_t *weights_of_group(const struct comparison *c, const json_t *number) {
    const struct run_view *run = first_of_group(c, number);
    return run ? json_object_get(json_object_get(run->run, "inputs"), "weights") : NULL;
}

/* A row of "losses" with configuration and weights of its group, and the name of its baseline. */
static void add_row(const struct comparison *c, const json_t *family, const json_t *row,
                    json_t *out, bool *failed) {
    static const char *const KEYS[] = { "verdict", "seeds", "relative", "high", "why" };
    json_t *config = config_of_group(c, json_object_get(row, "group")), *found = json_object();
    const json_t *baseline = config_of_group(c, json_object_get(family, "baseline"));
    bool by_attention = json_is_string(json_object_get(row, "factor"));
    char name[80];
    snprintf(name, sizeof name, "%.40s%s", json_text(section(baseline, "recipe"), "kind", "?"),
             by_attention ? " with attention in BF16" : "");
    json_put(found, "config", json_incref(config), failed);
    json_t *weights = weights_of_group(c, json_object_get(row, "group"));
    if (weights) json_put(found, "weights", json_incref(weights), failed);
    json_put(found, "baseline", json_string(name), failed);
    json_put(found, "tokens", json_incref(json_object_get(family, "tokens")), failed);
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        json_put(found, KEYS[i], json_incref(json_object_get(row, KEYS[i])), failed);
    json_append(out, found, failed);
}

static enum status add_verdicts(const struct comparison *c, json_t *out, struct err *e) {
    const json_t *losses = json_object_get(json_object_get(c->report, "statistics"), "losses");
    const json_t *family, *row;
    size_t i, k;
    bool failed = false;
    json_array_foreach(losses, i, family)
        json_array_foreach(json_object_get(family, "rows"), k, row)
            add_row(c, family, row, out, &failed);
    return failed ? FAIL(e, ERR_MEMORY, "verdicts on losses") : OK;
}

/* ---- the runs ------------------------------------------------------------------------------- */

/* Leaves out the runs of which a byte is damaged behind their inputs. */
static enum status drop_damaged(const char **paths, struct evidence *out, struct err *e) {
    int64_t count = out->runs;
    out->runs = 0;
    for (int64_t i = 0; i < count; i++) {
        struct run_view view;
        struct err why;
        if (run_view_load(paths[i], RUN_VIEW_FULL, &view, &why) != OK) {
            TRY(leave_out(out, &why, e));
            continue;
        }
        run_view_free(&view);
        paths[out->runs++] = paths[i];
    }
    return OK;
}

/* One damaged run must not hide what the others say. Runs that cannot be compared give no evidence,
 * and a sentence. */
static enum status compare(const char **paths, const json_t *config, struct evidence *out,
                           struct err *e) {
    bool by_attention = evidence_is_of_attention(config);
    const struct compare_options options = {
        .lean = true, .factor = by_attention ? "attention.precision=bf16" : NULL
    };
    struct comparison c = { 0 };
    struct err why;
    int64_t all = out->runs;
    if (all < 2) return OK;
    enum status found = compare_runs(paths, all, &options, &c, &why), st = OK;
    if (found != OK) TRY(drop_damaged(paths, out, e));
    if (found != OK && out->runs >= 2 && out->runs < all)
        found = compare_runs(paths, out->runs, &options, &c, &why);
    if (found == OK) st = add_verdicts(&c, out->rows, e);
    else if (out->runs >= 2) snprintf(out->problem, sizeof out->problem, "%.240s", why.text);
    compare_free(&c);
    return st;
}

enum status evidence_gather(const char *runs_dir, const json_t *config, struct evidence *out,
                            struct err *e) {
    struct tree runs = { 0 };
    *out = (struct evidence){ .rows = json_array(), .unreadable = json_array() };
    enum status st = out->rows && out->unreadable ? run_list(runs_dir, &runs, e)
                                                  : FAIL(e, ERR_MEMORY, "verdicts on losses");
    const char **paths = st == OK ? calloc((size_t)runs.count + 1, sizeof *paths) : NULL;
    if (st == OK && !paths) st = FAIL(e, ERR_MEMORY, "%lld paths", (long long)runs.count);
    for (int64_t i = 0; st == OK && i < runs.count; i++)
        st = admit(runs.file[i].path, config, paths, out, e);
    if (st == OK) st = compare(paths, config, out, e);
    free(paths);
    tree_free(&runs);
    if (st != OK) evidence_free(out);
    return st;
}

void evidence_free(struct evidence *x) {
    json_decref(x->rows);
    json_decref(x->unreadable);
    *x = (struct evidence){ .rows = NULL };
}

static enum loss_finding finding_of(const char *verdict) {
    if (!verdict) return EVIDENCE_NONE;
    return !strcmp(verdict, "holds")           ? EVIDENCE_HOLDS
           : !strcmp(verdict, "does not hold") ? EVIDENCE_FAILS
           : !strcmp(verdict, "undecided")     ? EVIDENCE_UNDECIDED
                                               : EVIDENCE_NONE;
}

/* Whether both are equal, or absent. */
static bool same(const json_t *a, const json_t *b) { return a && b ? json_equal(a, b) : !a && !b; }

/* What of "train" can change a loss, apart from the seed. NULL: no memory, or no such table. */
static json_t *training_of(const json_t *config) {
    static const char *const OTHERS[] = { "seed", "time_limit_s", "audit" };
    bool failed = false;
    json_t *train = json_copied(section(config, "train"), &failed);
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        (void)json_object_del(train, OTHERS[i]);
    return json_whole(train, failed);
}

/* `init` without the path. NULL: no memory, or no such table. */
static json_t *use_of_weights(const json_t *config) {
    bool failed = false;
    json_t *init = json_copied(section(config, "init"), &failed);
    (void)json_object_del(init, "from");
    return json_whole(init, failed);
}

/* Whether both begin with the same weights, and use them alike. Content decides, as for `compare`;
 * where it is not known, a path does. Hashes NULL or "": not known. */
static bool same_start(const json_t *a, const char *hash_a, const json_t *b, const char *hash_b) {
    bool known = has_init(a) && has_init(b) && hash_a && *hash_a && *hash_b;
    if (!known) return same(section(a, "init"), section(b, "init"));
    json_t *x = use_of_weights(a), *y = use_of_weights(b);
    bool equal = same(x, y) && !strcmp(hash_a, hash_b);
    json_decref(x);
    json_decref(y);
    return equal;
}

static bool same_training(const json_t *a, const json_t *b) {
    json_t *x = training_of(a), *y = training_of(b);
    bool equal = same(x, y);
    json_decref(x);
    json_decref(y);
    return equal;
}

/* Whether a row says something about the configuration. A recipe that fails with attention in BF16
 * also fails with FP8 attention; that it holds says nothing about FP8 attention. */
static bool is_about(const json_t *of, const json_t *config, enum loss_finding finding) {
    return same(section(of, "recipe"), section(config, "recipe")) &&
           (!strcmp(precision_of(of), precision_of(config)) || finding == EVIDENCE_FAILS);
}

static struct loss_evidence read_row(const json_t *row, const json_t *config,
                                     const char *weights, enum loss_finding finding) {
    const json_t *of = json_object_get(row, "config");
    struct loss_evidence out = {
        .finding = finding, .seeds = json_integer_value(json_object_get(row, "seeds")),
        .relative = json_double(json_object_get(row, "relative")),
        .high = json_double(json_object_get(row, "high")),
        .tokens = json_double(json_object_get(row, "tokens")),
        .other_data = !same(section(of, "data"), section(config, "data")),
        .other_training = !same_training(of, config) ||
                          !same_start(of, json_text(row, "weights", NULL), config, weights),
    };
    snprintf(out.baseline, sizeof out.baseline, "%s", json_text(row, "baseline", ""));
    snprintf(out.why, sizeof out.why, "%s", json_text(row, "why", ""));
    return out;
}

bool evidence_has_weights(const struct evidence *x) {
    size_t i;
    const json_t *row;
    json_array_foreach(x->rows, i, row)
        if (json_object_get(row, "weights")) return true;
    return false;
}

void evidence_of(const struct evidence *x, const json_t *config, struct loss_evidence *out) {
    /* The worst one first: one that failed, then one that could not decide. */
    static const int RANK[] = { [EVIDENCE_NONE] = 0, [EVIDENCE_HOLDS] = 1,
                                [EVIDENCE_UNDECIDED] = 2, [EVIDENCE_FAILS] = 3 };
    const double none = (double)NAN;
    const json_t *row;
    int best = -1;
    size_t i;
    *out = (struct loss_evidence){ .relative = none, .high = none, .tokens = none };
    json_array_foreach(x->rows, i, row) {
        enum loss_finding finding = finding_of(json_text(row, "verdict", NULL));
        if (!is_about(json_object_get(row, "config"), config, finding)) continue;
        struct loss_evidence found = read_row(row, config, x->weights, finding);
        int rank = 4 * RANK[finding] + 2 * !found.other_data + !found.other_training;
        if (rank <= best) continue;
        best = rank;
        *out = found;
    }
}

const char *evidence_name(enum loss_finding finding) {
    static const char *const NAMES[] = { "not judged", "undecided", "holds", "does not hold" };
    return NAMES[finding];
}
